"""Compressed shards are verified like others: damage is located, and what cannot be decoded hides nothing else."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError
from headrace.manifest import Manifest
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import random_documents
from headrace.verify import verify_path, verify_shards

CHUNK = 64
SHARDS = random_documents(51, (30, 30, 30))
COMPRESSIONS = ["gzip", "gzip:9", "zstd", "zstd:19"]


@pytest.fixture(params=COMPRESSIONS)
def folder(request, tmp_path) -> Path:
    """Three compressed shards of documents from one file."""
    if request.param.startswith("zstd") and importlib.util.find_spec("hdf5plugin") is None:
        pytest.skip("could not import hdf5plugin")
    entries, start, line = [], 0, 0
    for number, documents in enumerate(SHARDS):
        path = tmp_path / f"{number:06d}-0000-0000.h5"
        rows = np.arange(len(documents), dtype=np.uint64)
        with HDF5ShardWriter(
            path, CHUNK, vocab_size=257, source_files=["a.jsonl"], compression=request.param
        ) as writer:
            writer.add_documents(
                np.concatenate([np.append(document, 0) for document in documents]),
                np.cumsum([len(document) + 1 for document in documents]),
                rows=rows,
                offsets=rows * np.uint64(10),
                files=np.zeros(len(documents), np.uint32),
            )
        entries.append(replace(writer.result(path.stem), path=path.name, global_start=start, row_base=line))
        start, line = entries[-1].global_stop, line + len(documents)
    manifest = Manifest(chunk_size=CHUNK, shards=tuple(entries), dtype="uint16", vocab_size=257)
    (tmp_path / "shards.json").write_bytes(manifest.to_json())
    return tmp_path


def damage(path: Path, chunk: int, *, at: int, mask: int = 0x40) -> None:
    """Change a byte of a compressed chunk."""
    with h5py.File(path) as file:
        found = file["tokens"].id.get_chunk_info(chunk)
    data = bytearray(path.read_bytes())
    data[found.byte_offset + at % found.size] ^= mask
    path.write_bytes(data)


def test_a_whole_corpus(folder):
    """Every token is decoded and hashed; a quick look decodes the ends alone."""
    reports = verify_path(folder)
    assert [report.status for report in reports] == ["ok"] * 3
    for report, shard in zip(reports, SHARDS, strict=True):
        assert report.bytes_read == sum(2 * (len(document) + 1) + 8 for document in shard)
    assert all(
        quick.bytes_read < full.bytes_read for quick, full in zip(verify_path(folder, quick=True), reports, strict=True)
    )


@pytest.mark.parametrize("at", [0, 1, 7, -9, -1])
@pytest.mark.parametrize("chunk", [0, 5, -1])
def test_a_damaged_chunk_is_located(folder, at, chunk):
    """Whether it still decodes or not: chunk, tokens, documents and lines are named, of that chunk alone."""
    path = folder / "000001-0000-0000.h5"
    with headrace.open(folder) as corpus:
        entry = corpus.entries[1]
        chunk %= -(-entry.token_count // CHUNK)
        start = entry.global_start + chunk * CHUNK
        stop = min(start + CHUNK, entry.global_stop)
        first, last = corpus.locate(start), corpus.locate(stop - 1)
    damage(path, chunk, at=at)
    reports = verify_path(folder)
    assert [report.status for report in reports] == ["ok", "corrupt", "ok"]
    (problem,) = reports[1].problems
    assert problem.place == f"{path}: chunk {chunk}"
    assert f"(corpus [{start}, {stop}))" in problem.reason
    numbers = re.search(r"documents? (\d+)(?: to (\d+))? of the corpus", problem.reason).groups()
    assert (int(numbers[0]), int(numbers[1] or numbers[0])) == (first.document, last.document)
    assert f", from a.jsonl:{first.line}" in problem.reason
    assert re.search("are damaged$|cannot be decoded: .", problem.reason)
    quick = verify_path(folder, quick=True)[1]
    assert quick.ok is (0 < chunk < (entry.token_count - 1) // CHUNK)
    assert problem.place in {found.place for found in quick.problems} or quick.ok


def test_all_damaged_chunks_are_located(folder):
    """What cannot be decoded does not end the search: the chunks behind it are judged, and the other shards are."""
    path = folder / "000000-0000-0000.h5"
    for chunk in (1, 2, 6):
        damage(path, chunk, at=0)
    with h5py.File(path, "r+") as file:
        crcs = file["chunks/crc32"][:]
        crcs[4] ^= 1
        file["chunks/crc32"][:] = crcs
    reports = verify_path(folder)
    assert [report.status for report in reports] == ["corrupt", "ok", "ok"]
    places = [problem.place.removeprefix(f"{path}: ") for problem in reports[0].problems]
    assert places == ["chunks 1 to 2", "chunk 4", "chunk 6"]
    with headrace.open(folder, verify="off") as corpus, pytest.raises(CorruptShardError, match=path.name):
        corpus[:]


def test_any_byte_of_a_chunk(folder):
    """A changed byte of compressed tokens is found, but for what decodes to the same tokens: zstd has some such bits."""
    path = folder / "000002-0000-0000.h5"
    good = path.read_bytes()
    entry = headrace.load_index(folder)[2]
    with h5py.File(path) as file:
        size = file["tokens"].id.get_chunk_info(2).size
    with headrace.open(path) as corpus:
        tokens = corpus[:]
    found = 0
    places = range(0, size, 5)
    for at in places:
        damage(path, 2, at=at, mask=1 << at % 8)
        (report,) = verify_shards([entry])
        found += not report.ok
        if report.ok:
            with headrace.open(path, verify="off") as corpus:
                np.testing.assert_array_equal(corpus[:], tokens)
        else:
            assert [problem.place for problem in report.problems] == [f"{path}: chunk 2"], at
        path.write_bytes(good)
    assert found > 0.8 * len(places)
