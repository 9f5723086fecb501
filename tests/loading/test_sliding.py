"""The plain loader: random windows as pairs, from a store, for ever."""

from itertools import islice

import numpy as np
import pytest

from headrace.loading import SlidingWindowDataloader
from headrace.testing.memory import MemoryCorpus

LINE = np.arange(3000, dtype=np.uint16)


def loader(seed: int = 5, line: np.ndarray = LINE) -> SlidingWindowDataloader:
    """Return a loader of 4 rows of 8 tokens."""
    return SlidingWindowDataloader(MemoryCorpus(line), 8, 4, seed)


def as_bytes(pairs: list) -> list[bytes]:
    """Return the pairs as bytes, to compare."""
    return [inputs.tobytes() + targets.tobytes() for inputs, targets in pairs]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_pairs_are_windows_moved_by_one(dtype):
    """Inputs are consecutive tokens of the line in the file's dtype, targets the same moved on by one."""
    for inputs, targets in loader(line=LINE.astype(dtype)).take(50):
        assert inputs.shape == targets.shape == (4, 8)
        assert inputs.dtype == targets.dtype == dtype
        np.testing.assert_array_equal(inputs, inputs[:, :1] + np.arange(8))
        np.testing.assert_array_equal(targets, inputs + 1)


def test_two_loaders_made_alike_serve_the_same():
    """The seed decides everything; another seed serves something else."""
    assert as_bytes(loader().take(10)) == as_bytes(loader().take(10))
    assert as_bytes(loader().take(10)) != as_bytes(loader(6).take(10))


def test_takes_and_iterations_go_on():
    """The position is the loader's: takes and iterations in any mixture serve one sequence, without gap or repeat."""
    whole = as_bytes(loader().take(2100))
    assert len(set(whole)) == len(whole)
    parts = loader()
    taken = parts.take(3) + parts.take(0) + list(islice(parts, 1030)) + parts.take(7) + list(islice(iter(parts), 1060))
    assert as_bytes(taken) == whole


def test_the_whole_line_is_served():
    """Every token is an input sometime but the last, and a target but the first."""
    pairs = loader().take(3000)
    assert set(np.unique([inputs for inputs, _ in pairs]).tolist()) == set(range(2999))
    assert set(np.unique([targets for _, targets in pairs]).tolist()) == set(range(1, 3000))


def test_a_store_of_one_window_serves_it():
    """window_size + 1 tokens are enough: every row is the one window."""
    ((inputs, targets),) = loader(line=LINE[:9]).take(1)
    np.testing.assert_array_equal(inputs, [LINE[:8]] * 4)
    np.testing.assert_array_equal(targets, [LINE[1:9]] * 4)


@pytest.mark.parametrize("tokens", [0, 1, 8])
def test_a_store_too_small_is_refused(tokens):
    """Fewer tokens than a window and its targets: a ValueError that names both numbers, when the loader is made."""
    with pytest.raises(ValueError, match=f"holds {tokens} tokens; a window of 8 .* reads 9"):
        loader(line=LINE[:tokens])


@pytest.mark.parametrize(("window", "batch", "seed"), [(0, 4, 0), (8, 0, 0), (8, 4, -1), (8.0, 4, 0), (8, True, 0)])
def test_numbers_out_of_range_are_refused(window, batch, seed):
    """Sizes must be positive integers, seeds not negative."""
    with pytest.raises(ValueError, match="must be"):
        SlidingWindowDataloader(MemoryCorpus(LINE), window, batch, seed)


@pytest.mark.parametrize("wrong", [None, "corpus", np.arange(100)])
def test_what_is_no_store_is_refused(wrong):
    """By what it is, before anything is asked of it."""
    with pytest.raises(TypeError, match=f"found {type(wrong).__name__}, which has no total_tokens, get_slice"):
        SlidingWindowDataloader(wrong, 8, 4)


@pytest.mark.parametrize("n", [-1, 2.0, None])
def test_take_refuses_what_is_no_count(n):
    """A count of batches is an integer from 0."""
    with pytest.raises(ValueError, match="n must be"):
        loader().take(n)
