"""The shards that an index lists: one as a frozen value, and many of them as columns."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from typing import Any, Self, cast, overload

__all__ = ["ShardEntry", "ShardTable", "column"]

_OPTIONAL = {"sources_sha256": "", "loss_mask_sha256": "", "source": 0, "row_base": 0}
"""Fields that a row may lack, and what they then are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard of a corpus."""

    shard_id: str
    path: str
    """Path of the file: absolute where it comes from `load_index` or a pipeline, relative in `shards.json`."""
    token_count: int
    document_count: int
    sha256: str
    """SHA-256 over the little-endian token bytes, 64 hex digits."""
    global_start: int = 0
    """Position of the shard's first token in the corpus."""
    documents_sha256: str = ""
    """SHA-256 over `/documents/end` as little-endian uint64; empty in version 1."""
    sources_sha256: str = ""
    """SHA-256 over the columns that say where documents come from (see `docs/format.md`); empty where none do."""
    loss_mask_sha256: str = ""
    """SHA-256 over the loss mask, a byte a token; empty where there is none."""
    source: int = 0
    """Index of its first file in the manifest's `sources`."""
    row_base: int = 0
    """0-based line, in its source file, of row 0 of this shard's cut."""

    @property
    def global_stop(self) -> int:
        """Position after the shard's last token (exclusive)."""
        return self.global_start + self.token_count

    def row(self) -> dict[str, Any]:
        """As it stands in `shards.json`."""
        row = asdict(self)
        if not self.loss_mask_sha256:
            del row["loss_mask_sha256"]
        return row


_NAMES = tuple(field.name for field in fields(ShardEntry))
_SAID = tuple(name for name in _NAMES if name not in _OPTIONAL)
_COUNTS = tuple(field.name for field in fields(ShardEntry) if field.type is int)
_TEXTS = tuple(field.name for field in fields(ShardEntry) if field.type is str)
_HASHES = tuple(name for name in _TEXTS if name.endswith("sha256"))


class ShardTable(Sequence[ShardEntry]):
    """Entries kept as columns; each is made when it is looked at.

    To make ten thousand takes longer than to read their index. Equal to every sequence of equal entries.

    Args:
        columns: a list of each field's values, by its name.
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self._columns = columns

    @classmethod
    def of_rows(cls, rows: Sequence[Any]) -> Self | None:
        """The table of the rows of an index of version 2; None unless nothing at all is wrong with them."""
        if not _are(rows, dict):
            return None
        try:
            columns = {name: [row[name] for row in rows] for name in _SAID}
        except KeyError:
            return None
        for name, absent in _OPTIONAL.items():
            columns[name] = [row.get(name, absent) for row in rows]
        if not all(map(_are_counts, (columns[name] for name in _COUNTS))):
            return None
        if not all(_are(columns[name], str) for name in _TEXTS) or not _are_plain(columns["path"]):
            return None
        if not all(_are_hashes(columns[name], absent=name in _OPTIONAL) for name in _HASHES):
            return None
        starts = accumulate(columns["token_count"], initial=0)
        follow = all(map(operator.eq, columns["global_start"], starts))
        return cls(columns) if follow and len(set(columns["shard_id"])) == len(rows) else None

    def with_paths(self, paths: list[str]) -> "ShardTable":
        """The same shards at other places."""
        return ShardTable({**self._columns, "path": paths})

    def column(self, name: str) -> list[Any]:
        """The values of one field, not to be changed."""
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns["path"])

    @overload
    def __getitem__(self, index: int) -> ShardEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ShardEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> ShardEntry | tuple[ShardEntry, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        return ShardEntry(**{name: self._columns[name][index] for name in _NAMES})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        others = cast("Sequence[Any]", other)
        return len(self) == len(others) and all(mine == theirs for mine, theirs in zip(self, others, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} shards>"


def column(entries: Sequence[ShardEntry], name: str) -> list[Any]:
    """The values of one field of all entries, not to be changed."""
    return entries.column(name) if isinstance(entries, ShardTable) else [getattr(entry, name) for entry in entries]


def _are(values: Iterable[object], kind: type) -> bool:
    return set(map(type, values)) <= {kind}


def _are_counts(values: list[Any]) -> bool:
    return _are(values, int) and min(values, default=0) >= 0 and max(values, default=0) < 1 << 63


def _are_hashes(values: list[str], *, absent: bool) -> bool:
    """Whether all are 64 lower-case hex digits; or, where they may be absent, all are empty."""
    digits = "".join(values)
    if absent and not digits:
        return True
    try:
        return set(map(len, values)) <= {64} and bytes.fromhex(digits).hex() == digits
    except ValueError:
        return False


def _are_plain(paths: list[str]) -> bool:
    """Whether no path is empty, and all surely stay in the index's folder."""
    joined = "\0".join(["", *paths, ""])
    return joined.count("\0") == len(paths) + 1 and not any(part in joined for part in ("\0\0", "\0/", ".."))
