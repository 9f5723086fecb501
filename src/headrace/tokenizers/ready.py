"""Documents that are token ids already: nothing is encoded, but the tokenizer they are of is known, or its size."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.manifest import TokenizerRef, dtype_name_for
from headrace.tokenizers.base import REF_NAME, ref_file
from headrace.tokenizers.stand_in import StandIn

__all__ = ["NO_TOKENIZER", "NoTokenizer", "ReadyIds"]

NO_TOKENIZER = "none"
"""Kind of the tokenizer of ids of which no more than the size of their vocabulary is known."""


class NoTokenizer:
    """Stands for the tokenizer that made ids, where it is not known. Two of one size are taken for the same.

    Args:
        vocab_size: highest id + 1, from 1 to 2**32.
    """

    def __init__(self, vocab_size: int) -> None:
        if type(vocab_size) is not int or not 1 <= vocab_size <= 1 << 32:
            raise TokenizerError(f"a vocabulary has 1 to 2**32 ids, not {vocab_size!r}", usage=True)
        name = f"{vocab_size} ids without a tokenizer"
        sha256 = hashlib.sha256(f"headrace ids without a tokenizer 1: {vocab_size}\n".encode()).hexdigest()
        self.ref = TokenizerRef(kind=NO_TOKENIZER, name=name, sha256=sha256, vocab_size=vocab_size)
        self.vocab_size = vocab_size

    def encode_documents(self, _texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Raise TokenizerError, as all that needs a tokenizer."""
        raise self._unknown()

    def encode(self, _text: str) -> list[int]:
        """Raise TokenizerError."""
        raise self._unknown()

    encode_text = encode

    def decode(self, _ids: Sequence[int] | NDArray[Any]) -> str:
        """Raise TokenizerError."""
        raise self._unknown()

    def token_id(self, _token: str) -> int | None:
        """None: no entry is known."""
        return None

    def id_to_token(self, _token_id: int) -> str | None:
        """None: no entry is known."""
        return None

    def files(self) -> dict[str, bytes]:
        """Its `TokenizerRef` alone."""
        return {REF_NAME: ref_file(self.ref)}

    def check(self, _texts: Sequence[bytes]) -> None:
        """Nothing to compare."""

    def _unknown(self) -> TokenizerError:
        return TokenizerError(f"the tokenizer of these {self.vocab_size} ids is not known; pass the one that made them")


class ReadyIds(StandIn):
    """A tokenizer in whose place documents come as ids of it, checked by the readers: see `sources.field.Ids`."""

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids that the documents hold.

        Args:
            texts: ids of the stored dtype, as bytes.

        Returns:
            Ids, uint16 or uint32 by `vocab_size`, (total,), and the exclusive end of each document, (len(texts),).
        """
        dtype = np.dtype(dtype_name_for(self.vocab_size)).newbyteorder("<")
        ends = np.cumsum([len(text) // dtype.itemsize for text in texts], dtype=np.int64)
        return np.frombuffer(b"".join(texts), dtype), ends

    def check(self, texts: Sequence[bytes]) -> None:
        """Nothing is encoded, so there is nothing to compare."""
