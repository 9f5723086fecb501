"""What may be wrong with an option or a file where many of its documents are bad."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from headrace.errors import SourceError
from headrace.sources import Drop, SourceFile, SourceShard
from headrace.sources.array import first_elements
from headrace.sources.compressed import open_stream
from headrace.sources.field import split_field
from headrace.sources.utf8 import BOM

__all__ = ["encoding_hint", "fields_hint"]

_HEAD_BYTES = 1 << 20
_PIECE = 64 * 1024
_LINES = 100
_MOST_NAMES = 20
_MOST_CHARACTERS = 60
_MANY = 10
"""Faults that are no coincidence."""


def encoding_hint(drops: Sequence[Drop]) -> str:
    """What to do where it is a file's encoding that is wrong, not a few of its bytes."""
    wrong = [drop.reason for drop in drops if "UTF-" in drop.reason]
    if len(wrong) <= _MANY and not any("(the file " in reason for reason in wrong):
        return ""
    return "; if a file is in another encoding than UTF-8, convert it first (iconv -f ENCODING -t UTF-8)"


def fields_hint(shard: SourceShard, drops: Sequence[Drop]) -> str:
    """Which fields the lines do have, where the one asked for is missing from them."""
    lacking = next((drop for drop in drops if drop.reason.startswith("no field ")), None)
    file = next((file for file in shard.files if lacking and file.label == lacking.path), None)
    if lacking is None or file is None:
        return ""
    missing = lacking.reason.removeprefix("no field ")
    names: dict[str, None] = dict.fromkeys(file.given.field_names() if file.given else ())  # in order, each once
    for line in _first_lines(file):
        names |= dict.fromkeys(_field_names(line, missing))
        if len(names) >= _MOST_NAMES:
            break
    if "." in missing and missing in names:
        return f"; a dot leads into an object: the field named {missing!r} cannot be given, rename it"
    shown = [repr(name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}...") for name in names]
    return (
        f"; the {'items' if file.given else 'lines'} have the fields {', '.join(shown[:_MOST_NAMES])}" if names else ""
    )


def _first_lines(file: SourceFile) -> list[bytes]:
    if file.kind == "array":
        return first_elements(file, _LINES)
    head = b""
    try:
        with open_stream(file, buffer_bytes=_PIECE) as stream:
            while len(head) < _HEAD_BYTES and head.count(b"\n") < _LINES and (piece := stream.read(_PIECE)):
                head += piece
    except SourceError:
        pass  # what is wrong with the file is told elsewhere
    return head.removeprefix(BOM).split(b"\n", _LINES)[:_LINES]


def _field_names(line: bytes, text_field: str) -> Iterator[str]:
    """The names beside the one that is missing: of the line, or of the innermost object that there is."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return
    path = ""
    for key in split_field(text_field)[:-1]:
        if not isinstance(row, dict) or not isinstance(cast("dict[str, Any]", row).get(key), dict):
            break
        path, row = f"{path}{key}.", row[key]
    if isinstance(row, dict):
        yield from (f"{path}{name}" for name in cast("dict[str, Any]", row))
