"""What only shows after a long time; `make soak`."""

import hashlib
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace

pytestmark = pytest.mark.soak


def anonymous_kilobytes() -> int:
    """Memory of this process that is no file's."""
    return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii")).group(1))


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a corpus that a build of equal inputs makes equal."""
    names = [*folder.glob("*.h5"), folder / "shards.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}


@pytest.fixture
def sources(tmp_path) -> Path:
    """Six files of some 60,000 documents."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(6):
        lines = (
            f'{{"text": "document {n} of file {number} {"turns the wheel " * (n % 17)}"}}\n' for n in range(10_000)
        )
        (folder / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def test_memory_is_flat_over_many_batches(sources, tmp_path):
    """100,000 batches leave a loader's own memory as the first thousand did, within 2 MB."""
    headrace.build(sources, tmp_path / "corpus", shard_tokens=100_000)
    with headrace.open(tmp_path / "corpus") as corpus:
        plan = headrace.Plan(order="blocks", token_count=len(corpus), window=256, batch_size=16, seed=1)
        loader = headrace.Loader(corpus, plan)
        for step in range(1000):
            loader.batch(step)
        before = anonymous_kilobytes()
        for step in range(1000, 101_000):
            loader.batch(step)
        assert anonymous_kilobytes() - before < 2000


def test_a_build_killed_at_any_moment_can_be_repeated(sources, tmp_path):
    """After SIGKILL at 200 random moments there is no corpus or a whole one, and the same command makes the same bytes."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "headrace",
        "build",
        sources,
        "--workers",
        "2",
        "--shard-tokens",
        "200000",
        "-o",
    ]
    started = time.monotonic()
    subprocess.run([*command, tmp_path / "wanted"], check=True, capture_output=True)
    whole = time.monotonic() - started
    wanted = contents(tmp_path / "wanted")
    moments = random.Random(1)
    output = tmp_path / "output"
    published = 0
    for _ in range(200):
        process = subprocess.Popen([*command, output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0, whole))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (output / "shards.json").exists():
            assert contents(output) == wanted
            published += 1
            output = tmp_path / f"output-{published}"
    if not (output / "shards.json").exists():
        for _ in range(100):  # the last build's workers may still hold the lock
            if subprocess.run([*command, output], check=False, capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
    assert contents(output) == wanted
