"""`overwrite`: the old corpus opens until the new one does, whatever happens; afterwards only the new one is there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import corpus
from headrace.building import publishing
from headrace.errors import BuildError, OutputExistsError, SourceError

SCRIPT = Path(__file__).with_name("killed_at_every_step.py")


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Two sources."""
    for name in ("a", "b"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [f"new {n} of {name}" for n in range(20)])
    return tmp_path / "in"


@pytest.fixture
def old_sources(tmp_path, write_jsonl) -> Path:
    """Three others, so that some shards have names that the new corpus needs, and one has none of them."""
    for name in ("a", "b", "c"):
        write_jsonl(tmp_path / "old" / f"{name}.jsonl", [f"{name} was here {n} times" for n in range(15)])
    return tmp_path / "old"


def test_the_new_corpus_replaces_the_old(sources, old_sources, published, tmp_path):
    """Afterwards the folder holds the files of a first build, byte for byte, and nothing of the old corpus."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    old = headrace.build(old_sources, tmp_path / "c", workers=1)
    with headrace.open(tmp_path / "c") as before:
        tokens = before[:]
        report = headrace.build(sources, tmp_path / "c", workers=2, overwrite=True)
        assert report.fingerprint != old.fingerprint
        # Its maps are of the old files, which live as long as they do.
        assert before[:].tolist() == tokens.tolist()
    assert published(tmp_path / "c") == published(tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "c" / ".headrace").iterdir()) == [
        "extents.bin",
        "journal.jsonl",
        "local.json",
        "lock",
    ]
    assert headrace.build(sources, tmp_path / "c", workers=1).resumed == 2


@pytest.mark.parametrize("whole", [False, True])
def test_opened_while_it_is_replaced(sources, old_sources, tmp_path, monkeypatch, whole):
    """Who had read the old index when its shards gave up their names opens the old corpus still, or the new one, once whole."""
    headrace.build(old_sources, tmp_path / "c", workers=1)
    tokens = headrace.open(tmp_path / "c")[:].tolist()
    open_line = corpus.open_line

    def publish(*_: object) -> None:
        raise KeyboardInterrupt

    def once_replaced(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as changed:
            changed.setattr(corpus, "open_line", open_line)
            if whole:
                headrace.build(sources, tmp_path / "c", workers=1, overwrite=True)
            else:
                changed.setattr(publishing, "publish_corpus", publish)
                with pytest.raises(KeyboardInterrupt):
                    headrace.build(sources, tmp_path / "c", workers=1, overwrite=True)
        monkeypatch.undo()
        return open_line(*arguments, **options)

    monkeypatch.setattr(corpus, "open_line", once_replaced)
    opened = headrace.open(tmp_path / "c")[:].tolist()
    assert (opened == tokens) == (not whole)
    assert opened == headrace.open(tmp_path / "c")[:].tolist()


def test_overwriting_with_the_same(sources, published, tmp_path):
    """The same command with `overwrite` builds anew and ends with the same bytes."""
    headrace.build(sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}
    assert headrace.build(sources, tmp_path / "c", workers=1, overwrite=True).resumed == 0
    assert published(tmp_path / "c") == before
    assert all(path.stat().st_ino != inodes[path.name] for path in (tmp_path / "c").glob("*.h5"))


def test_a_failure_leaves_the_old_corpus(sources, old_sources, published, tmp_path):
    """Also every file beside it, where nothing of the new one was finished."""
    headrace.build(old_sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    (sources / "a.jsonl").write_text("bad\n")
    with pytest.raises(SourceError):
        headrace.build(sources, tmp_path / "c", workers=1, overwrite=True)
    assert published(tmp_path / "c") == before


def test_without_the_flag_it_is_refused(sources, old_sources, published, tmp_path):
    """And the message says how."""
    headrace.build(old_sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    with pytest.raises(
        OutputExistsError, match="not of this command; choose another folder, --append to it, or replace"
    ):
        headrace.build(sources, tmp_path / "c", workers=1)
    assert published(tmp_path / "c") == before


@pytest.mark.parametrize("index", [b"{", b"\xff", b'{"version": 9}'])
def test_a_damaged_index_can_be_replaced(sources, published, tmp_path, index):
    """A corpus that cannot be opened any more is no reason to refuse; without the flag it is."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    headrace.build(sources, tmp_path / "c", workers=1)
    (tmp_path / "c" / "shards.json").write_bytes(index)
    with pytest.raises(OutputExistsError, match=r"shards\.json cannot be used; --overwrite replaces it"):
        headrace.build(sources, tmp_path / "c", workers=1)
    headrace.build(sources, tmp_path / "c", workers=1, overwrite=True)
    assert published(tmp_path / "c") == published(tmp_path / "whole")


def test_an_unfinished_build_of_another_command_is_given_up(sources, old_sources, published, tmp_path, run_process):
    """With the flag what it had finished goes; of the same command it stays."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    (old_sources / "c.jsonl").write_text("bad\n")
    with pytest.raises(SourceError):
        headrace.build(old_sources, tmp_path / "c", workers=1)
    assert run_process("build", sources, "-o", tmp_path / "c").code == 1
    assert run_process("build", sources, "-o", tmp_path / "c", "--overwrite", "--workers", 1).code == 0
    assert published(tmp_path / "c") == published(tmp_path / "whole")


def test_append_and_overwrite_exclude_each_other(sources, run_process, tmp_path):
    """The library says so, and so does the command, as wrong usage."""
    with pytest.raises(BuildError, match="one of the two"):
        headrace.build(sources, tmp_path / "c", append=True, overwrite=True)
    assert run_process("build", sources, "-o", tmp_path / "c", "--append", "--overwrite").code == 2
    assert not (tmp_path / "c").exists()


def test_a_file_system_without_links(sources, old_sources, published, tmp_path, monkeypatch):
    """There the shards are copied."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    headrace.build(old_sources, tmp_path / "c", workers=1)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    headrace.build(sources, tmp_path / "c", workers=1, overwrite=True)
    assert published(tmp_path / "c") == published(tmp_path / "whole")


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_killed_at_every_step(sources, old_sources, published, tmp_path, step):
    """Killed before every rename, link, fsync, mkdir and unlink, or some: the old corpus opens whole, or the new one does.

    The same command then ends with the bytes of a first build.
    """
    headrace.build(sources, tmp_path / "whole", workers=1)
    wanted = published(tmp_path / "whole")
    old = headrace.build(old_sources, tmp_path / "there", workers=1).fingerprint
    new = headrace.open(tmp_path / "whole").fingerprint.hex
    (tmp_path / "killed").mkdir()
    command = [sys.executable, "-P", SCRIPT, sources, tmp_path / "killed", str(step), tmp_path / "there", "overwrite"]
    subprocess.run(command, check=True)
    outputs = sorted((path for path in (tmp_path / "killed").iterdir()), key=lambda path: int(path.name))
    seen = []
    for output in outputs:
        with headrace.open(output, verify="full") as corpus:
            seen.append(corpus.fingerprint.hex)
        headrace.build(sources, output, workers=1, overwrite=True)
        assert published(output) == wanted, output.name
    assert set(seen) == {old, new}
    assert seen == sorted(seen, key=lambda fingerprint: fingerprint == new)  # old, old, ..., new, new
    assert len(outputs) > 40 // step
