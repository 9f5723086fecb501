"""Verify compares every stored column and attribute; readers refuse what it would."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError
from headrace.manifest import checksum_of
from headrace.verify import verify_path

LINES = "".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(20))


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Twenty documents in one shard."""
    (tmp_path / "a.jsonl").write_text(LINES, encoding="utf-8")
    headrace.build(tmp_path / "a.jsonl", tmp_path / "corpus")
    return tmp_path / "corpus"


def shard(corpus: Path) -> h5py.File:
    """The shard, to be damaged."""
    return h5py.File(next(corpus.glob("*.h5")), "r+")


def verdict(corpus: Path) -> tuple[str, str]:
    """Status and problems of the one shard."""
    (report,) = verify_path(corpus)
    return report.status, "\n".join(map(str, report.problems)) + report.reason


@pytest.mark.parametrize("column", ["source_row", "source_byte", "source_file"])
def test_a_changed_origin_is_found(corpus, column):
    """One changed number in a source column is found by verify, and such documents are not served."""
    with shard(corpus) as file:
        file["documents"][column][7] ^= 1
    status, problems = verdict(corpus)
    assert status == "corrupt"
    assert "sources_sha256" in problems or "names a file" in problems
    with headrace.open(corpus) as opened, pytest.raises(CorruptShardError, match="document index"):
        opened.locate(0)


def test_a_changed_label_is_found(corpus):
    """Another name of the source file is found."""
    with shard(corpus) as file:
        file["documents/files"][0] = b"b.jsonl"
    assert "sources_sha256" in verdict(corpus)[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("boundary_token_id", np.uint64(98)),
        ("vocab_size", np.uint64(300)),
        ("format_version", np.uint64(1)),
        ("tokenizer_sha256", np.bytes_(b"0" * 64)),
    ],
)
def test_an_attribute_that_contradicts_the_manifest_is_found(corpus, name, value):
    """Every attribute of the tokens is compared with shards.json, in both directions."""
    with shard(corpus) as file:
        file["tokens"].attrs.modify(name, value)
    status, problems = verdict(corpus)
    assert status == "corrupt"
    assert name in problems


def test_a_manifest_that_contradicts_its_shards_is_found(corpus):
    """Another boundary or chunk size in shards.json alone is found."""
    index = corpus / "shards.json"
    body = json.loads(index.read_text(encoding="utf-8"))
    body["boundary_token_id"], body["chunk_size"] = 33, 1000
    body["checksum"] = checksum_of(body)
    index.write_text(json.dumps(body), encoding="utf-8")
    status, problems = verdict(corpus)
    assert status == "corrupt"
    assert "boundary_token_id" in problems
    assert "chunk size" in problems


@pytest.mark.parametrize("column", ["end", "source_row", "source_byte", "source_file", "files"])
@pytest.mark.parametrize("change", ["two dimensions", "another kind", "missing", "empty"])
def test_a_column_of_another_shape_is_refused(corpus, column, change):
    """Columns that are not what the format says are named by verify, and by readers in an error of ours."""
    with shard(corpus) as file:
        group = file["documents"]
        values = group[column][:]
        del group[column]
        if change == "two dimensions":
            group[column] = values.reshape(-1, 1)
        elif change == "another kind":
            group[column] = np.arange(len(values), dtype=np.float64)
        elif change == "empty":
            group[column] = values[:0]
    status, problems = verdict(corpus)
    assert status == "corrupt"
    assert "/documents" in problems
    with headrace.open(corpus) as opened, pytest.raises((CorruptShardError, LookupError)):
        opened.locate(0)


def test_a_pipe_in_place_of_a_shard_is_unreadable(corpus):
    """A named pipe under a shard's name is judged, not waited for."""
    path = next(corpus.glob("*.h5"))
    path.unlink()
    os.mkfifo(path)
    (report,) = verify_path(corpus)
    assert (report.status, "regular file" in report.reason) == ("unreadable", True)


def test_validate_corpus_names_missing_shards_by_path_too(corpus):
    """The ids of shards that are gone are among the failing ones, whether entries or a path are given."""
    entries = headrace.load_index(corpus)
    assert headrace.validate_corpus(corpus) == headrace.validate_corpus(entries) == []
    next(corpus.glob("*.h5")).unlink()
    assert headrace.validate_corpus(corpus) == headrace.validate_corpus(entries) == [entries[0].shard_id]
