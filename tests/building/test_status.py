"""What `headrace status` says of an output folder, while a build is at work there, after it died, and when it is done."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headrace
from headrace import status
from headrace.building.output import OutputFolder
from headrace.errors import MissingShardError
from headrace.events import Event, ShardWritten
from headrace.status import BuildStatus, build_status


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Three sources."""
    for name, count in (("a", 10), ("b", 10), ("c", 100)):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [f"document {n} of {name}" for n in range(count)])
    return tmp_path / "in"


def when(output: Path, state: str, finished: int = 0) -> BuildStatus:
    """Wait until a build there is in that state and so many source shards are finished."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            found = build_status(output)
        except MissingShardError:
            continue
        if found.state == state and found.finished >= finished:
            return found
        time.sleep(0.01)
    raise AssertionError(f"never {state}")


HALTING_BUILD = """
import sys, time, headrace
from headrace.events import ShardWritten
written = []
def halt(event):
    written.extend([event] * isinstance(event, ShardWritten))
    if len(written) == 2:
        time.sleep(600)
headrace.build(sys.argv[1], sys.argv[2], workers=1, on_event=halt)
"""
"""A build of the folder given first into the one given next, which waits once two shards are written."""


def test_running_dead_and_done(sources, run_process, tmp_path):
    """A build in another process is running; killed, it is dead; done by the same command, it is done."""
    output = tmp_path / "c"
    process = subprocess.Popen([sys.executable, "-P", "-c", HALTING_BUILD, sources, output])
    running = when(output, "running", 2)
    assert (running.mode, running.source_shards, running.fingerprint) == ("build", 3, "")
    assert running.total_bytes == sum(path.stat().st_size for path in sources.iterdir())
    assert 0 <= running.share <= 1
    assert running.age < 240
    process.send_signal(signal.SIGKILL)
    process.wait()
    dead = when(output, "dead", 2)
    assert dead.finished == 2
    ran = run_process("status", output)
    assert ran.code == 0
    assert "state          dead\nsource shards  2 of 3 finished\n" in ran.out
    assert "the same command goes on" in ran.out
    report = headrace.build(sources, output, workers=1)
    assert report.resumed == 2
    done = build_status(output)
    assert done == BuildStatus(
        path=str(output), state="done", documents=120, tokens=report.tokens, fingerprint=report.fingerprint
    )
    ran = run_process("status", output, "--json")
    assert json.loads(ran.out) == {
        "path": str(output),
        "state": "done",
        "mode": None,
        "finished": 0,
        "source_shards": 0,
        "overwriting": 0,
        "input_bytes": 0,
        "total_bytes": 0,
        "seconds": 0.0,
        "age": 0.0,
        "documents": 120,
        "tokens": report.tokens,
        "fingerprint": report.fingerprint,
        "share": 1.0,
    }


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_of_a_corpus_that_is_changed(sources, write_jsonl, tmp_path, mode):
    """While sources are appended, or the corpus is replaced, the old one's fingerprint is told; afterwards the new one's."""
    output = tmp_path / "c"
    more = write_jsonl(tmp_path / "more" / "d.jsonl", ["one", "two"])
    old = headrace.build(sources / "a.jsonl", output, workers=1).fingerprint
    seen: list[BuildStatus] = []

    def look(event: Event) -> None:
        if isinstance(event, ShardWritten):
            seen.append(build_status(output))

    new = headrace.build(more, output, workers=1, on_event=look, **{mode: True}).fingerprint
    (during,) = seen
    assert (during.state, during.mode, during.finished, during.fingerprint) == ("running", mode, 1, old)
    assert build_status(output).fingerprint == new


@pytest.mark.parametrize("mode", ["build", "append", "overwrite"])
def test_of_a_build_that_ends_meanwhile(sources, tmp_path, monkeypatch, mode):
    """Between two looks at the folder: it is done, not dead, and what is told is of the new corpus."""
    output = tmp_path / "c"
    if mode != "build":
        headrace.build(sources / "a.jsonl", output, workers=1)
    written, ends = threading.Event(), threading.Event()

    def halt(event: Event) -> None:
        if isinstance(event, ShardWritten):
            written.set()
            ends.wait()

    options = {} if mode == "build" else {mode: True}
    build = threading.Thread(
        target=headrace.build,
        args=(sources / "b.jsonl", output),
        kwargs={"workers": 1, "on_event": halt, **options},
        daemon=True,
    )
    build.start()
    written.wait()
    locked = status._locked

    def locked_once_it_has_ended(folder: Path) -> bool:
        ends.set()
        build.join()
        return locked(folder)

    monkeypatch.setattr(status, "_locked", locked_once_it_has_ended)
    found = build_status(output)
    corpus = headrace.open(output).manifest
    assert found == BuildStatus(
        path=str(output),
        state="done",
        documents=corpus.total_documents,
        tokens=corpus.total_tokens,
        fingerprint=corpus.fingerprint.hex,
    )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_to_do_about_a_change_that_died(sources, write_jsonl, run_process, tmp_path, mode):
    """Nobody is told to replace a corpus to which something was being added; what is told to remove gives the append up."""
    output = tmp_path / "c"
    more = [write_jsonl(tmp_path / "more" / name, ["one", "two"]) for name in ("d.jsonl", "e.jsonl")]
    old = headrace.build(sources / "a.jsonl", output, workers=1).fingerprint

    def stop(event: Event) -> None:
        if isinstance(event, ShardWritten):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        headrace.build(more, output, workers=1, on_event=stop, **{mode: True})
    ran = run_process("status", output)
    assert "state          dead\n" in ran.out
    assert "the same command goes on" in ran.out
    assert "--overwrite" not in ran.out
    assert ("remove .headrace/journal.jsonl" in ran.out) == (mode == "append")
    assert build_status(output).fingerprint == old
    if mode == "append":
        (output / ".headrace" / "journal.jsonl").unlink()
        assert headrace.build(sources / "a.jsonl", output, workers=1).fingerprint == old
        assert (build_status(output).state, build_status(output).fingerprint) == ("done", old)


def test_of_nothing(tmp_path, run_process):
    """A folder that holds neither, or is not there, is an error that says what was wanted."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(MissingShardError, match="neither a corpus"):
            build_status(path)
    assert run_process("status", tmp_path / "none").code == 1


def test_of_a_damaged_file(tmp_path, run_process):
    """One that is damaged is an error that names it, without a traceback."""
    (tmp_path / "building.json").write_bytes(b'{"version": 1}')
    ran = run_process("status", tmp_path)
    assert ran.code == 1
    assert "building.json: is damaged" in ran.err
    assert "Traceback" not in ran.err


def test_looking_disturbs_no_build(tmp_path):
    """However often one looks, a build that begins at the same moment takes its lock."""
    (tmp_path / "c" / ".headrace").mkdir(parents=True)
    (tmp_path / "c" / ".headrace" / "lock").touch()
    (tmp_path / "c" / "building.json").write_bytes(b"{}")
    stop = threading.Event()

    def look() -> None:
        import fcntl

        while not stop.is_set():
            lock = os.open(tmp_path / "c" / ".headrace" / "lock", os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.close(lock)
            time.sleep(0.001)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(5):
            with OutputFolder(tmp_path / "c"):
                pass
    finally:
        stop.set()
        thread.join()
