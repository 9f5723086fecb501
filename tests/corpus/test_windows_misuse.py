"""Windows asked for in a way that would serve wrapped or misplaced tokens are refused."""

from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.testing.corpora import line_of, random_documents, small_corpus

SHARDS = random_documents(41, (20, 20))


@pytest.fixture(params=["mmap", "pread"])
def corpus(request, tmp_path):
    """A corpus of two shards, mapped or not."""
    return headrace.open(small_corpus(tmp_path, SHARDS), io=request.param)


@pytest.mark.parametrize(
    "out",
    [
        np.empty((4, 9), np.uint8),
        np.empty((4, 9), np.int16),
        np.empty((4, 9), np.int32),
        np.empty((4, 9), np.float32),
        np.empty((4, 8), np.int64),
        np.empty((3, 9), np.int64),
        np.empty(36, np.int64),
        np.empty((9, 4), np.int64).T,
        np.empty((4, 18), np.int64)[:, ::2],
        np.empty((4, 9), ">i8"),
    ],
)
def test_buffers_that_cannot_take_the_tokens(corpus, out):
    """A buffer of another shape, order or dtype is an error, and is not touched."""
    block = corpus.windows(np.array([[0, 5, 60, 61]]), 9)
    out.fill(7)
    with pytest.raises(ValueError, match="wanted"):
        block.gather_into(0, out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("starts", "length", "error"),
    [
        ([[0.0, 1.0]], 4, TypeError),
        ([[True]], 4, TypeError),
        ([0, 1], 4, ValueError),
        ([[[0]]], 4, ValueError),
        ([[0]], 0, ValueError),
        ([[0]], -1, ValueError),
        ([[0]], 1.0, TypeError),
    ],
)
def test_starts_that_are_no_places(corpus, starts, length, error):
    """Starts are integers of steps and rows; a window has at least one token."""
    with pytest.raises(error):
        corpus.windows(np.array(starts), length)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_starts_of_any_integer_type(corpus, dtype):
    """Narrow starts do not overflow on the way."""
    tokens, _ = line_of(SHARDS)
    starts = np.array([[0, 100, 127]], dtype)
    out = np.empty((3, 300), np.int64)
    corpus.windows(starts, np.int16(300)).gather_into(0, out)
    np.testing.assert_array_equal(out, tokens[starts[0].astype(int)[:, None] + np.arange(300)])


def test_no_windows_at_all(corpus):
    """Blocks without steps or without rows are possible, and do nothing."""
    assert corpus.windows(np.empty((0, 8), np.int64), 5) is not None
    block = corpus.windows(np.empty((3, 0), np.int64), 5)
    block.gather_into(2, np.empty((0, 5), np.int64))


def advised(corpus):
    """Whether the kernel was told to expect random reads, for each of the corpus' maps."""
    paths = {entry.path for entry in corpus.entries}
    found, inside = {}, ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if words and "-" in words[0] and not words[0].endswith(":"):
            inside = words[5].strip() if len(words) == 6 and words[5].strip() in paths else ""
        elif inside and words[0] == "VmFlags:":
            found[inside] = "rr" in line.split()
    return [found.get(entry.path) for entry in corpus.entries]


def test_only_scattered_windows_forgo_reading_ahead(tmp_path):
    """Maps are advised once windows are spread wide, those opened later too; windows one after another leave them be."""
    corpus = headrace.open(small_corpus(tmp_path, random_documents(43, (200, 200, 200))))
    out = np.empty((4, 10), np.int64)
    corpus.windows(np.arange(0, 40, 10)[None], 10).gather_into(0, out)
    assert advised(corpus) == [False, None, None]
    first = corpus.entries[1].global_start
    corpus.windows(np.array([[0, 100, 1000, first]]), 10).gather_into(0, out)
    assert advised(corpus) == [True, True, None]
    corpus[len(corpus) - 1]
    assert advised(corpus) == [True, True, True]


def test_slices_and_rows_after_scattered_reads(corpus):
    """Long reads are right also on files that were made ready for scattered ones."""
    tokens, _ = line_of(SHARDS)
    starts = np.array([[0, len(tokens) - 2]])
    corpus.windows(starts, 2).gather_into(0, np.empty((2, 2), np.int64))
    np.testing.assert_array_equal(corpus[:], tokens)


def test_long_reads_of_scattered_files(tmp_path):
    """Reads of several pages, of several pieces and of whole shards after scattered windows."""
    tokens = np.random.default_rng(1).integers(1, 50_257, 300_000)
    corpus = headrace.open(small_corpus(tmp_path, [[tokens], [tokens]], chunk_size=65_536, vocab_size=50_257))
    wanted = np.append(tokens, 0)
    corpus.windows(np.array([[0, 400_000]]), 10).gather_into(0, np.empty((2, 10), np.int64))
    np.testing.assert_array_equal(corpus[:], np.concatenate([wanted, wanted]))
    out = np.empty((2, 100_000), np.int64)
    corpus.windows(np.array([[250_000, 7]]), 100_000).gather_into(0, out)
    np.testing.assert_array_equal(out[1], wanted[7:100_007])
    np.testing.assert_array_equal(out[0], np.concatenate([wanted, wanted])[250_000:350_000])
