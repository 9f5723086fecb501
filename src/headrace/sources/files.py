"""Input files as values, and how their names are read and shown."""

import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.sources.items import Items

__all__ = [
    "Compression",
    "Kind",
    "NamedKind",
    "Promise",
    "SourceFile",
    "SourceShard",
    "group_into_shards",
    "kind_of_name",
    "label",
]

Kind = Literal["jsonl", "array", "text", "parquet", "arrow", "given"]
"""`given`: by a program, in place of a file."""
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


@dataclass(frozen=True, slots=True)
class Promise:
    """What a downloader's list says about a file."""

    size: int
    sha256: str
    """Hex, of the bytes on disk."""
    documents: int | None


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


@dataclass(frozen=True, slots=True)
class SourceShard:
    """The files that go, in order, into one shard of the corpus: a file, or neighbouring text files."""

    index: int
    files: tuple[SourceFile, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def group_into_shards(files: list[SourceFile], limit: int = TEXT_SHARD_BYTES) -> tuple[SourceShard, ...]:
    """Cut an ordered list of files into source shards: a function of the list alone."""
    groups: list[list[SourceFile]] = []
    room = -1  # bytes that the last group can still take
    for file in files:
        if file.kind == "text" and file.size <= room:
            groups[-1].append(file)
            room -= file.size
        else:
            groups.append([file])
            room = limit - file.size if file.kind == "text" else -1
    return tuple(SourceShard(index, tuple(group)) for index, group in enumerate(groups))


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
