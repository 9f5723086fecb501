"""The stored loss mask: written with the tokens, served like them, compared byte by byte."""

import dataclasses
import hashlib
import pickle
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import CorruptShardError, NoLossMaskError, OutOfRangeError, WriterError
from headrace.manifest import read_manifest
from headrace.storage.compression import filters_of
from headrace.storage.growing import GrowingShard
from headrace.storage.hdf5_corpus import MASK_SIDECAR
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import random_documents, small_corpus
from headrace.verify import verify_corpus

COMPRESSIONS = ["none", "gzip", "zstd"]


def masked(folder, counts, *, seed=0, **options):
    """A corpus of random documents with a random mask; returns folder, tokens and mask as they must be served."""
    documents = random_documents(seed, counts)
    random = np.random.default_rng(seed + 1)
    masks = [[random.integers(0, 2, len(document) + 1) for document in shard] for shard in documents]
    small_corpus(folder, documents, masks=masks, **options)
    flat = [mask for shard in masks for mask in shard]
    return folder, np.concatenate([*flat, np.empty(0, np.int64)]).astype(np.uint8)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), max_size=20),
    chunk_size=st.integers(1, 9),
    flush_chunks=st.integers(1, 3),
    data=st.data(),
)
def test_the_mask_in_the_file_is_the_model_however_batched(compression, lengths, chunk_size, flush_chunks, data):
    """Values, chunks, filter, checksums and hash are the model's; other calls give the same bytes."""
    if compression == "zstd":
        pytest.importorskip("hdf5plugin")
    count = sum(lengths)
    tokens = np.arange(count, dtype="<u2")
    ends = np.cumsum(lengths, dtype=np.int64)
    mask = np.array(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)), np.uint8)
    options = {"compression": compression, "flush_chunks": flush_chunks, "loss_mask": True}
    cuts = sorted(data.draw(st.sets(st.integers(0, len(lengths)), max_size=4)) | {0, len(lengths)})
    with tempfile.TemporaryDirectory() as folder:
        contents = []
        for name, edges in (("a.h5", [0, len(lengths)]), ("b.h5", cuts)):
            path = Path(folder) / name
            with HDF5ShardWriter(path, chunk_size, **options) as writer:
                for start, stop in pairwise(edges):
                    base = int(ends[start - 1]) if start else 0
                    part = slice(base, int(ends[stop - 1]) if stop else 0)
                    writer.add_documents(tokens[part], ends[start:stop] - base, loss_mask=mask[part])
            contents.append(path.read_bytes())
        assert contents[0] == contents[1]
        with h5py.File(path, "r") as file:
            stored = file["loss_mask"]
            assert (stored.dtype, stored.chunks) == (np.uint8, file["tokens"].chunks)
            assert stored[:].tolist() == mask.tolist()
            assert filters_of(stored) == filters_of(file["tokens"])
            pieces = [mask[at : at + chunk_size].tobytes() for at in range(0, count, chunk_size)]
            assert file["chunks/loss_mask_crc32"][:].tolist() == [zlib.crc32(piece) for piece in pieces]
            assert file["tokens"].attrs["loss_mask_sha256"].decode() == hashlib.sha256(mask.tobytes()).hexdigest()
        assert writer.result("s").loss_mask_sha256 == hashlib.sha256(mask.tobytes()).hexdigest()


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_slices_and_windows_are_those_of_the_mask(tmp_path, compression, io):
    """Any slice and any window of any corpus position is the model's, over shards, chunks and empty shards."""
    if compression == "zstd":
        pytest.importorskip("hdf5plugin")
    folder, mask = masked(tmp_path / "c", [3, 0, 5, 1], compression=compression, chunk_size=7)
    corpus = headrace.open(folder, io=io)
    assert corpus.has_loss_mask
    random = np.random.default_rng(7)
    for _ in range(40):
        start, stop = sorted(random.integers(0, len(mask) + 1, 2).tolist())
        found = corpus.loss_mask(start, stop)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, mask[start:stop])
    starts = random.integers(0, len(mask) - 12, (4, 6))
    block, out = corpus.loss_mask_windows(starts, 12), np.empty((6, 12), np.uint8)
    for row in range(4):
        block.gather_into(row, out)
        np.testing.assert_array_equal(out, [mask[start : start + 12] for start in starts[row]])
    with pytest.raises(OutOfRangeError):
        corpus.loss_mask(0, len(mask) + 1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(corpus)).loss_mask(3, 30), mask[3:30])  # noqa: S301  # our own


def test_the_mask_of_one_file_and_of_entries(tmp_path):
    """A shard opened alone serves its part of the mask, and a selection of entries theirs."""
    folder, mask = masked(tmp_path / "c", [3, 5])
    entries = headrace.load_index(folder)
    with headrace.open(entries[1].path) as corpus:
        np.testing.assert_array_equal(corpus.loss_mask(0, len(corpus)), mask[entries[1].global_start :])
    with headrace.MmapTokenStore(entries[::-1]) as store:
        size = entries[1].token_count
        np.testing.assert_array_equal(store.loss_mask(0, size), mask[-size:])


def test_opening_reads_no_shard_and_a_lost_sidecar_is_made_up_for(tmp_path, monkeypatch):
    """With its sidecar the mask is served without HDF5; without, its place is derived, and kept for the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, mask = masked(tmp_path / "c", [3, 5])
    with monkeypatch.context() as patch:
        patch.setattr("headrace.storage.hdf5_inspect.inspect_shard", None)
        np.testing.assert_array_equal(headrace.open(folder).loss_mask(0, len(mask)), mask)
    (folder / MASK_SIDECAR).unlink()
    np.testing.assert_array_equal(headrace.open(folder).loss_mask(0, len(mask)), mask)
    with monkeypatch.context() as patch:
        patch.setattr("headrace.storage.hdf5_inspect.inspect_shard", None)
        np.testing.assert_array_equal(headrace.open(folder).loss_mask(0, len(mask)), mask)


def test_a_corpus_without_a_mask_says_so(tmp_path):
    """Nothing of it changes: no row, no data set, no sidecar; asking for the mask is an error of its own."""
    folder = small_corpus(tmp_path / "c", random_documents(0, [3]))
    corpus = headrace.open(folder)
    assert not corpus.has_loss_mask
    with pytest.raises(NoLossMaskError, match="all of its tokens count"):
        corpus.loss_mask(0, 1)
    assert b"loss_mask" not in (folder / "shards.json").read_bytes()
    assert not (folder / MASK_SIDECAR).exists()
    with h5py.File(corpus.entries[0].path) as file:
        assert "loss_mask" not in file


def test_the_fingerprint_is_of_the_mask_too(tmp_path):
    """Two corpora that differ in one value of the mask have two fingerprints, and neither is that without a mask."""
    documents = [[[1, 2, 3]]]
    prints = {
        headrace.open(small_corpus(tmp_path / name, documents, masks=masks)).fingerprint.hex
        for name, masks in (("a", [[[0, 0, 1, 1]]]), ("b", [[[0, 1, 1, 1]]]), ("c", None))
    }
    assert len(prints) == 3


def test_shards_with_a_mask_and_without_are_no_corpus(tmp_path):
    """A manifest that has lost the hash of one shard's mask is refused, naming it."""
    folder, _ = masked(tmp_path / "c", [3, 5])
    manifest = read_manifest(folder)
    shards = (manifest.shards[0], dataclasses.replace(manifest.shards[1], loss_mask_sha256=""))
    (folder / "shards.json").write_bytes(dataclasses.replace(manifest, shards=shards).to_json())
    with pytest.raises(headrace.errors.ManifestError, match=r"shards\[1\].loss_mask_sha256"):
        headrace.open(folder)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_one_flipped_byte_of_the_mask_is_found_and_named(tmp_path, compression):
    """Verification names chunk, tokens and documents; what the flip lies in decides nothing but where."""
    if compression == "zstd":
        pytest.importorskip("hdf5plugin")
    folder, _ = masked(tmp_path / "c", [9, 12], chunk_size=32, compression=compression)
    assert all(report.ok for report in verify_corpus(folder).reports)
    entry = headrace.load_index(folder)[1]
    path = Path(entry.path)
    with h5py.File(path) as file:
        info = file["loss_mask"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[info.byte_offset + info.size // 2] ^= 1
    path.write_bytes(data)
    (bad,) = [report for report in verify_corpus(folder).reports if not report.ok]
    assert bad.shard_id == entry.shard_id
    (problem,) = bad.problems
    assert problem.place.endswith("/loss_mask chunk 2")
    assert "tokens [64, 96) of the shard" in problem.reason
    assert "documents " in problem.reason


def test_a_damaged_end_chunk_is_refused_at_the_first_touch(tmp_path):
    """As of tokens: the first and the last chunk of a mask are compared before any of it is served."""
    folder, _ = masked(tmp_path / "c", [9], chunk_size=32)
    path = Path(headrace.load_index(folder)[0].path)
    with h5py.File(path) as file:
        offset = file["loss_mask"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with headrace.open(folder) as corpus:
        corpus.get_slice(0, 10)
        with pytest.raises(CorruptShardError, match="checksum"):
            corpus.loss_mask(50, 60)


@pytest.mark.parametrize("name", ["extents.bin", "loss_mask.bin"])
def test_a_sidecar_that_is_wrong_is_named(tmp_path, name):
    """Verification names the one of the two sidecars that is damaged."""
    folder, _ = masked(tmp_path / "c", [3])
    sidecar = folder / ".headrace" / name
    sidecar.write_bytes(sidecar.read_bytes()[:-1] + b"?")
    assert [report.shard_id for report in verify_corpus(folder).others] == [f".headrace/{name}"]


def test_a_growing_mask_is_read_up_to_its_whole_chunks(tmp_path):
    """A follower sees the mask of what it sees of the tokens; a bare SWMR reader never sees more counted than is there."""
    path, chunk = tmp_path / "a.h5", 8
    tokens, mask = np.arange(1, 61, dtype=np.int64), (np.arange(60) % 3 == 0).astype(np.uint8)
    with HDF5ShardWriter(path, chunk, loss_mask=True) as writer:
        follower = GrowingShard(path, "s")
        for start in range(0, 60, 5):
            writer.add_documents(tokens[start : start + 5], np.array([5]), loss_mask=mask[start : start + 5])
            with h5py.File(path, "r", swmr=True, locking=False) as file:
                count = int(file["tokens"].attrs["token_count"])
                assert len(file["loss_mask"]) >= count
                assert file["loss_mask"][:count].tolist() == mask[:count].tolist()
            follower.refresh()
            seen = follower.token_count
            assert follower.loss_mask.read(0, seen).tolist() == mask[:seen].tolist()
            assert follower.read(0, seen).tolist() == tokens[:seen].tolist()
    assert seen > chunk


def test_wrong_use_of_a_writer_with_a_mask(tmp_path):
    """A mask where none is kept, none where one is, and one of other shape or values: each is an error that says so."""
    tokens, ends = np.arange(4), np.array([4])
    with HDF5ShardWriter(tmp_path / "a.h5", 8) as writer, pytest.raises(WriterError, match="made without"):
        writer.add_documents(tokens, ends, loss_mask=np.zeros(4, np.uint8))
    for mask, reason in (
        (None, "takes a loss mask with each document"),
        (np.zeros(3, np.uint8), "4 integers or booleans"),
        (np.zeros(4), "not float64"),
        (np.array([0, 1, 2, 0]), "0 and 1 alone, found 2"),
        (np.array([0, 1, -1, 0]), "0 and 1 alone"),
    ):
        with (
            HDF5ShardWriter(tmp_path / "b.h5", 8, loss_mask=True) as writer,
            pytest.raises(WriterError, match=reason),
        ):
            writer.add_documents(tokens, ends, loss_mask=mask)
    with HDF5ShardWriter(tmp_path / "c.h5", 8, loss_mask=True) as writer, pytest.raises(WriterError, match="add_docum"):
        writer.add_document([1])
