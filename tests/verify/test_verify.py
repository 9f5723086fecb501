"""Verification: every shard judged; damage found, and located to chunk, tokens and documents."""

import dataclasses
import shutil
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, FormatError, HeadraceError, MissingShardError
from headrace.events import ShardVerified
from headrace.manifest import read_manifest
from headrace.shard_paths import load_index
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing.corpora import random_documents, small_corpus
from headrace.verify import validate_corpus, verify_path, verify_shards

SHARDS = random_documents(21, (30, 0, 30, 30))
CHUNK = 64
FORMATS = Path(__file__).parent.parent / "data" / "formats"


@pytest.fixture
def folder(tmp_path):
    """A corpus of four shards, the second one empty."""
    return small_corpus(tmp_path / "corpus", SHARDS, chunk_size=CHUNK)


@pytest.fixture
def entries(folder):
    """Its entries."""
    return load_index(folder)


def flip(path, at, mask=1):
    """Change one bit of a file."""
    with Path(path).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def byte_of_token(entry, token):
    """Where a token of a shard lies in its file."""
    layout = inspect_shard(Path(entry.path))
    extent = int(np.searchsorted(layout.first, token, side="right")) - 1
    return int(layout.offset[extent]) + (token - int(layout.first[extent])) * layout.dtype.itemsize


def byte_of_row(path, name, row):
    """Where a row of another data set lies in its file."""
    with h5py.File(path, "r", locking=False) as file:
        dataset = file[name]
        return dataset.id.get_chunk_info(0).byte_offset + row * dataset.dtype.itemsize


def test_a_whole_corpus(folder, entries):
    """Nothing is found wrong, every byte of the tokens and the ends was read, and `validate_corpus` is empty."""
    reports = verify_shards(entries)
    assert [(report.shard_id, report.path, report.status, report.reason) for report in reports] == [
        (entry.shard_id, entry.path, "ok", "") for entry in entries
    ]
    for report, entry in zip(reports, entries, strict=True):
        assert report.bytes_read == 2 * entry.token_count + 8 * entry.document_count
        assert report.ok
    assert validate_corpus(entries) == validate_corpus(folder) == validate_corpus(str(folder / "shards.json")) == []
    assert headrace.open(folder, verify="full").verify() == reports


@pytest.mark.parametrize("token", [0, 63, 64, 200, -1])
def test_a_flipped_bit_of_a_token_is_located(folder, entries, token):
    """The report names the chunk, its tokens in the shard and in the corpus, and the documents that it touches."""
    entry = entries[2]
    token %= entry.token_count
    flip(entry.path, byte_of_token(entry, token))
    reports = verify_shards(entries)
    assert [report.status for report in reports] == ["ok", "ok", "corrupt", "ok"]
    (problem,) = reports[2].problems
    number = token // CHUNK
    start, stop = number * CHUNK, min((number + 1) * CHUNK, entry.token_count)
    assert problem.place == f"{entry.path}: chunk {number}"
    ends = np.cumsum([len(document) + 1 for document in SHARDS[2]])
    first, last = np.searchsorted(ends, [start, stop - 1], side="right")
    base = len(SHARDS[0])
    corpus = f"corpus [{entry.global_start + start}, {entry.global_start + stop})"
    documents = f"documents {base + first} to {base + last} of the corpus ({first} to {last} of the shard)"
    assert problem.reason == f"tokens [{start}, {stop}) of the shard ({corpus}), {documents}, are damaged"
    (alone,) = verify_shards(entries[2:3])
    assert f"documents {first} to {last} of the shard, are damaged" in alone.reason
    assert validate_corpus(entries) == [entry.shard_id]
    with pytest.raises(CorruptShardError, match=Path(entry.path).name):
        headrace.open(folder, verify="full")


def test_all_damaged_chunks_are_listed(entries):
    """Every run of damaged chunks is a problem of its own, in order."""
    entry = entries[0]
    for token in (10, 11, 100, 500):
        flip(entry.path, byte_of_token(entry, token))
    (report,) = verify_shards([entry])
    assert [problem.place.partition(": ")[2] for problem in report.problems] == ["chunks 0 to 1", "chunk 7"]
    assert report.reason.startswith("2 problems: tokens [0, 128)")


@pytest.mark.parametrize("row", [0, 7, 29])
def test_a_flipped_bit_of_a_document_end(folder, entries, row):
    """The document index has a hash of its own; its documents are not served, its tokens are."""
    flip(entries[3].path, byte_of_row(entries[3].path, "documents/end", row))
    (report,) = verify_shards(entries[3:])
    assert [problem.place for problem in report.problems] == [f"{entries[3].path}: /documents/end"]
    corpus = headrace.open(folder)
    assert corpus.documents[0].tolist() == [*SHARDS[0][0].tolist(), 0]
    for ask in (lambda: corpus.documents[-1], lambda: corpus.locate(len(corpus) - 1)):
        with pytest.raises(CorruptShardError, match=Path(entries[3].path).name):
            ask()
    assert len(corpus[:]) == len(corpus)


def test_a_flipped_bit_of_a_checksum(entries):
    """A damaged checksum of whole tokens is told from damaged tokens; the quick check cannot."""
    flip(entries[0].path, byte_of_row(entries[0].path, "chunks/crc32", 1))
    (report,) = verify_shards(entries[:1])
    assert [problem.place for problem in report.problems] == [f"{entries[0].path}: /chunks/crc32"]
    assert "chunks 1 are damaged; the tokens are whole" in report.problems[0].reason
    flip(entries[0].path, byte_of_row(entries[0].path, "chunks/crc32", 0))
    (report,) = verify_shards(entries[:1], quick=True)
    assert report.status == "corrupt"


@pytest.mark.parametrize("name", ["token_count", "document_count", "sha256", "documents_sha256"])
def test_an_attribute_that_contradicts_the_index(entries, name):
    """Each attribute is compared with the index, by name, quickly too."""
    with h5py.File(entries[0].path, "r+") as file:
        attributes = file["tokens"].attrs
        value = attributes[name]
        attributes.modify(name, np.bytes_(b"ab" * 32) if isinstance(value, bytes) else value - np.uint64(1))
    for quick in (False, True):
        (report,) = verify_shards(entries[:1], quick=quick)
        assert report.status == "corrupt"
        assert f"{entries[0].path}: attribute {name}" in [problem.place for problem in report.problems]


def test_equal_attributes_do_not_hide_other_tokens(entries):
    """Tokens replaced together with their checksums: the hash over all of them tells."""
    with h5py.File(entries[0].path, "r+") as file:
        file["tokens"][5] = 256
        file["chunks/crc32"][0] = zlib.crc32(file["tokens"][:CHUNK].tobytes())
    (report,) = verify_shards(entries[:1])
    assert [problem.place for problem in report.problems] == [f"{entries[0].path}: /tokens"]
    assert verify_shards(entries[:1], quick=True)[0].ok


def test_quick_looks_at_the_ends_only(entries):
    """The quick check finds what is wrong with the first and last chunk, reads no other, and says so by its bytes."""
    entry = entries[0]
    flip(entry.path, byte_of_token(entry, 3 * CHUNK))
    (quick,) = verify_shards([entry], quick=True)
    last = entry.token_count - (entry.token_count - 1) // CHUNK * CHUNK
    assert quick.ok
    assert quick.bytes_read == 2 * (CHUNK + last) + 8 * entry.document_count
    flip(entry.path, byte_of_token(entry, entry.token_count - 1))
    (quick,) = verify_shards([entry], quick=True)
    assert [problem.place.rpartition(" ")[2] for problem in quick.problems] == [str((entry.token_count - 1) // CHUNK)]


def test_every_kind_of_verdict_in_one_run(folder, entries):
    """A missing, a damaged, an unreadable and a whole shard are each judged, whatever the others are."""
    Path(entries[0].path).unlink()
    flip(entries[2].path, byte_of_token(entries[2], 5))
    unreadable = Path(entries[3].path)
    unreadable.unlink()
    unreadable.mkdir()
    events = []
    reports = verify_path(folder, on_event=events.append)
    assert [report.status for report in reports] == ["missing", "ok", "corrupt", "unreadable"]
    assert [(event.shard_id, event.status) for event in events if isinstance(event, ShardVerified)] == [
        (report.shard_id, report.status) for report in reports
    ]
    assert all(report.reason for report in reports if not report.ok)
    assert validate_corpus(entries) == [entries[number].shard_id for number in (0, 2, 3)]


@pytest.mark.parametrize("name", ["h5_cut", "h5_killed_swmr_writer", "h5_token_count_past_end"])
def test_broken_files_are_corrupt(tmp_path, name):
    """A cut file, one whose writer was killed, and one that promises more than it holds."""
    broken = Path(__file__).parent.parent / "data" / "formats_broken" / name / "tokens.h5"
    entry = load_index(small_corpus(tmp_path, [[[1]]]))[0]
    (report,) = verify_shards([dataclasses.replace(entry, path=str(broken))])
    assert report.status == ("growing" if "killed" in name else "corrupt")
    assert str(broken) in report.reason
    with pytest.raises((CorruptShardError, FormatError), match=r"tokens\.h5"):
        headrace.open(broken)


@pytest.mark.parametrize("content", [b"", b"not HDF5", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + bytes(5000)])
def test_what_is_no_shard_at_all(entries, content):
    """Other bytes under the shard's name are corrupt, and the reason names the file."""
    Path(entries[0].path).write_bytes(content)
    (report,) = verify_shards(entries[:1])
    assert report.status == "corrupt"
    assert entries[0].path in report.reason


def test_an_executor_of_the_caller(entries):
    """The work may run in processes of the caller's."""
    with ProcessPoolExecutor(1) as executor:
        assert verify_shards(entries, executor=executor) == verify_shards(entries, workers=1)


def test_version_1(tmp_path):
    """The lesson's corpus is verified by its one hash, gzip and all; a flipped token is found."""
    reports = verify_path(FORMATS / "lesson_hdf5")
    assert [report.status for report in reports] == ["ok"] * 4
    assert verify_path(FORMATS / "lesson_hdf5", quick=True) == reports
    folder = tmp_path / "lesson_hdf5"
    shutil.copytree(FORMATS / "lesson_hdf5", folder)
    entries = load_index(folder)
    flip(entries[2].path, byte_of_token(entries[2], 3000))
    (report,) = verify_shards(entries[2:3])
    assert [problem.place for problem in report.problems] == [f"{entries[2].path}: /tokens"]


def test_a_single_file():
    """A file with a hash is compared with it."""
    (report,) = verify_path(FORMATS / "h5_gzip_shuffle" / "tokens.h5")
    assert report.status == "ok"
    assert report.bytes_read == 2 * 5691


def test_a_file_without_a_hash_is_not_called_whole(tmp_path):
    """Where nothing is stored to compare with, the verdict is `unreadable`: it could not be judged."""
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = np.arange(10)
    (report,) = headrace.open(tmp_path / "tokens.h5").verify()
    assert report.status == "unreadable"
    assert "no sha256" in report.reason
    with pytest.raises(HeadraceError, match="no sha256"):
        verify_path(tmp_path / "tokens.h5")


def test_no_index(tmp_path):
    """There is nothing to judge without an index."""
    with pytest.raises(MissingShardError):
        verify_path(tmp_path)


def test_the_index_itself_is_what_is_compared(folder):
    """An index edited after the fact fails every comparison with the files."""
    manifest = read_manifest(folder)
    shards = [dataclasses.replace(shard, sha256="ab" * 32) for shard in manifest.shards]
    (folder / "shards.json").write_bytes(dataclasses.replace(manifest, shards=tuple(shards)).to_json())
    assert [report.status for report in verify_path(folder)] == ["corrupt"] * 4
    with pytest.raises(CorruptShardError, match="sha256"):
        headrace.open(folder)
