"""Batches made ahead on a thread are those made when asked for, and the thread goes when nobody asks any more."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus

LINE = np.random.default_rng(0).integers(0, 2**16, 3000, dtype=np.uint16)


def loader(order="random", **options) -> Loader:
    """A loader over LINE."""
    return Loader(
        MemoryCorpus(LINE), Plan(order=order, token_count=LINE.size, window=16, batch_size=6, seed=3), **options
    )


@pytest.fixture(scope="module", autouse=True)
def others() -> None:
    """Count no threads that other tests have left."""
    OTHERS.update(threading.enumerate())


OTHERS = set[threading.Thread]()


def threads() -> list[str]:
    """Names of the threads that make batches."""
    mine = set(threading.enumerate()) - OTHERS
    return [thread.name for thread in mine if thread.name.startswith("headrace-prefetch")]


@given(
    order=st.sampled_from(["random", "blocks", "sequential"]),
    prefetch=st.sampled_from([1, 2, 8, 100]),
    first=st.integers(0, 40),
)
def test_the_same_batches_and_the_same_state(order, prefetch, first):
    """Whatever the depth: the batches of a loader without it, and after each the state counts what was handed out."""
    plain, ahead = loader(order), loader(order, prefetch=prefetch)
    first = min(first, (plain.plan.steps or 100) - 3)
    plain.step = ahead.step = first
    iterator = iter(ahead)
    for batch, made, _ in zip(plain, iterator, range(2), strict=False):
        assert made.step == batch.step
        np.testing.assert_array_equal(made.input_ids, batch.input_ids)
        assert ahead.step == plain.step
        assert ahead.state_dict() == plain.state_dict()
    del iterator
    assert not threads()


def test_a_finite_plan_ends_and_begins_anew():
    """Every step once, then the end; the next iteration begins at 0, and no thread is left in between."""
    ahead = loader("sequential", prefetch=3)
    for _ in range(2):
        assert [batch.step for batch in ahead] == list(range(len(ahead)))
        assert not threads()


class Watched(MemoryCorpus):
    """Counts how often windows are read, and refuses to read after a while."""

    reads = 0
    limit = 1 << 60

    def windows(self, starts, length):
        """As the corpus' own, each read counted."""
        block, corpus = super().windows(starts, length), self

        class Block:
            cold_share, will_need = block.cold_share, block.will_need

            def gather_into(self, row, out):
                corpus.reads += 1
                if corpus.reads > corpus.limit:
                    raise OSError(5, "the disk is gone")
                block.gather_into(row, out)

        return Block()


@pytest.mark.parametrize("prefetch", [1, 3])
def test_no_more_is_made_than_was_said(until, prefetch):
    """A trainer that does not come back finds `prefetch` batches made, and the one that it was given."""
    corpus = Watched(LINE)
    ahead = Loader(corpus, loader().plan, prefetch=prefetch)
    iterator = iter(ahead)
    for taken in range(1, 4):
        next(iterator)
        until(lambda taken=taken: corpus.reads >= taken + prefetch)
        time.sleep(0.02)
        assert corpus.reads == taken + prefetch


def test_an_error_comes_where_its_batch_would():
    """What was made before is handed out; then the error, and the thread is gone; the state says what was taken."""
    corpus = Watched(LINE)
    corpus.limit = 5
    ahead = Loader(corpus, loader().plan, prefetch=2)
    steps = []
    with pytest.raises(OSError, match="the disk is gone"):
        steps += (batch.step for batch in ahead)
    assert ahead.step == 5
    assert not threads()
    corpus.limit = 1 << 60
    assert next(iter(ahead)).step == 5


def test_moving_while_iterating():
    """A step that is set, or a state that is loaded, is where the same iteration goes on, prefetched batches forgotten."""
    ahead = loader(prefetch=4)
    seen = []
    for batch in ahead:
        seen.append(batch.step)
        if len(seen) == 3:
            ahead.step = 100
        if len(seen) == 5:
            ahead.load_state_dict(loader().state_dict())
        if len(seen) == 8:
            break
    assert seen == [0, 1, 2, 100, 101, 0, 1, 2]
    assert not threads()


@pytest.mark.parametrize("end", ["at its end", "by Ctrl-C"])
def test_a_program_ends(end):
    """With an iterator still there, and its thread at work."""
    code = (
        "import numpy as np, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # shells let what runs in the background ignore it
        "from headrace.loading import Loader\n"
        "from headrace.sampling import Plan\n"
        "from headrace.testing.memory import MemoryCorpus\n"
        "line = np.zeros(3000, np.uint16)\n"
        "plan = Plan(order='random', token_count=3000, window=16, batch_size=6)\n"
        "iterator = iter(Loader(MemoryCorpus(line), plan, prefetch=4))\n"
        "next(iterator)\n"
        "print('ready', flush=True)\n" + ("while True: next(iterator)\n" if end == "by Ctrl-C" else "")
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        if end == "by Ctrl-C":
            process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    if end == "by Ctrl-C":
        assert process.returncode == -signal.SIGINT
        assert err.strip().endswith("KeyboardInterrupt")
    else:
        assert (process.returncode, err) == (0, "")


def test_an_iterator_that_a_fork_has_copied_goes_on():
    """In the child, whose thread is gone, as in the parent: neither waits for ever, nor misses a batch."""
    code = (
        "import os, sys, numpy as np\n"
        "from headrace.loading import Loader\n"
        "from headrace.sampling import Plan\n"
        "from headrace.testing.memory import MemoryCorpus\n"
        "line = np.arange(3000, dtype=np.uint16)\n"
        "plan = Plan(order='blocks', token_count=3000, window=16, batch_size=6)\n"
        "loader = Loader(MemoryCorpus(line), plan, prefetch=4)\n"
        "iterator = iter(loader)\n"
        "next(iterator)\n"
        "child = os.fork()\n"
        "for step in range(1, 9):\n"
        "    batch = next(iterator)\n"
        "    assert batch.step == step == loader.step - 1\n"
        "    assert (batch.input_ids == loader.batch(step).input_ids).all()\n"
        "if child:\n"
        "    sys.exit(os.waitpid(child, 0)[1])\n"
    )
    words = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", code]  # of forking beside a thread
    ended = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=500, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@given(order=st.sampled_from(["random", "sequential"]), step=st.integers(0, 20), inside=st.booleans())
def test_the_callers_buffer(order, step, inside):
    """The batch lies in the buffer that was given, and is what it is without one; one that does not fit is refused."""
    plan = Plan(
        order=order,
        token_count=LINE.size,
        window=16,
        batch_size=6,
        seed=3,
        targets="inside" if inside else "next",
    )
    served = Loader(MemoryCorpus(LINE), plan)
    out = np.full((6, plan.read_length), -1)
    batch = served.batch(step, out=out)
    assert np.shares_memory(batch.input_ids, out)
    np.testing.assert_array_equal(batch.input_ids, served.batch(step).input_ids)
    np.testing.assert_array_equal(out[:, :16], batch.input_ids)
    for wrong in (out[:, :-1], out.astype(np.int32), np.asfortranarray(out), out[:5]):
        with pytest.raises(ValueError, match="out: wanted int64"):
            served.batch(step, out=wrong)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: wanted an array that can be written to"):
        served.batch(step, out=out)
    for strange in (out.tolist(), memoryview(out), 0):
        with pytest.raises(TypeError, match="out: wanted an array of numpy, found"):
            served.batch(step, out=strange)


def test_statistics():
    """Batches and tokens are counted exactly, both ways of asking; waiting is a part of the time."""
    served = loader(prefetch=2)
    nothing = served.stats()
    assert (nothing.batches, nothing.tokens, nothing.tokens_per_second, nothing.wait_share) == (0, 0, 0.0, 0.0)
    for _ in zip(range(5), served, strict=False):
        time.sleep(0.002)
    served.batch(77)
    stats = served.stats()
    assert stats.batches in {6, 7}  # zip takes one more than it gives
    assert stats.tokens == stats.batches * 6 * 16
    assert 0 < stats.wait_seconds < stats.seconds
    assert stats.seconds >= 0.01
    assert 0 < stats.wait_share < 1
    assert stats.tokens_per_second == stats.tokens / stats.seconds
    assert stats.cold_share == 0.0
