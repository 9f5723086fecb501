"""An output folder that is removed while a build writes into it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.building.engine import Engine, Listener, PoolEngine, SerialEngine
from headrace.building.job import ContentOptions, ShardJob
from headrace.errors import BuildError, OutputExistsError
from headrace.events import ShardWritten
from headrace.sources import discover
from headrace.tokenizers.bytes import Tokenizer


@pytest.fixture
def sources(tmp_path) -> Path:
    """Two sources of several batches, with a bad line in the last batch of each."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes((b'{"text": "' + b"x" * 990 + b'"}\n') * 9000 + b"bad\n")
    return folder


@pytest.mark.parametrize("engine", [SerialEngine(Tokenizer()), PoolEngine(Tokenizer(), 2)])
@pytest.mark.parametrize("shard_tokens", [None, 100_000])
def test_the_folder_is_removed(sources, halted, tmp_path, monkeypatch, engine: Engine, shard_tokens):
    """It ends the build with an error that names the folder, wherever the build is; nothing makes the folder anew."""
    output = tmp_path / "c"
    output.mkdir()
    halt = halted("0*.h5")  # no worker is done before this process hears of it
    for name, value in halt.variables.items():
        monkeypatch.setenv(name, value)
    options = ContentOptions(boundary_token_id=0, on_bad_input="skip", shard_tokens=shard_tokens)
    jobs = [
        ShardJob(shard=shard, source=shard.index, options=options, output=output)
        for shard in discover([str(sources)]).shards
    ]

    def remove(*_: object) -> None:
        while output.exists():  # what is written into it meanwhile may keep it
            shutil.rmtree(output, ignore_errors=True)
        halt.go.touch()

    with pytest.raises(BuildError) as caught:
        engine.run(jobs, Listener(opened=remove))
    assert str(caught.value) == f"{output}: is gone: the folder was removed while a build wrote into it; build again"
    assert not output.exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command(sources, halted, until, tmp_path, workers):
    """The command ends at once with exit code 1 and one line that names the folder."""
    output = tmp_path / "c"
    options = ["--workers", workers, "--on-bad-input", "skip"]
    halt = halted("0*.h5")
    build = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", "build", sources, "-o", output, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=halt.environment,
    )
    try:
        until(lambda: list(output.glob(".0*.partial")) or build.poll() is not None)
        assert build.poll() is None, build.stderr.read()
        while output.exists():
            shutil.rmtree(output, ignore_errors=True)
        halt.go.touch()
        _, err = build.communicate()
    finally:
        build.kill()
        build.communicate()
    assert build.returncode == 1
    assert str(output) in err.decode()
    assert b"Traceback" not in err
    assert not output.exists()


@pytest.mark.parametrize("what", [".", ".headrace"])
def test_nothing_is_said_to_be_kept_that_is_gone(sources, tmp_path, what):
    """The error names what is not there, and no notice tells of finished source shards to go on from."""
    output, events = tmp_path / "c", []

    def look(event):
        events.append(event)
        if isinstance(event, ShardWritten):
            shutil.rmtree(output / what)

    with pytest.raises(BuildError, match="is gone" if what == "." else r"local\.json: cannot be written: No such file"):
        headrace.build(sources, output, workers=1, on_bad_input="skip", on_event=look)
    assert [event for event in events if getattr(event, "kind", "") == "kept"] == []
    shutil.rmtree(output, ignore_errors=True)
    assert headrace.build(sources, output, workers=1, on_bad_input="skip").shards == 2


def test_what_cannot_be_written_while_publishing_is_named(sources, tmp_path):
    """Nothing is published then; once it is out of the way, the command goes on."""
    output = tmp_path / "c"
    (output / ".headrace" / "extents.bin" / "in the way").mkdir(parents=True)
    with pytest.raises(BuildError, match=r"extents\.bin: cannot be written: Is a directory; nothing was published"):
        headrace.build(sources, output, workers=1, on_bad_input="skip")
    assert not (output / "shards.json").exists()
    shutil.rmtree(output / ".headrace" / "extents.bin")
    assert headrace.build(sources, output, workers=1, on_bad_input="skip").resumed == 2


def test_an_output_that_is_a_link_to_nothing(sources, tmp_path):
    """It is called what it is, and stays."""
    (tmp_path / "c").symlink_to("nowhere")
    with pytest.raises(OutputExistsError, match="is a link to nothing; wanted a folder"):
        headrace.build(sources, tmp_path / "c")
    assert (tmp_path / "c").is_symlink()
