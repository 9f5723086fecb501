"""A byte-level BPE as the content of a Hugging Face tokenizer.json."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BYTE_LEVEL", "BYTE_TOKENS", "Merge", "byte_level_bpe", "byte_level_document", "byte_spellings", "to_json"]

BYTE_TOKENS = 256
"""Ids that are single bytes, each its own."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
"""Cuts words as GPT-2 does, and spells bytes."""
Merge = tuple[bytes, bytes]
"""Two tokens that become one."""


def byte_spellings() -> list[str]:
    """How a byte-level vocabulary spells the 256 bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(BYTE_TOKENS)]


def byte_level_bpe(merges: Sequence[Merge], specials: Sequence[str]) -> dict[str, Any]:
    """A tokenizer.json, as parsed: the bytes at their own ids, then what the merges make, then special tokens.

    Words are cut as GPT-2 does. Special tokens are no entries of the model, so that text that spells one cannot be taken
    for it by a reader of the model alone.
    """
    spellings = byte_spellings()
    vocab = {spelling: byte for byte, spelling in enumerate(spellings)}
    rules: list[str] = []
    for pair in merges:
        left, right = ("".join(spellings[byte] for byte in token) for token in pair)
        rules.append(f"{left} {right}")  # versions of `tokenizers` before 0.20 read no other form
        vocab.setdefault(left + right, len(vocab))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": len(vocab) + place, "content": token, **flags} for place, token in enumerate(specials)]
    return byte_level_document(vocab, rules, added)


def byte_level_document(
    vocab: Mapping[str, int],
    merges: Sequence[str | list[str]],
    added_tokens: Sequence[Mapping[str, Any]],
    post_processor: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A tokenizer.json, as parsed, around what GPT-2 and others of its kind differ in."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*added_tokens],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": post_processor,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def to_json(document: dict[str, Any]) -> bytes:
    """The bytes of a file: the same for the same content."""
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()
