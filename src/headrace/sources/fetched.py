"""A downloader's list of what it fetched, as a list of sources: each file's size and hash are known beforehand."""

import json
import re
from pathlib import Path
from typing import Any, cast

from headrace.sources.files import Promise

__all__ = ["fetched_files"]

_MOST_BYTES = 256 * 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def fetched_files(path: str) -> list[tuple[str, Promise]] | str | None:
    """Read a JSON list of objects with `url`, `bytes`, `sha256`, and perhaps `documents`.

    Returns:
        Name and promise of each file, the names being the last parts of the URLs; what is wrong with the list; or None where
        the file is none.
    """
    rows = _rows(path) if path.lower().endswith(".json") else []
    if not rows or not _is_entry(rows[0]):
        return None
    found: dict[str, Promise] = {}
    for number, row in enumerate(rows, 1):
        if not _is_entry(row):
            return f"entry {number} has no url, bytes and sha256 (64 hex digits), as the first one has"
        name = re.split(r"[?#]", row["url"])[0].rsplit("/", 1)[-1]
        if name in {"", ".", ".."} or name in found:
            return f"entry {number}: its URL ends in no name, or in that of an earlier entry"
        documents = row.get("documents")
        found[name] = Promise(row["bytes"], row["sha256"].lower(), documents if type(documents) is int else None)
    return list(found.items())


def _rows(path: str) -> list[Any]:
    try:
        with Path(path).open("rb") as file:
            start = file.read(4096)
            # A file of documents is not read whole to find out.
            if not start.lstrip().startswith(b"[") or any(key not in start for key in (b'"url"', b'"sha256"')):
                return []
            rows: Any = json.loads(start + file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    return cast("list[Any]", rows) if isinstance(rows, list) else []


def _is_entry(row: Any) -> bool:  # noqa: ANN401  # whatever JSON holds
    return (
        isinstance(row, dict)
        and isinstance(row.get("url"), str)
        and type(row.get("bytes")) is int
        and isinstance(row.get("sha256"), str)
        and _SHA256.fullmatch(row["sha256"].lower()) is not None
    )
