"""A downloader's list of what it fetched, as a list of sources: each file's size and hash are known beforehand."""

import json
import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from headrace.sources.files import Promise

__all__ = ["fetched_files"]

_MOST_BYTES = 256 * 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("url", "bytes", "sha256")
_PATH_KEYS = ("path", "file", "filename")


def fetched_files(path: str) -> list[tuple[str, Promise]] | str | None:
    """Read a JSON list of objects with `url`, `bytes`, `sha256`, and perhaps `documents`; or an object with such a list.

    Returns:
        Path, relative to the list's folder, and promise of each file. The path is the entry's `path`, `file` or `filename`,
        else the last part of its URL. What is wrong with the list; or None where the file is none.
    """
    rows = _rows(path) if path.lower().endswith(".json") else []
    if not rows:
        return None
    folder = os.path.dirname(path)  # noqa: PTH120  # names that are not UTF-8 stay strings
    found: dict[str, Promise] = {}
    for number, row in enumerate(rows, 1):
        if not _is_entry(row):
            return f"entry {number} has no url, bytes and sha256 (64 hex digits): it has {_shown(row)}"
        name = _name(row, folder)
        if not name or name in found:
            return f"entry {number}: its path leads out of the folder, or its URL ends in no name, or in that of an earlier entry"
        documents = row.get("documents")
        found[name] = Promise(row["bytes"], row["sha256"].lower(), documents if type(documents) is int else None)
    return list(found.items())


def _rows(path: str) -> list[Any]:
    """The entries of a list; none where the file is something else."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(4096)
            # A file of documents is not read whole to find out.
            if start.lstrip()[:1] not in {b"[", b"{"} or any(f'"{key}"'.encode() not in start for key in _KEYS):
                return []
            whole: Any = json.loads(start + file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    lists = [whole] if isinstance(whole, list) else [*whole.values()]
    found = [rows for rows in lists if isinstance(rows, list) and rows and _looks_like_entry(rows[0])]
    return cast("list[Any]", found[0]) if len(found) == 1 else []


def _looks_like_entry(row: Any) -> bool:  # noqa: ANN401  # whatever JSON holds
    return isinstance(row, dict) and all(key in row for key in _KEYS)


def _is_entry(row: Any) -> bool:  # noqa: ANN401  # as above
    return (
        _looks_like_entry(row)
        and isinstance(row["url"], str)
        and type(row["bytes"]) is int
        and row["bytes"] >= 0
        and isinstance(row["sha256"], str)
        and _SHA256.fullmatch(row["sha256"].lower()) is not None
    )


def _shown(row: Any) -> str:  # noqa: ANN401  # as above
    """What an entry has under the keys, but for the URL, which may be private."""
    if not isinstance(row, dict):
        return f"{type(row).__name__} in its place"
    entry = cast("dict[str, Any]", row)
    return ", ".join(f"{key} {entry[key]!r}"[:100] if key in entry else f"no {key}" for key in _KEYS[1:])


def _name(row: dict[str, Any], folder: str) -> str | None:
    """Where an entry's file is; None where that is nowhere below the list's folder."""
    given = next((row[key] for key in _PATH_KEYS if isinstance(row.get(key), str)), None)
    if given is not None:
        parts = given.split("/")
        return None if given.startswith("/") or ".." in parts or parts[-1] in {"", "."} else given
    name = re.split(r"[?#]", row["url"])[0].rsplit("/", 1)[-1]
    plain = unquote(name)
    if plain != name and "/" not in plain and "\0" not in plain:
        # Downloaders differ in whether they decode what is escaped in a URL.
        there = [os.path.lexists(os.path.join(folder, one)) for one in (name, plain)]  # noqa: PTH118  # as above
        name = plain if there == [False, True] else name
    return None if name in {"", ".", ".."} else name
