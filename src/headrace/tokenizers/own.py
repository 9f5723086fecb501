"""A user's own tokenizer object: `encode` and `vocab_size`, and `encode_batch` and `decode` if it has them."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.manifest import TokenizerRef
from headrace.tokenizers.base import REF_NAME, checked_ids, encode_utf8, joined_ids, ref_file
from headrace.tokenizers.reference import PROBE

__all__ = ["OwnTokenizer"]

_VERSION = b"headrace own tokenizer identity 1\n"
_PROBES = (PROBE, "the quick brown fox jumps over the lazy dog", *(chr(code) for code in range(0x20, 0x7F)))


class OwnTokenizer:
    """Makes a `BatchTokenizer` of an object.

    Its identity is the name of its class and a hash of its ids for built-in texts: enough to notice another one, not a
    proof that it is the same. Its ids must depend on the text alone; nothing is added to them or left out.

    Args:
        tokenizer: has `encode(text) -> ids` and `vocab_size` (highest id + 1). `encode_batch(texts) -> rows of ids` is
            used where there is one. It must pickle for a build of more than one worker.
        ref: of a corpus that such a tokenizer wrote, in place of the object: then nothing can be encoded or decoded.

    Raises:
        TokenizerError: it has neither, or it adds ids of its own, such as a BOS, to a text.
    """

    def __init__(self, tokenizer: Any, *, ref: TokenizerRef | None = None) -> None:  # noqa: ANN401  # any object
        self._tokenizer: Any = tokenizer
        self._encode_batch: Any = getattr(tokenizer, "encode_batch", None)
        self._ref = self._identify() if ref is None else ref

    def _identify(self) -> TokenizerRef:
        made_by = type(self._tokenizer)
        size = getattr(self._tokenizer, "vocab_size", None)
        if not callable(getattr(self._tokenizer, "encode", None)) or type(size) is not int or size < 1:
            raise TokenizerError(
                f"wanted a path, a name or a tokenizer, found {made_by.__name__}; a tokenizer of your own has "
                "encode(text) -> ids and vocab_size, its highest id + 1, as an int"
            )
        name = f"{made_by.__module__}.{made_by.__qualname__}"
        self._ref = TokenizerRef(kind="own", name=name, sha256="", vocab_size=size)
        if nothing := self._row(self._tokenizer.encode("")):
            raise TokenizerError(
                f"{self._label} gives {nothing} for an empty text: it adds tokens of its own, and BOS and boundary would "
                "be there twice. Pass one whose encode adds none"
            )
        rows = [self._row(self._tokenizer.encode(text)) for text in _PROBES]
        sha256 = hashlib.sha256(_VERSION + json.dumps([name, size, rows]).encode()).hexdigest()
        return TokenizerRef(kind="own", name=name, sha256=sha256, vocab_size=size)

    @property
    def _label(self) -> str:
        return f"the tokenizer {self._ref.name}"

    @property
    def ref(self) -> TokenizerRef:
        """Name of its class, and a hash of its ids for built-in texts."""
        return self._ref

    @property
    def vocab_size(self) -> int:
        """As the object says."""
        return self._ref.vocab_size

    def _object(self) -> Any:  # noqa: ANN401  # any object
        if self._tokenizer is None:
            raise TokenizerError(
                f"this corpus was written by {self._label}, an object of the program that built it: pass it to decode or "
                "encode"
            )
        return self._tokenizer

    def _row(self, ids: Any) -> list[int]:  # noqa: ANN401  # whatever it returns
        if isinstance(ids, str | bytes) or not isinstance(ids, Sequence | np.ndarray):
            raise TokenizerError(f"{self._label} gave {type(ids).__name__} for a text; wanted a list of ids")
        return checked_ids(ids, self.vocab_size).tolist()

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Encode documents, by `encode_batch` where the object has one.

        Args:
            texts: valid UTF-8 each.

        Returns:
            Ids, uint16 or uint32 by `vocab_size`, (total,), and the exclusive end of each document, (len(texts),).

        Raises:
            TokenIdError: an id outside the vocabulary was given.
            TokenizerError: not a row of ids for each text.
        """
        tokenizer = self._object()
        decoded = [text.decode() for text in texts]
        if self._encode_batch is None:
            return joined_ids([self._row(tokenizer.encode(text)) for text in decoded], self.vocab_size, self._label)
        rows: list[Any] = [*self._encode_batch(decoded)]
        if len(rows) != len(texts):
            raise TokenizerError(f"{self._label}: encode_batch gave {len(rows)} rows of ids for {len(texts)} texts")
        return joined_ids([self._row(row) for row in rows], self.vocab_size, self._label)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, as `encode_documents` gives them."""
        return self.encode_documents([encode_utf8(text)])[0].tolist()

    encode_text = encode

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of ids, as the object decodes them.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
            TokenizerError: it does not decode.
        """
        checked = checked_ids(ids, self.vocab_size).tolist()
        decode: Any = getattr(self._object(), "decode", None)
        if not callable(decode):
            raise TokenizerError(f"{self._label} has no decode(ids)")
        return str(decode(checked))

    def token_id(self, token: str) -> int | None:  # noqa: ARG002  # as the protocol has it
        """None: its vocabulary is not known, so boundary and BOS are given as ids."""
        return None

    def id_to_token(self, token_id: int) -> str | None:  # noqa: ARG002  # as the protocol has it
        """None: its vocabulary is not known."""
        return None

    def files(self) -> dict[str, bytes]:
        """Its `TokenizerRef` alone: it cannot be copied into a corpus."""
        return {REF_NAME: ref_file(self._ref)}

    def check(self, texts: Sequence[bytes]) -> None:
        """Encode the texts twice: there is no reference, but ids must depend on the text alone.

        Raises:
            TokenizerError: a batch gives other ids than its texts one by one.
        """
        ids, ends = self.encode_documents(texts)
        for number, (text, found) in enumerate(zip(texts, np.split(ids, ends[:-1]), strict=True)):
            if self._row(self._object().encode(text.decode())) != found.tolist():
                raise TokenizerError(
                    f"{self._label} gives other ids for document {number + 1} of the sample in a batch"
                )
