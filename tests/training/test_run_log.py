"""The log of a run: what is in it, and that a killed and resumed run has that of a straight one."""

import csv
import json
import math
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TrainingError
from headrace.training.log import COLUMNS, RunLog, SkipAlarm, StepRecord, read_log

CANONICAL = "step,lr,grad_l2_pre_clip,grad_l2_post_clip,loss,skipped,skip_reason,scaler_scale,tokens,data_wait_s"


def record_of(step: int, **values) -> StepRecord:
    """A step; the loss tells it from others."""
    given = {
        "step": step, "lr": 0.1 * step, "grad_l2_pre_clip": 2.5, "grad_l2_post_clip": 1.0, "loss": 1 / (step + 1),
        "skipped": False, "skip_reason": "", "scaler_scale": 1.0, "tokens": 512, "data_wait_s": 0.001,
    }  # fmt: skip
    return StepRecord(**given | values)


def take(log: RunLog, step: int, every: int) -> None:
    """What a loop does of a step: it, and now and then an evaluation behind it."""
    log.write(record_of(step))
    if (step + 1) % every == 0:
        log.event("perplexity", step + 1, value=step + 0.5)


def logged(folder: Path) -> tuple[str, list[dict]]:
    """The CSV, and the lines without their times."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return (folder / "log.csv").read_text(), [{**line, "time": 0} for line in lines]


@given(st.data())
def test_a_resumed_run_has_the_log_of_a_straight_one(data):
    """Whatever was written after the checkpoint, cut off at whichever byte, any number of times."""
    steps, every = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    with TemporaryDirectory() as name:
        straight, resumed = Path(name) / "straight", Path(name) / "resumed"
        straight.mkdir()
        resumed.mkdir()
        with RunLog(straight) as log:
            for step in range(steps):
                take(log, step, every)
        checkpoint = 0
        for _ in range(data.draw(st.integers(1, 3))):
            known = dict.fromkeys((resumed / "log.csv", resumed / "log.jsonl"), 0)
            killed = data.draw(st.integers(checkpoint, steps))
            later = data.draw(st.integers(checkpoint, killed))
            with RunLog(resumed, checkpoint) as log:
                for step in range(checkpoint, killed):
                    if step == later:
                        known = {path: path.stat().st_size for path in known}
                    take(log, step, every)
            for path, size in known.items() if later < killed else ():
                share = data.draw(st.floats(0, 1))
                with path.open("r+b") as file:
                    file.truncate(size + int(share * (path.stat().st_size - size)))
            checkpoint = later
        with RunLog(resumed, checkpoint) as log:
            for step in range(checkpoint, steps):
                take(log, step, every)
        assert logged(resumed) == logged(straight)


def test_the_columns(tmp_path):
    """The CSV has the canonical columns and the two more, in order; the lines of JSON have the same and what else happened."""
    with RunLog(tmp_path) as log:
        log.event("started", 0, corpus="abc")
        log.write(record_of(0, skipped=True, skip_reason="loss, of all things, is nan", loss=math.nan))
        log.event("perplexity", 1, value=math.inf)
    assert ",".join(COLUMNS) == CANONICAL == (tmp_path / "log.csv").read_text().splitlines()[0]
    with (tmp_path / "log.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["step"], row["skipped"], row["skip_reason"]) == ("0", "1", "loss, of all things, is nan")
    assert math.isnan(float(row["loss"]))
    first, step, last = read_log(tmp_path)
    assert (first["event"], first["corpus"]) == ("started", "abc")
    assert list(step) == ["event", *COLUMNS, "time"]
    assert (step["event"], step["skipped"], step["loss"]) == ("step", True, "nan")
    assert (last["event"], last["step"], last["value"]) == ("perplexity", 1, "inf")
    assert first["time"] <= step["time"] <= last["time"]


@given(st.floats(), st.floats())
def test_numbers_are_kept_exactly(loss, norm):
    """What is read back from the CSV and from the JSON is the number that was written, whatever it is."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with RunLog(folder) as log:
            log.write(record_of(0, loss=loss, grad_l2_pre_clip=norm))
        with (folder / "log.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        (line,) = read_log(folder)
        for found in (row, line):
            assert repr(float(found["loss"])) == repr(loss)
            assert repr(float(found["grad_l2_pre_clip"])) == repr(norm)


def test_each_line_is_there_at_once(tmp_path):
    """A process that is killed right behind a step has logged it."""
    program = (
        "import os, signal, sys; from pathlib import Path; from headrace.training.log import *\n"
        "log = RunLog(Path(sys.argv[1]))\n"
        "log.write(StepRecord(0, 0.1, 1.0, 1.0, 2.0, False, '', 1.0, 8, 0.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-P", "-c", program, tmp_path], check=False).returncode == -9
    assert (tmp_path / "log.csv").read_text().splitlines()[1] == "0,0.1,1.0,1.0,2.0,0,,1.0,8,0.0"
    assert [line["loss"] for line in read_log(tmp_path)] == [2.0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_full_disk_names_the_file(tmp_path, name):
    """What cannot be written is an error that says which file it is, also once the log is closed."""
    (tmp_path / name).symlink_to("/dev/full")

    def write() -> None:
        with RunLog(tmp_path) as log:
            log.write(record_of(0))

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.filename == str(tmp_path / name)


def test_a_new_run_begins_anew(tmp_path):
    """From step 0 on nothing of an earlier log is kept."""
    for _ in range(2):
        with RunLog(tmp_path) as log:
            take(log, 0, 1)
            log.sync()
    assert len(list(read_log(tmp_path))) == 2


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    """Reading the log of a run that is at work, or was killed."""
    with RunLog(tmp_path) as log:
        take(log, 0, 2)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"event": "step", "st')
    assert [line["step"] for line in read_log(tmp_path)] == [0]


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("log.csv", "a,b\n", "log.csv:1: wanted the header"),
        ("log.csv", CANONICAL + "\nx,1\n", "log.csv:2: wanted a step, found 'x,1'"),
        ("log.jsonl", "{\n", "log.jsonl:1: no line of a run's log"),
        ("log.jsonl", '{"event": "step", "step": "x"}\n', "log.jsonl:1"),
        ("log.jsonl", "\0\0\n", "log.jsonl:1"),
        ("log.jsonl", '{"event": "step", "step": 1, "loss": 0.1}\n', "log.jsonl:1: no line of a run's log"),
    ],
)
def test_a_damaged_log_is_not_cut(tmp_path, name, line, reason):
    """What is no log of ours is named by file and line, and stays as it is."""
    with RunLog(tmp_path) as log:
        take(log, 0, 2)
    (tmp_path / name).write_text(line)
    with pytest.raises(TrainingError, match=reason):
        RunLog(tmp_path, 5)
    assert (tmp_path / name).read_text() == line


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 12), st.floats(0, 1), st.integers(1, 6))
def test_the_alarm_is_its_definition(skipped, window, rate, for_steps):
    """It rings once each of the last `for_steps` steps had more than the rate of skips among the `window` up to it."""
    alarm = SkipAlarm(window, rate, for_steps)
    over = [sum(skipped[max(0, n + 1 - window) : n + 1]) > rate * window for n in range(len(skipped))]
    wanted = [n + 1 >= for_steps and all(islice(over, n + 1 - for_steps, n + 1)) for n in range(len(skipped))]
    assert [alarm.add(one) for one in skipped] == wanted


def test_the_alarm_by_default():
    """Five skips in a hundred never ring; where all are skipped, the 51st is the first of 100 steps over the rate."""
    alarm = SkipAlarm()
    assert not any(alarm.add(step % 20 == 0) for step in range(5000))
    alarm = SkipAlarm()
    assert [alarm.add(True) for _ in range(150)] == [False] * 149 + [True]
