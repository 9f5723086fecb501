"""Which characters a BPE model of the `tokenizers` library drops without a word.

A character that is no entry of the vocabulary becomes the unknown token, or its bytes, where a model has these; else it is gone.
A byte-level model that was trained without the whole alphabet of bytes is of this kind, too.
"""

import re
from collections.abc import Iterator
from typing import Any, Self

__all__ = ["Alphabet", "lost_character"]


def lost_character(lost: str) -> str:
    """What is said of a character that would be dropped."""
    return (
        f"has no entry for the character U+{ord(lost):04X}, and neither an unknown token nor byte fallback: it would be "
        "dropped; add one of these to the model, or train it with the whole alphabet"
    )


class Alphabet:
    """The characters that a model has entries for.

    Args:
        tokenizer: of the library, with a BPE model that has neither an unknown token nor byte fallback.
        added: contents of its added tokens, which are found in texts before the model is asked.
    """

    def __init__(self, tokenizer: Any, added: list[str]) -> None:  # noqa: ANN401  # no useful static type
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
        self._vocabulary: set[str] = set(tokenizer.get_vocab(with_added_tokens=False))
        model = tokenizer.model
        self._prefix, self._suffix = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
        self._whole_words = bool(model.ignore_merges)
        self._plain = set() if self._prefix or self._suffix else self._vocabulary
        """Characters that need no second look."""
        self._added = re.compile("|".join(map(re.escape, added))) if added else None

    @classmethod
    def of(cls, tokenizer: Any) -> Self | None:  # noqa: ANN401  # as above
        """That of a tokenizer; None where it drops nothing."""
        from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415  # only where text is encoded with it

        model = tokenizer.model
        if type(model).__name__ != "BPE" or model.unk_token is not None or model.byte_fallback:
            return None
        # Special tokens' spellings are ordinary text here.
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values() if not token.special]
        found = cls(tokenizer, added)
        if "ByteLevel(" in f"{tokenizer.normalizer} {tokenizer.pre_tokenizer}" and found._plain.issuperset(
            ByteLevel.alphabet()
        ):
            return None
        return found

    def first_lost(self, text: str) -> str | None:
        """The first character of a text, or of what the tokenizer makes of it, that would be dropped."""
        for part in self._added.split(text) if self._added else [text]:
            for piece in self._pieces(part):
                if not self._plain.issuperset(piece):
                    lost = self._lost(piece)
                    if lost:
                        return lost
        return None

    def _pieces(self, text: str) -> Iterator[str]:
        normal = self._normalizer.normalize_str(text) if self._normalizer else text
        if self._pre_tokenizer is None:
            yield normal
            return
        for piece, _ in self._pre_tokenizer.pre_tokenize_str(normal):
            yield piece

    def _lost(self, piece: str) -> str | None:
        if self._whole_words and piece in self._vocabulary:
            return None
        for place, character in enumerate(piece):
            entry = self._prefix * (place > 0) + character + self._suffix * (place == len(piece) - 1)
            if entry not in self._vocabulary:
                return character
        return None
