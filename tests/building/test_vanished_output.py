"""An output folder that is removed while a build writes into it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.building.engine import Engine, Listener, PoolEngine, SerialEngine
from headrace.building.job import ContentOptions, ShardJob
from headrace.errors import BuildError
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
def test_the_folder_is_removed(sources, tmp_path, engine: Engine, shard_tokens):
    """It ends the build with an error that names the folder, wherever the build is; nothing makes the folder anew."""
    output = tmp_path / "c"
    output.mkdir()
    options = ContentOptions(boundary_token_id=0, on_bad_input="skip", shard_tokens=shard_tokens)
    jobs = [
        ShardJob(shard=shard, source=shard.index, options=options, output=output)
        for shard in discover([str(sources)]).shards
    ]
    with pytest.raises(BuildError) as caught:
        engine.run(jobs, Listener(opened=lambda *_: shutil.rmtree(output, ignore_errors=True)))
    assert str(caught.value) == f"{output}: is gone: the folder was removed while a build wrote into it; build again"
    assert not output.exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command(sources, tmp_path, workers):
    """The command ends at once with exit code 1 and one line that names the folder."""
    output = tmp_path / "c"
    options = ["--workers", workers, "--chunk-tokens", "2048", "--on-bad-input", "skip"]
    build = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", "build", sources, "-o", output, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        while not list(output.glob(".0*.partial")):
            assert build.poll() is None, build.stderr.read()
            time.sleep(0.01)
        while output.exists():
            shutil.rmtree(output, ignore_errors=True)
        _, err = build.communicate(timeout=60)
    finally:
        build.kill()
        build.communicate()
    assert build.returncode == 1
    assert str(output) in err.decode()
    assert b"Traceback" not in err
    assert not output.exists()
