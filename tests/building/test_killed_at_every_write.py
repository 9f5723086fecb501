"""Killed at any call by which a build changes its output, the old corpus or none opens, and the same command ends alike."""

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import MissingShardError
from headrace.verify import verify_path

DYING = runpy.run_path(str(Path(__file__).with_name("dying_builds.py")))
comparable = runpy.run_path(str(Path(__file__).with_name("corpus_files.py")))["comparable"]
OPTIONS = {"chunk_tokens": 16, "shard_tokens": 20, "on_bad_input": "skip", "max_bad": 1}
WHENS = ("before", "within", "after")
PART_BYTES = 150
"""Of shuffled documents: three parts."""
MASKED = {"prompt_field": "text", "response_field": "text"}
"""Of a build that stores a loss mask."""
HDF5 = ("SwmrFile", "Column", "Scalar")
"""How the points of HDF5 are called."""


def write(folder: Path, word: str) -> Path:
    """Two sources: one of several shards of several chunks, one with a bad line."""
    folder.mkdir()
    lines = [json.dumps({"text": word * length}) + "\n" for length in (1, 0, 2, 5)]
    (folder / "a.jsonl").write_text("".join(lines))
    (folder / "b.jsonl").write_text(lines[1] + "bad\n" + lines[2])
    return folder


class Case:
    """A build and its moments."""

    def __init__(
        self,
        builder: Any,
        folder: Path,
        mode: str,
        compression: str = "none",
        *,
        links: bool = True,
        cut_bytes: int | None = None,
        there: dict[str, object] | None = None,
        **options: object,
    ) -> None:
        self.builder = builder
        self.sizes = {"cut_bytes": cut_bytes, "part_bytes": PART_BYTES}
        self.folder = folder
        self.inputs = write(folder / "in", "wheel")
        self.options = {**OPTIONS, "compression": compression, **({} if mode == "build" else {mode: True}), **options}
        self.links = links
        self.there: Path | None = None
        if mode != "build":
            self.there = folder / "there"
            before = {**OPTIONS, "compression": compression, **(options if there is None else there)}
            assert builder.ask(write(folder / "old", "mill"), self.there, before)["ended"] == "done"
        output = self.place("whole")
        whole = self.ask(output)
        assert whole["missed"] == []
        self.points: list[str] = whole["points"]
        self.wanted = comparable(output)
        self.prints = {None if self.there is None else self.print_of(self.there), self.print_of(output)}

    def ask(self, output: Path, **more: Any) -> dict[str, Any]:
        """Have it built there."""
        return self.builder.ask(self.inputs, output, self.options, links=self.links, **self.sizes, **more)

    def place(self, name: str) -> Path:
        """A folder in which the build may begin."""
        if self.there is not None:
            shutil.copytree(self.there, self.folder / name)
        return self.folder / name

    def print_of(self, output: Path) -> str | None:
        """Fingerprint of what opens there, every byte of which is right; None if nothing does."""
        try:
            with headrace.open(output, verify="full") as corpus:
                return corpus.fingerprint.hex
        except MissingShardError:
            assert not (output / "shards.json").exists()
            return None

    def die(self, index: int, when: str) -> str | None:
        """Die there, see what opens, and go on; returns its fingerprint."""
        output = self.place(f"{index}-{when}")
        name = f"{when} {index}, {self.points[index]}"
        dead = self.ask(output, fault={"when": when, "index": index})
        assert dead == {"ended": "killed"}, name
        seen = self.print_of(output)
        assert seen in self.prints, name
        assert self.ask(output)["ended"] == "done", name
        assert comparable(output) == self.wanted, name
        shutil.rmtree(output)
        return seen


def some(points: list[str]) -> list[tuple[int, str]]:
    """The first and the last call of each point, and every tenth of all; each in one of the three ways."""
    ends = {index for name in {*points} for index in (points.index(name), len(points) - 1 - points[::-1].index(name))}
    chosen = sorted(ends | {*range(0, len(points), 10)})
    return [(index, WHENS[number % 3]) for number, index in enumerate(chosen)]


def some_of_hdf5(points: list[str]) -> list[tuple[int, str]]:
    """Of these, those that are of HDF5; and the ends."""
    chosen = some(points)
    return [chosen[0], *(moment for moment in chosen if points[moment[0]].startswith(HDF5)), (len(points) - 1, "after")]


def some_of_publishing(points: list[str]) -> list[tuple[int, str]]:
    """The last fourteen in one of the ways, and some before."""
    return [*each(points)[:-14:90], *each(points)[-14:]]


def some_of_shuffling(points: list[str]) -> list[tuple[int, str]]:
    """Every 15th in one of the ways, and the last one."""
    return [*each(points)[::15], (len(points) - 1, "after")]


def each(points: list[str]) -> list[tuple[int, str]]:
    """All of them in one of the ways."""
    return [(index, WHENS[index % 3]) for index in range(len(points))]


def every(points: list[str]) -> list[tuple[int, str]]:
    """All of them in all ways."""
    return [(index, when) for index in range(len(points)) for when in WHENS]


def die_at(moments: Callable[[list[str]], list[tuple[int, str]]], case: Case) -> None:
    """Die at some moments; the old corpus is seen before the new one."""
    seen = [case.die(*moment) for moment in moments(case.points)]
    assert {*seen} == case.prints
    new = case.print_of(case.folder / "whole")
    assert seen == sorted(seen, key=lambda fingerprint: fingerprint == new)


@pytest.mark.parametrize(("compression", "moments"), [("none", some), ("gzip", some_of_hdf5)])
def test_a_build_killed_at_some_writes(builder, tmp_path, compression, moments):
    """Every kind of write is among them, but for those of an overwrite."""
    case = Case(builder, tmp_path, "build", compression)
    assert {*DYING["POINTS"]} - {*case.points} == {"os.link", "os.rmdir", "shutil.copyfile"}
    die_at(moments, case)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("mode", "compression", "links"),
    [
        ("build", "none", True),
        ("build", "gzip", True),
        ("append", "gzip", True),
        ("overwrite", "none", True),
        ("overwrite", "none", False),
    ],
)
def test_killed_at_every_write(builder, tmp_path, mode, compression, links):
    """All writes, before, within or after each."""
    case = Case(builder, tmp_path, mode, compression, links=links)
    if mode == "overwrite":
        assert {*DYING["POINTS"]} - {*case.points} == ({"shutil.copyfile"} if links else set())
    die_at(each, case)


@pytest.mark.parametrize(
    "moments", [some_of_publishing, pytest.param(each, marks=pytest.mark.extended)], ids=["publishing", "each"]
)
def test_a_build_of_cut_files_killed(builder, tmp_path, moments):
    """Every line a cut of its own, or a part of one; the list of what was dropped is given its lines at the end."""
    case = Case(builder, tmp_path, "build", cut_bytes=13)
    log = case.folder / "whole" / ".headrace" / "dropped" / "000001-0001.jsonl"
    assert [json.loads(line)["line"] for line in log.read_text().splitlines()] == [2]
    die_at(moments, case)


@pytest.mark.parametrize("mode", ["build", pytest.param("append", marks=pytest.mark.extended), "overwrite"])
def test_a_build_without_duplicates_killed(builder, tmp_path, mode):
    """The files of its first pass go, whenever it dies; what is finished is kept, and the end is the same."""
    case = Case(builder, tmp_path, mode, dedup="exact")
    rows = (case.folder / "whole" / ".headrace" / "dropped").glob("*.jsonl")
    assert any(json.loads(line).get("kept") for log in rows for line in log.read_text().splitlines())
    die_at(lambda points: [*each(points)[::9], (len(points) - 1, "after")], case)


@pytest.mark.parametrize(
    ("mode", "moments"),
    [
        ("build", some_of_shuffling),
        pytest.param("build", each, marks=pytest.mark.extended),
        pytest.param("append", each, marks=pytest.mark.extended),
        pytest.param("overwrite", each, marks=pytest.mark.extended),
    ],
)
def test_a_build_of_shuffled_documents_killed(builder, tmp_path, mode, moments):
    """While they are spilled, and while the parts are written; some parts are finished then, and stay."""
    case = Case(builder, tmp_path, mode, sample_seed=3, max_documents=3)
    assert not list((tmp_path / "whole").rglob("*.run"))
    die_at(moments, case)


@pytest.mark.parametrize(
    ("mode", "moments"),
    [
        ("build", lambda points: some_of_lance(points)[::3]),
        ("append", lambda points: some_of_lance(points)[-5:]),
        ("overwrite", lambda points: some_of_lance(points)[-5:]),
        *(pytest.param(mode, each, marks=pytest.mark.extended) for mode in ("build", "append", "overwrite")),
    ],
)
def test_a_build_of_lance_data_sets_killed(builder, tmp_path, mode, moments):
    """Around the calls of Lance and the names that files get; whatever was committed and not published goes, and no file stays."""
    pytest.importorskip("lance")
    builder.ask(tmp_path, tmp_path, {}, lance=True)
    case = Case(builder, tmp_path, mode, store="lance")
    assert {*DYING["LANCE_POINTS"]} <= {*case.points}
    seen = [case.die(*moment) for moment in moments(case.points)]
    assert {*seen} <= case.prints


@pytest.mark.parametrize(
    ("mode", "there", "options"),
    [
        ("build", None, MASKED),
        pytest.param("append", None, MASKED, marks=pytest.mark.extended),
        pytest.param("overwrite", MASKED, {}, marks=pytest.mark.extended),
        pytest.param("overwrite", {}, MASKED, marks=pytest.mark.extended),
    ],
    ids=["build", "append", "a mask goes", "a mask comes"],
)
def test_a_build_of_lance_with_a_loss_mask_killed(builder, tmp_path, mode, there, options):
    """Likewise where a third data set comes, grows or goes."""
    pytest.importorskip("lance")
    builder.ask(tmp_path, tmp_path, {}, lance=True)
    lance = {"store": "lance"}
    case = Case(builder, tmp_path, mode, there=None if there is None else {**lance, **there}, **lance, **options)
    assert (tmp_path / "whole" / "loss_mask.lance").exists() == bool(options)
    moments = some_of_lance(case.points)
    seen = [case.die(*moment) for moment in (moments[-6:] if mode == "overwrite" else moments[::5])]
    assert {*seen} <= case.prints
    assert not [report.fault for report in verify_path(tmp_path / "whole") if not report.ok]


def some_of_lance(points: list[str]) -> list[tuple[int, str]]:
    """Of each point the first, one between and the last, in one of the ways; and the last one of all."""
    places = {name: [index for index, point in enumerate(points) if point == name] for name in {*points}}
    chosen = {index for found in places.values() for index in (found[0], found[len(found) // 2], found[-1])}
    return [(index, WHENS[number % 3]) for number, index in enumerate(sorted(chosen))] + [(len(points) - 1, "after")]


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("mode", ["build", "append", "overwrite"])
def test_killed_before_within_and_after_every_write(builder, tmp_path, mode, compression):
    """All of them."""
    die_at(every, Case(builder, tmp_path, mode, compression))
