"""Memory over a long time: builds of much, of many and of one large document; a loader over many batches."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest

import headrace
from headrace.testing.gpt2 import write_gpt2

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

WORKER_BYTES = 700_000_000
"""What a worker may take besides the largest document."""
DOCUMENT_FACTOR = 12
SLACK = 60_000_000
"""How much higher the last third of a build may peak than the second, and still count as flat."""
LEAST_SCALE = 0.5
"""Share of the full size from which on the first third of a build is all its warm-up."""
SECONDS = 0.2
"""Between two samples."""
LINE, LINES = 2048, 512
"""Bytes of a line of the large input, and lines of a block."""


@dataclass(slots=True)
class Curve:
    """Memory of one process over time."""

    role: str
    seconds: list[float] = field(default_factory=list)
    """Since the build began."""
    rss: list[int] = field(default_factory=list)
    """Resident bytes."""
    peak: int = 0
    """The most that were ever resident, between samples too."""

    def rise(self) -> int:
        """Bytes by which the last third of the process' life peaks above the second third; 0 if it was too short."""
        third = len(self.rss) // 3
        return max(self.rss[2 * third :]) - max(self.rss[third : 2 * third]) if third else 0


def status_bytes(text: str, name: str) -> int:
    """A value of /proc/PID/status."""
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def role_of(process: psutil.Process, parent: int) -> str:
    """What a process of a build does."""
    if process.pid == parent:
        return "parent"
    return "worker" if "headrace.building.worker" in process.cmdline() else "helper"


def watch(command: list[str | Path]) -> list[Curve]:
    """Run a build to its end, and return the memory of each of its processes."""
    curves: dict[int, Curve] = {}
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        parent = psutil.Process(child.pid)
        while child.poll() is None:
            try:
                for process in [parent, *parent.children(recursive=True)]:
                    text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                    if process.pid not in curves:
                        curves[process.pid] = Curve(role_of(process, child.pid))
                    curve = curves[process.pid]
                    curve.seconds.append(round(time.monotonic() - started, 2))
                    curve.rss.append(status_bytes(text, "VmRSS"))
                    curve.peak = max(curve.peak, status_bytes(text, "VmHWM"))
            except (psutil.Error, OSError):  # it ended just now
                continue
            time.sleep(SECONDS)
        errors = child.stderr.read() if child.stderr else ""
        assert child.returncode == 0, errors
    return list(curves.values())


def build_command(source: Path, output: Path, *options: str | Path) -> list[str | Path]:
    """A build by the command."""
    return [sys.executable, "-P", "-m", "headrace", "build", source, "-o", output, *options]


def judge(curves: list[Curve], name: str, records: Path, *, bound: int, flat: bool = False) -> None:
    """Keep and print the curves, then hold each process against the bound, and against its own past if that was long."""
    body = {"bound": bound, "curves": [asdict(curve) for curve in curves]}
    (records / f"soak-{name}.json").write_text(json.dumps(body) + "\n", encoding="utf-8")
    for curve in curves:
        lasted = curve.seconds[-1] - curve.seconds[0]
        print(  # noqa: T201  # what a soak test is run for
            f"\n{name}: {curve.role}: {lasted:.0f} s, peak {curve.peak / 1e6:.0f} MB of {bound / 1e6:.0f} MB, "
            f"last third peaks {curve.rise() / 1e6:+.0f} MB above the second"
        )
    assert all(curve.peak <= bound for curve in curves)
    if flat:
        assert all(curve.rise() <= SLACK for curve in curves if curve.role != "helper")


def blocks(rng: np.random.Generator) -> Iterator[bytes]:
    """Blocks of JSON lines for ever, with eight words of random letters a line: a tokenizer's cache never has them all."""
    words = ["the", "head", "race", "carries", "water", "to", "the", "wheel", ",", "and", "the", "tail", "race", "."]
    template = np.empty((LINES, LINE), np.uint8)
    for row in template:
        text = " ".join(rng.choice(words, LINE // 3))
        row[:] = np.frombuffer(f'{{"text": "{text}'[: LINE - 3].encode() + b'"}\n', np.uint8)
    places = (100 + 200 * np.arange(8)[:, np.newaxis] + np.arange(10)).reshape(-1)
    while True:
        letters = rng.integers(ord("a"), ord("z") + 1, (LINES, 8, 10), np.uint8)
        letters[:, :, [0, 9]] = ord(" ")
        template[:, places] = letters.reshape(LINES, -1)
        yield template.tobytes()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    """The GPT-2 tokenizer's folder."""
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


def test_memory_of_much_input(tmp_path, gpt2, records, scale):
    """10 GB in four files, two workers: each stays below 700 MB, and is as large after hours as after minutes."""
    size = int(10e9 * scale)
    sources = tmp_path / "sources"
    sources.mkdir()
    block = blocks(np.random.default_rng(0))
    for number in range(4):
        with (sources / f"{number}.jsonl").open("wb") as file:
            while file.tell() < size // 4:
                file.write(next(block))
    command = build_command(sources, tmp_path / "out", "--tokenizer", gpt2, "--workers", "2")
    judge(watch(command), "much", records, bound=WORKER_BYTES + DOCUMENT_FACTOR * LINE, flat=scale >= LEAST_SCALE)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_of_many_documents(tmp_path, gpt2, records, scale, workers):
    """5 million documents of a line each in one file, or two: nothing is kept of each."""
    count = int(5e6 * scale)
    texts = [f'{{"text": "{"turns " * (number % 7)}the wheel number {number}"}}\n' for number in range(1000)]
    sources = tmp_path / "sources"
    sources.mkdir()
    for number in range(workers):
        (sources / f"{number}.jsonl").write_text("".join(texts) * (count // workers // 1000), encoding="utf-8")
    command = build_command(sources, tmp_path / "out", "--tokenizer", gpt2, "--workers", str(workers))
    judge(watch(command), f"many-{workers}", records, bound=WORKER_BYTES, flat=scale >= LEAST_SCALE)


@pytest.mark.parametrize("form", ["text", "lines", "wide lines"])
def test_memory_of_one_large_document(tmp_path, gpt2, records, scale, form):
    """One document of 1 GB: 700 MB and 12 times its size are enough, even where Python takes four bytes a character."""
    size = int(1e9 * scale)
    block = blocks(np.random.default_rng(1))
    head, newline, tail = (b"", b"\n", b"") if form == "text" else (b'{"text": "', b"\\n", b'"}\n')
    source = tmp_path / ("one.txt" if form == "text" else "one.jsonl")
    with source.open("wb") as file:
        file.write(head + ("\N{WATER WAVE}" if form.startswith("wide") else "").encode())
        while file.tell() < size:
            file.write(next(block).replace(b'"', b" ").replace(b"\n", newline))
        file.write(tail)
    bound = WORKER_BYTES + DOCUMENT_FACTOR * source.stat().st_size
    room = psutil.virtual_memory().available
    if room < bound:
        pytest.skip(f"{bound / 1e9:.1f} GB of memory may be needed, {room / 1e9:.1f} GB are there")
    command = build_command(source, tmp_path / "out", "--tokenizer", gpt2, "--workers", "1")
    judge(watch(command), f"one-{form.replace(' ', '-')}", records, bound=bound)


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    return status_bytes(Path("/proc/self/status").read_text(encoding="ascii"), "RssAnon")


def test_memory_is_flat_over_many_batches(tmp_path, scale):
    """100,000 batches leave a loader's own memory as the first thousand did, within 2 MB."""
    source = tmp_path / "source.jsonl"
    lines = (f'{{"text": "document {number} {"turns the wheel " * (number % 17)}"}}\n' for number in range(60_000))
    source.write_text("".join(lines), encoding="utf-8")
    headrace.build(source, tmp_path / "corpus", shard_tokens=100_000)
    with headrace.open(tmp_path / "corpus") as corpus:
        plan = headrace.Plan(order="blocks", token_count=len(corpus), window=256, batch_size=16, seed=1)
        loader = headrace.Loader(corpus, plan)
        for step in range(1000):
            loader.batch(step)
        before = anonymous_bytes()
        for step in range(1000, 1000 + int(100_000 * scale)):
            loader.batch(step)
        assert anonymous_bytes() - before < 2_000_000
