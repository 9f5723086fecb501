"""Pictures of runs and schedules, and `headrace plot`."""

import math
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headrace.errors import MissingExtraError, TrainingError
from headrace.training.log import RunLog, StepRecord
from headrace.training.plot import plot_run, plot_schedule
from headrace.training.schedule import WarmupCosine

PNG = b"\x89PNG\r\n"
TITLES = {"loss", "perplexity", "learning rate", "norm of the gradients", "skipped steps: none"}


def write_run(folder: Path, steps: int, *, perplexities: tuple[float, ...] = (), broken: bool = False) -> Path:
    """The log of a run; a broken one has no number that is one."""
    folder.mkdir()
    with RunLog(folder) as log:
        for step in range(steps):
            loss, norm = (math.nan, math.inf) if broken else (5 - 0.01 * step, 2.0)
            reason = "loss" if broken else ""
            log.write(StepRecord(step, 1e-3, norm, min(norm, 1.0), loss, broken, reason, 1.0, 512, 0.0))
            if step == steps // 2:
                log.event("resumed", step + 1)
        for number, value in enumerate(perplexities, 1):
            log.event("epoch", steps, epoch=number, train_perplexity=value)
            log.event("evaluated", steps, perplexity=value, mean_loss=0.0, targets=1)
    return folder


def texts_of(path: Path) -> set[str]:
    """All texts of an SVG."""
    return {node.text for node in ET.fromstring(path.read_text()).iter("{http://www.w3.org/2000/svg}text")}  # noqa: S314  # our own


def test_a_run(tmp_path):
    """All that is to be seen is there, under its name; the same bytes each time."""
    run = write_run(tmp_path / "a run of $5", 300, perplexities=(90.0, 3.5, math.inf))
    for name in ("a.svg", "b.svg"):
        plot_run(run, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    texts = texts_of(tmp_path / "a.svg")
    assert {*TITLES, "a run of $5", "before clipping", "training, of an epoch", "held out"} <= texts
    assert any(text.startswith("tokens a second (0.00% of the time spent waiting") for text in texts)


@pytest.mark.parametrize("steps", [1, 500])
@pytest.mark.parametrize("broken", [False, True])
def test_short_and_broken_runs(tmp_path, steps, broken):
    """One step is enough, and no number has to be one; nothing warns (warnings are errors here)."""
    plot_run(write_run(tmp_path / "run", steps, broken=broken), tmp_path / "a.svg")
    assert f"skipped steps: {f'{steps} for the loss' if broken else 'none'}" in texts_of(tmp_path / "a.svg")


def test_a_run_at_work(tmp_path):
    """A line that is being written is left out."""
    run = write_run(tmp_path / "run", 5)
    plot_run(run, tmp_path / "a.svg")
    with (run / "log.jsonl").open("a") as file:
        file.write('{"event": "st')
    plot_run(run, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.0), (3, 1.0), (10**6, 0.01)])
def test_a_schedule(tmp_path, steps, warmup):
    """Any schedule is drawn, and its title says peak, warm-up and floor; no step past its end is asked for."""
    schedule = WarmupCosine.of(3e-4, warmup, steps)
    plot_schedule(schedule, tmp_path / "a.svg")
    plot_schedule(schedule, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    title = f"learning rate: up to 0.0003 in {schedule.warmup:,} steps, then down to 3e-05"
    assert title in texts_of(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 100_000


def test_the_command(headrace, tmp_path):
    """`headrace plot RUN` draws into the folder of the run, or where it is told, and says where."""
    run = write_run(tmp_path / "run", 20)
    ran = headrace("plot", run)
    assert (ran.code, ran.out, ran.err) == (0, f"{run}/run.svg\n", "")
    assert texts_of(run / "run.svg") >= TITLES
    assert headrace("plot", run, "-o", tmp_path / "x.PNG").out == f"{tmp_path}/x.PNG\n"
    assert (tmp_path / "x.PNG").read_bytes().startswith(PNG)


def test_wrong_usage(headrace, tmp_path):
    """Exit code 2 for a picture of another kind, 1 for a folder without a run, or of one without a step."""
    run = write_run(tmp_path / "run", 0)
    ran = headrace("plot", run, "-o", tmp_path / "x.gif")
    assert ran.code == 2
    assert "ends in .png or .svg" in " ".join(ran.err.split())
    ran = headrace("plot", run)
    assert (ran.code, ran.err) == (1, f"headrace: {run}: there is nothing to draw yet: no step was taken\n")
    ran = headrace("plot", tmp_path)
    assert (ran.code, ran.err) == (1, f"headrace: {tmp_path}: not the folder of a run: there is no log.jsonl in it\n")


def test_without_matplotlib(tmp_path, monkeypatch):
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"headrace\[train\]"):
        plot_run(write_run(tmp_path / "run", 2), tmp_path / "a.svg")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_names_the_picture(tmp_path):
    """The system's error says which file could not be written."""
    picture = tmp_path / "schedule.svg"
    picture.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        plot_schedule(WarmupCosine(0.1, 2, 10), picture)
    assert caught.value.filename == str(picture)


def test_another_kind_of_picture(tmp_path):
    """What the name does not say to be PNG or SVG is refused before anything is drawn."""
    with pytest.raises(TrainingError, match=r"a\.pdf: wanted a name"):
        plot_schedule(WarmupCosine(1.0, 0, 1), tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()
