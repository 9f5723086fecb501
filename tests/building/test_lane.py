"""The second thread of a job: order, errors and bounds."""

import threading
import time

import pytest

from headrace.building.lane import Lane


def test_calls_run_in_order_on_one_other_thread():
    """All calls run, in the order given, on one thread that is not the caller's."""
    ran: list[tuple[int, int]] = []
    with Lane() as lane:
        for number in range(100):
            lane.call(lambda number: ran.append((number, threading.get_ident())), number)
        lane.drain()
        assert [number for number, _ in ran] == list(range(100))
    assert len({thread for _, thread in ran} - {threading.get_ident()}) == 1


def test_an_error_is_not_lost():
    """An error of a call is raised by the draining at the latest, and by a later call if there are many."""

    def fail() -> None:
        raise ZeroDivisionError

    with Lane() as lane:
        lane.call(fail)
        with pytest.raises(ZeroDivisionError):
            lane.drain()

    def start_often(lane: Lane) -> None:
        for _ in range(5):
            lane.start()

    with Lane(2) as lane:
        lane.call(fail)
        with pytest.raises(ZeroDivisionError):
            start_often(lane)


def test_without_a_thread_calls_run_where_they_are_given():
    """At once, on the caller's thread, and an error is raised there."""
    ran: list[int] = []
    with Lane(own_thread=False) as lane:
        lane.call(lambda: ran.append(threading.get_ident()))
        assert ran == [threading.get_ident()]
        with pytest.raises(ZeroDivisionError):
            lane.call(divmod, 1, 0)
        lane.start()
        lane.drain()


def test_calls_are_held_until_the_start(until):
    """A call waits for the owner's word, but not for ever: many together are started by themselves."""
    ran: list[int] = []
    with Lane() as lane:
        lane.call(ran.append, 0)
        time.sleep(0.02)
        assert ran == []
        lane.start()
        until(lambda: ran)
        for number in range(1, 33):
            lane.call(ran.append, number)
        until(lambda: len(ran) == 33)
    assert ran == list(range(33))


def test_the_caller_waits_for_a_slow_thread():
    """No more than a few calls wait, so that what they hold is bounded."""
    gate, waiting = threading.Event(), []
    with Lane(3) as lane:

        def offer() -> None:
            for number in range(50):
                lane.call(gate.wait)
                lane.start()
                waiting.append(number)

        caller = threading.Thread(target=offer)
        caller.start()
        time.sleep(0.05)
        assert len(waiting) <= 5
        gate.set()
        caller.join()
        lane.drain()
    assert len(waiting) == 50


def test_leaving_by_an_error_drops_what_waits(until):
    """What has not begun when the job fails never begins; what runs is finished before anything is cleaned up."""
    ran: list[str] = []
    started, lane = threading.Event(), Lane()

    def first() -> None:
        started.set()
        until(lambda: any(call.cancelled() for call in list(lane._waiting)))  # by who leaves
        ran.append("first")

    def job() -> None:
        with lane:
            lane.call(first)
            lane.start()
            lane.call(ran.append, "second")
            lane.start()
            started.wait()
            raise KeyError

    with pytest.raises(KeyError):
        job()
    assert ran == ["first"]
