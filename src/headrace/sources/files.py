"""Input files as values, and how their names are read and shown."""

import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.sources.items import Items

__all__ = [
    "CUT_BYTES",
    "Compression",
    "Cut",
    "Kind",
    "NamedKind",
    "Promise",
    "SourceFile",
    "SourceShard",
    "group_into_shards",
    "kind_of_name",
    "label",
]

Kind = Literal["jsonl", "array", "text", "parquet", "arrow", "given", "spilled"]
"""`given`: by a program, in place of a file; `spilled`: by the build itself, which read them before."""
Compression = Literal["gzip", "zstd", "bz2", "xz"]
NamedKind = Literal["jsonl", "json", "text", "parquet", "arrow"]

SUFFIXES: dict[str, NamedKind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".txt": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
COMPRESSED_SUFFIXES: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}

# How Python spells the bytes 0x80 to 0xFF of a name that is not UTF-8 (PEP 383).
_FIRST_ESCAPED_BYTE, _LAST_ESCAPED_BYTE = 0xDC80, 0xDCFF

TEXT_SHARD_BYTES = 64 * 2**20
"""Most bytes on disk of the text files that share a source shard; a larger file has one of its own."""


CUT_BYTES = 2**30
"""Decompressed bytes after which a large file is cut. A constant of the format; tests set it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a downloader's list says about a file."""

    size: int
    sha256: str
    """Hex, of the bytes on disk."""
    documents: int | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a large file that is read by itself, side by side with the others."""

    number: int
    start: int
    """First byte in the file, and ..."""
    stop: int
    """... after its last. Of JSON lines, those that begin here belong to the cut."""
    count: int
    """Cuts of the file."""
    modified: int
    """When the file was last written to, as it was listed: nanoseconds since 1970."""
    groups: tuple[int, int] = (0, 0)
    """Of Parquet, the row groups [first, last) of the cut ..."""
    row_base: int | None = 0
    """... and the rows before them. None where the rows before are not known: JSON lines, but for the first cut."""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.stop - self.start


def byte_cuts(size: int, modified: int, cut_bytes: int) -> tuple[Cut, ...]:
    """The cuts of a file of JSON lines that is not compressed; none where it is to be read as a whole."""
    if size <= cut_bytes:
        return ()
    count = -(-size // cut_bytes)
    return tuple(
        Cut(
            number,
            number * cut_bytes,
            min((number + 1) * cut_bytes, size),
            count,
            modified,
            row_base=None if number else 0,
        )
        for number in range(count)
    )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file, checked when it was listed."""

    path: Path
    """Absolute."""
    label: str
    """Path below the inputs' common root, `/` between parts, safe to print and to store as UTF-8 (see `label`)."""
    size: int
    """Bytes on disk."""
    kind: Kind
    compression: Compression | None
    """By content, whatever the name says."""
    split: str = "none"
    """Where a text file is cut into documents, see `split.check_split`."""
    promise: Promise | None = None
    """Compared with what is read, where a list named the file."""
    given: Items | None = field(default=None, compare=False, repr=False)
    """What is read in place of a file."""
    cuts: tuple[Cut, ...] = ()
    """Where it is large and can be read in several places at once; else it is read from its start to its end."""


@dataclass(frozen=True, slots=True)
class SourceShard:
    """What is read in one go, in order, into shards of its own: a file, a cut of one, or neighbouring text files."""

    index: int
    """The same for all cuts of a file."""
    files: tuple[SourceFile, ...]
    cut: Cut | None = None

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.cut.size if self.cut else sum(file.size for file in self.files)

    @property
    def key(self) -> tuple[int, int]:
        """Index and number of the cut, by which it is known among the others."""
        return self.index, self.cut.number if self.cut else 0

    @property
    def cuts(self) -> int:
        """How many cuts its file has that are read side by side; 1 where it is read in one go."""
        return self.cut.count if self.cut else 1

    @property
    def is_last(self) -> bool:
        """Whether no other cut of its file follows."""
        return self.cut is None or self.cut.number + 1 == self.cut.count


def group_into_shards(files: list[SourceFile], limit: int = TEXT_SHARD_BYTES) -> tuple[SourceShard, ...]:
    """Put an ordered list of files together into source shards: a function of the list alone."""
    groups: list[list[SourceFile]] = []
    room = -1  # bytes that the last group can still take
    for file in files:
        if file.kind == "text" and file.size <= room:
            groups[-1].append(file)
            room -= file.size
        else:
            groups.append([file])
            room = limit - file.size if file.kind == "text" else -1
    return tuple(
        SourceShard(index, tuple(group), cut) for index, group in enumerate(groups) for cut in group[0].cuts or (None,)
    )


def split_compression(name: str) -> tuple[str, Compression | None]:
    """Split `a.jsonl.gz` into `a.jsonl` and `gzip`; the case of the suffix does not matter."""
    for suffix, compression in COMPRESSED_SUFFIXES.items():
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)], compression
    return name, None


def kind_of_name(name: str) -> NamedKind | None:
    """Return what a file's name says it holds, a suffix of a compression left aside."""
    stem = split_compression(name)[0].lower()
    return next((kind for suffix, kind in SUFFIXES.items() if stem.endswith(suffix)), None)


def label(path: str) -> str:
    r"""Return a path as text that is valid UTF-8, one line long, and differs where the paths do.

    Control characters and line separators become `\x0a`, `\u2028`; bytes that are not UTF-8 become `\xff`; a backslash
    is doubled.
    """
    return "".join(_shown(character) for character in path)


def _shown(character: str) -> str:
    code = ord(character)
    if character == "\\":
        return "\\\\"
    if _FIRST_ESCAPED_BYTE <= code <= _LAST_ESCAPED_BYTE:
        return f"\\x{code & 0xFF:02x}"
    if unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"}:
        return f"\\x{code:02x}" if character.isascii() else f"\\u{code:04x}"
    return character
