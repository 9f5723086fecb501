"""What a build and a viewer ask of a tokenizer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenIdError, TokenizerError
from headrace.manifest import TokenizerRef, dtype_name_for

__all__ = [
    "REF_NAME",
    "BatchTokenizer",
    "DocumentMasks",
    "MaskingTokenizer",
    "NamedTokens",
    "TextEncoder",
    "checked_ids",
    "encode_utf8",
    "joined_ids",
    "ref_file",
]

REF_NAME = "headrace.json"
"""The file of a corpus' `tokenizer/` folder that holds its `TokenizerRef`."""


@runtime_checkable
class BatchTokenizer(Protocol):
    """Encodes whole documents and decodes any ids.

    Deterministic: the ids depend on the text and `ref.sha256` alone, not on batches or processes. An instance pickles
    without what it has loaded; that it loads at first use, once per process. Encoding releases the
    GIL where the work is large.
    """

    @property
    def ref(self) -> TokenizerRef:
        """Which tokenizer this is."""
        ...

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1, added tokens included."""
        ...

    def encode_documents(self, texts: Sequence[bytes], /) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Encode documents; no boundary, BOS or EOS is added, and text that spells a special token is ordinary text.

        Args:
            texts: valid UTF-8 each; an empty one has no ids.

        Returns:
            The ids one document after another, (total,), uint16 or uint32; and the exclusive end of each document in
            them, (len(texts),).

        Raises:
            TokenizerError: the tokenizer cannot be loaded, or lost a document.
        """
        ...

    def encode(self, text: str, /) -> list[int]:
        """Encode one text, as `encode_documents` does.

        Raises:
            TokenizerError: the text holds a lone surrogate.
        """
        ...

    def encode_text(self, text: str, /) -> list[int]:
        """The same as `encode`."""
        ...

    def decode(self, ids: Sequence[int] | NDArray[Any], /) -> str:
        """Text of any ids; what is not whole UTF-8, such as a cut inside a character, becomes U+FFFD.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
        """
        ...

    def token_id(self, token: str, /) -> int | None:
        """Id of a vocabulary entry, as the vocabulary spells it; None if there is none."""
        ...

    def id_to_token(self, token_id: int, /) -> str | None:
        """The vocabulary's spelling of an id; None if there is none."""
        ...

    def files(self) -> dict[str, bytes]:
        """Name and content of all files that `load_from_corpus` needs to load this tokenizer again."""
        ...

    def check(self, texts: Sequence[bytes], /) -> None:
        """Compare the ids of a sample with the reference implementation's.

        Args:
            texts: valid UTF-8; the reference takes about a second a MB.

        Raises:
            TokenizerError: the first difference; the texts themselves are not shown.
        """
        ...


class DocumentMasks(NamedTuple):
    """Which tokens of documents count as targets in the loss."""

    text: NDArray[np.uint8]
    """1 for each id that does, else 0, (total,)."""
    boundary: NDArray[np.bool_]
    """Whether the boundary that ends each document does, (documents,)."""


@runtime_checkable
class MaskingTokenizer(Protocol):
    """A `BatchTokenizer` whose documents say which of their tokens count."""

    def encode_masked(self, documents: Sequence[bytes], /) -> tuple[NDArray[Any], NDArray[np.int64], DocumentMasks]:
        """As `encode_documents`, of documents as the readers deliver them; and the masks."""
        ...


class TextEncoder(Protocol):
    """The least that a tokenizer of the user's own has; `encode_batch` and `decode` are used where it has them."""

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1."""
        ...

    def encode(self, text: str, /) -> Sequence[int]:
        """Ids of a text, depending on the text alone, without BOS or EOS."""
        ...


@runtime_checkable
class NamedTokens(Protocol):
    """A tokenizer that says which of its tokens are special, and what for."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Special tokens and their ids, by id."""
        ...

    def named_token(self, role: Literal["bos", "eos"], /) -> str | None:
        """The vocabulary entry for a role; None if the tokenizer does not say.

        Raises:
            TokenizerError: the file that says so is damaged.
        """
        ...


def checked_ids(ids: Sequence[int] | NDArray[Any], vocab_size: int) -> NDArray[Any]:
    """Token ids as an integer array, (n,), each in [0, vocab_size).

    Raises:
        TokenIdError: the first that is not, and its place.
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TokenIdError(f"wanted a row of token ids, found an array of shape {array.shape} and dtype {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array >= vocab_size))
    if len(bad):
        place = int(bad[0])
        raise TokenIdError(f"id {int(array[place])} at position {place} is not in the vocabulary of {vocab_size} ids")
    return array


def encode_utf8(text: str) -> bytes:
    """UTF-8 of a text.

    Raises:
        TokenizerError: it holds a lone surrogate, which UTF-8 cannot express.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"character {error.start} of the text is a lone surrogate (U+{ord(text[error.start]):04X}), which is no "
            'text: replace it, for example with text.encode("utf-8", "replace").decode()'
        ) from None


def joined_ids(
    rows: Sequence[Sequence[int] | NDArray[Any]], vocab_size: int, label: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """One document's ids behind another's, as `encode_documents` gives them.

    Args:
        rows: ids of each document.
        vocab_size: highest id + 1.
        label: what the error calls the tokenizer.

    Raises:
        TokenIdError: a document's ids are no row of integers from 0 to `vocab_size` - 1.
    """
    dtype = np.dtype(dtype_name_for(vocab_size))
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    ids = np.empty(int(ends[-1]) if len(ends) else 0, dtype)
    start = 0
    for number, row in enumerate(rows):
        try:
            ids[start : start + len(row)] = checked_ids(row, vocab_size)
        except TokenIdError as error:
            raise TokenIdError(f"{label}, document {number + 1} of the batch: {error}") from None
        start += len(row)
    return ids, ends


def ref_file(ref: TokenizerRef, run_by: str | None = None) -> bytes:
    """Content of `REF_NAME`.

    Args:
        ref: which tokenizer it is.
        run_by: the library that encodes; None for the kind's usual one.
    """
    fields = asdict(ref) | ({"run_by": run_by} if run_by else {})
    return (json.dumps(fields, indent=1) + "\n").encode()
