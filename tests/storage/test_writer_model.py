"""The HDF5 shard against a model: any sequence of calls, the same file however it is batched."""

import hashlib
import shutil
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.storage.compression import filters_of
from headrace.storage.hdf5_writer import HDF5ShardWriter

BOUNDARY = 3

DOCUMENTS = st.lists(
    st.tuples(st.lists(st.integers(0, 999), max_size=9), st.booleans()).filter(lambda pair: pair[0] or pair[1]),
    max_size=25,
)
"""Each document's ids, and whether a boundary follows; none is without any token."""


def write(path, documents, chunk_size, cuts, **options):
    """Write the documents, those between two cuts in one call, single ones through `add_document`."""
    with HDF5ShardWriter(path, chunk_size, vocab_size=1000, boundary_token_id=BOUNDARY, **options) as writer:
        for start, stop in pairwise([0, *sorted(cuts), len(documents)]):
            if stop - start == 1:
                ids, boundary = documents[start]
                writer.add_document(ids)
                if boundary:
                    writer.add_boundary()
            else:
                whole = [ids + [BOUNDARY] * boundary for ids, boundary in documents[start:stop]]
                tokens = np.array([token for document in whole for token in document], dtype=np.int64)
                writer.add_documents(tokens, np.cumsum([len(document) for document in whole]))
    return writer.result("s")


def cuts_of(documents):
    """Places between documents at which a call may end."""
    return st.lists(st.integers(0, len(documents)), max_size=8)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@settings(max_examples=40, deadline=None)
@given(
    documents=DOCUMENTS,
    chunk_size=st.integers(1, 12),
    flush_chunks=st.integers(1, 4),
    level=st.integers(1, 9),
    data=st.data(),
)
def test_file_is_the_model_however_batched(compression, documents, chunk_size, flush_chunks, level, data):
    """Tokens, document ends, checksums, hashes and counts are the model's; another batching gives the same bytes."""
    if compression == "zstd":
        pytest.importorskip("hdf5plugin")
    if compression != "none":
        compression = f"{compression}:{level}"
    options = {"compression": compression, "flush_chunks": flush_chunks}
    whole = [ids + [BOUNDARY] * boundary for ids, boundary in documents]
    tokens = np.array([token for document in whole for token in document], dtype="<u2")
    ends = np.cumsum([len(document) for document in whole], dtype="<u8")
    chunks = [tokens[at : at + chunk_size] for at in range(0, len(tokens), chunk_size)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        entry = write(path, documents, chunk_size, range(len(documents)), **options)
        with h5py.File(path, "r") as file:
            assert file["tokens"][:].tolist() == tokens.tolist()
            assert file["tokens"].dtype == tokens.dtype
            assert file["tokens"].chunks == (chunk_size,)
            assert file["documents/end"][:].tolist() == ends.tolist()
            assert file["chunks/crc32"][:].tolist() == [zlib.crc32(chunk.tobytes()) for chunk in chunks]
            attributes = dict(file["tokens"].attrs)
            assert filters_of(file["tokens"]) == compression
            assert all(filters_of(file[name]) == "none" for name in ("documents/end", "chunks/crc32"))
        assert entry.token_count == attributes["token_count"] == len(tokens)
        assert entry.document_count == attributes["document_count"] == len(documents)
        assert entry.sha256 == attributes["sha256"].decode() == hashlib.sha256(tokens.tobytes()).hexdigest()
        ends_sha256 = hashlib.sha256(ends.tobytes()).hexdigest()
        assert entry.documents_sha256 == attributes["documents_sha256"].decode() == ends_sha256

        other = Path(folder) / "b.h5"
        again = write(other, documents, chunk_size, data.draw(cuts_of(documents)), **options)
        assert again.sha256 == entry.sha256
        assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("documents", [[([7] * 4, False)], [([7] * 3, True)], [([7] * 3, True), ([], True)]])
def test_a_document_that_ends_with_a_chunk(tmp_path, documents):
    """Where a chunk fills up before the end of its document is known, the bytes are the same as where it is known."""
    one, many = tmp_path / "one.h5", tmp_path / "many.h5"
    documents += [([1], True)] * 20
    write(one, documents, 4, range(len(documents)))
    write(many, documents, 4, [])
    assert one.read_bytes() == many.read_bytes()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("flush_chunks", [1, 3])
def test_readers_see_whole_flushes(tmp_path, compression, flush_chunks):
    """While it grows, a reader finds so many whole chunks at once, each value final, with the documents that end before."""
    path, many = tmp_path / "a.h5", 4 * flush_chunks
    with HDF5ShardWriter(path, 4, vocab_size=999, compression=compression, flush_chunks=flush_chunks) as writer:
        for number in range(60):
            writer.add_document([number] * 2)
            writer.add_boundary()
            # A copy, for within one process HDF5 would show what it holds back.
            with h5py.File(shutil.copy(path, tmp_path / "copy.h5"), "r", swmr=True) as file:
                tokens = file["tokens"]
                assert len(tokens) == tokens.attrs["token_count"] == (3 * number + 3) // many * many
                assert tokens[:].tolist() == [at // 3 if at % 3 < 2 else 0 for at in range(len(tokens))]
                assert len(file["documents/end"]) == max(len(tokens) - 1, 0) // 3
                assert len(file["chunks/crc32"]) == len(tokens) // 4


def test_tokens_of_any_integer_type_give_the_same_file(tmp_path):
    """Lists and arrays of every integer type, byte order and stride are the same ids."""
    ids = [1, 2, 99, 0]
    forms = [ids, tuple(ids), np.array(ids, ">i4"), np.array(ids, np.uint64), np.array(ids, np.int8)]
    forms.append(np.repeat(np.array(ids, np.uint16), 2)[::2])
    files = []
    for number, form in enumerate(forms):
        path = tmp_path / f"{number}.h5"
        with HDF5ShardWriter(path, 3, vocab_size=100) as writer:
            writer.add_document(form)
        files.append(path.read_bytes())
    assert len(set(files)) == 1


def test_the_callers_buffers_may_be_reused(tmp_path):
    """What is overwritten after the call, while its documents wait for their chunk, does not change the file."""
    tokens, ends = np.array([1, 2, 3], np.uint16), np.array([1, 3], np.uint64)
    origins = {
        "rows": np.array([4, 5], np.uint64),
        "offsets": np.array([6, 7], np.uint64),
        "files": np.array([0, 1], np.uint32),
    }
    with HDF5ShardWriter(tmp_path / "a.h5", 64, vocab_size=100, source_files=["x", "y"]) as writer:
        writer.add_documents(tokens, ends, **origins)
        for array in (tokens, ends, *origins.values()):
            array[:] = 0
    with h5py.File(tmp_path / "a.h5", "r") as file:
        assert file["tokens"][:].tolist() == [1, 2, 3]
        documents = {name: file["documents"][name][:].tolist() for name in ("end", *("source_row", "source_byte"))}
        assert documents == {"end": [1, 3], "source_row": [4, 5], "source_byte": [6, 7]}
        assert file["documents/source_file"][:].tolist() == [0, 1]
        assert file["documents/files"][:].tolist() == [b"x", b"y"]


def test_origins_are_written_with_their_documents_however_batched(tmp_path):
    """Rows, bytes and files of 40 documents lie beside their ends, in one call or in forty."""
    count, files = 40, ["a.jsonl", "sub/b.jsonl", "\udcff.jsonl"]
    tokens = np.arange(count * 3) % 7
    rows, offsets, which = np.arange(count), np.arange(count) * 1000 + (1 << 40), np.arange(count) % 3
    for name, step in (("one.h5", count), ("many.h5", 1)):
        with HDF5ShardWriter(tmp_path / name, 5, vocab_size=7, source_files=files) as writer:
            for at in range(0, count, step):
                cut = slice(at, at + step)
                writer.add_documents(
                    tokens[at * 3 : (at + step) * 3],
                    np.arange(1, step + 1) * 3,
                    rows=rows[cut],
                    offsets=offsets[cut],
                    files=which[cut],
                )
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "many.h5").read_bytes()
    with h5py.File(tmp_path / "one.h5", "r") as file:
        assert file["documents/source_row"][:].tolist() == rows.tolist()
        assert file["documents/source_byte"][:].tolist() == offsets.tolist()
        assert file["documents/source_file"][:].tolist() == which.tolist()
        assert file["documents/files"][2] == b"\xff.jsonl"


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(1, "<u2"), (65_535, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (1 << 32, "<u4")]
)
def test_dtype_follows_the_vocabulary(tmp_path, vocab_size, dtype):
    """uint16 up to 65,536 ids, uint32 beyond; the highest id is stored as it is."""
    with HDF5ShardWriter(tmp_path / "a.h5", 4, vocab_size=vocab_size) as writer:
        writer.add_document([vocab_size - 1, 0])
    with h5py.File(tmp_path / "a.h5", "r") as file:
        assert file["tokens"].dtype == np.dtype(dtype)
        assert file["tokens"][:].tolist() == [vocab_size - 1, 0]
        assert file["tokens"].attrs["vocab_size"] == vocab_size


def test_every_object_of_a_page_is_aligned(tmp_path):
    """Chunks begin at multiples of 4,096 bytes, so that they can be mapped and read past the page cache."""
    with HDF5ShardWriter(tmp_path / "a.h5", 4096, vocab_size=1000) as writer:
        for _ in range(50):
            writer.add_documents(np.ones(3000, int), np.arange(1, 3001))
    offsets = []
    with h5py.File(tmp_path / "a.h5", "r") as file:
        file["tokens"].id.chunk_iter(lambda chunk: offsets.append(chunk.byte_offset))
    assert len(offsets) == 37
    assert not any(offset % 4096 for offset in offsets)
