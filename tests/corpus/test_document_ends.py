"""All documents' ends as one array: right, made once, and never in the way of a corpus that cannot be cached."""

import pickle
import resource

import numpy as np
import pytest

import headrace
from headrace.errors import NoDocumentsError
from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.storage import document_ends
from headrace.testing.corpora import line_of, random_documents, small_corpus


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Use a cache folder of the test's own, and files for any number of documents."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(document_ends, "HELD", 0)
    return tmp_path / "cache" / "headrace" / "documents"


def corpus_and_ends(folder):
    """Return a small corpus, with an empty shard, and the ends that its documents must have."""
    shards = random_documents(4, [7, 0, 30, 1])
    _, lengths = line_of(shards)
    return headrace.open(small_corpus(folder, shards)), np.cumsum(lengths)


def test_ends_are_those_of_the_documents(tmp_path):
    """The array has each document's end in the corpus, over all shards, and may not be written to."""
    corpus, expected = corpus_and_ends(tmp_path / "corpus")
    ends = corpus.documents.ends
    assert ends.dtype == np.int64
    np.testing.assert_array_equal(ends, expected)
    np.testing.assert_array_equal(ends, [corpus.documents.bounds(i)[1] for i in range(len(corpus.documents))])
    with pytest.raises(ValueError, match="read-only"):
        ends[0] = 1
    assert corpus.documents.ends is ends


def test_they_are_made_once_and_mapped(tmp_path, cache):
    """The second opening reads no document index; a file that is damaged or cut is made anew; nothing else is left."""
    corpus, expected = corpus_and_ends(tmp_path / "corpus")
    np.testing.assert_array_equal(corpus.documents.ends, expected)
    (file,) = cache.iterdir()
    assert file.stat().st_size == 72 + 8 * len(expected) + 4
    before = file.stat().st_ino
    again = headrace.open(tmp_path / "corpus")
    again.documents._read = None
    np.testing.assert_array_equal(again.documents.ends, expected)
    assert file.stat().st_ino == before
    whole = file.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, 72, 72 + 8 * 9 + 1, len(whole) - 1)]
    for damaged in (whole[:-8], *flipped, b""):
        file.write_bytes(damaged)
        np.testing.assert_array_equal(headrace.open(tmp_path / "corpus").documents.ends, expected)
        assert list(cache.iterdir()) == [file]


def test_another_corpus_has_its_own(tmp_path, cache):
    """Two corpora of equally many documents do not share a file; a copy of one elsewhere shares its."""
    one, expected = corpus_and_ends(tmp_path / "one")
    other = headrace.open(small_corpus(tmp_path / "other", random_documents(5, [7, 0, 30, 1])))
    assert not np.array_equal(one.documents.ends, other.documents.ends)
    np.testing.assert_array_equal(corpus_and_ends(tmp_path / "copy")[0].documents.ends, expected)
    assert len(list(cache.iterdir())) == 2


def test_without_room_for_any_file_they_are_held(tmp_path, cache):
    """A disk that is full, here a limit of the size of files, is no reason to fail, and nothing is left of the tries."""
    corpus, expected = corpus_and_ends(tmp_path / "corpus")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80, limits[1]))
    try:
        ends = corpus.documents.ends
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    np.testing.assert_array_equal(ends, expected)
    with pytest.raises(ValueError, match="read-only"):
        ends[0] = 1
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("home", ["file", "/proc/nowhere"])
def test_without_a_cache_they_are_mapped_all_the_same(tmp_path, cache, monkeypatch, home):
    """Where the cache folder cannot be written to, each process has a file of its own, which leaves nothing behind."""
    del cache
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    corpus, expected = corpus_and_ends(tmp_path / "corpus")
    np.testing.assert_array_equal(corpus.documents.ends, expected)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "file"}


def test_a_live_corpus_is_not_cached(tmp_path, cache):
    """What may still grow has ends, too, but none that are kept."""
    folder, expected = tmp_path / "corpus", corpus_and_ends(tmp_path / "corpus")[1]
    live = headrace.open(folder, live=True)
    np.testing.assert_array_equal(live.documents.ends, expected)
    assert live.finished
    assert len(list(cache.iterdir())) == 1  # it is finished: its content is known


def test_a_corpus_without_documents_says_so(tmp_path, data):
    """A file without a document index has no ends, and a loader that needs them is refused."""
    del tmp_path
    corpus = headrace.open(data / "formats" / "h5_contiguous" / "tokens.h5")
    with pytest.raises(NoDocumentsError, match="stores no document index"):
        _ = corpus.documents.ends
    plan = Plan(order="random", token_count=len(corpus), window=8, batch_size=2)
    with pytest.raises(NoDocumentsError, match="stores no document index"):
        Loader(corpus, plan, boundary_loss="target")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_loader_marks_a_stored_corpus(tmp_path, compression):
    """Through files as through memory: documents, places and counting of every row; rows of documents as documents."""
    shards = random_documents(8, [9, 4, 20])
    corpus = headrace.open(small_corpus(tmp_path / "corpus", shards, compression=compression))
    plan = Plan(
        order="documents", token_count=len(corpus), window=24, batch_size=11, documents=len(corpus.documents), seed=5
    )
    loader = Loader(corpus, plan, document_ids=True)
    copy = pickle.loads(pickle.dumps(loader))  # noqa: S301  # our own bytes
    seen = set()
    for step in range(3):
        batch = loader.batch(step)
        np.testing.assert_array_equal(copy.batch(step).input_ids, batch.input_ids)
        for row, number in enumerate(batch.document_ids[:, 0].tolist()):
            document = corpus.documents[number].tolist()
            assert batch.starts[row] == corpus.documents.bounds(number)[0]
            length = min(len(document), 24)
            assert batch.input_ids[row, :length].tolist() == document[:length]
            assert set(batch.input_ids[row, length:].tolist()) <= {0}
            assert batch.loss_mask[row].sum() == min(len(document), 25) - 1
            seen.add(number)
    assert seen == set(range(33))
    windows = Plan(order="random", token_count=len(corpus), window=24, batch_size=11)
    batch = Loader(corpus, windows, document_ids=True, position_ids=True).batch(3)
    for row, start in enumerate(batch.starts.tolist()):
        for column in range(24):
            found = corpus.locate(start + column)
            assert batch.document_ids[row, column] == found.document
            assert batch.position_ids[row, column] == start + column - max(found.start, start)
