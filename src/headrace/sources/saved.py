"""Folders that Hugging Face `datasets` wrote with `save_to_disk`: which Arrow files are the data, in which order."""

import json
import os
from typing import Any

__all__ = ["STATE_NAME", "saved_files"]

STATE_NAME = "state.json"
_MOST_BYTES = 64 * 2**20


def saved_files(folder: str) -> list[str] | str | None:
    """Return the names of a saved data set's files, in its order; a reason where it cannot be read; None for no data set.

    Args:
        folder: one that holds a `state.json`.
    """
    try:
        with open(os.path.join(folder, STATE_NAME), "rb") as file:  # noqa: PTH118, PTH123 -- names may not be UTF-8
            state: Any = json.loads(file.read(_MOST_BYTES))
        names = [str(part["filename"]) for part in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # somebody else's state.json
        return None
    if any("/" in name or not name for name in names):
        return f"its {STATE_NAME} names files outside of the folder"
    if state.get("_indices_data_files"):
        return "the data set selects rows of its files; save it again after flatten_indices()"
    return names
