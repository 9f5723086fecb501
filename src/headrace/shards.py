"""The shards that an index lists: one as a frozen value, and many of them as columns."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate
from typing import Any, Self, cast, overload

import numpy as np
from numpy.typing import NDArray

from headrace.compact import Digests, Texts

__all__ = ["HASHES", "NO_HASH", "STORED_COUNTS", "TEXTS", "ShardEntry", "ShardTable", "column", "counts", "digests"]

NO_HASH = "0" * 64

_OPTIONAL = {"sources_sha256": "", "loss_mask_sha256": "", "docs_sha256": "", "source": 0, "row_base": 0}
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
    docs_sha256: str = ""
    """Of a Lance shard, SHA-256 of the data file of its documents; empty in other stores."""
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
        if not self.docs_sha256:
            del row["docs_sha256"]
        return row


_NAMES = tuple(field.name for field in fields(ShardEntry))
_SAID = tuple(name for name in _NAMES if name not in _OPTIONAL)
_COUNTS = tuple(field.name for field in fields(ShardEntry) if field.type is int)
STORED_COUNTS = tuple(name for name in _COUNTS if name != "global_start")
"""Fields that are integers, and do not follow from others."""
HASHES = tuple(name for name in _NAMES if name.endswith("sha256"))
TEXTS = ("shard_id", "path")


class ShardTable(Sequence[ShardEntry]):
    """Entries kept as columns, in about 180 bytes each; an entry is made when it is looked at.

    To make ten thousand takes longer than to read their index. Equal to every sequence of equal entries.

    Args:
        counts: each field that is an integer, by its name: int64 `(shards,)`; `global_start` follows from the others.
        texts: likewise `shard_id` and `path`.
        digests: likewise the hashes.
    """

    __slots__ = ("_counts", "_digests", "_texts")

    def __init__(
        self, counts: Mapping[str, NDArray[np.int64]], texts: Mapping[str, Texts], digests: Mapping[str, Digests]
    ) -> None:
        starts = np.cumsum(counts["token_count"]) - counts["token_count"]
        self._counts = {**counts, "global_start": starts}
        self._texts = texts
        self._digests = digests

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
        if not all(_are(columns[name], str) for name in (*TEXTS, *HASHES)) or not _are_plain(columns["path"]):
            return None
        ids = columns["shard_id"]
        starts = accumulate(columns["token_count"], initial=0)
        follow = all(map(operator.eq, columns["global_start"], starts))
        hashed = all(_are_hashes(columns[name], absent=name in _OPTIONAL) for name in HASHES)
        if not follow or not hashed or len(set(ids)) < len(ids) or "\0" in "".join(ids):
            return None
        return cls(
            {name: np.array(columns[name], dtype=np.int64) for name in STORED_COUNTS},
            {name: Texts.of(columns[name]) for name in TEXTS},
            {name: Digests.of(columns[name]) if any(columns[name]) else Digests.none(len(rows)) for name in HASHES},
        )

    def in_folder(self, folder: str) -> "ShardTable":
        """The same shards, their paths within a folder."""
        path = self._texts["path"].behind(f"{folder}/")
        return ShardTable(self._counts, {**self._texts, "path": path}, self._digests)

    def counts(self, name: str) -> NDArray[np.int64]:
        """The values of a field of integers, int64 `(shards,)`, not to be changed."""
        return self._counts[name]

    def texts(self, name: str) -> Texts:
        """The values of `shard_id` or `path`."""
        return self._texts[name]

    def digests(self, name: str) -> Digests:
        """The values of a field of hashes."""
        return self._digests[name]

    def column(self, name: str) -> Sequence[Any]:
        """The values of one field."""
        if name in self._counts:
            return self._counts[name].tolist()
        return self._texts[name] if name in self._texts else self._digests[name]

    def __len__(self) -> int:
        return len(self._counts["token_count"])

    @overload
    def __getitem__(self, index: int) -> ShardEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ShardEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> ShardEntry | tuple[ShardEntry, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        counts: dict[str, Any] = {name: int(values[index]) for name, values in self._counts.items()}
        return ShardEntry(**counts, **{name: self.column(name)[index] for name in (*TEXTS, *HASHES)})

    def __iter__(self) -> Iterator[ShardEntry]:
        for values in zip(*map(self.column, _NAMES), strict=True):
            yield ShardEntry(**dict(zip(_NAMES, values, strict=True)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        others = cast("Sequence[Any]", other)
        return len(self) == len(others) and all(mine == theirs for mine, theirs in zip(self, others, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} shards>"


def column(entries: Sequence[ShardEntry], name: str) -> Sequence[Any]:
    """The values of one field of all entries, not to be changed."""
    return entries.column(name) if isinstance(entries, ShardTable) else [getattr(entry, name) for entry in entries]


def counts(entries: Sequence[ShardEntry], name: str) -> NDArray[np.int64]:
    """The values of a field of integers of all entries, int64 `(shards,)`, not to be changed."""
    return entries.counts(name) if isinstance(entries, ShardTable) else np.array(column(entries, name), dtype=np.int64)


def digests(entries: Sequence[ShardEntry], name: str) -> NDArray[np.uint8]:
    """The values of a field of hashes of all entries, uint8 `(shards, 32)`, zeros for none; not to be changed."""
    if isinstance(entries, ShardTable):
        return entries.digests(name).rows
    return Digests.of(value or NO_HASH for value in column(entries, name)).rows


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
