"""Publishing: a name holds its old content or all of the new, and nothing else is left."""

import os

import pytest

from headrace.storage import atomic
from headrace.storage.atomic import fresh_name, publish, write_all, write_bytes


def test_write_bytes_replaces_whole(tmp_path):
    """The file has the new content, and its folder no other file."""
    path = tmp_path / "shards.json"
    for content in (b"first", b"", b"x" * 100_000):
        write_bytes(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync_file", "fsync_folder"])
def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch, call):
    """Where the disk fails, what was there before the rename is still there, and the partial file is gone."""
    path = tmp_path / "shards.json"
    write_bytes(path, b"old")

    def fail(where):
        raise OSError(5, "Input/output error", str(where))

    monkeypatch.setattr(atomic, call, fail)
    with pytest.raises(OSError, match="Input/output"):
        write_bytes(path, b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == (b"old" if call == "fsync_file" else b"new")


def test_files_that_belong_together(tmp_path):
    """Where one of them cannot be written, the others are what they were, and nothing else is left; it is named."""
    one, other = tmp_path / "a", tmp_path / "no folder" / "b"
    one.write_bytes(b"old")
    with pytest.raises(FileNotFoundError) as raised:
        write_all({one: b"new", other: b"new"})
    assert raised.value.filename == str(other)
    assert (one.read_bytes(), list(tmp_path.iterdir())) == (b"old", [one])
    other.parent.mkdir()
    write_all({one: b"new", other: b"newer"})
    assert (one.read_bytes(), other.read_bytes()) == (b"new", b"newer")
    assert sorted(tmp_path.rglob("*")) == [one, other.parent, other]


def test_content_is_on_disk_before_its_name(tmp_path, monkeypatch):
    """First the file is synced, then renamed, then its folder is synced."""
    events = []
    replace, fsync = os.replace, os.fsync

    def spy(name, call):
        def inner(*arguments):
            events.append(name)
            return call(*arguments)

        return inner

    monkeypatch.setattr(os, "fsync", spy("fsync", fsync))
    monkeypatch.setattr(os, "replace", spy("replace", replace))
    partial = tmp_path / "partial"
    partial.write_bytes(b"whole")
    publish(partial, tmp_path / "final")
    assert events == ["fsync", "replace", "fsync"]
    assert (tmp_path / "final").read_bytes() == b"whole"


def test_fresh_names_are_hidden_and_distinct(tmp_path):
    """Names beside the target that no pattern for shards matches, each a new one."""
    names = {fresh_name(tmp_path / "a.h5") for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == tmp_path and name.name.startswith(".a.h5.") for name in names)
