"""The second thread of a build: what it was given runs once, in order, and only when it is told to start."""

import threading

import pytest

from headrace.building.lane import Lane


def test_calls_run_in_order_on_one_other_thread() -> None:
    """Every call runs exactly once, in the order given, however they are grouped into starts."""
    ran: list[tuple[int, int]] = []
    with Lane() as lane:
        for number in range(200):
            lane.call(lambda number=number: ran.append((number, threading.get_ident())))
            if number % 7 == 3:
                lane.start()
        lane.drain()
    assert [number for number, _ in ran] == list(range(200))
    assert len({thread for _, thread in ran} | {threading.get_ident()}) == 2


def test_nothing_runs_before_it_is_started() -> None:
    """A call waits for a start, and a start waits for no call."""
    ran = threading.Event()
    with Lane() as lane:
        lane.call(ran.set)
        assert not ran.wait(0.05)
        lane.start()
        assert ran.wait(10)


def test_few_calls_are_held() -> None:
    """Who gives calls for ever without a start does not hold all their arguments."""
    ran = threading.Event()
    with Lane() as lane:
        lane.call(ran.set)
        for _ in range(1000):
            lane.call(int)
        assert ran.wait(10)
        lane.drain()


def test_an_exception_reaches_the_owner_and_ends_the_rest_of_its_start() -> None:
    """An exception of a call is raised by `drain`; what was given with it, after it, does not run."""
    ran: list[int] = []
    with Lane() as lane:
        lane.call(ran.append, 1)
        lane.call(divmod, 1, 0)
        lane.call(ran.append, 2)
        with pytest.raises(ZeroDivisionError):
            lane.drain()
    assert ran == [1]
