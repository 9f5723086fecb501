"""Checkpoints: `checkpoints/step-00000010` in the folder of a run is what the run was when ten steps were taken.

A checkpoint is a folder, which appears under its name when all of it is on disk. `model.safetensors` and `config.json` are
what `from_pretrained` of transformers opens; `optimizer.pt` is loaded as data alone; `state.json` says how far the run is, what
of, and the size and crc32 of the other files. torch's random generators need no place in it: each step seeds them anew.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from isal.isal_zlib import crc32
from safetensors import SafetensorError

from headrace.errors import Problem, TrainingError
from headrace.storage.atomic import fresh_name, fsync_file, fsync_folder
from headrace.training.model import save_weights, weights_of

__all__ = ["FOLDER", "Checkpoint", "newest", "save"]

FOLDER = "checkpoints"
"""In the folder of a run."""
STATE = "state.json"
OPTIMIZER = "optimizer.pt"
VERSION = 1
_NAME = re.compile(r"step-(\d{8,})")
_PIECE = 1 << 22
"""Bytes read at once."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is whole."""

    path: Path
    step: int
    """Steps taken."""
    state: dict[str, Any]
    """What `save` was given."""

    def model(self) -> Any:  # noqa: ANN401  # any model of transformers
        """Load the model, on the CPU."""
        return weights_of(self.path)

    def optimizer(self) -> dict[str, Any]:
        """Load the states of the optimizer and the scaler, on the CPU."""
        return torch.load(self.path / OPTIMIZER, map_location="cpu", weights_only=True)


def save(
    run: Path,
    step: int,
    model: Any,  # noqa: ANN401  # any model of transformers
    optimizer: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    keep: int,
) -> Path:
    """Write a checkpoint, and remove all but the last ones.

    Args:
        run: folder of the run.
        step: steps taken.
        model: as it is now.
        optimizer: state of whatever else learns or adapts: tensors and numbers.
        state: all else, as JSON holds it.
        keep: checkpoints that stay, at least 1.

    Returns:
        Its folder.

    Raises:
        TrainingError: it cannot be written; those that are there stay.
    """
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    _remove_leftovers(folder)
    final = folder / f"step-{step:08d}"
    partial = fresh_name(final)
    try:
        _write(partial, step, model, optimizer, state)
    except (
        OSError,
        SafetensorError,
        RuntimeError,
    ) as error:  # torch's writers raise a RuntimeError where a disk is full
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"{final}: the checkpoint cannot be written (is the disk full?): {error}. Mend that, and go on with --resume"
        ) from error
    _remove(final)  # one of this step that is damaged
    partial.rename(final)
    fsync_folder(folder)
    found = _found(folder)
    # Those of later steps are damaged, too: the run went on from one before them.
    kept = [path for number, path in found if number <= step][-keep:]
    for _, path in found:
        if path not in kept:
            _remove(path)
    return final


def _write(
    partial: Path,
    step: int,
    model: Any,  # noqa: ANN401  # as above
    optimizer: Mapping[str, Any],
    state: Mapping[str, Any],
) -> None:
    """Have all files of a checkpoint on the disk."""
    partial.mkdir()
    save_weights(model, partial)
    torch.save(dict(optimizer), partial / OPTIMIZER)
    files = {path.name: _mark(path) for path in sorted(partial.iterdir())}
    written = {"version": VERSION, "step": step, "files": files, **state}
    (partial / STATE).write_text(json.dumps({"crc32": _crc(written), **written}, indent=1), encoding="utf-8")
    for path in partial.iterdir():
        fsync_file(path)
    fsync_folder(partial)


def newest(run: Path, *, skip_damaged: bool = False) -> Checkpoint | None:
    """Open the last checkpoint of a run; None if there is none.

    Args:
        run: folder of the run.
        skip_damaged: take the last one that is whole.

    Raises:
        TrainingError: it is damaged; every file that is, is named, and what could be gone on from in its place.
    """
    problems: list[Problem] = []
    for step, path in reversed(_found(run / FOLDER)):
        state, wrong = _read(path)
        if not wrong:
            if problems and not skip_damaged:
                raise TrainingError(
                    f"the last checkpoint of {run} is damaged; the one before it is whole: give --skip-damaged to go on from "
                    f"step {step}",
                    problems=problems,
                )
            return Checkpoint(path, step, state)
        problems += wrong
    if problems:
        raise TrainingError(f"all checkpoints of {run} are damaged: begin a new run", problems=problems)
    return None


def _found(folder: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints under their names, the last one last."""
    names = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]), path) for match, path in names if match)


def _read(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Read the state, and compare every file with what it says of them."""
    try:
        state: dict[str, Any] = json.loads((path / STATE).read_bytes())
        if state.pop("crc32") != _crc(state):
            return {}, [Problem(str(path / STATE), "what it says is not what was written: its crc32 differs")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, [Problem(str(path / STATE), f"cannot be read: {error}")]
    if state["version"] != VERSION:
        return {}, [Problem(str(path / STATE), f"has version {state['version']}, this Headrace reads {VERSION}")]
    problems = list[Problem]()
    for name, mark in state["files"].items():
        file = path / name
        found = _mark(file) if file.is_file() else None
        if found is None:
            problems.append(Problem(str(file), "is not there"))
        elif found != mark:
            problems.append(
                Problem(
                    str(file),
                    f"{mark['bytes']} bytes with crc32 {mark['crc32']:08x} were written, found {found['bytes']} with "
                    f"{found['crc32']:08x}",
                )
            )
    return state, problems


def _crc(state: Mapping[str, Any]) -> int:
    return crc32(json.dumps(state, sort_keys=True).encode())


def _mark(path: Path) -> dict[str, int]:
    crc = size = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            crc, size = crc32(piece, crc), size + len(piece)
    return {"bytes": size, "crc32": crc}


def _remove(path: Path) -> None:
    """Remove a checkpoint so that no half of it is ever found under its name."""
    if path.exists():
        hidden = fresh_name(path)
        path.rename(hidden)
        shutil.rmtree(hidden)


def _remove_leftovers(folder: Path) -> None:
    """Remove what a run that was killed had begun to write, or to remove."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path)
