"""Pictures of a schedule and of a run; matplotlib is imported when one is drawn."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import MissingExtraError, TrainingError
from headrace.storage.atomic import naming_file
from headrace.training.log import STEP, read_log
from headrace.training.schedule import WarmupCosine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["checked_format", "plot_run", "plot_schedule"]

Lines = list[dict[str, Any]]
Values = NDArray[np.float64]
_POINTS = 1000
"""Of a schedule's line, beside its seams."""
_LOG_ABOVE = 10
"""Perplexities that differ by more than this factor need a logarithmic axis."""
_PARTS = 200
"""Of a run: rates and means are of so many groups of steps."""


def plot_schedule(schedule: WarmupCosine, path: Path) -> None:
    """Draw the learning rate of each step, from 0 to the schedule's end, as PNG or SVG.

    Raises:
        TrainingError: the file's name ends otherwise.
        MissingExtraError: matplotlib is not installed.
    """
    kind = checked_format(path)
    figure = _figure(6.4, 3.6)
    every = max(1, schedule.steps // _POINTS)
    steps = sorted({*range(0, schedule.steps, every), schedule.warmup, schedule.steps})
    axes: Axes = figure.subplots()
    axes.plot(steps, [schedule.lr(step) for step in steps])
    _label(axes, f"learning rate: up to {schedule.peak:g} in {schedule.warmup:,} steps, then down to {schedule.end:g}")
    _save(figure, path, kind)


def plot_run(run: Path, output: Path) -> None:
    """Draw the log of a run, which may be at work, as PNG or SVG.

    That is loss, perplexities, learning rate, norms of the gradients, tokens a second, and skipped steps. What is no finite
    number is left out.

    Raises:
        TrainingError: the folder has no log, no step was taken yet, the log is damaged, or the file's name ends otherwise.
        MissingExtraError: matplotlib is not installed.
    """
    kind = checked_format(output)
    lines = list(read_log(run))
    steps = [line for line in lines if line["event"] == STEP]
    if not steps:
        raise TrainingError(f"{run}: there is nothing to draw yet: no step was taken")
    figure = _figure(12.8, 9.6)
    figure.suptitle(run.absolute().name, parse_math=False)
    (loss, perplexity), (rate, norms), (speed, skips) = figure.subplots(3, 2)
    _draw_loss(loss, steps)
    _draw_perplexities(perplexity, lines)
    _draw(rate, steps, "lr")
    _label(rate, "learning rate")
    _draw(norms, steps, "grad_l2_pre_clip", label="before clipping")
    _draw(norms, steps, "grad_l2_post_clip", label="after")
    _label(norms, "norm of the gradients", log=True)
    _draw_speed(speed, steps, {line["step"] for line in lines if line["event"] == "resumed"})
    _draw_skips(skips, steps)
    _save(figure, output, kind)


def checked_format(path: Path) -> Literal["png", "svg"]:
    """Return what a picture is to be, by the end of its name.

    Raises:
        TrainingError: it is another one.
    """
    match path.suffix.lower():
        case ".png":
            return "png"
        case ".svg":
            return "svg"
        case _:
            raise TrainingError(f"{path}: wanted a name that ends in .png or .svg")


def _draw_loss(axes: "Axes", steps: Lines) -> None:
    _draw(axes, steps, "loss", alpha=0.4)
    x, y = _finite(steps, "loss")
    firsts = _groups(len(x))
    if len(firsts) > 1:
        counts = np.diff(firsts, append=len(x))
        axes.plot(np.add.reduceat(x, firsts) / counts, np.add.reduceat(y, firsts) / counts, label="mean")
    _label(axes, "loss")


def _draw_perplexities(axes: "Axes", lines: Lines) -> None:
    for event, name, label in (
        ("epoch", "train_perplexity", "training, of an epoch"),
        ("evaluated", "perplexity", "held out"),
    ):
        found = [line for line in lines if line["event"] == event]
        if found:
            _draw(axes, found, name, label=label, marker="o")
    low, high = axes.get_ylim()
    _label(axes, "perplexity", log=high > _LOG_ABOVE * max(low, 1))


def _draw_speed(axes: "Axes", steps: Lines, resumed: set[int]) -> None:
    """Draw tokens a second, from the end of one step to that of the next, evaluations and checkpoints included."""
    seconds = np.diff([line["time"] for line in steps], prepend=np.nan)
    known = (seconds > 0) & np.array([line["step"] not in resumed for line in steps])
    x, tokens, waited = (
        np.array([float(line[name]) for line in steps])[known] for name in ("step", "tokens", "data_wait_s")
    )
    seconds = seconds[known]
    if len(x):
        firsts = _groups(len(x))
        rates = np.add.reduceat(tokens, firsts) / np.add.reduceat(seconds, firsts)
        axes.plot(x[firsts], rates, drawstyle="steps-post")
        axes.set_ylim(0, 1.1 * rates.max())
    _label(axes, f"tokens a second ({waited.sum() / max(seconds.sum(), 1e-9):.2%} of the time spent waiting for data)")


def _draw_skips(axes: "Axes", steps: Lines) -> None:
    axes.plot([line["step"] for line in steps], np.cumsum([line["skipped"] for line in steps]), drawstyle="steps-post")
    reasons = Counter(line["skip_reason"] for line in steps if line["skipped"])
    told = ", ".join(f"{count:,} for the {reason}" for reason, count in reasons.most_common()) or "none"
    axes.set_ylim(bottom=0)
    _label(axes, f"skipped steps: {told}")


def _draw(axes: "Axes", lines: Lines, name: str, **style: Any) -> None:  # noqa: ANN401  # of matplotlib
    axes.plot(*_finite(lines, name), **style)


def _finite(lines: Lines, name: str) -> tuple[Values, Values]:
    """Return steps and values of a column, where those are numbers."""
    x, y = (np.array([float(line[each]) for line in lines]) for each in ("step", name))
    return x[np.isfinite(y)], y[np.isfinite(y)]


def _groups(count: int) -> NDArray[np.intp]:
    """Return where each group of at least ten neighbours begins, of which there are at most `_PARTS`."""
    return np.linspace(0, count, min(max(count // 10, 1), _PARTS), endpoint=False).astype(np.intp)


def _label(axes: "Axes", title: str, *, log: bool = False) -> None:
    axes.set_title(title, fontsize="medium", parse_math=False)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if log:
        axes.set_yscale("log", nonpositive="mask")
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # heavy; `pyplot` would bring windows along
    except ModuleNotFoundError as error:
        raise MissingExtraError("a picture needs matplotlib: pip install 'headrace[train]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path, kind: str) -> None:
    from matplotlib import rc_context  # noqa: PLC0415  # as above

    with (
        naming_file(path),
        rc_context({"svg.hashsalt": "headrace", "svg.fonttype": "none"}),  # equal bytes, and text that is text
    ):
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)
