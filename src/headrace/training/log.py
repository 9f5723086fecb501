"""What a run writes down: `log.csv`, a row a step, and `log.jsonl`, the same and what happened between the steps."""

import csv
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from headrace.errors import TrainingError
from headrace.events import json_values
from headrace.storage.atomic import naming_file

__all__ = ["COLUMNS", "RunLog", "SkipAlarm", "StepRecord", "read_log"]

CSV_NAME = "log.csv"
JSONL_NAME = "log.jsonl"
STEP = "step"
"""The `event` of a line of `log.jsonl` that is a step."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of the optimizer, over all ranks and micro-batches."""

    step: int
    """From 0."""
    lr: float
    grad_l2_pre_clip: float
    """Global L2 norm of the gradients, unscaled."""
    grad_l2_post_clip: float
    loss: float
    """Mean over the targets that count."""
    skipped: bool
    """Whether the weights were left alone."""
    skip_reason: str
    """Empty where they were not."""
    scaler_scale: float
    """Of the step's losses; 1 without a scaler."""
    tokens: int
    """Of the step's inputs."""
    data_wait_s: float
    """Seconds for which the step waited for its batches."""


COLUMNS = tuple(field.name for field in fields(StepRecord))
"""Of `log.csv`."""


class RunLog:
    """Writes the log of a run into its folder; a context manager. Every line is with the system before the next step begins.

    A line of `log.jsonl` has `event`, `step` and `time` (seconds since 1970). Numbers that JSON does not know are the texts
    `nan`, `inf` and `-inf`, there and in the CSV.

    Args:
        folder: of the run; it exists.
        from_step: number of steps that were taken before. A run that was killed has written more lines than its checkpoint
            knows of: those of later steps are cut off, and so is a last line that is not whole. 0 begins anew.

    Raises:
        TrainingError: the log is not one of ours; file and line are named.
    """

    def __init__(self, folder: Path, from_step: int = 0) -> None:
        header = ",".join(COLUMNS) + "\n"
        paths = folder / CSV_NAME, folder / JSONL_NAME
        for path, begin, taken in zip(paths, (header, ""), (_csv_steps_taken, _steps_taken), strict=True):
            if not (from_step and path.exists() and _cut(path, from_step, taken)):
                with naming_file(path):
                    path.write_text(begin, encoding="utf-8")
        self._paths = paths
        self._csv, self._jsonl = (path.open("a", encoding="utf-8", newline="", buffering=1) for path in paths)
        self._rows = csv.writer(self._csv, lineterminator="\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for path, file in zip(self._paths, (self._csv, self._jsonl), strict=True):
                stack.callback(_close, path, file)

    def write(self, record: StepRecord) -> None:
        """Write a step: a row, and a line."""
        row = asdict(record)
        with naming_file(self._paths[0]):
            self._rows.writerow([int(value) if isinstance(value, bool) else value for value in row.values()])
        self._line({"event": STEP, **row})

    def event(self, kind: str, step: int, **values: object) -> None:
        """Write what happened when `step` steps were taken: a line of `log.jsonl`.

        A run that goes on there does not do it again, so write it before that step's checkpoint.
        """
        self._line({"event": kind, "step": step, **values})

    def sync(self) -> None:
        """Have on the disk what was written: before a checkpoint, which is to be no newer than its log."""
        for path, file in zip(self._paths, (self._csv, self._jsonl), strict=True):
            with naming_file(path):
                os.fsync(file.fileno())

    def _line(self, values: dict[str, Any]) -> None:
        values["time"] = round(time.time(), 3)
        with naming_file(self._paths[1]):
            self._jsonl.write(json.dumps(json_values(values)) + "\n")


def read_log(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a run's `log.jsonl`, decoded; one that is being written, or was not finished, is left out.

    Raises:
        TrainingError: there is no log, or a line is no JSON object.
    """
    path = folder / JSONL_NAME
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TrainingError(f"{folder}: not the folder of a run: there is no {JSONL_NAME} in it") from error
    with file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield _decoded(line, path, number)


class SkipAlarm:
    """Says when too many steps are skipped, for too long.

    Args:
        window: steps that are looked back at; those before the run's first count as not skipped.
        rate: share of them that may be skipped.
        for_steps: steps for which more are.
    """

    def __init__(self, window: int = 1000, rate: float = 0.05, for_steps: int = 100) -> None:
        self._last = deque[bool](maxlen=window)
        self._most = rate * window
        self._for_steps = for_steps
        self._over = 0

    def add(self, skipped: bool) -> bool:  # noqa: FBT001  # the one thing to say
        """Take the next step; returns whether too many have been skipped for so long by now."""
        self._last.append(skipped)
        self._over = self._over + 1 if sum(self._last) > self._most else 0
        return self._over >= self._for_steps


def _close(path: Path, file: TextIO) -> None:
    with naming_file(path):  # what a full disk did not take is tried once more
        file.close()


def _cut(path: Path, from_step: int, taken: Callable[[bytes, Path, int], int]) -> int:
    """Keep the first lines that are whole and were written when `from_step` steps or fewer were taken; returns their bytes."""
    with path.open("r+b") as file:
        keep = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or taken(line, path, number) > from_step:
                break
            keep += len(line)
        file.truncate(keep)
    return keep


def _csv_steps_taken(line: bytes, path: Path, number: int) -> int:
    """How many steps were taken when a row was written."""
    header = ",".join(COLUMNS)
    text = line.decode(errors="replace").rstrip("\n")
    if number == 1 and text == header:
        return 0
    step = text.partition(",")[0]
    if number == 1 or not step.isdecimal():
        raise TrainingError(
            f"{path}:{number}: wanted {f'the header {header}' if number == 1 else 'a step'}, found {text!r}"
        )
    return int(step) + 1


def _steps_taken(line: bytes, path: Path, number: int) -> int:
    """How many steps were taken when a line was written."""
    values = _decoded(line, path, number)
    return int(values["step"]) + (values["event"] == STEP)


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        values: Any = json.loads(line)
    except ValueError:
        values = None
    fits = isinstance(values, dict) and isinstance(values.get("step"), int) and "event" in values
    if not fits or (values["event"] == STEP and not values.keys() >= set(COLUMNS)):
        raise TrainingError(f"{path}:{number}: no line of a run's log: it is damaged; remove it to go on")
    return values
