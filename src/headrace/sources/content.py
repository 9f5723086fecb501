"""What a file holds, judged by its first bytes, so that nothing unreadable is met hours into a build."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from headrace.errors import Problem, SourceError, SourceNotFoundError
from headrace.sources.array import first_elements, is_closed
from headrace.sources.arrow import ARROW_MAGICS, inspect_arrow
from headrace.sources.compressed import compression_of, open_stream, read_all
from headrace.sources.documents import BadInput
from headrace.sources.field import Field
from headrace.sources.files import (
    CUT_BYTES,
    Compression,
    Kind,
    NamedKind,
    SourceFile,
    byte_cuts,
    kind_of_name,
    label,
    split_compression,
)
from headrace.sources.lines import ENDS_EARLY, JSON_DECODER, LineFault, LineParser
from headrace.sources.parquet import PARQUET_MAGIC, inspect_parquet
from headrace.sources.utf8 import BOM

__all__ = ["Format", "Refusal", "inspect", "inspect_named"]

Format = Literal["auto", "jsonl", "text", "parquet", "arrow"]

HEAD_BYTES = 4096
FIRST_LINE_BYTES = 16 * 2**20
"""A first line longer than this is not parsed to find out what the file is."""

_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"PK\x05\x06", "a zip archive without files"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!\x1a\x07", "a rar archive; unpack it first"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file; wanted JSON lines, text or Parquet"),
    (b"FEA1\0\0\0\0", "a Feather file of version 1, which is not read; write it again as version 2, which is Arrow"),
    (b"\x04\x22\x4d\x18", "compressed with lz4, which is not read; wanted gzip, zstd, bz2, xz or none"),
    (b"\x1f\x9d", "compressed with compress, which is not read; wanted gzip, zstd, bz2, xz or none"),
    (b"LZIP\x01", "compressed with lzip, which is not read; wanted gzip, zstd, bz2, xz or none"),
    (b"\x5d\0\0", "compressed with lzma, which is not read; wanted gzip, zstd, bz2, xz or none"),
)
_TABLES: dict[Kind, tuple[bytes, ...]] = {"parquet": (PARQUET_MAGIC,), "arrow": ARROW_MAGICS}
_TABLE_NAMES: dict[Kind, str] = {"parquet": "a Parquet file", "arrow": "an Arrow file"}
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_SPECIAL: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class Refusal(Exception):  # noqa: N818 -- no error yet: the caller decides whether it is one
    """A file that is not read, and why."""

    def __init__(self, reason: str, *, foreign: bool = False, missing: bool = False, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.foreign = foreign
        """Something else than documents: left out where nobody named it."""
        self.missing = missing
        self.line = line
        """Line at fault, from 1."""


def inspect(
    path: str, *, shown: str, form: Format, chosen: bool, field: Field, cut_bytes: int = CUT_BYTES
) -> SourceFile:
    """Look at the start of a file and return how it is to be read.

    Args:
        path: absolute.
        shown: the label.
        form: `auto` goes by the name, and by the content where that says nothing.
        chosen: the user named this file; else its name was found in a folder, and `.json` must hold the text field.
        field: looked for in Parquet and Arrow files, and in `.json` files found in a folder.
        cut_bytes: decompressed bytes after which a file is cut that can be read in several places at once.

    Raises:
        Refusal: it cannot or should not be read.
        MissingExtraError: it is Parquet or Arrow, and pyarrow is not installed.
    """
    size, modified = _size_and_time(path)
    named = kind_of_name(Path(path).name)
    file = SourceFile(Path(path), shown, size, "text", None)
    try:
        head = _first_bytes(file)
        _refuse_foreign(head)
        compression = compression_of(head)
        if compression:
            file = SourceFile(file.path, shown, size, "text", compression)
            head = _first_bytes(file)
            _refuse_foreign(head)
            if again := compression_of(head):
                raise Refusal(f"compressed twice, {again} inside {compression}; decompress it once")
        elif size:
            _refuse_wrong_suffix(path)
        if table := _table_kind(head, named, form):
            return _table_file(file, head, table, field, modified=modified, cut_bytes=cut_bytes)
        kind = _kind(file, named, form)
        if kind == "jsonl" and head.removeprefix(BOM).lstrip().startswith(b"[") and _is_array(file):
            kind = "array"
        if kind == "text" and (lacks := _not_in_text(field)):
            raise Refusal(f"a text file, which holds no {lacks}", foreign=True)
        if named == "json" and not chosen and form != "text":
            _refuse_without_field(file, kind, field)
    except SourceError as error:
        raise Refusal(error.summary.removeprefix(f"{shown}: ")) from error
    cuts = byte_cuts(size, modified, cut_bytes) if kind == "jsonl" and compression is None else ()
    return SourceFile(file.path, shown, size, kind, compression, cuts=cuts)


def _not_in_text(field: Field) -> str | None:
    """What is to be read that a text file cannot hold."""
    if field.ids is not None:
        return "lists of ids (--ids-field)"
    if field.response is not None:
        return "prompts and responses (--prompt-field)"
    if field.chat is not None:
        return "messages (--chat-field)"
    return None if field.id_name is None else "field for the id of a document (--id-field)"


_CONTINUED = b"\xff\xff\xff\xff"


def _table_kind(head: bytes, named: NamedKind | None, form: Format) -> Kind | None:
    """Tell whether a file is to be read as a table: it is one, or its name or the user says so."""
    found: Kind | None = next((kind for kind, magics in _TABLES.items() if head.startswith(magics)), None)
    if found == "arrow" and named != "arrow" and head.startswith(_CONTINUED) and not _is_stream(head):
        found = None
    if found and form not in {"auto", found}:
        raise Refusal(f"{_TABLE_NAMES[found]}; --format {form} reads none", foreign=True)
    said: Kind | None = next((kind for kind in _TABLES if kind == (named if form == "auto" else form)), None)
    return found or said


def _is_stream(head: bytes) -> bool:
    """Whether four bytes of ones begin an Arrow stream: the length of its schema follows, a multiple of 8."""
    length = int.from_bytes(head[4:8], "little", signed=True)
    return length > 0 and length % 8 == 0


def _table_file(
    file: SourceFile, head: bytes, kind: Kind, field: Field, *, modified: int, cut_bytes: int
) -> SourceFile:
    if file.compression and head.startswith(_TABLES[kind]):
        raise Refusal(f"{_TABLE_NAMES[kind]} compressed with {file.compression}; decompress it first")
    found = replace(file, kind=kind, compression=None)
    if kind == "parquet":
        fault, cuts = inspect_parquet(found, field, modified=modified, cut_bytes=cut_bytes)
    else:
        fault, cuts = inspect_arrow(found, field), ()
    if fault:
        raise Refusal(fault)
    return replace(found, cuts=cuts)


def inspect_named(path: Path, *, kind: Literal["jsonl", "text"]) -> SourceFile:
    """Look at one file that the caller named, to be read as `kind`.

    Raises:
        SourceNotFoundError: it does not exist.
        SourceError: it is no readable file, or something else than its kind.
    """
    try:
        return _require(
            inspect(str(path.absolute()), shown=label(path.name), form=kind, chosen=True, field=Field("text")), kind
        )
    except Refusal as refusal:
        kind_of_error = SourceNotFoundError if refusal.missing else SourceError
        place = label(str(path)) + (f":{refusal.line}" if refusal.line else "")
        raise kind_of_error("cannot read the input:", problems=[Problem(place, refusal.reason)]) from refusal


def _require(file: SourceFile, kind: Kind) -> SourceFile:
    if file.kind != kind:
        raise Refusal("a JSON array; wanted one JSON object a line", line=1)
    return file


def _size_and_time(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 -- names that are not UTF-8 stay strings
    except FileNotFoundError as error:
        link = os.path.islink(path)  # noqa: PTH114 -- as above
        raise Refusal("a link to something that does not exist" if link else "does not exist", missing=True) from error
    except OSError as error:
        raise Refusal(f"cannot be opened ({error.strerror or error})") from error
    if stat.S_ISREG(status.st_mode):
        return status.st_size, status.st_mtime_ns
    what = next((what for test, what in _SPECIAL if test(status.st_mode)), "no regular file")
    raise Refusal(f"{what}; wanted a file")


def _first_bytes(file: SourceFile) -> bytes:
    with open_stream(file, buffer_bytes=HEAD_BYTES) as stream:
        data = b""
        while len(data) < HEAD_BYTES and (more := stream.read(HEAD_BYTES - len(data))):
            data += more
        return data


def _refuse_foreign(head: bytes) -> None:
    for magic, reason in _FOREIGN:
        if head.startswith(magic):
            raise Refusal(reason, foreign=True)
    if head.startswith(_TAR_MAGIC, _TAR_MAGIC_AT) and b"\0" in head:
        raise Refusal("a tar archive; unpack it first", foreign=True)


def _refuse_wrong_suffix(path: str) -> None:
    expected: Compression | None = split_compression(path)[1]
    if expected:
        raise Refusal(
            f"its name says {expected}, but it does not begin as {expected} does; fetch it again, or rename it if it "
            "is not compressed"
        )


def _kind(file: SourceFile, named: NamedKind | None, form: Format) -> Kind:
    if form != "auto":
        return form
    if named is None:
        return "jsonl" if isinstance(_parsed(_first_line(file)[0]), dict) else "text"
    return "text" if named == "text" else "jsonl"


def _refuse_without_field(file: SourceFile, kind: Kind, field: Field) -> None:
    first = b"".join(first_elements(file, 1)) if kind == "array" else _first_line(file)[0]
    value = _parsed(first)
    for key in field.path:
        if not isinstance(value, dict) or key not in value:
            what = "element" if kind == "array" else "line"
            raise Refusal(f"a .json file whose first {what} is no object with the field {field.name}", foreign=True)
        value = value[key]


def _is_array(file: SourceFile) -> bool:
    """Tell an array, over several lines or on the only line, from lines that are arrays, or none.

    One of objects is an array whatever is wrong inside: read as lines, all its documents would go with one that is bad.
    """
    line, alone = _first_line(file)
    if line[1:].lstrip().startswith(b"{"):
        return alone or not is_closed(line)
    found = LineParser("text", BadInput.REPLACE, keep_empty=True).parse(line)[0]
    goes_on = isinstance(found, LineFault) and found.reason == ENDS_EARLY
    return goes_on or (alone and isinstance(_parsed(line), list))


def _first_line(file: SourceFile) -> tuple[bytes, bool]:
    """Return the first line that is not blank, and whether it is all but white space, as far as it is looked for."""
    data, end = bytearray(), -1
    with open_stream(file) as stream:
        while len(data) < FIRST_LINE_BYTES and (more := read_all(stream, HEAD_BYTES * 16)):
            looked = len(data)
            data += more if data else more.removeprefix(BOM).lstrip()
            end = data.find(b"\n", looked) if end < 0 else end
            if end >= 0 and data[max(end, looked) :].strip():
                return bytes(data[:end]), False
        return bytes(data if end < 0 else data[:end]), end < 0 or not stream.read(1)


def _parsed(line: bytes) -> object:
    try:
        return JSON_DECODER.decode(line.decode(errors="replace"))  # what is no UTF-8 is told where it is read
    except (ValueError, RecursionError):
        return None
