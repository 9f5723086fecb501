"""Documents of two texts, a prompt and a response: how the readers hand them on as one run of bytes."""

import struct

__all__ = ["PAIR_BYTES", "pair", "parts_of"]

_LENGTH = struct.Struct("<Q")
PAIR_BYTES = _LENGTH.size
"""Of a document that are not of its texts."""


def pair(prompt: bytes, response: bytes) -> bytes:
    """One document: the length of the prompt, a little-endian uint64, and both texts."""
    return _LENGTH.pack(len(prompt)) + prompt + response


def parts_of(document: bytes) -> tuple[bytes, bytes]:
    """Prompt and response of a document that `pair` has made."""
    start = PAIR_BYTES + _LENGTH.unpack_from(document)[0]
    return document[PAIR_BYTES:start], document[start:]
