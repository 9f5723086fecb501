"""The folder of a run: whether a new one may begin in it, and whether what is there may go on."""

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.errors import PlanError, Problem, TrainingError
from headrace.loading import Loader
from headrace.training.options import CONFIG_NAME, RUN_NAME, RunOptions, read_options, settled

__all__ = ["SCHEDULE_NAME", "check_folder", "go_on", "locked"]

LOCK_NAME = ".lock"
SCHEDULE_NAME = "schedule.svg"
FIRST = {LOCK_NAME, CONFIG_NAME, SCHEDULE_NAME}
"""What is written before the run file: a folder with no more is one in which no run has begun."""

COMPARED_BY_CONTENT = {"corpus", "config", "expect"}
MAY_CHANGE = {
    *(
        "epochs",
        "steps",
        "schedule_steps",
        "accumulate",
        "evaluate",
        "evaluate_every",
        "stride",
        "checkpoint_every",
        "keep",
    ),
    *("verify", "compile", "device", "stop_on_skips", "allow_download"),
}
"""What does not decide the steps that were taken. More steps are taken at the floor of the schedule."""


def check_folder(output: Path, *, resume: bool) -> None:
    """Refuse to begin a run where something is, to resume one where none is, and a place that cannot be written to.

    Raises:
        TrainingError: so it is.
    """
    there = output.exists() and (
        not output.is_dir() or any(not _is_before_a_run(path.name) for path in output.iterdir())
    )
    if resume and not (output / RUN_NAME).exists():
        raise TrainingError(f"{output}: no run to resume: there is no {RUN_NAME}; leave --resume out to begin one")
    if there and not resume:
        what = (
            "holds a run: give --resume to go on with it, or"
            if (output / RUN_NAME).exists()
            else "is not an empty folder:"
        )
        raise TrainingError(f"{output}: {what} choose another folder")
    above = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "may not be written to" if above.is_dir() else "is no folder"
        raise TrainingError(f"{output}: a run cannot be written there: {above} {why}")


def _is_before_a_run(name: str) -> bool:
    """Whether a file may be there before a run has begun: the run file, too, as long as it has another name."""
    return name in FIRST or name.startswith(f".{RUN_NAME}.")


@contextmanager
def locked(output: Path) -> Generator[None]:
    """Keep other processes from training in a folder, which is made if need be.

    Raises:
        TrainingError: one does so.
    """
    output.mkdir(parents=True, exist_ok=True)
    lock = os.open(output / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainingError(
                f"{output}: another process trains there (it holds {LOCK_NAME}): wait for it or end it"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(lock)


def go_on(
    output: Path,
    options: RunOptions,
    loader: Loader,
    *,
    model: Mapping[str, Any] | None,
    begun: Mapping[str, Any],
    state: Mapping[str, Any] | None,
) -> None:
    """Compare a run with the one in its folder, and put the loader where that was.

    Args:
        output: folder of the run.
        options: of now.
        loader: likewise.
        model: fields of its configuration; None where it is of trained weights, of which the options say which.
        begun: likewise, of the model in the folder.
        state: of the checkpoint; None where none was written yet.

    Raises:
        TrainingError: naming every field that differs.
    """
    then = asdict(read_options(output / RUN_NAME))
    now = asdict(settled(options))
    problems = [
        _differs(name, then[name], now[name])
        for name in then.keys() - COMPARED_BY_CONTENT - MAY_CHANGE
        # 1 step of warm-up is not 1.0 of all steps.
        if then[name] != now[name] or (name == "warmup" and type(then[name]) is not type(now[name]) and now[name])
    ]
    if state is not None:
        try:
            loader.load_state_dict(state["loader"])
        except PlanError as error:
            told = {problem.place for problem in problems} | {"stride"}  # that of the plan follows from the window
            problems += [problem for problem in error.problems if problem.place not in told]
            if not error.problems:
                problems.append(Problem("loader", str(error)))
    elif not str(loader.plan.corpus).startswith(then["expect"] or ""):
        problems.append(_differs("corpus", then["expect"], loader.plan.corpus))
    found = model or {}
    # Another version of transformers may know more fields; a model of another kind has another `model_type`.
    problems += [
        _differs(f"model.{name}", begun[name], found[name])
        for name in sorted(begun.keys() & found.keys())
        if begun[name] != found[name]
    ]
    if problems:
        raise TrainingError(
            f"{output} holds another run: {', '.join(problem.place for problem in problems)} "
            f"differ{'s' * (len(problems) == 1)}. Resume with what it was begun with, or begin another run in another folder",
            problems=problems,
        )


def _differs(name: str, then: object, now: object) -> Problem:
    return Problem(name, f"the run has {'none' if then is None else then}, found {'none' if now is None else now}")
