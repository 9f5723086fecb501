"""`/documents/text_hash`: written, read, followed, and covered by the digests that are verified."""

import hashlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import WriterError
from headrace.storage.growing import GrowingShard
from headrace.storage.hdf5_reader import read_documents
from headrace.storage.hdf5_writer import HDF5ShardWriter

TEXTS = [b"", b"mill", b"\xff not looked at", *(b"document %d" % n for n in range(97))]


def hashes_of(texts: list[bytes]) -> np.ndarray:
    """The model: the first half of each SHA-256."""
    return np.array([list(hashlib.sha256(text).digest()[:16]) for text in texts], np.uint8).reshape(-1, 16)


def write(path: Path, parts: list[int], *, ids: bool) -> HDF5ShardWriter:
    """A shard of the texts, given in parts of some sizes."""
    with HDF5ShardWriter(path, 7, source_files=["a"], document_ids=ids, text_hashes=True) as writer:
        at = 0
        for size in [*parts, len(TEXTS)]:
            some = TEXTS[at : at + size]
            rows = np.arange(at, at + len(some), dtype=np.uint64)
            writer.add_documents(
                np.arange(2 * len(some)),
                np.arange(2, 2 * len(some) + 2, 2),
                rows=rows,
                offsets=rows,
                files=rows * np.uint64(0),
                ids=[b"x"] * len(some) if ids else (),
                hashes=hashes_of(some),
            )
            at += len(some)
    return writer


@pytest.mark.parametrize("ids", [False, True])
@given(parts=st.lists(st.integers(0, 40), max_size=8))
def test_what_is_written_is_read(tmp_path_factory, parts, ids):
    """Each document has the hash that it was given, however they came; the digest is the one that the format says."""
    path = tmp_path_factory.mktemp("shard") / "000000-0000-0000.h5"
    entry = write(path, parts, ids=ids).result("x")
    columns = read_documents(path, len(TEXTS))
    np.testing.assert_array_equal(columns.text_hashes, hashes_of(TEXTS))
    assert columns.sources_sha256 == entry.sources_sha256
    with h5py.File(path) as file:
        stored = file["documents/text_hash"]
        assert (stored.shape, stored.dtype, stored.maxshape) == ((len(TEXTS),), np.dtype("V16"), (None,))
        assert stored[:].tobytes() == b"".join(hashlib.sha256(text).digest()[:16] for text in TEXTS)
        names = ["source_row", "source_byte", "source_file", *(["id_end", "id"] if ids else []), "text_hash"]
        digests = [hashlib.sha256(file["documents"][name][:].tobytes()).digest() for name in names]
    assert hashlib.sha256(b"".join(digests) + b"a\0").hexdigest() == entry.sources_sha256


def test_a_growing_shard(tmp_path):
    """Between two chunks a reader has the hashes of the documents that it is shown."""
    path = tmp_path / "000000-0000-0000.h5"
    with HDF5ShardWriter(path, 10, source_files=["a"], text_hashes=True) as writer:
        reader = GrowingShard(path, path.stem)
        for number in range(40):
            one = np.array([number], np.uint64)
            writer.add_documents(
                np.arange(3),
                [3],
                rows=one,
                offsets=one,
                files=one * np.uint64(0),
                hashes=hashes_of(TEXTS[number : number + 1]),
            )
            reader.refresh()
            found = reader.documents(reader.document_count).text_hashes
            np.testing.assert_array_equal(found, hashes_of(TEXTS[: reader.document_count]))
        assert reader.document_count > 30


def test_a_writer_that_is_misused(tmp_path):
    """Hashes of other documents than there are, or where none are expected, are refused, and so is a writer without sources."""
    one = np.zeros(1, np.uint64)
    origin = {"rows": one, "offsets": one, "files": one}
    with pytest.raises(WriterError, match="asks for source_files"):
        HDF5ShardWriter(tmp_path / "a.h5", 4, text_hashes=True)
    with HDF5ShardWriter(tmp_path / "a.h5", 4, source_files=["a"], text_hashes=True) as writer:
        for hashes in (hashes_of([]), hashes_of([b"a", b"b"]), hashes_of([b"a"])[:, :8], hashes_of([b"a"]) * 1.0):
            with pytest.raises(WriterError, match="takes a hash for each of 1 texts"):
                writer.add_documents([1], [1], hashes=hashes, **origin)
    writer = HDF5ShardWriter(tmp_path / "b.h5", 4, source_files=["a"])
    with writer, pytest.raises(WriterError, match="takes no hashes"):
        writer.add_documents([1], [1], hashes=hashes_of([b"a"]), **origin)
