"""What a place of a corpus says: its tokens, decoded, cut at document ends and traced to their sources."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.corpus import Corpus
from headrace.documents import Location
from headrace.errors import NoDocumentsError, OutOfRangeError
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.load import load_from_corpus, load_tokenizer
from headrace.tokenizers.ready import NO_TOKENIZER

__all__ = ["Excerpt", "Part", "Piece", "corpus_tokenizer", "excerpt"]


def corpus_tokenizer(corpus: Corpus, spec: str | Path | None = None) -> BatchTokenizer | None:
    """The tokenizer to decode a corpus with: `spec`, else the copy in the corpus, else None."""
    if spec is not None:
        return load_tokenizer(spec)
    ref = corpus.manifest.tokenizer
    return None if ref is None or ref.kind == NO_TOKENIZER else load_from_corpus(corpus.path.parent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Tokens of a piece that all count in the loss, or all do not."""

    counts: bool | None
    """None where the corpus does not say."""
    tokens: NDArray[Any]
    text: str | None
    """Decoded by itself; None without a tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """The part of an excerpt that lies in one document."""

    start: int
    """Corpus position of its first token."""
    tokens: NDArray[Any]
    """Its tokens, the boundary left out."""
    text: str | None
    """Decoded; None without a tokenizer."""
    ends: bool
    """Whether the document's last token is the last of this piece and ..."""
    boundary: bool
    """... is the boundary."""
    location: Location | None
    """Of its first token; None where the corpus stores no document index."""
    parts: tuple[Part, ...]
    """The tokens once more, by what counts in the loss."""
    loss_mask: NDArray[np.uint8] | None
    """Of its tokens and the boundary behind them, if that is there; None where the corpus stores none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excerpt:
    """A range of a corpus, document by document."""

    start: int
    stop: int
    """Exclusive."""
    pieces: tuple[Piece, ...]


def excerpt(corpus: Corpus, start: int, stop: int, tokenizer: BatchTokenizer | None = None) -> Excerpt:
    """Tokens [start, stop), cut at document ends, decoded and traced to their sources.

    Raises:
        OutOfRangeError: (a ValueError and IndexError) a place outside the corpus.
    """
    if start >= corpus.token_count:
        raise OutOfRangeError(f"position {start} is outside the corpus of {corpus.token_count} tokens")
    if not 0 <= start < stop <= corpus.token_count:
        raise OutOfRangeError(f"wanted 0 <= start < stop <= {corpus.token_count} tokens, found [{start}, {stop})")
    return Excerpt(start=start, stop=stop, pieces=tuple(_pieces(corpus, start, stop, tokenizer)))


def _pieces(corpus: Corpus, start: int, stop: int, tokenizer: BatchTokenizer | None) -> Iterator[Piece]:
    while start < stop:
        try:
            location = corpus.locate(start)
        except NoDocumentsError:
            location = None
        end = min(stop, location.stop) if location else stop
        tokens = corpus.get_slice(start, end)
        mask = corpus.loss_mask(start, end) if corpus.has_loss_mask else None
        ends = location is not None and end == location.stop
        boundary = ends and int(tokens[-1]) == corpus.manifest.boundary_token_id
        tokens = tokens[:-1] if boundary else tokens
        yield Piece(
            start=start,
            tokens=tokens,
            text=None if tokenizer is None else tokenizer.decode(tokens),
            ends=ends,
            boundary=boundary,
            location=location,
            parts=tuple(_parts(tokens, mask, tokenizer)),
            loss_mask=mask,
        )
        start = end


def _parts(tokens: NDArray[Any], mask: NDArray[np.uint8] | None, tokenizer: BatchTokenizer | None) -> Iterator[Part]:
    changes = [] if mask is None else (np.flatnonzero(np.diff(mask[: len(tokens)])) + 1).tolist()
    edges = [0, *changes, len(tokens)]
    for start, stop in pairwise(edges):
        counts = None if mask is None or start == stop else bool(mask[start])
        part = tokens[start:stop]
        yield Part(counts=counts, tokens=part, text=None if tokenizer is None else tokenizer.decode(part))
