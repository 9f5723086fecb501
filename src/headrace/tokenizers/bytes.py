"""The byte-level tokenizer: id 0 is the boundary, ids 1 to 256 are the bytes 0 to 255 of the text's UTF-8."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.manifest import TokenizerRef
from headrace.tokenizers.base import REF_NAME, checked_ids, encode_utf8, ref_file

__all__ = ["BOUNDARY", "Tokenizer"]

BOUNDARY = 0
"""Id of the boundary, which no text contains."""
_BOUNDARY_TOKEN = "<boundary>"  # noqa: S105  # a vocabulary entry
_VOCAB_SIZE = 257
_REF = TokenizerRef(
    kind="bytes",
    name="bytes",
    sha256=hashlib.sha256(b"headrace byte-level tokenizer 1: 0 boundary, 1..256 bytes\n").hexdigest(),
    vocab_size=_VOCAB_SIZE,
)


def _spelling(byte: int) -> str:
    """A printable ASCII character stands for itself, another byte is written like `<0x0A>`."""
    return chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>"  # noqa: PLR2004  # space to tilde


_TOKENS = [_BOUNDARY_TOKEN, *(_spelling(byte) for byte in range(256))]
_IDS = {token: token_id for token_id, token in enumerate(_TOKENS)}


class Tokenizer:
    """Bytes as tokens; needs no files and knows no unknown text.

    >>> Tokenizer().encode("hi")
    [105, 106]
    >>> Tokenizer().decode([105, 106, 0])
    'hi'
    """

    @property
    def ref(self) -> TokenizerRef:
        """Which tokenizer this is; the same for all instances."""
        return _REF

    @property
    def vocab_size(self) -> int:
        """257: the boundary and 256 bytes."""
        return _VOCAB_SIZE

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Each byte + 1.

        Args:
            texts: documents; any bytes.

        Returns:
            Ids, uint16 (total,), and the exclusive end of each document in them, (len(texts),).
        """
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint16)
        ids += 1
        return ids, np.cumsum([len(text) for text in texts], dtype=np.int64)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without a boundary.

        Raises:
            TokenizerError: the text holds a lone surrogate.
        """
        return [byte + 1 for byte in encode_utf8(text)]

    encode_text = encode

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of ids; boundaries are left out, and what is not UTF-8 becomes U+FFFD.

        Raises:
            TokenIdError: an id is negative or above 256.
        """
        array = checked_ids(ids, _VOCAB_SIZE)
        return (array[array != BOUNDARY] - 1).astype(np.uint8).tobytes().decode(errors="replace")

    def token_id(self, token: str) -> int | None:
        """Id of `<boundary>`, of an ASCII character, or of a byte written like `<0x0A>`; None for anything else."""
        return _IDS.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """The inverse of `token_id`; None outside the vocabulary."""
        return _TOKENS[token_id] if 0 <= token_id < _VOCAB_SIZE else None

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The boundary."""
        return {_BOUNDARY_TOKEN: BOUNDARY}

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """The boundary ends a document; nothing begins one."""
        return _BOUNDARY_TOKEN if role == "eos" else None

    def files(self) -> dict[str, bytes]:
        """Its name alone: it has no vocabulary to copy."""
        return {REF_NAME: ref_file(_REF)}

    def check(self, texts: Sequence[bytes]) -> None:
        """Nothing to compare: it is its own reference."""
