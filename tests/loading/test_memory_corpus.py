"""The in-memory twin keeps the promises of a stored corpus."""

import numpy as np
import pytest

from headrace.errors import OutOfRangeError
from headrace.testing.memory import MemoryCorpus


def test_serves_slices_and_windows_of_the_given_tokens():
    """Counts, slices and gathered windows are those of the array, in its dtype or int64."""
    corpus = MemoryCorpus(range(100))
    assert corpus.token_count == corpus.total_tokens == len(corpus) == 100
    assert corpus.dtype == np.uint16
    assert corpus.get_slice(3, 6).tolist() == [3, 4, 5]
    block = corpus.windows(np.array([[0, 97], [5, 5]]), 3)
    for dtype in (np.int64, np.uint16):
        out = np.zeros((2, 3), dtype)
        block.gather_into(0, out)
        assert out.tolist() == [[0, 1, 2], [97, 98, 99]]
        block.gather_into(1, out)
        assert out.tolist() == [[5, 6, 7], [5, 6, 7]]


def test_slices_are_copies_and_the_line_is_not_writable():
    """What is served belongs to the caller; the corpus cannot be changed through it, nor through the array given."""
    given = np.arange(10, dtype=np.uint32)
    corpus = MemoryCorpus(given)
    corpus.get_slice(0, 5)[:] = 9
    given[:] = 7
    assert corpus.dtype == np.uint32
    assert corpus.get_slice(0, 10).tolist() == list(range(10))
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens[0] = 1


def test_fingerprint_is_of_dtype_and_tokens():
    """Equal content has equal fingerprints; another token or width has another."""
    prints = {MemoryCorpus(t, d).fingerprint for t in ([1, 2], [2, 1]) for d in (np.uint16, np.uint32)}
    assert len(prints) == 4
    assert MemoryCorpus([1, 2]).fingerprint in prints


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 11), (11, 11)])
def test_slices_outside_are_refused(start, stop):
    """A range outside the line is an error, as in a stored corpus."""
    with pytest.raises(OutOfRangeError, match=r"within \[0, 10\]"):
        MemoryCorpus(range(10)).get_slice(start, stop)


@pytest.mark.parametrize("start", [-1, 8])
def test_windows_outside_are_refused(start):
    """A window that passes either end is an error where it is located, before anything is gathered."""
    with pytest.raises(OutOfRangeError, match="must lie within"):
        MemoryCorpus(range(10)).windows(np.array([[0, start]]), 3)


@pytest.mark.parametrize(("tokens", "dtype"), [([70_000], None), ([-1], None), ([[1]], None), ([2**32], np.uint32)])
def test_ids_that_do_not_fit_are_refused(tokens, dtype):
    """Nothing is wrapped into the stored width."""
    with pytest.raises(ValueError, match="wanted token ids"):
        MemoryCorpus(tokens, dtype)
