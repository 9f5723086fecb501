"""Where the shards of an index lie: beside it in version 2, in one of three places in version 1."""

import hashlib
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, FormatError, MissingShardError, UnreadableShardError
from headrace.manifest import read_manifest
from headrace.shard_paths import load_index
from headrace.testing.corpora import random_documents, small_corpus

FORMATS = Path(__file__).parent.parent / "data" / "formats"


def version_1(folder, paths, source=FORMATS / "lesson_hdf5"):
    """The lesson's index in `folder`, its shards' paths replaced."""
    body = json.loads((source / "shards.json").read_text())
    for row, path in zip(body["shards"], paths, strict=True):
        row["path"] = str(path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shards.json").write_text(json.dumps(body))
    return folder


def shards():
    """The lesson's shard files."""
    return sorted((FORMATS / "lesson_hdf5").glob("*.h5"))


@pytest.fixture
def tokens():
    """The lesson's tokens."""
    return headrace.open(FORMATS / "lesson_hdf5")[:]


@pytest.mark.parametrize("form", ["folder", "file", "string"])
def test_entries_have_absolute_paths(tmp_path, monkeypatch, form):
    """A folder, its index and their names relative to the working directory give the same absolute paths."""
    folder = small_corpus(tmp_path / "corpus", random_documents(1, (2, 2)))
    monkeypatch.chdir(tmp_path)
    path = {"folder": Path("corpus"), "file": Path("corpus/shards.json"), "string": "corpus"}[form]
    entries = load_index(path)
    assert [entry.path for entry in entries] == [str(folder / f"{number:06d}-0000-0000.h5") for number in range(2)]
    assert [entry.global_start for entry in entries] == [0, entries[0].token_count]
    monkeypatch.chdir("/")
    assert all(Path(entry.path).is_file() for entry in entries)


def test_missing_shards_are_all_named(tmp_path):
    """Each shard that is not there is listed with its id and its tokens."""
    folder = small_corpus(tmp_path, random_documents(1, (2, 2, 2, 2)))
    for number in (0, 2):
        (folder / f"{number:06d}-0000-0000.h5").unlink()
    for ask in (load_index, headrace.open):
        with pytest.raises(MissingShardError, match="2 of 4 shards are missing") as caught:
            ask(folder)
        assert [Path(problem.place).name for problem in caught.value.problems] == [
            "000000-0000-0000.h5",
            "000002-0000-0000.h5",
        ]
        assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("path", ["x" * 5000, "folder", "loop.h5"])
def test_what_cannot_be_reached_is_not_called_missing(tmp_path, path):
    """A name too long, a folder, a link to itself: the shard is unreadable, and why is said."""
    folder = small_corpus(tmp_path, random_documents(1, (2,)))
    (folder / "folder").mkdir()
    (folder / "loop.h5").symlink_to("loop.h5")
    body = json.loads((folder / "shards.json").read_text())
    body["shards"][0]["path"] = path
    (folder / "shards.json").write_text(json.dumps(body))
    for ask in (load_index, headrace.open):
        with pytest.raises(UnreadableShardError) as caught:
            ask(folder)
        assert path[:100] in caught.value.problems[0].place


def test_an_empty_file_is_not_called_missing(tmp_path):
    """A shard whose bytes are gone is there, for `load_index`, and refused by whoever opens it."""
    folder = small_corpus(tmp_path, random_documents(1, (2, 2)))
    entry = load_index(folder)[1]
    Path(entry.path).write_bytes(b"")
    assert load_index(folder)[1] == entry
    with pytest.raises(FormatError, match=Path(entry.path).name):
        headrace.open(folder)


def test_a_path_that_no_file_can_have(tmp_path):
    """A lone surrogate in a path is an error of ours."""
    folder = small_corpus(tmp_path, random_documents(1, (2,)))
    body = json.loads((folder / "shards.json").read_text())
    body["shards"][0]["path"] = "\ud800.h5"
    (folder / "shards.json").write_text(json.dumps(body))
    with pytest.raises(UnreadableShardError):
        load_index(folder)


def test_a_link_to_a_shard_is_followed(tmp_path):
    """A corpus may be put together of links."""
    folder = small_corpus(tmp_path / "a", random_documents(1, (2, 2)))
    linked = tmp_path / "b"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    np.testing.assert_array_equal(headrace.open(linked)[:], headrace.open(folder)[:])


def test_version_1_beside_the_index(tmp_path, tokens):
    """Paths relative to another folder: the bare file name beside the index is tried."""
    folder = version_1(tmp_path / "corpus", [f"out/run 3/{path.name}" for path in shards()])
    for path in shards():
        shutil.copy(path, folder)
    np.testing.assert_array_equal(headrace.open(folder)[:], tokens)
    assert [Path(entry.path).parent for entry in load_index(folder)] == [folder] * 4


def test_version_1_relative_to_the_parent(tmp_path, tokens):
    """Paths as a writer leaves them that ran in the parent folder."""
    folder = version_1(tmp_path / "corpus", [f"data/{path.name}" for path in shards()])
    (tmp_path / "data").mkdir()
    for path in shards():
        shutil.copy(path, tmp_path / "data")
    np.testing.assert_array_equal(headrace.open(folder)[:], tokens)


def test_version_1_absolute(tmp_path, tokens):
    """Absolute paths of version 1 lead where they say."""
    folder = version_1(tmp_path / "corpus", shards())
    np.testing.assert_array_equal(headrace.open(folder)[:], tokens)


def test_version_1_never_in_the_working_directory(tmp_path, monkeypatch):
    """A file that only the working directory has is not taken."""
    folder = version_1(tmp_path / "deep" / "corpus", [path.name for path in shards()])
    for path in shards():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingShardError):
        headrace.open(folder)


@pytest.mark.parametrize("opened_before", [False, True])
def test_version_1_takes_the_first_file_that_matches(tmp_path, tokens, opened_before):
    """Of two files of one name the one with the index's count and hash is read, also after extents were cached."""
    folder = version_1(tmp_path / "corpus", [f"data/{path.name}" for path in shards()])
    for place in (folder, tmp_path / "data", folder / "data"):
        place.mkdir(exist_ok=True)
    for path in shards():
        shutil.copy(path, tmp_path / "data")
    if opened_before:
        np.testing.assert_array_equal(headrace.open(folder)[:], tokens)
    decoy = folder / "data" / shards()[0].name
    data = bytearray(shards()[0].read_bytes())
    layout = headrace.open(shards()[0])
    at = data.find(layout.entries[0].sha256.encode())
    data[at : at + 4] = b"0123"
    decoy.write_bytes(data)
    np.testing.assert_array_equal(headrace.open(folder)[:], tokens)
    (tmp_path / "data" / shards()[0].name).unlink()
    with pytest.raises(CorruptShardError, match=r"shard-0000\.h5"):
        headrace.open(folder)[0]


def test_version_1_keeps_what_it_does_not_say(tmp_path):
    """Defaults of version 1: uint16, boundary 0, no tokenizer; `document_count` may be absent."""
    folder = version_1(tmp_path, shards())
    body = json.loads((folder / "shards.json").read_text())
    for row in body["shards"]:
        del row["document_count"]
    (folder / "shards.json").write_text(json.dumps(body))
    manifest = read_manifest(folder)
    assert (manifest.dtype, manifest.boundary_token_id, manifest.tokenizer) == ("uint16", 0, None)
    assert [shard.document_count for shard in manifest.shards] == [0] * 4
    assert headrace.open(folder).vocab_size == 65_536
    assert headrace.open(folder, vocab_size=257).vocab_size == 257


def test_version_2_is_read_by_version_1_rules(tmp_path):
    """A uint16 corpus of ours has the keys, the attributes and the paths that version 1 code reads from its folder."""
    folder = small_corpus(tmp_path, random_documents(1, (3, 0, 4)))
    body = json.loads((folder / "shards.json").read_text())
    total = 0
    for row in body["shards"]:
        with h5py.File(folder / row["path"], "r") as file:
            tokens = file["tokens"][: file["tokens"].attrs["token_count"]]
        assert row["token_count"] == len(tokens)
        assert row["sha256"] == hashlib.sha256(tokens.tobytes()).hexdigest()
        assert row["global_start"] == total
        assert row["document_count"] == (tokens == 0).sum()
        total += len(tokens)
    assert body["total_tokens"] == total
    assert body["chunk_size"] == 64
