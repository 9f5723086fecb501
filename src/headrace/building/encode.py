"""From texts to the tokens of a shard: encode, cut, put the boundary behind each document. No loop over tokens."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenIdError, TokenizerError
from headrace.manifest import dtype_name_for
from headrace.tokenizers.base import BatchTokenizer, DocumentMasks, MaskingTokenizer

__all__ = ["DocumentEncoder", "EncodedBatch"]

_LONG = 64
"""Tokens a document from which on it is faster to copy each by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """Whole documents as they are stored."""

    tokens: NDArray[Any]
    """uint16 or uint32, shape (n,): each document's BOS if asked for, its text, and its boundary."""
    ends: NDArray[np.int64]
    """Exclusive end of each document in `tokens`, shape (d,)."""
    cut_tokens: int
    """Text tokens left out because of `max_document_tokens`."""
    cut_documents: int
    """Documents they were cut from."""
    loss_mask: NDArray[np.uint8] | None = None
    """1 for each token that counts in the loss, else 0, shape (n,); None where that is not kept."""


class DocumentEncoder:
    """Encodes batches of documents with one tokenizer.

    Args:
        tokenizer: encodes the texts.
        boundary: id that ends each document.
        bos: id that begins each document; None for none.
        max_document_tokens: text tokens kept of a document (BOS and boundary not counted); None for all.
    """

    def __init__(
        self,
        tokenizer: BatchTokenizer,
        boundary: int,
        *,
        bos: int | None = None,
        max_document_tokens: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.boundary = boundary
        self.bos = bos
        self.max_document_tokens = max_document_tokens
        self._masking = tokenizer if isinstance(tokenizer, MaskingTokenizer) else None
        self.dtype: np.dtype[Any] = np.dtype(dtype_name_for(tokenizer.vocab_size)).newbyteorder("<")
        for name, token in (("boundary", boundary), ("BOS", bos)):
            if token is not None and not 0 <= token < tokenizer.vocab_size:
                raise TokenIdError(f"the {name} id {token} is not in the vocabulary of {tokenizer.vocab_size} ids")

    def encode(self, texts: Sequence[bytes]) -> EncodedBatch:
        """Encode documents.

        The loss mask that a `MaskingTokenizer` gives is 0 for the BOS, and for the boundary of a document that was cut: it
        does not end there.

        Args:
            texts: UTF-8, or what the tokenizer takes in place of texts.

        Raises:
            TokenIdError: the tokenizer gave an id outside its vocabulary.
            TokenizerError: it lost documents or ids.
        """
        masks: DocumentMasks | None = None
        if self._masking is None:
            ids, ends = self.tokenizer.encode_documents(texts)
        else:
            ids, ends, masks = self._masking.encode_masked(texts)
        lengths = np.diff(np.asarray(ends, dtype=np.int64), prepend=0)
        self._check(ids, ends, lengths, len(texts))
        cut_tokens = cut_documents = 0
        if self.max_document_tokens is not None:
            kept = np.minimum(lengths, min(self.max_document_tokens, sys.maxsize))
            cut_tokens = int((lengths - kept).sum())
            cut_documents = int(np.count_nonzero(kept < lengths))
            if cut_tokens:
                within = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
                chosen = within < self.max_document_tokens
                ids = ids[chosen]
                if masks is not None:
                    masks = DocumentMasks(masks.text[chosen], masks.boundary & (kept == lengths))
            lengths = kept
        return self._with_boundaries(ids, lengths, masks, cut_tokens, cut_documents)

    def _check(self, ids: NDArray[Any], ends: NDArray[np.int64], lengths: NDArray[np.int64], documents: int) -> None:
        """Trust no tokenizer: a wrong id would wrap, a wrong end would move tokens into another document."""
        if len(ends) != documents or bool((lengths < 0).any()) or int(lengths.sum()) != len(ids):
            raise TokenizerError(
                f"the tokenizer gave {len(ids)} ids and {len(ends)} document ends for {documents} documents; wanted an "
                "end for each, increasing up to the number of ids"
            )
        if not len(ids):
            return
        low, high = (int(ids.min()) if ids.dtype.kind == "i" else 0), int(ids.max())
        if ids.dtype.kind not in "iu" or low < 0 or high >= self.tokenizer.vocab_size:
            raise TokenIdError(
                f"the tokenizer gave id {low if low < 0 else high} ({ids.dtype}), outside its vocabulary of "
                f"{self.tokenizer.vocab_size} ids"
            )

    def _with_boundaries(
        self,
        ids: NDArray[Any],
        lengths: NDArray[np.int64],
        masks: DocumentMasks | None,
        cut_tokens: int,
        cut_documents: int,
    ) -> EncodedBatch:
        ends = np.cumsum(lengths + (1 if self.bos is None else 2))
        tokens = self._placed(ids, lengths, ends, self.dtype)
        mask: NDArray[np.uint8] | None = None
        # What is no text: the last token of each document, and with a BOS the first.
        tokens[ends - 1] = self.boundary
        if masks is not None:
            mask = self._placed(masks.text, lengths, ends, np.dtype(np.uint8))
            mask[ends - 1] = masks.boundary
        if self.bos is not None:
            tokens[ends - lengths - 2] = self.bos
            if mask is not None:
                mask[ends - lengths - 2] = 0
        return EncodedBatch(tokens, ends, cut_tokens, cut_documents, mask)

    def _placed(
        self, values: NDArray[Any], lengths: NDArray[np.int64], ends: NDArray[np.int64], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Values of texts where their tokens go, which leaves the places of BOS and boundary as they happen to be."""
        placed = np.empty(int(ends[-1]) if len(ends) else 0, dtype=dtype)
        if len(values) >= _LONG * len(lengths):
            at = 0
            for length, end in zip(lengths.tolist(), ends.tolist(), strict=True):
                placed[end - 1 - length : end - 1] = values[at : at + length]
                at += length
            return placed
        text = np.ones(len(placed), dtype=bool)
        text[ends - 1] = False
        if self.bos is not None:
            text[ends - lengths - 2] = False
        placed[text] = values
        return placed
