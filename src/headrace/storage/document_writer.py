"""What takes the documents of a shard, whichever its store: what it is told, and what it is given, checked once."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import TokenIdError, WriterError
from headrace.manifest import dtype_name_for, is_sha256
from headrace.storage.incoming import HASH_BYTES, NO_HASHES, Origins, checked_ends, checked_mask, checked_tokens

__all__ = ["NO_MASK", "DocumentWriter"]

NO_MASK: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)


class DocumentWriter(ABC):
    """Takes documents, many at once, and leaves the writing of them to a store. Not safe for use by several threads at once.

    Args:
        path: of the shard's file.
        chunk_size: tokens a chunk.
        vocab_size: highest token id + 1; decides the dtype (uint16 up to 65,536, else uint32).
        boundary_token_id: as the shard says it.
        tokenizer_sha256: identity of the tokenizer, 64 hex digits or empty.
        source_files: labels of the files that documents come from; empty if their origin is not recorded.
        document_ids: whether each document has an id, beside its source.
        text_hashes: whether the hash of each document's text is stored, likewise.
        loss_mask: whether it is kept of each token whether it counts in the loss.

    Raises:
        WriterError: (a ValueError) for arguments that make no sense together.
        TokenIdError: (a ValueError) for a boundary that is negative or not below `vocab_size`.
    """

    def __init__(
        self,
        path: str | Path,
        chunk_size: int,
        *,
        vocab_size: int,
        boundary_token_id: int,
        tokenizer_sha256: str,
        source_files: Sequence[str],
        document_ids: bool,
        text_hashes: bool,
        loss_mask: bool,
    ) -> None:
        if tokenizer_sha256 and not is_sha256(tokenizer_sha256):
            raise WriterError(f"tokenizer_sha256 is 64 lower-case hex digits or empty, not {tokenizer_sha256[:80]!r}")
        vocab_size, boundary_token_id = operator.index(vocab_size), operator.index(boundary_token_id)
        self.dtype: np.dtype[Any] = np.dtype(dtype_name_for(vocab_size)).newbyteorder("<")
        if not 0 <= boundary_token_id < vocab_size:
            raise TokenIdError(f"boundary_token_id {boundary_token_id} is not in a vocabulary of {vocab_size} ids")
        if document_ids and not source_files:
            raise WriterError("documents have ids beside their sources: document_ids asks for source_files")
        if text_hashes and not source_files:
            raise WriterError("hashes of texts are kept beside sources: text_hashes asks for source_files")
        self.path = Path(path)
        self.chunk_size = chunk_size
        self.vocab_size = vocab_size
        self.boundary_token_id = boundary_token_id
        self.tokenizer_sha256 = tokenizer_sha256
        self.source_files = tuple(source_files)
        self.document_ids = document_ids
        self.text_hashes = text_hashes
        self.loss_mask = loss_mask
        self._tokens = 0
        self._documents = 0

    @property
    def token_count(self) -> int:
        """Tokens taken so far, buffered ones included."""
        return self._tokens

    @property
    def document_count(self) -> int:
        """Documents ended so far."""
        return self._documents

    @property
    @abstractmethod
    def buffered_bytes(self) -> int:
        """Size of the tokens that are not written yet, and of their mask."""

    def add_documents(
        self,
        tokens: NDArray[Any],
        ends: NDArray[Any],
        *,
        rows: NDArray[Any] | None = None,
        offsets: NDArray[Any] | None = None,
        files: NDArray[Any] | None = None,
        ids: Sequence[bytes] = (),
        hashes: NDArray[np.uint8] = NO_HASHES,
        loss_mask: NDArray[Any] | None = None,
        checked: bool = False,
    ) -> None:
        """Append whole documents, boundaries included.

        Args:
            tokens: integers, shape (n,).
            ends: exclusive end of each document in `tokens`, shape (d,), strictly increasing, the last one n.
            rows: 0-based line of each document in its source, shape (d,). Given iff the writer has `source_files`.
            offsets: byte of each document in the decompressed source, shape (d,).
            files: index of each document's source in `source_files`, shape (d,).
            ids: of the documents, UTF-8, d of them; given iff the writer has `document_ids`.
            hashes: the first 16 bytes of the SHA-256 of each document's text, shape (d, 16); given iff the writer has
                `text_hashes`.
            loss_mask: 1 for each token that counts as a target in the loss, else 0, shape (n,); given iff the writer has
                `loss_mask`. What is read back by `Corpus.loss_mask` can be given as it is.
            checked: the tokens have this writer's dtype, and are known to be below `vocab_size`: not looked at again.

        Raises:
            WriterError: (a ValueError) for what would lose or blur documents; nothing of the call is taken.
            TokenIdError: (a ValueError) for an id that is negative or not below `vocab_size`.
        """
        self._begin_documents()
        if not checked or tokens.dtype != self.dtype:
            tokens = checked_tokens(tokens, self.dtype, self.vocab_size, path=self.path, document=self._documents)
        stops = checked_ends(ends, len(tokens), path=self.path)
        self._check_extras(len(stops), ids, hashes)
        origins = self._origins(len(stops), rows, offsets, files)
        if origins is not None:
            origins = replace(origins, ids=tuple(ids), hashes=hashes.copy())
        mask = self._checked_mask(loss_mask, len(tokens))
        if len(stops):
            self._take(tokens, stops, origins, mask)

    @abstractmethod
    def _begin_documents(self) -> None:
        """Be ready for whole documents.

        Raises:
            WriterError: it takes none, or none now.
        """

    @abstractmethod
    def _take(
        self, tokens: NDArray[Any], ends: NDArray[np.uint64], origins: Origins | None, mask: NDArray[np.uint8]
    ) -> None:
        """Take documents that were checked, at least one; `ends` count from their first token. Counts them."""

    def _checked_mask(self, mask: NDArray[Any] | None, count: int) -> NDArray[np.uint8]:
        if (mask is not None) != self.loss_mask:
            wanted = "a loss mask with each document" if self.loss_mask else "no loss mask, for it was made without"
            raise WriterError(f"{self.path}: this writer takes {wanted}")
        return NO_MASK if mask is None else checked_mask(mask, count, path=self.path)

    def _check_extras(self, count: int, ids: Sequence[bytes], hashes: NDArray[np.uint8]) -> None:
        if len(ids) != (count if self.document_ids else 0):
            wanted = (
                f"an id for each of {count} documents" if self.document_ids else "no ids, for it has no document_ids"
            )
            raise WriterError(f"{self.path}: this writer takes {wanted}; {len(ids)} are given")
        if hashes.shape != (count if self.text_hashes else 0, HASH_BYTES) or hashes.dtype != np.uint8:
            wanted = f"a hash for each of {count} texts" if self.text_hashes else "no hashes, for it has no text_hashes"
            raise WriterError(f"{self.path}: this writer takes {wanted}; {hashes.dtype} {hashes.shape} are given")

    def _origins(
        self, count: int, rows: ArrayLike | None, offsets: ArrayLike | None, files: ArrayLike | None
    ) -> Origins | None:
        if not self.source_files:
            if rows is not None or offsets is not None or files is not None:
                raise WriterError(f"{self.path}: origins are given, but the writer has no source_files to refer to")
            return None
        if rows is None or offsets is None or files is None:
            raise WriterError(f"{self.path}: this writer has source files, so each document needs its source")
        return Origins.checked(rows, offsets, files, count=count, file_count=len(self.source_files), path=self.path)
