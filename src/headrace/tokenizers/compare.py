"""What a tokenizer is, and whether two are the same."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from headrace.errors import BoundaryError, Problem
from headrace.manifest import dtype_name_for
from headrace.sources.content import Format
from headrace.tokenizers.base import BatchTokenizer, NamedTokens
from headrace.tokenizers.load import load_from_corpus, load_tokenizer, resolve_bos, resolve_boundary
from headrace.tokenizers.reference import with_probe
from headrace.tokenizers.sample import TextSample

__all__ = [
    "MAX_BYTES",
    "Comparison",
    "TokenizerSummary",
    "compare_tokenizers",
    "describe_tokenizer",
    "open_tokenizer",
]

MAX_BYTES = 16_000_000
"""Bytes of given text compared, at most, by default: a library that is no gigatoken does one or two MB a second."""
_MOST_LISTED = 20
_HARD_TEXTS = (
    "^" * 20_000,
    "nospacesatall" * 1000,
    "a\u0301\u0302\u0303\u0304 e\u0301 \u0439 \u0438\u0306 \u1100\u1161\u11a8 \ufb03 \u2126 \u00bd \u2460",
    "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c\u3002" * 200,
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e44\u0e21\u0e48\u0e21\u0e35\u0e0a\u0e48\u0e2d\u0e07\u0e27\u0e48\u0e32\u0e07",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3f4\U000e0067\U000e0062\U000e007f \U0001f1e9\U0001f1ea",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F 1e-9 \u0661\u0662\u0663 \u0967\u0968",
    " " * 100 + "x" + "\t" * 17 + "\n\n\n \n\r\n\r" + "\u00a0\u2003\u3000 y" + " " * 7,
    "it's IT'S we'll WE'LL \u2019s don't'd''ve",
    "".join(map(chr, range(0x250))),
    "".join(map(chr, [*range(0x250, 0xD800, 7), *range(0xE000, 0x10000, 7)])),
    "def f(x):\n    return {'a': x ** 2, \"b\": [1, 2]}  # \u00fcber\n\n\tif x != y: pass\n",
)
"""What tokenizers treat differently: long runs, combining and compatibility letters, scripts without spaces, emoji, digits,
white space, contractions, control characters, code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSummary:
    """A tokenizer in figures."""

    kind: str
    name: str
    sha256: str
    """Its identity: what decides the ids of a text, not how the file is written."""
    vocab_size: int
    """Highest id + 1."""
    dtype: str
    """Of the tokens of a corpus built with it."""
    special_tokens: dict[str, int]
    boundary: int | None
    """What would end each document; None where `--boundary` must be given."""
    boundary_token: str | None
    """And how the vocabulary spells it."""
    bos: int | None
    """What `--bos` would put before each document; None where the tokenizer does not say."""
    bos_token: str | None


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Where two tokenizers differ."""

    identical: bool
    """Whether they have the same identity: then nothing can differ."""
    different_entries: int = 0
    """Ids whose vocabulary entry, or whose being special, differs."""
    entries: list[str] = field(default_factory=list[str])
    """The first of them."""
    texts: int = 0
    """Texts encoded with both."""
    text_bytes: int = 0
    complete: bool = True
    """Whether this was all of the given sources."""
    different_texts: int = 0
    """Texts with other ids."""
    places: list[Problem] = field(default_factory=list[Problem])
    """The first of them: which text, and where in it."""

    @property
    def differ(self) -> bool:
        """Whether an entry or the ids of a text differ; with another identity, other texts still may."""
        return bool(self.different_entries or self.different_texts)


def open_tokenizer(spec: str | os.PathLike[str]) -> BatchTokenizer:
    """Load a tokenizer: what `load_tokenizer` takes, or the copy in a corpus, named by its folder or `shards.json`.

    Raises:
        TokenizerError: nothing there, or nothing that can be read as a tokenizer.
    """
    path = Path(spec).expanduser()
    folder = path.parent if path.name == "shards.json" and path.is_file() else path
    if (folder / "shards.json").is_file() and not (folder / "tokenizer.json").exists():
        return load_from_corpus(folder)
    return load_tokenizer(spec)


def describe_tokenizer(tokenizer: BatchTokenizer) -> TokenizerSummary:
    """Sum a tokenizer up."""
    boundary, bos = _role(tokenizer, "eos"), _role(tokenizer, "bos")
    return TokenizerSummary(
        kind=tokenizer.ref.kind,
        name=tokenizer.ref.name,
        sha256=tokenizer.ref.sha256,
        vocab_size=tokenizer.vocab_size,
        dtype=dtype_name_for(tokenizer.vocab_size),
        special_tokens=_specials(tokenizer),
        boundary=boundary,
        boundary_token=None if boundary is None else tokenizer.id_to_token(boundary),
        bos=bos,
        bos_token=None if bos is None else tokenizer.id_to_token(bos),
    )


def _role(tokenizer: BatchTokenizer, role: Literal["bos", "eos"]) -> int | None:
    try:
        return resolve_boundary(tokenizer) if role == "eos" else resolve_bos(tokenizer, "auto")
    except BoundaryError:
        return None


def _specials(tokenizer: BatchTokenizer) -> dict[str, int]:
    return dict(tokenizer.special_tokens) if isinstance(tokenizer, NamedTokens) else {}


def compare_tokenizers(
    left: BatchTokenizer,
    right: BatchTokenizer,
    sources: Sequence[str | Path] = (),
    *,
    text_field: str = "text",
    format: Format = "auto",  # noqa: A002  # named as the command's option
    max_bytes: int = MAX_BYTES,
) -> Comparison:
    """Compare identity, vocabulary and the ids of texts.

    Args:
        left: one of the two.
        right: the other.
        sources: files, folders and patterns; without any, built-in texts of what tokenizers treat differently.
        text_field: field that holds the text of a line.
        format: how files are read.
        max_bytes: of the sources' text, at most (see `TextSample`).

    Raises:
        SourceError: no documents, or none that can be read.
        TokenizerError: a tokenizer cannot encode.
    """
    found = Comparison(identical=left.ref.sha256 == right.ref.sha256)
    _compare_entries(found, left, right)
    if sources:
        sample = TextSample(sources, text_field=text_field, format=format, max_bytes=max_bytes)
        for part in sample.read():
            _compare_ids(found, left, right, part.texts, map(part.place, range(len(part.texts))))
        found.complete = sample.complete
    else:
        texts = with_probe([text.encode() for text in _HARD_TEXTS], {**_specials(left), **_specials(right)})
        _compare_ids(found, left, right, texts, (f"built-in text {number + 1}" for number in range(len(texts))))
    return found


def _compare_entries(found: Comparison, left: BatchTokenizer, right: BatchTokenizer) -> None:
    special = set(_specials(left).values()), set(_specials(right).values())
    for token_id in range(max(left.vocab_size, right.vocab_size)):
        entries = left.id_to_token(token_id), right.id_to_token(token_id)
        marks = token_id in special[0], token_id in special[1]
        if entries[0] != entries[1] or marks[0] != marks[1]:
            found.different_entries += 1
            if len(found.entries) < _MOST_LISTED:
                shown = [_entry(entry, special=mark) for entry, mark in zip(entries, marks, strict=True)]
                found.entries.append(f"id {token_id}: {shown[0]} and {shown[1]}")


def _entry(entry: str | None, *, special: bool) -> str:
    return "none" if entry is None else f"{entry!r}{' (special)' if special else ''}"


def _compare_ids(
    found: Comparison, left: BatchTokenizer, right: BatchTokenizer, texts: list[bytes], places: Iterable[str]
) -> None:
    found.texts += len(texts)
    found.text_bytes += sum(map(len, texts))
    for place, ids, others in zip(places, _rows(left, texts), _rows(right, texts), strict=True):
        if ids == others:
            continue
        found.different_texts += 1
        if len(found.places) < _MOST_LISTED:
            pairs = zip(ids, others, strict=False)
            first = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(others)))
            reason = f"token {first}: ids {ids[first : first + 4]} and {others[first : first + 4]}"
            found.places.append(Problem(place, reason))


def _rows(tokenizer: BatchTokenizer, texts: list[bytes]) -> Iterator[list[int]]:
    ids, ends = tokenizer.encode_documents(texts)
    for row in np.split(ids, ends[:-1]) if texts else []:
        yield row.tolist()
