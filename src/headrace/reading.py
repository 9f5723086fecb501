"""A corpus that is open: one line of tokens, and what is known of them."""

from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.documents import Documents, Location
from headrace.errors import NoLossMaskError, OutOfRangeError
from headrace.manifest import Fingerprint, Manifest, ShardEntry
from headrace.shards import ShardTable
from headrace.storage.token_line import TokenLine
from headrace.storage.window_block import WindowBlock

if TYPE_CHECKING:
    from headrace.verify import ShardReport

__all__ = ["Corpus"]

_LONGEST_STRIDE = 64
"""Longest step of a slice that is read whole; beyond it, tokens are read one by one."""


class Corpus:
    """A corpus opened for reading.

    `corpus[a:b]` follows Python's slice rules, `get_slice` raises outside; both give a new array of the file's dtype.
    Safe for threads; picklable (it reopens by its path, at its version); maps open lazily in each process. A context
    manager. Once open, it goes on serving its version, whatever is appended.

    Attributes:
        path: the index or the file that was opened.
        manifest: what `shards.json` says; for a single file, made up from it.
        entries: its shards, in order, with absolute paths.
        fingerprint: identity of the content: `.hex`, `.kind`; `str()` is the hex.
        documents: its document index: `documents[i]` is the tokens of document i, boundary included, `documents.bounds(i)`
            their range, `len(documents)` their number. `NoDocumentsError` where none is stored.
    """

    def __init__(
        self,
        line: TokenLine,
        manifest: Manifest,
        entries: Sequence[ShardEntry],
        *,
        path: Path,
        fingerprint: Fingerprint,
        documents: Documents,
        reopen: dict[str, Any],
        open_mask: Callable[[], TokenLine] | None = None,
    ) -> None:
        self._line = line
        self._open_mask = open_mask
        self._mask: TokenLine | None = None
        self._reopen = reopen
        self.path = path
        """The index or the file that was opened; of an earlier version too, that of the newest."""
        self.manifest = manifest
        """As stored; for a single file, made up from it."""
        self.entries = entries if isinstance(entries, ShardTable) else tuple(entries)
        """Its shards, with absolute paths."""
        self.fingerprint = fingerprint
        """Identity of the content: `.hex`, `.kind`; `str()` is the hex."""
        self.documents = documents
        """`documents[i]`: its tokens, boundary included."""

    def __reduce__(self) -> tuple[Any, ...]:
        from headrace.corpus import reopen  # noqa: PLC0415  # it builds on this module

        return reopen, (self.path, {**self._reopen, "version": self.fingerprint.hex})

    def __repr__(self) -> str:
        return f"<Corpus {str(self.path)!r}: {self.token_count} tokens, {len(self.entries)} shards, {self.dtype}>"

    def __len__(self) -> int:
        return self.token_count

    @property
    def token_count(self) -> int:
        """Tokens of the corpus, boundaries included."""
        return self._line.token_count

    @property
    def total_tokens(self) -> int:
        """The same as `token_count`."""
        return self._line.token_count

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored tokens."""
        return self._line.dtype

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1; where the corpus does not say, what `open` was told, else all that its dtype holds."""
        return self.manifest.vocab_size

    def get_slice(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens [start, stop) as a new array of the file's dtype.

        Raises:
            OutOfRangeError: (a ValueError and IndexError) unless 0 <= start <= stop <= token_count.
        """
        return self._line.get_slice(start, stop)

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  # an array for a slice, a scalar for an integer
        if isinstance(key, slice):
            return self._slice(range(*key.indices(self.token_count)))
        position = index(key)
        if not -self.token_count <= position < self.token_count:
            raise OutOfRangeError(f"position {position} is outside the corpus of {self.token_count} tokens")
        position += self.token_count if position < 0 else 0
        return self._line.get_slice(position, position + 1)[0]

    def _slice(self, wanted: range) -> NDArray[Any]:
        if wanted.step < 0:
            return self._slice(wanted[::-1])[::-1]
        if not wanted:
            return self._line.get_slice(0, 0)
        if wanted.step <= _LONGEST_STRIDE:
            return self._line.get_slice(wanted.start, wanted[-1] + 1)[:: wanted.step]
        starts = np.arange(wanted.start, wanted.stop, wanted.step, dtype=np.int64)[None]
        out = np.empty((starts.size, 1), dtype=self.dtype)
        self._line.windows(starts, 1).gather_into(0, out)
        return out[:, 0]

    def windows(self, starts: NDArray[np.int64], length: int) -> WindowBlock:
        """Work out where the windows of many steps lie; `WindowBlock.gather_into(step, out)` then reads one step.

        Args:
            starts: corpus positions, integers, shape (steps, rows).
            length: tokens a window, at least 1.

        Raises:
            OutOfRangeError: a window that does not lie in the corpus.
            TypeError, ValueError: no integers, or of another shape.
        """
        return self._line.windows(starts, length)

    @property
    def has_loss_mask(self) -> bool:
        """Whether it is stored of each token whether it counts in the loss."""
        return self._open_mask is not None

    def loss_mask(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Which of the tokens [start, stop) count as targets in the loss, as a new array of uint8: 1 for those that do, else 0.

        Value i is about token start + i itself: whether its prediction, out of the tokens before it, is to be learned.

        Raises:
            NoLossMaskError: (a LookupError) the corpus stores none.
            OutOfRangeError: (a ValueError and IndexError) unless 0 <= start <= stop <= token_count.
        """
        return self._mask_line().get_slice(start, stop)

    def loss_mask_windows(self, starts: NDArray[np.int64], length: int) -> WindowBlock:
        """As `windows`, of the loss mask: `gather_into` then takes a buffer of uint8.

        Raises:
            NoLossMaskError: the corpus stores none. Others as of `windows`.
        """
        return self._mask_line().windows(starts, length)

    def _mask_line(self) -> TokenLine:
        if self._open_mask is None:
            raise NoLossMaskError("this corpus stores no loss mask: all of its tokens count")
        if self._mask is None:
            self._mask = self._open_mask()
        return self._mask

    def locate(self, position: int) -> Location:
        """Shard, document, source file, line and byte of the token at a corpus position.

        Raises:
            OutOfRangeError: (an IndexError) no such position.
            NoDocumentsError: the corpus stores no document index.
        """
        return self.documents.locate(position)

    def verify(self, *, quick: bool = False) -> list["ShardReport"]:
        """Compare every shard's bytes with the manifest, in parallel; all are judged before it returns.

        Args:
            quick: sizes, stored digests, first and last chunk of each shard only.
        """
        from headrace.verify import verify_shards  # noqa: PLC0415  # not needed to read

        stored = self.path.suffix == ".json"  # else the manifest is made up from what is to be verified
        return verify_shards(self.entries, quick=quick, manifest=self.manifest if stored else None)

    def close(self) -> None:
        """Drop all maps. A later read opens them again."""
        self._line.close()
        if self._mask is not None:
            self._mask.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
