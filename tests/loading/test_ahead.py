"""Which windows are asked for ahead, and when: of cold blocks only, each once, no further ahead than was said."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.loading import Loader, ahead, rows
from headrace.loading.ahead import AHEAD_STEPS
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus

LINE = np.arange(5000, dtype=np.uint16)
BLOCK = 5


@dataclass
class Recorder:
    """A corpus that writes down which windows are asked for and read, by their starts."""

    cold: float = 1.0
    log: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    fingerprint: str = ""
    token_count: int = LINE.size

    def windows(self, starts, length):
        """Windows of the line."""
        block, log = MemoryCorpus(LINE).windows(starts, length), self.log
        cold = self.cold

        class Block:
            def cold_share(self):
                return cold

            def will_need(self, row):
                log.append(("ask", tuple(starts[row].tolist())))

            def gather_into(self, row, out):
                log.append(("read", tuple(starts[row].tolist())))
                block.gather_into(row, out)

        return Block()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of few steps, so that their borders are met."""
    monkeypatch.setattr(rows, "BLOCK_STEPS", BLOCK)


def plan(order="random", batch_size=4, **options) -> Plan:
    """A plan over LINE."""
    return Plan(order=order, token_count=LINE.size, window=20, batch_size=batch_size, seed=1, **options)


@given(order=st.sampled_from(["random", "blocks", "sequential"]), first=st.integers(0, 30), of=st.sampled_from([1, 2]))
def test_every_row_is_asked_for_once_before_it_is_read(order, first, of):
    """From the second row on; and nothing beyond the next few steps, or the plan's end."""
    corpus = Recorder()
    made = plan(order)
    served = Loader(corpus, made)
    steps = range(first, min(first + 25, made.step_limit))
    rows = [served.batch(step, micro=micro, of=of).starts for step in steps for micro in range(of)]
    wanted = [tuple(row.tolist()) for row in rows]
    asked: list[tuple[int, ...]] = []
    read = 0
    for kind, starts in corpus.log:
        if kind == "ask":
            asked.append(starts)
            assert len(asked) <= read + 1 + AHEAD_STEPS * of
        else:
            assert starts == wanted[read]
            read += 1
            if read > 1:
                assert starts == asked[read - 2]
    assert read == len(rows)
    beyond = [
        tuple(part.tolist())
        for step in range(steps.stop, min(steps.stop + AHEAD_STEPS + 1, made.step_limit))
        for part in made.starts(step).reshape(of, -1)
    ]
    assert asked == (wanted + beyond)[1 : len(asked) + 1]


@pytest.mark.parametrize("later", [3, 5])
def test_where_the_parts_of_a_step_change_with_its_size(later):
    """What comes behind the change cannot be cut as what is before it: it is not asked for ahead, and is no error."""
    corpus = Recorder()
    made = plan(batch_size=[(0, 4), (3, later), (8, 4)])
    served = Loader(corpus, made)
    for step in range(20):
        of = 2 if made.batch_size_at(step) == 4 else 1
        for micro in range(of):
            served.batch(step, micro=micro, of=of)
    reads = [starts for kind, starts in corpus.log if kind == "read"]
    assert sum(reads, ()) == tuple(np.concatenate([made.starts(step) for step in range(20)]).tolist())


def test_after_a_jump_it_begins_anew(monkeypatch):
    """At the row that is read; a jump back within what was asked for asks again."""
    monkeypatch.setattr(rows, "BLOCK_STEPS", 3 * BLOCK)
    corpus = Recorder()
    served = Loader(corpus, plan())
    for step in (0, 1, 100, 101, 3):
        served.batch(step)
    starts = [tuple(plan().starts(step).tolist()) for step in range(120)]
    asked = [starts.index(row) for kind, row in corpus.log if kind == "ask"]
    assert asked == [*range(1, 10), *range(100, 110), *range(3, 12)]


@pytest.mark.parametrize("cold", [0.0, 0.09])
def test_nothing_is_asked_for_what_is_in_memory(cold):
    """A few pages that are missing are cheaper to wait for."""
    corpus = Recorder(cold=cold)
    served = Loader(corpus, plan())
    for step in range(20):
        served.batch(step)
    assert {kind for kind, _ in corpus.log} == {"read"}
    assert served.stats().cold_share == cold


def test_of_long_windows_fewer_are_asked_for(monkeypatch):
    """As many bytes as were said at most: here of one step."""
    monkeypatch.setattr(ahead, "AHEAD_BYTES", 4 * 21 * 4)
    corpus = Recorder()
    served = Loader(corpus, plan())
    for step in range(6):
        served.batch(step)
    assert [kind for kind, _ in corpus.log] == ["read", "ask", "ask", "read", *["ask", "read"] * 4]
