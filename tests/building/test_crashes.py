"""A build that ends early leaves the old state or the new one, nothing between; the same command then succeeds."""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace
from headrace.building import making as build_module
from headrace.building.output import OutputFolder
from headrace.building.work import Work
from headrace.errors import BuildError, OutputExistsError, SourceError, TokenizerError

SCRIPT = Path(__file__).with_name("killed_at_every_step.py")


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Two sources, one with a bad line, so that a log of drops is written as well."""
    write_jsonl(tmp_path / "in" / "a.jsonl", ["one", "two"])
    write_jsonl(tmp_path / "in" / "b.jsonl", ["three"])
    with (tmp_path / "in" / "b.jsonl").open("a") as file:
        file.write("bad\n")
    return tmp_path / "in"


def build(sources: Path, output: Path) -> headrace.Corpus:
    """Build without processes, and check every byte."""
    headrace.build(sources, output, workers=1, on_bad_input="skip", max_bad=1)
    return headrace.open(output, verify="full")


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_killed_at_every_step(sources, published, tmp_path, step):
    """Killed before every rename, fsync and mkdir, or some: no corpus opens, or the whole one; building again works.

    Afterwards the folder holds exactly the files of an undisturbed build, with the same bytes.
    """
    build(sources, tmp_path / "whole").close()
    reference = published(tmp_path / "whole")
    (tmp_path / "killed").mkdir()
    subprocess.run([sys.executable, "-P", SCRIPT, sources, tmp_path / "killed", str(step)], check=True)
    outputs = list((tmp_path / "killed").iterdir())
    whole = 0
    for output in outputs:
        if (output / "shards.json").exists():
            whole += 1
            headrace.open(output, verify="full").close()
        build(sources, output).close()
        assert published(output) == reference, output.name
    assert len(outputs) > 20 // step  # the steps are counted, not a few of them
    assert 1 <= whole < 6  # the index appears with the last renames


def test_leftovers_of_a_killed_build_go(sources, published, tmp_path):
    """Shards, partial files and logs that an earlier build left under any name of ours are removed, others stay."""
    build(sources, tmp_path / "whole").close()
    output = tmp_path / "c"
    (output / ".headrace" / "dropped").mkdir(parents=True)
    ours = [
        "000000-0000-0000.h5",
        "000007-0000-0012.h5",
        "1234567-0000-0000.h5",
        ".000007-0000-0000.h5.123.0a1b2c3d.partial",
        "..000007-0000-0000.h5.123.0a1b2c3d.partial.123.0a1b2c3d",
        ".shards.json.123.0a1b2c3d",
        ".headrace/.extents.bin.123.0a1b2c3d",
        ".headrace/dropped/000007-0000.jsonl",
    ]
    theirs = ["notes.txt", "7.h5", "000000-0000-0000.h5.bak", ".shards.json.swp"]
    for name in ours + theirs:
        (output / name).write_text("left")
    build(sources, output).close()
    wanted = {**published(tmp_path / "whole"), **{name: published(output).get(name) for name in theirs}}
    assert published(output) == wanted
    assert all((output / name).read_text() == "left" for name in theirs)


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_build_leaves_the_folder_as_it_was(sources, tmp_path, existing):
    """Where no source shard was finished, what was begun is removed, the folder included if the build made it."""
    output = tmp_path / "c"
    if existing:
        (output / "sub").mkdir(parents=True)
        (output / "sub" / "mine.h5").write_text("mine")
    with pytest.raises(SourceError):
        headrace.build(sources / "b.jsonl", output, workers=1)
    if existing:
        assert [path.name for path in output.rglob("*")] == ["sub", "mine.h5"]
    else:
        assert not output.exists()


def test_a_users_tokenizer_is_never_touched(sources, tmp_path):
    """A folder `tokenizer` in the output that no build made is an error before any work, not overwritten or removed."""
    (tmp_path / "c" / "tokenizer").mkdir(parents=True)
    (tmp_path / "c" / "tokenizer" / "tokenizer.json").write_text("mine")
    with pytest.raises(OutputExistsError, match="tokenizer: was not made by Headrace"):
        build(sources, tmp_path / "c")
    with pytest.raises(OutputExistsError, match="tokenizer: was not made by Headrace"):
        headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path / "c").write_corpus({"a": ["b"]})
    files = [path for path in (tmp_path / "c").rglob("*") if path.is_file()]
    assert [path.read_text() for path in files] == ["mine"]


def test_a_copy_of_a_tokenizer_can_be_used_again(sources, tmp_path):
    """The copy that an earlier corpus left in the folder may be the tokenizer of the next one, and outlives a failure."""
    output = tmp_path / "c"
    build(sources, output).close()
    for path in (output / "shards.json", output / ".headrace" / "journal.jsonl", *output.glob("*.h5")):
        path.unlink()
    with pytest.raises(SourceError):
        headrace.build(sources / "b.jsonl", output, tokenizer=output / "tokenizer", workers=1)
    headrace.build(sources, output, tokenizer=output / "tokenizer", workers=1, on_bad_input="skip")
    assert headrace.open(output, verify="full").manifest.tokenizer == headrace.Tokenizer().ref


def test_a_foreign_corpus_is_refused_untouched(sources, tmp_path):
    """A corpus of version 1 is refused as well, before anything is written into its folder."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "shards.json").write_text("{}")
    with pytest.raises(OutputExistsError):
        build(sources, tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["shards.json"]


def test_the_output_is_a_file(sources, tmp_path):
    """An output that is a file, or lies below one, is an error that says so; the file stays."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputExistsError, match="file: is a file; wanted a folder"):
        build(sources, tmp_path / "file")
    with pytest.raises(BuildError, match="cannot be written: Not a directory"):
        build(sources, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_the_output_cannot_be_written(sources, tmp_path):
    """A place where no folder can be made is an error before any work."""
    if os.geteuid() == 0:
        place = Path("/proc/headrace")  # where root cannot either
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        place = tmp_path / "closed" / "c"
    with pytest.raises(BuildError, match="cannot be written"):
        build(sources, place)


def test_an_empty_output_path(sources):
    """An empty path, as an unset variable gives, is an error, not the working directory."""
    with pytest.raises(BuildError, match="empty path"):
        build(sources, "")


def test_the_output_inside_the_inputs(sources, published, tmp_path):
    """A corpus may lie in its input folder: neither a first build nor a later one reads it."""
    build(sources, sources / "c").close()
    build(sources, tmp_path / "second").close()
    first, second = published(sources / "c"), published(tmp_path / "second")
    assert first == second


def test_the_output_is_the_input_folder(sources):
    """So may its files beside the inputs; the inputs stay as they are, also where the build fails."""
    (sources / "a.jsonl").unlink()
    before = {path.name: path.read_bytes() for path in sources.iterdir()}
    with pytest.raises(SourceError):
        headrace.build(sources, sources, workers=1)
    assert {path.name: path.read_bytes() for path in sources.iterdir()} == before
    assert build(sources, sources).token_count == len("three") + 1
    assert {name: (sources / name).read_bytes() for name in before} == before


def test_a_full_disk(sources, tmp_path, monkeypatch):
    """Too little free space is an error that says how much is there and needed, before HDF5 meets the end of the disk."""

    class Full:
        f_bavail, f_frsize = 10, 4096

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    with pytest.raises(BuildError, match=r"the disk is full: 40,960 bytes are free, the next documents need [0-9,]+;"):
        build(sources, tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.extended
@pytest.mark.parametrize("store", ["hdf5", "lance"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_small_disk(run_process, write_jsonl, tmp_path, workers, store):
    """On a real disk that fills up, the command ends with exit code 1 and the reason, and gives the space back."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", disk]
    if not mount or not unmount or os.geteuid() != 0 or subprocess.run([mount, *options], check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        for name in ("a", "b"):
            write_jsonl(tmp_path / "in" / f"{name}.jsonl", ["x" * 1000] * 10_000)
        ran = run_process("build", tmp_path / "in", "-o", disk / "c", "--workers", workers, "--store", store)
        assert ran.code == 1
        assert "the disk is full: " in ran.err
        assert "Traceback" not in ran.err
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run([unmount, disk], check=True)


@pytest.mark.parametrize("store", ["hdf5", pytest.param("lance", marks=pytest.mark.extended)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_write_that_the_system_refuses(run_process, write_jsonl, tmp_path, workers, store):
    """Where a file may not grow any more, though the disk has room: exit code 1, the file and the reason, nothing left."""
    for name in ("a", "b"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", ["x" * 1000] * 5000)
    ran = run_process(
        *("build", tmp_path / "in", "-o", tmp_path / "c", "--workers", workers, "--store", store),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21)),
    )
    assert ran.code == 1
    assert re.search(r"/c/00000[01]-0000-0000: cannot be written: File too large; nothing was published\n$", ran.err)
    assert "Traceback" not in ran.err
    assert not (tmp_path / "c").exists()


class Wrong(headrace.Tokenizer):
    """Disagrees with its reference, which is found out a moment later."""

    def check(self, texts: object) -> None:
        """Fail."""
        time.sleep(0.05)
        raise TokenizerError(f"differs on {texts}")


@pytest.mark.parametrize("many", [False, True])
def test_a_tokenizer_that_disagrees_with_its_reference(sources, tmp_path, many):
    """It stops the build, however far that is, and nothing is left; the texts compared are of several sources."""
    if many:
        (sources / "c.jsonl").write_text('{"text": "more"}\n' * 200_000)
    with pytest.raises(TokenizerError, match=r"differs on \[b'one', b'two', b'three'"):
        headrace.build(sources, tmp_path / "c", tokenizer=Wrong(), workers=1, on_bad_input="skip", max_bad=1)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("failing", ["publish", "write_bytes"])
def test_an_error_of_the_file_system(sources, tmp_path, monkeypatch, failing):
    """An OSError while a shard or the index is published says which file and why; finished shards stay, no index does."""
    from headrace.building import output, shard_writing

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error", "somewhere")

    monkeypatch.setattr({"publish": shard_writing, "write_bytes": output}[failing], failing, fail)
    with pytest.raises((BuildError, OSError), match="Input/output error"):
        build(sources, tmp_path / "c")
    assert (tmp_path / "c").exists() == (failing == "write_bytes")
    assert not (tmp_path / "c" / "shards.json").exists()
    monkeypatch.undo()
    assert build(sources, tmp_path / "c").token_count == len("onetwothree") + 3


def test_one_builder_at_a_time(sources, tmp_path):
    """While a build holds the folder, another is refused and disturbs nothing; afterwards it may build."""
    with OutputFolder(tmp_path / "c") as held:
        (held.path / "000000-0000-0000.h5").write_text("of the first")
        with pytest.raises(OutputExistsError, match="another build is at work there"):
            build(sources, tmp_path / "c")
        assert (held.path / "000000-0000-0000.h5").read_text() == "of the first"
    build(sources, tmp_path / "c").close()


def test_a_lock_of_a_failed_build_holds_nothing(tmp_path, monkeypatch):
    """A build that fails removes its lock's file; one that had opened that file meanwhile takes the new one instead."""
    import fcntl

    real = fcntl.flock
    first = OutputFolder(tmp_path / "c").__enter__()

    def late(descriptor: int, how: int) -> None:
        """The first build fails between the second one's open and its lock."""
        monkeypatch.setattr(fcntl, "flock", real)
        first.__exit__(ValueError, ValueError(), None)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with OutputFolder(tmp_path / "c") as second:
        assert os.path.samestat(os.fstat(second.lock), (tmp_path / "c" / ".headrace" / "lock").stat())
        with pytest.raises(OutputExistsError, match="another build"):
            OutputFolder(tmp_path / "c").__enter__()


def test_a_corpus_that_reads_back_wrong(sources, tmp_path, monkeypatch):
    """With `validate`, a shard that does not read back as written is an error that names it."""
    real = build_module.publish

    def damage(work: Work, *args: object) -> object:
        published = real(work, *args)
        shard = next(work.shards.glob("*.h5"))
        with headrace.open(shard) as corpus:
            tokens = corpus[:].tobytes()
        shard.write_bytes(shard.read_bytes().replace(tokens, bytes(len(tokens))))
        return published

    monkeypatch.setattr(build_module, "publish", damage)
    with pytest.raises(headrace.errors.CorruptShardError, match="do not read back as written"):
        headrace.build(sources, tmp_path / "c", workers=1, on_bad_input="skip", max_bad=1, validate=True)
