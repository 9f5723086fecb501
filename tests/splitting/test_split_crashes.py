"""A split that ends early leaves whole parts or none; the same command then ends alike. Workers may die, and take no lock along."""

import os
import runpy
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace
from headrace.children import child_command
from headrace.errors import BuildError, MissingShardError, OutputExistsError
from headrace.events import Notice, Progress
from headrace.manifest import SourceEntry, read_manifest
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import small_corpus

BUILDING = Path(__file__).parents[1] / "building"
comparable = runpy.run_path(str(BUILDING / "corpus_files.py"))["comparable"]
OPTIONS = {"fractions": {"val": 0.5}}
WHENS = ("before", "within", "after")
DOCUMENTS = 20_000
"""Of each shard of a longer corpus."""


class Case:
    """A split and its moments."""

    def __init__(self, builder: Any, files: Callable[[Path], dict[str, str]], folder: Path, source: Path) -> None:
        self.builder = builder
        self.files = files
        self.folder = folder
        self.source = source
        self.before = files(source)
        folder.mkdir()
        whole = self.ask(folder / "whole")
        assert whole["ended"] == "done"
        assert whole["missed"] == []
        self.points: list[str] = whole["points"]
        self.wanted = files(folder / "whole")
        self.prints = {name: read_manifest(folder / "whole" / name).fingerprint.hex for name in ("val", "train")}

    def ask(self, output: Path, **more: Any) -> dict[str, Any]:
        """Have it made there."""
        return self.builder.ask(self.source, output, OPTIONS, split=True, **more)

    def open_parts(self, output: Path) -> list[str]:
        """Names of the parts that open, every byte of which is right."""
        found = []
        for name, fingerprint in self.prints.items():
            try:
                with headrace.open(output / name, verify="full") as corpus:
                    assert corpus.fingerprint.hex == fingerprint
                    found.append(name)
            except MissingShardError:
                assert not (output / name / "shards.json").exists()
        return found

    def die(self, index: int, when: str, there: Path | None = None) -> list[str]:
        """Die there, see what opens, and go on; returns which parts were open."""
        output = self.folder / f"{index}-{when}"
        if there is not None:
            shutil.copytree(there, output)
        place = f"{when} {index}, {self.points[index]}"
        assert self.ask(output, fault={"when": when, "index": index}) == {"ended": "killed"}, place
        seen = self.open_parts(output)
        assert self.ask(output)["ended"] == "done", place
        assert self.files(output) == self.wanted, place
        assert self.files(self.source) == self.before, place
        shutil.rmtree(output)
        return seen


def some(points: list[str]) -> list[tuple[int, str]]:
    """The first call of each point, every sixtieth of all, and the last ten; each in one of the three ways."""
    firsts = {points.index(name) for name in {*points}}
    chosen = sorted(firsts | {*range(0, len(points), 60)} | {*range(len(points) - 10, len(points))})
    return [(index, WHENS[number % 3]) for number, index in enumerate(chosen)]


def each(points: list[str]) -> list[tuple[int, str]]:
    """All of them in one of the ways."""
    return [(index, WHENS[index % 3]) for index in range(len(points))]


def every(points: list[str]) -> list[tuple[int, str]]:
    """All of them in all ways."""
    return [(index, when) for index in range(len(points)) for when in WHENS]


@pytest.mark.parametrize(
    "moments",
    [some, pytest.param(each, marks=pytest.mark.extended), pytest.param(every, marks=pytest.mark.soak)],
)
def test_killed_at_a_write(builder, small, files, tmp_path, moments):
    """Before, within or after a write: no part opens, or whole ones, in order; afterwards all is as if nothing had been."""
    case = Case(builder, files, tmp_path / "runs", small)
    seen = [case.die(*moment) for moment in moments(case.points)]
    assert {tuple(parts) for parts in seen} == {(), ("val",), ("val", "train")}
    assert seen == sorted(seen, key=len)


@pytest.mark.parametrize(
    "moments", [slice(3, None, 25), pytest.param(slice(None), marks=pytest.mark.extended)], ids=str
)
def test_a_split_of_lance_data_sets_killed(builder, tmp_path, moments):
    """Likewise; what Lance names at random and counts apart."""
    pytest.importorskip("lance")
    rows = [{"q": f"{word} {number}", "a": word} for number in range(20) for word in ("wheel", "mill")]
    options = {"prompt_field": "q", "response_field": "a", "shard_tokens": 300, "chunk_tokens": 32, "workers": 1}
    headrace.build(rows, tmp_path / "c", store="lance", **options)
    builder.ask(tmp_path, tmp_path, {}, lance=True)
    case = Case(builder, comparable, tmp_path / "runs", tmp_path / "c")
    seen = [case.die(*moment) for moment in each(case.points)[moments]]
    assert {tuple(parts) for parts in seen} >= {(), ("val",)}
    assert seen == sorted(seen, key=len)


def test_killed_while_it_begins_again(builder, small, files, tmp_path):
    """What a split that died has left goes, however often the next ones die while they remove it."""
    case = Case(builder, files, tmp_path / "runs", small)
    middle = len(case.points) // 2
    left = tmp_path / "left"
    assert case.ask(left, fault={"when": "after", "index": middle}) == {"ended": "killed"}
    for index in range(0, 24, 3):
        assert case.die(index, WHENS[index % 2 + 1], left) == []
    for index in reversed(range(len(case.points))):
        late = tmp_path / f"late-{index}"
        assert case.ask(late, fault={"when": "before", "index": index}) == {"ended": "killed"}
        if case.open_parts(late) == ["val"]:  # which is kept
            break
    for index in (0, 1, 5, 9):
        assert case.die(index, "after", late) == ["val"]


def test_an_unfinished_split_of_another_command(builder, small, files, tmp_path):
    """It is refused, each difference named, and nothing is touched; its own command goes on."""
    case = Case(builder, files, tmp_path / "runs", small)
    left = tmp_path / "left"
    assert case.ask(left, fault={"when": "after", "index": len(case.points) // 2}) == {"ended": "killed"}
    before = files(left)
    with pytest.raises(OutputExistsError) as error:
        headrace.split(small, left, {"val": 0.25}, seed=3)
    assert "of another command: seed was 0, is 3; fractions was val=0.5, is val=0.25" in str(error.value)
    assert files(left) == before
    (left / ".headrace" / "split.json").write_text("{")
    with pytest.raises(OutputExistsError, match=r"split\.json: is damaged"):
        headrace.split(small, left, {"val": 0.5})
    (left / ".headrace" / "split.json").unlink()
    with pytest.raises(OutputExistsError, match="and is no part of this split"):
        headrace.split(small, left, {"val": 0.5})


def long_corpus(folder: Path, shards: int = 2) -> Path:
    """Shards of many short documents."""
    documents = DOCUMENTS
    small_corpus(folder, [[[1]]], chunk_size=4096)
    entries, start = [], 0
    for number in range(shards):
        path = folder / f"{number:06d}-0000-0000.h5"
        tokens = np.zeros(documents * 6, np.uint16)
        for place in range(5):
            tokens[place::6] = np.arange(documents) * (number + 1) // 10**place % 10 + 1
        ends, numbers = np.arange(1, documents + 1) * 6, np.arange(documents)
        with HDF5ShardWriter(path, 4096, vocab_size=257, source_files=["a"], flush_chunks=16) as writer:
            writer.add_documents(tokens, ends, rows=numbers, offsets=numbers, files=np.zeros(documents, np.uint32))
        entries.append(replace(writer.result(path.stem), path=path.name, global_start=start, source=number))
        start += entries[-1].token_count
    sources = tuple(SourceEntry(path="a", size=1, sha256="0" * 64, documents=documents) for _ in range(shards))
    manifest = replace(read_manifest(folder), shards=tuple(entries), sources=sources)
    (folder / "shards.json").write_bytes(manifest.to_json())
    shutil.rmtree(folder / ".headrace")
    return folder


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """Two shards; do not write into it."""
    return long_corpus(tmp_path_factory.mktemp("long") / "c")


def test_a_worker_dies(long, tmp_path, files, halted, children, monkeypatch):
    """Its shard is begun once more; the parts are the same. One that dies again stops the split, and nothing is left."""
    headrace.split(long, tmp_path / "o", {"val": 0.5}, workers=1)
    halt = halted("0*.h5")
    for name, value in halt.variables.items():
        monkeypatch.setenv(name, value)
    notices: list[str] = []
    killed: list[int] = []
    others = set(children(os.getpid()))
    deaths = 1

    def kill(event: object) -> None:
        if isinstance(event, Notice):
            notices.append(event.message)
        if isinstance(event, Progress) and event.documents == 2 * DOCUMENTS:  # both are about to publish
            for worker in [pid for pid in children(os.getpid()) if pid not in others][: deaths - len(killed)]:
                killed.append(worker)
                os.kill(worker, signal.SIGKILL)
            if len(killed) == deaths:
                halt.go.touch()

    headrace.split(long, tmp_path / "p", {"val": 0.5}, workers=2, on_event=kill)
    assert (
        len([message for message in notices if "a worker died (signal 9: Killed) while it read 00000" in message]) == 1
    )
    assert files(tmp_path / "p") == files(tmp_path / "o")
    halt.go.unlink()
    deaths = 99
    with pytest.raises(BuildError, match="a worker died twice"):
        headrace.split(long, tmp_path / "q", {"val": 0.5}, workers=2, on_event=kill)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("way", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.extended)])
def test_the_command_dies(long, tmp_path, files, halted, until, children, running, way):
    """Killed or interrupted with its workers at work: these end, nothing opens, and the same command then succeeds."""
    headrace.split(long, tmp_path / "o", {"val": 0.5}, workers=1)
    output = tmp_path / "p"
    arguments = ["split", long, "-o", output, "--fraction", "val=0.5", "--workers", "2"]
    command = [*child_command("headrace"), *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=halted("0*.h5").environment
    )
    until(lambda: len(list(output.glob("val/.0*.partial"))) == 2 or process.poll() is not None)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(way)
    error = process.communicate()[1].decode()
    assert process.returncode == (-9 if way == signal.SIGKILL else 130)
    assert "Traceback" not in error
    until(lambda: not any(map(running, workers)))
    if way == signal.SIGINT:
        assert not output.exists()
    else:
        assert not list(output.glob("*/shards.json"))
    headrace.split(long, output, {"val": 0.5}, workers=1)
    assert files(output) == files(tmp_path / "o")
