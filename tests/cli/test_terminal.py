"""What reaches the terminal, the pipe and the log, as processes of their own: encodings, broken pipes, progress."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as library
from headrace.testing.corpora import random_documents, small_corpus

COMMAND = [sys.executable, "-P", "-m", "headrace"]
PLAIN = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
"""A terminal that knows ASCII alone."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A folder with names of all sorts: Greek, not UTF-8, with a space, a line break and a dash in front."""
    folder = tmp_path_factory.mktemp("sources") / "dätä"
    folder.mkdir()
    names = (b"\xff\xfe.jsonl", "λόγος.jsonl".encode(), b"a b.jsonl", b"two\nlines.jsonl", b"-dash.jsonl")
    for number, name in enumerate(names):
        row = json.dumps({"text": "λόγος → \u2028 \x1b"}, ensure_ascii=False) + " " * number
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(row + "\n", encoding="utf-8")
    return folder


def test_names_that_are_not_utf8(sources, run_process, tmp_path):
    """Any file name is read, stored as UTF-8, and shown; the whole corpus verifies."""
    ran = run_process("build", sources, "-o", tmp_path / "c", "--workers", 2)
    assert ran.code == 0, ran.err
    labels = [source["path"] for source in json.loads((tmp_path / "c" / "shards.json").read_bytes())["sources"]]
    assert labels == ["-dash.jsonl", "a b.jsonl", "two\\x0alines.jsonl", "λόγος.jsonl", "\\xff\\xfe.jsonl"]
    ran = run_process("show", tmp_path / "c", "--document", 4)
    assert " from \\xff\\xfe.jsonl:1 (byte 0)\n" in ran.out


def test_a_terminal_of_ascii(sources, run_process, tmp_path):
    """With LANG=C nothing fails to be printed: what ASCII cannot express is escaped."""
    (sources.parent / "bad.jsonl").write_text("{}\n")
    output = tmp_path / "größer"
    build = run_process("build", sources, "-o", output, "--workers", 1, env=PLAIN)
    assert build.code == 0, build.err
    runs = [
        run_process("show", output, "--document", 3, env=PLAIN),
        run_process("show", output, "--document", 3, "--json", env=PLAIN),
        run_process("info", output, env=PLAIN),
        run_process("verify", output, env=PLAIN),
        run_process("build", sources.parent / "bad.jsonl", sources, "-o", tmp_path / "d", env=PLAIN),
        run_process("build", sources / "ζ.jsonl", "-o", tmp_path / "d", env=PLAIN),
        run_process("build", sources, "-o", output, "--chunk-tokens", 7, env=PLAIN),
        run_process("status", output, env=PLAIN),
        run_process("build", "--help", env=PLAIN),
    ]
    assert [ran.code for ran in runs] == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    for ran in (build, *runs):
        assert (ran.out + ran.err).isascii()
        assert "Traceback" not in ran.err
    assert "\\u03bb" in runs[0].out
    assert json.loads(runs[1].out)["pieces"][0]["text"] == "λόγος → \u2028 \x1b"


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """A folder with a source and its corpus, more text than a pipe holds."""
    folder = tmp_path_factory.mktemp("long")
    rows = (json.dumps({"text": f"{row} " * 200}) + "\n" for row in range(500))
    (folder / "a.jsonl").write_text("".join(rows))
    library.build(folder / "a.jsonl", folder / "c")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "CORPUS", "--window", "0", "--length", "1000000"],
        ["show", "CORPUS", "--window", "0", "--length", "1000000", "--json"],
        ["info", "CORPUS"],
        ["verify", "CORPUS"],
        ["verify", "CORPUS", "--json"],
        ["build", "--help"],
        ["build", "SOURCE", "-o", "OUTPUT", "--json"],
    ],
)
def test_a_reader_that_leaves(long, tmp_path, arguments):
    """Piped into a program that reads no more, as `head` does, a command ends quietly and leaves nothing half made."""
    paths = {"CORPUS": long / "c", "SOURCE": long / "a.jsonl", "OUTPUT": tmp_path / "c"}
    reading, writing = os.pipe()
    os.close(reading)  # before anything is written
    done = subprocess.run(
        [*COMMAND, *(paths.get(word, word) for word in arguments)],
        stdout=writing,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        check=False,
    )
    os.close(writing)
    err = done.stderr.decode()
    assert done.returncode in {0, 1}
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert not (tmp_path / "c").exists()


def on_a_terminal(arguments: list[object]) -> tuple[int, str]:
    """Run the command with a terminal for stderr and stdout; returns exit code and everything shown."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=slave,
        stderr=slave,
        stdin=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    return process.wait(), shown.decode()


def test_progress_on_a_terminal(sources, tmp_path):
    """On a terminal a bar shows the progress, and stays out of the report, which is whole."""
    code, shown = on_a_terminal(["build", sources, "-o", tmp_path / "c", "--workers", "1"])
    assert code == 0, shown
    assert "100%" in shown
    assert "\x1b[" in shown
    report = shown[shown.index("corpus ") :]
    assert "\x1b[" not in report.split("corpus", 1)[1].split("fingerprint")[0].replace("\x1b[?25h", "")


@pytest.mark.extended
def test_a_training_run_on_a_terminal(tmp_path):
    """A bar shows step, loss, learning rate, speed and the wait for data, also where the terminal does not know its size."""
    corpus = small_corpus(tmp_path / "corpus", random_documents(5, [40, 30]))
    code, shown = on_a_terminal(
        ["train", corpus, "-o", tmp_path / "run", "--config", "tiny", "--window", "16", "--steps", "40"]
    )
    assert code == 0, shown
    assert re.search(r"/40 \[.*loss \d\.\d{4}, lr \d\.\d\de-\d\d, [\d,]+ tokens/s, data wait \d+\.\d%", shown), shown


def test_an_error_on_a_terminal(sources, tmp_path):
    """The bar is gone, and the cursor back, before the error is told."""
    (tmp_path / "bad.jsonl").write_text("{}\n")
    code, shown = on_a_terminal(["build", sources, tmp_path / "bad.jsonl", "-o", tmp_path / "c", "--workers", "1"])
    assert code == 1
    tail = shown[shown.index("headrace: ") :]
    assert "1 bad document" in tail
    assert "\x1b" not in tail


def test_documents_do_not_steer_the_terminal(sources, run_process, tmp_path):
    """On a terminal the control characters of a document are escaped; in a pipe its text is what it is."""
    run_process("build", sources / "a b.jsonl", "-o", tmp_path / "c")
    code, shown = on_a_terminal(["show", tmp_path / "c", "--document", 0])
    assert code == 0
    assert "λόγος → \u2028 \\x1b<|boundary|>" in shown
    assert "\u2028 \x1b<|boundary|>" in run_process("show", tmp_path / "c", "--document", 0).out


def test_progress_off_a_terminal(sources, run_process, tmp_path):
    """In a log there is a line at the start, no control characters, and nothing but the report on stdout."""
    ran = run_process("build", sources, "-o", tmp_path / "c", "--workers", 1)
    first, *lines = ran.err.splitlines()
    assert first == f"building {tmp_path}/c: 5 source shards, 200 B, 1 worker, tokenizer bytes"
    assert all(re.fullmatch(r" *\d+%  \d+ documents, .* left", line) for line in lines)  # where it took seconds
    assert ran.out.startswith("corpus ")
    assert "\x1b" not in ran.out + ran.err


def test_lines_of_progress(headrace, sources, tmp_path, monkeypatch):
    """A long build tells, every few seconds, its share, documents, tokens, rate and the time that is left."""
    from headrace.building import tally
    from headrace.cli import terminal

    monkeypatch.setattr(terminal, "_LINE_SECONDS", 0)
    monkeypatch.setattr(tally, "REPORT_SECONDS", 0)
    ran = headrace("build", sources, "-o", tmp_path / "c", "--workers", 1)
    lines = ran.err.splitlines()[1:]
    assert len(lines) >= 5
    assert lines[-1].startswith("100%  5 documents, 105 tokens, ")
    assert lines[-1].endswith("about 0 s left")


def test_json_lines(sources, run_process, tmp_path):
    """With --json, stdout holds events alone, the report last; the counts agree with the shards told."""
    ran = run_process("build", sources, "-o", tmp_path / "c", "--workers", 1, "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["event"] for row in rows if row["event"] not in {"Progress", "ShardWritten"}] == [
        "BuildStarted",
        "BuildFinished",
    ]
    shards = [row for row in rows if row["event"] == "ShardWritten"]
    report = rows[-1]
    assert report["tokens"] == sum(row["tokens"] for row in shards) == 105
    assert report["documents"] == report["documents_in"] == report["boundary_tokens"] == 5
    assert report["output"] == str(tmp_path / "c")


def test_an_error_with_json(run_process, tmp_path):
    """A failure ends with exit code 1 and its message on stderr; stdout stays JSON."""
    (tmp_path / "a.jsonl").write_text("{}\n")
    ran = run_process("build", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--json")
    assert ran.code == 1
    assert [json.loads(line)["event"] for line in ran.out.splitlines()] == ["BuildStarted"]
    assert "a.jsonl:1: no field text" in ran.err


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_long_lists_are_cut(headrace, tmp_path, limit):
    """--max-reported says how many places are listed, of errors and of notices; how many more there are is said."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.md").write_text("")
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "x"}\n' + "[]\n" * 3)
    ran = headrace("build", tmp_path / "in", "-o", tmp_path / "c", "--max-reported", limit)
    assert ran.err.count("skipped: ") == min(limit, 3) + (limit < 3)
    assert ran.err.count("not an object") == min(limit, 3)
    assert ("  ... and" in ran.err) is (limit < 3)
    ran = headrace("build", tmp_path / "in", "-o", tmp_path / "c", "--max-reported", limit, "--on-bad-input", "skip")
    assert ran.err.count("dropped: a.jsonl:") == min(limit, 3)
    assert ("dropped: ... and more; --max-reported shows them" in ran.err) is (limit < 3)


def test_the_installed_script(tmp_path, write_lines):
    """The script that installing puts beside Python does what the module does."""
    script = Path(sys.executable).with_name("headrace")
    if not script.exists():
        pytest.skip("not installed as a script")
    source = write_lines(tmp_path / "a.jsonl", ["x"])
    done = subprocess.run([script, "build", source, "-o", tmp_path / "c"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([script, "verify", tmp_path / "c"], capture_output=True, check=False).returncode == 0
