"""What a shell may do to the command: close its output, interrupt it at once, or leave it little memory."""

import json
import shlex
import subprocess
import sys

HEADRACE = f"{shlex.quote(sys.executable)} -P -m headrace"


def shell(line: str, folder) -> subprocess.CompletedProcess:
    """Run one line of shell in a folder."""
    return subprocess.run(["/bin/sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False)


def test_a_closed_stdout_is_no_failure(tmp_path):
    """With stdout or both streams closed the build is done, and says so by its exit code."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    for number, closing in enumerate((">&-", ">&- 2>&-")):
        done = shell(f"{HEADRACE} build a.jsonl -o out{number} {closing}", tmp_path)
        assert (done.returncode, done.stdout) == (0, "")
        assert "Traceback" not in done.stderr
        assert shell(f"{HEADRACE} info out{number} {closing}", tmp_path).returncode == 0


INTERRUPTED = """
import os, signal, typer.main
from headrace.cli.main import run
made = typer.main.get_command
def make(app):  # as the command begins, its options not read yet
    os.kill(os.getpid(), signal.SIGINT)
    return made(app)
typer.main.get_command = make
run()
"""


def test_an_interrupt_before_the_command_is_read():
    """^C at once ends as it does later: exit code 130 and one line."""
    done = subprocess.run([sys.executable, "-P", "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "headrace: interrupted\n")


def test_a_file_without_documents_is_mentioned(tmp_path):
    """An empty file beside a good one is named, on stderr and among the events."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    for name in ("b.jsonl", "c.jsonl.gz"):
        (tmp_path / name).touch()
    done = shell(f"{HEADRACE} build . -o out", tmp_path)
    assert done.returncode == 0
    assert "b.jsonl: 0 documents" in done.stderr
    assert "c.jsonl.gz: 0 documents" in done.stderr
    events = shell(f"{HEADRACE} build . -o again --json", tmp_path).stdout.splitlines()
    assert any("b.jsonl: 0 documents" in json.loads(line).get("message", "") for line in events)


def test_too_little_memory_names_the_source(tmp_path):
    """A document that memory cannot hold is an error that names its file, without a traceback; nothing is published."""
    (tmp_path / "a.jsonl").write_text('{"text": "' + "abcdefg hij" * 10_000_000 + '"}\n', encoding="utf-8")
    done = shell(f"ulimit -v 900000; OPENBLAS_NUM_THREADS=1 {HEADRACE} build a.jsonl -o out --workers 1", tmp_path)
    assert done.returncode == 1
    assert "a.jsonl: not enough memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "shards.json").exists()


UNTHREADED = """
import threading
from headrace.cli.main import run
def start(thread): raise RuntimeError("can't start new thread")  # as Python does where the system refuses one
threading.Thread.start = start
run()
"""


def test_no_more_threads(tmp_path):
    """Where the system starts no more threads, as at a limit of processes, that is said in one line; nothing is published."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 9, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "-c", UNTHREADED, "build", "a.jsonl", "-o", "out", "--workers", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "headrace: the system starts no more threads" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "shards.json").exists()


def test_a_working_directory_that_is_gone(tmp_path):
    """A relative path in a folder that was removed is one line that says so; an absolute one is read."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    assert shell(f"{HEADRACE} build a.jsonl -o out", tmp_path).returncode == 0
    (tmp_path / "gone").mkdir()
    done = shell(f"cd gone && rmdir ../gone && {HEADRACE} info out; {HEADRACE} verify {tmp_path}/out", tmp_path)
    assert done.stderr == "headrace: the working directory is not there any more\n"
    assert done.stdout.startswith("000000-0000-0000  ok\n")
