"""Subscribers of a build: what they are told, and what happens when they, or the inputs, get in the way."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.errors import SourceError
from headrace.events import BuildFinished, BuildStarted, Event, Notice, Progress, ShardWritten


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Three sources, one compressed."""
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"):
        write_jsonl(tmp_path / "in" / name, [f"{name} {row}" for row in range(3000)])
    (tmp_path / "in" / "README.md").write_text("no input")
    return tmp_path / "in"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_course_of_a_build(sources, tmp_path, workers):
    """Notices, the start, progress that only grows up to all inputs, a line a shard, and the report last."""
    told: list[Event] = []
    report = headrace.build(sources, tmp_path / "c", workers=workers, on_event=told.append)
    assert isinstance(told[0], Notice)
    assert told[0].message.startswith("README.md: ")
    assert isinstance(told[1], BuildStarted)
    assert told[-1] is report
    assert isinstance(report, BuildFinished)
    progress = [event for event in told if isinstance(event, Progress)]
    for name in ("input_bytes", "documents", "tokens", "text_bytes", "seconds"):
        values = [getattr(event, name) for event in progress]
        assert values == sorted(values)
    last = progress[-1]
    assert last.input_bytes == told[1].input_bytes == sum(p.stat().st_size for p in sources.glob("*.jsonl*"))
    assert (last.documents, last.tokens, last.text_bytes) == (report.documents, report.tokens, report.text_bytes)
    assert sum(event.tokens for event in told if isinstance(event, ShardWritten)) == report.tokens


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [BuildStarted, Progress, ShardWritten, KeyboardInterrupt])
def test_a_subscriber_that_fails(sources, tmp_path, workers, kind):
    """Its exception ends the build and reaches the caller; no index is left, and nothing at all if nothing was finished."""
    error = KeyboardInterrupt if kind is KeyboardInterrupt else ZeroDivisionError

    def fail(event: Event) -> None:
        if isinstance(event, Progress if kind is KeyboardInterrupt else kind):
            raise error

    with pytest.raises(error):
        headrace.build(sources, tmp_path / "c", workers=workers, on_event=fail)
    assert not (tmp_path / "c" / "shards.json").exists()
    if kind is BuildStarted:
        assert not (tmp_path / "c").exists()


def grow(path: Path) -> None:
    """A writer appends."""
    with path.open("ab") as file:
        file.write(b'{"text": "late"}\n')


def shrink(path: Path) -> None:
    """A writer cuts."""
    os.truncate(path, path.stat().st_size - 5)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (grow, "c.jsonl: changed while it was read"),
        (shrink, "c.jsonl: changed while it was read"),
        (Path.unlink, r"c.jsonl: cannot be opened \(No such file or directory\)"),
    ],
)
def test_an_input_that_changes(sources, tmp_path, workers, change: Callable[[Path], None], message):
    """An input that is written to, or goes, between listing and reading stops the build, which names it.

    The same command then goes on, with that input as it is now.
    """

    def disturb(event: Event) -> None:
        if isinstance(event, BuildStarted):
            change(sources / "c.jsonl")

    with pytest.raises(SourceError, match=message):
        headrace.build(sources, tmp_path / "c", workers=workers, on_event=disturb)
    assert not (tmp_path / "c" / "shards.json").exists()
    (sources / "c.jsonl").write_text('{"text": "another"}\n')
    headrace.build(sources, tmp_path / "c", workers=workers)
    headrace.build(sources, tmp_path / "d", workers=1)
    assert headrace.open(tmp_path / "c").fingerprint == headrace.open(tmp_path / "d").fingerprint


@pytest.mark.parametrize("workers", [1, 2])
def test_builds_in_threads(sources, published, tmp_path, workers):
    """Several builds at once in one process do not meet: each gives the bytes that it gives alone."""
    headrace.build(sources, tmp_path / "alone", workers=1)
    threads = [
        threading.Thread(target=headrace.build, args=(sources, tmp_path / str(number)), kwargs={"workers": workers})
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert published(tmp_path / str(number)) == published(tmp_path / "alone")
