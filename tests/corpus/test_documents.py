"""Documents: borders from the stored index, origins of each, and what happens where there is none."""

import json
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace import documents as documents_module
from headrace.errors import CorruptShardError, NoDocumentsError, OutOfRangeError
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import line_of, random_documents, small_corpus

LESSON = Path(__file__).parent.parent / "data" / "formats" / "lesson_hdf5"


def test_borders_are_never_found_by_scanning(tmp_path):
    """Texts that hold the boundary's id are whole documents; a shard's last document may lack a boundary."""
    with HDF5ShardWriter(tmp_path / "a.h5", 4, boundary_token_id=9) as writer:
        for ids, boundary in (([9, 9, 1], True), ([9], False), ([2, 9, 2], True), ([5, 5], False)):
            writer.add_document(ids)
            if boundary:
                writer.add_boundary()
    corpus = headrace.open(tmp_path / "a.h5")
    assert [document.tolist() for document in corpus.documents] == [[9, 9, 1, 9], [9], [2, 9, 2, 9], [5, 5]]
    assert corpus.documents.lengths(0).tolist() == [4, 1, 4, 2]


def test_origins(tmp_path):
    """Position to document to file, 1-based line and byte; the line counts from the shard's place in its file."""
    folder = small_corpus(tmp_path, [[[1]], [[1]]])
    path = folder / "000001-0000-0000.h5"
    with HDF5ShardWriter(path, 4, vocab_size=257, source_files=["sub/a.jsonl", "b.txt"]) as writer:
        writer.add_documents(
            [1, 2, 0, 3, 0], [3, 5], rows=[0, 7], offsets=[3, 1 << 40], files=np.array([1, 0], np.uint8)
        )
    entry = writer.result("000001-0000-0000")
    body = json.loads((folder / "shards.json").read_text())
    body["shards"][1] |= {
        "token_count": 5,
        "document_count": 2,
        "sha256": entry.sha256,
        "documents_sha256": entry.documents_sha256,
        "row_base": 1000,
    }
    body |= {"total_tokens": 7, "total_documents": 3}
    (folder / "shards.json").write_text(json.dumps(body))
    corpus = headrace.open(folder)
    found = [corpus.locate(position) for position in (0, 2, 4, 5, 6)]
    assert [(place.document, place.start, place.stop) for place in found] == [
        (0, 0, 2),
        (1, 2, 5),
        (1, 2, 5),
        (2, 5, 7),
        (2, 5, 7),
    ]
    assert [(place.source, place.line, place.byte) for place in found] == [
        (None, None, None),
        ("b.txt", 1001, 3),
        ("b.txt", 1001, 3),
        ("sub/a.jsonl", 1008, 1 << 40),
        ("sub/a.jsonl", 1008, 1 << 40),
    ]
    assert [place.shard_id for place in found] == ["000000-0000-0000"] + ["000001-0000-0000"] * 4


@pytest.mark.parametrize("number", [1.0, "1", None, slice(0, 2)])
def test_numbers_that_are_none(tmp_path, number):
    """A document's number is an integer; slices are refused with what to do."""
    corpus = headrace.open(small_corpus(tmp_path, [[[1], [2]]]))
    with pytest.raises(TypeError):
        corpus.documents[number]


def test_documents_outside(tmp_path):
    """Numbers beyond the last, and before the first, say how many there are."""
    corpus = headrace.open(small_corpus(tmp_path, [[[1], [2]], []]))
    for number in (2, -3, 1 << 70):
        with pytest.raises(OutOfRangeError, match="the corpus has 2 documents"):
            corpus.documents[number]
    assert corpus.documents[np.int8(-1)].tolist() == [2, 0]
    with pytest.raises(TypeError):
        corpus.locate(1.0)


def test_a_foreign_file_has_no_documents(tmp_path):
    """Where none are stored, each way of asking says so."""
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = np.arange(5)
    corpus = headrace.open(tmp_path / "tokens.h5")
    for ask in (lambda: len(corpus.documents), lambda: corpus.documents[0], lambda: corpus.locate(0)):
        with pytest.raises(NoDocumentsError, match="stores no document index"):
            ask()
    assert issubclass(NoDocumentsError, LookupError)


@pytest.mark.parametrize("column", ["end", "source_row", "source_byte", "source_file"])
def test_a_column_of_another_length(tmp_path, column):
    """Columns that do not have the index's number of documents are refused."""
    with HDF5ShardWriter(tmp_path / "a.h5", 4, source_files=["a"]) as writer:
        writer.add_documents([1, 2, 3], [1, 2, 3], rows=[0, 1, 2], offsets=[0, 1, 2], files=[0, 0, 0])
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["documents"][column].resize((2,))
    corpus = headrace.open(tmp_path / "a.h5")
    with pytest.raises(CorruptShardError, match=r"a\.h5: wanted 3 documents"):
        corpus.documents[0]
    assert not corpus.verify()[0].ok


def test_a_file_number_that_does_not_exist(tmp_path):
    """A damaged origin is an error that names the shard, not an IndexError."""
    with HDF5ShardWriter(tmp_path / "a.h5", 4, source_files=["a"]) as writer:
        writer.add_documents([1], [1], rows=[0], offsets=[0], files=[0])
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["documents/source_file"][0] = 1
    with pytest.raises(CorruptShardError, match=r"a\.h5: its document index is damaged: it names source file 1 of 1"):
        headrace.open(tmp_path / "a.h5").locate(0)


def test_version_1_counts_that_do_not_agree(tmp_path):
    """Where zeros do not make as many documents as the index says, the documents are refused and the tokens are not."""
    body = json.loads((LESSON / "shards.json").read_text())
    for row in body["shards"]:
        row["path"] = str(LESSON / Path(row["path"]).name)
    body["shards"][0]["document_count"] += 1
    (tmp_path / "shards.json").write_text(json.dumps(body))
    corpus = headrace.open(tmp_path)
    assert len(corpus[:]) == len(corpus)
    with pytest.raises(
        CorruptShardError, match=r"shard-0000\.h5: the index says 41 documents, but its boundaries make 40"
    ):
        corpus.documents[0]


def test_threads_and_more_shards_than_are_held(tmp_path, monkeypatch):
    """Threads that walk through more shards than have their index in memory get the right documents."""
    monkeypatch.setattr(documents_module, "_SHARDS_HELD", 1)
    shards = random_documents(42, (3,) * 12, longest=9)
    tokens, lengths = line_of(shards)
    ends = np.cumsum([0, *lengths])
    corpus = headrace.open(small_corpus(tmp_path, shards))
    faults = []

    def read(seed):
        try:
            for number in np.random.default_rng(seed).integers(0, len(lengths), 150).tolist():
                wanted = tokens[ends[number] : ends[number + 1]]
                assert corpus.documents[number].tolist() == wanted.tolist()
                assert corpus.locate(int(ends[number])).document == number
        except BaseException as fault:  # noqa: BLE001  # reported below
            faults.append(fault)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    assert len(corpus.documents._columns) <= 4
