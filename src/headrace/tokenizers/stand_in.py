"""What stands for a tokenizer where documents come in another form than as one text."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.manifest import TokenizerRef
from headrace.tokenizers.base import BatchTokenizer, NamedTokens

__all__ = ["StandIn"]


class StandIn:
    """Is in all that a subclass does not say the tokenizer that it stands for.

    Args:
        tokenizer: that.
    """

    def __init__(self, tokenizer: BatchTokenizer) -> None:
        self.tokenizer = tokenizer

    @property
    def ref(self) -> TokenizerRef:
        """Of the tokenizer."""
        return self.tokenizer.ref

    @property
    def vocab_size(self) -> int:
        """Of the tokenizer."""
        return self.tokenizer.vocab_size

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Encode texts, as the tokenizer does."""
        return self.tokenizer.encode_documents(texts)

    def encode(self, text: str) -> list[int]:
        """Encode a text, as the tokenizer does."""
        return self.tokenizer.encode(text)

    encode_text = encode

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of ids, as the tokenizer decodes them."""
        return self.tokenizer.decode(ids)

    def token_id(self, token: str) -> int | None:
        """Of the tokenizer."""
        return self.tokenizer.token_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Of the tokenizer."""
        return self.tokenizer.id_to_token(token_id)

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Of the tokenizer."""
        return self.tokenizer.special_tokens if isinstance(self.tokenizer, NamedTokens) else {}

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """Of the tokenizer."""
        return self.tokenizer.named_token(role) if isinstance(self.tokenizer, NamedTokens) else None

    def files(self) -> dict[str, bytes]:
        """Of the tokenizer."""
        return self.tokenizer.files()

    def check(self, texts: Sequence[bytes]) -> None:
        """Compare the ids of texts with those of the tokenizer's reference, as the tokenizer does."""
        self.tokenizer.check(texts)
