"""What a shard writer is given, checked before anything is written: nothing is wrapped, nothing is kept by reference."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import TokenIdError, WriterError

__all__ = [
    "HASH_BYTES",
    "NO_HASHES",
    "Origins",
    "OriginsDigest",
    "PendingDocuments",
    "checked_ends",
    "checked_mask",
    "checked_tokens",
]

HASH_BYTES = 16
"""Of a text's SHA-256, kept to tell equal texts."""
NO_HASHES: NDArray[np.uint8] = np.empty((0, HASH_BYTES), np.uint8)


def checked_tokens(ids: ArrayLike, dtype: np.dtype[Any], vocab_size: int, *, path: Path, document: int) -> NDArray[Any]:
    """Token ids in the stored dtype, shape (n,).

    Args:
        ids: integers, shape (n,).
        dtype: of the shard.
        vocab_size: ids are below it.
        path: the shard, for messages.
        document: number of the document, or of the first of them, for messages.

    Raises:
        TokenIdError: no integers in one dimension, or an id outside the vocabulary.
    """
    tokens = np.asarray(ids)
    if tokens.size == 0:
        return np.empty(0, dtype=dtype)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise TokenIdError(f"{path}: token ids are integers in one dimension, not {tokens.dtype} {tokens.shape}")
    low, high = int(tokens.min()) if tokens.dtype.kind == "i" else 0, int(tokens.max())
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        at = int(np.flatnonzero(tokens == bad)[0])
        raise TokenIdError(
            f"{path}: token id {bad} (at {at} of {len(tokens)}, document {document}) is not in a vocabulary of "
            f"{vocab_size} ids; is this the tokenizer that the corpus was opened for?"
        )
    return tokens.astype(dtype, copy=False)


def checked_ends(ends: ArrayLike, token_count: int, *, path: Path) -> NDArray[np.uint64]:
    """Exclusive document ends as uint64, shape (d,).

    Raises:
        WriterError: they do not increase from above 0 to `token_count`.
    """
    stops = _unsigned("ends", ends, np.uint64, path)
    if len(stops) == 0 and token_count == 0:
        return stops
    if len(stops) == 0 or stops[0] == 0 or int(stops[-1]) != token_count or bool((stops[1:] <= stops[:-1]).any()):
        raise WriterError(f"{path}: document ends must increase from above 0 to {token_count}")
    return stops


def checked_mask(mask: ArrayLike, token_count: int, *, path: Path) -> NDArray[np.uint8]:
    """A loss mask as uint8, shape (token_count,): 1 for each token that counts, else 0.

    Raises:
        WriterError: of another shape, or other values than 0 and 1.
    """
    values = np.asarray(mask)
    if values.shape != (token_count,) or values.dtype.kind not in "bui":
        raise WriterError(
            f"{path}: a loss mask is {token_count} integers or booleans, one a token, not {values.dtype} {values.shape}"
        )
    if values.size and (int(values.max()) > 1 or int(values.min()) < 0):
        raise WriterError(f"{path}: a loss mask holds 0 and 1 alone, found {int(values.max())} and {int(values.min())}")
    return values.astype(np.uint8, copy=False)


def _unsigned(name: str, values: ArrayLike, dtype: type[np.uint64 | np.uint32], path: Path) -> NDArray[Any]:
    """A copy, so that the caller may reuse its buffer while documents wait for their chunk."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=dtype)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise WriterError(f"{path}: {name} are integers in one dimension, not {array.dtype} {array.shape}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > np.iinfo(dtype).max:
        raise WriterError(f"{path}: {name} hold {low if low < 0 else high}, which {dtype.__name__} cannot")
    return array.astype(dtype)


class OriginsDigest:
    """SHA-256 over where all documents of a shard come from, as the columns are written.

    Of the SHA-256 of `/documents/source_row`, `source_byte` and `source_file` (32 bytes each), and if documents have ids
    that of `id_end` and `id`, and where it is stored that of `text_hash`; and the labels of `/documents/files`, each with a
    zero byte behind it.
    """

    def __init__(self) -> None:
        self._columns = [hashlib.sha256() for _ in range(3)]
        self._id_columns: list[Any] = []
        self._hashes: list[Any] = []

    def update(self, rows: NDArray[Any], offsets: NDArray[Any], files: NDArray[Any]) -> None:
        """Take the next rows of the three columns."""
        for digest, values, dtype in zip(self._columns, (rows, offsets, files), ("<u8", "<u8", "<u4"), strict=True):
            digest.update(np.ascontiguousarray(values, dtype=dtype).data)

    def update_ids(self, ends: NDArray[Any], ids: NDArray[np.uint8]) -> None:
        """Take the next rows of the columns of ids, or say by empty ones that there are such columns."""
        self._id_columns = self._id_columns or [hashlib.sha256(), hashlib.sha256()]
        for digest, values, dtype in zip(self._id_columns, (ends, ids), ("<u8", "u1"), strict=True):
            digest.update(np.ascontiguousarray(values, dtype=dtype).data)

    def update_hashes(self, hashes: NDArray[np.uint8]) -> None:
        """Take the next hashes of texts, or say by none that there is such a column."""
        self._hashes = self._hashes or [hashlib.sha256()]
        self._hashes[0].update(np.ascontiguousarray(hashes).data)

    def hex(self, labels: Iterable[str]) -> str:
        """The digest of all that was taken, with the labels of the files."""
        columns = [*self._columns, *self._id_columns, *self._hashes]
        digest = hashlib.sha256(b"".join(column.digest() for column in columns))
        for label in labels:
            digest.update(label.encode("utf-8", "surrogateescape") + b"\0")
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """Where a run of documents comes from: three arrays of one length; as many ids and hashes of texts where they are kept."""

    rows: NDArray[np.uint64]
    offsets: NDArray[np.uint64]
    files: NDArray[np.uint32]
    ids: Sequence[bytes] = ()
    hashes: NDArray[np.uint8] = field(default_factory=lambda: NO_HASHES)

    @classmethod
    def checked(
        cls,
        rows: ArrayLike,
        offsets: ArrayLike,
        files: ArrayLike,
        *,
        count: int,
        file_count: int,
        path: Path,
    ) -> Self:
        """Copies of the arrays.

        Raises:
            WriterError: they are not `count` unsigned integers each, or name a file that does not exist.
        """
        origins = cls(
            _unsigned("rows", rows, np.uint64, path),
            _unsigned("offsets", offsets, np.uint64, path),
            _unsigned("files", files, np.uint32, path),
        )
        if not len(origins.rows) == len(origins.offsets) == len(origins.files) == count:
            raise WriterError(f"{path}: {count} documents need as many rows, offsets and files")
        if count and int(origins.files.max()) >= file_count:
            raise WriterError(f"{path}: source file {int(origins.files.max())} of {file_count} does not exist")
        return origins

    def cut(self, start: int, stop: int) -> "Origins":
        """Those of documents [start, stop)."""
        span = slice(start, stop)
        return Origins(self.rows[span], self.offsets[span], self.files[span], self.ids[span], self.hashes[span])


class PendingDocuments:
    """Ended documents whose rows are not in the file yet: exclusive ends, and where they come from."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[NDArray[np.uint64], Origins | None]] = []

    def add(self, ends: NDArray[np.uint64], origins: Origins | None) -> None:
        """Append a run of documents, which end after all before them."""
        self._runs.append((ends, origins))

    def take(self, stop: int) -> tuple[NDArray[np.uint64], list[Origins]]:
        """Remove and return the documents that end before token `stop`."""
        ready: list[tuple[NDArray[np.uint64], Origins | None]] = []
        whole = 0
        for ends, origins in self._runs:
            count = int(np.searchsorted(ends, stop, side="left"))
            if count < len(ends):
                if count:
                    ready.append((ends[:count], origins and origins.cut(0, count)))
                    self._runs[whole] = (ends[count:], origins and origins.cut(count, len(ends)))
                break
            ready.append((ends, origins))
            whole += 1
        del self._runs[:whole]
        stops = np.concatenate([ends for ends, _ in ready]) if ready else np.empty(0, np.uint64)
        return stops, [origins for _, origins in ready if origins is not None]
