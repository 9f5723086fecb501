"""Which added tokens gigatoken finds in a text where the `tokenizers` library does.

What it takes otherwise may be too rare for the sample of a build to show it, and then the corpus has other ids.
"""

from collections.abc import Sequence
from typing import Any

from headrace.errors import TokenizerError

__all__ = ["require_added_as_gigatoken"]


def require_added_as_gigatoken(tokens: Sequence[dict[str, Any]], label: str, *, around: Any) -> None:  # noqa: ANN401  # JSON
    """See whether gigatoken 0.10 takes added tokens as a tokenizer.json says it.

    Args:
        tokens: those of its `added_tokens` that are not special.
        label: what errors call it.
        around: what else the file says of texts: its normalizer and pre-tokenizer.

    Raises:
        TokenizerError: the first one that it does not.
    """
    composes = _has(around, "type", "NFC")
    prefixes = _has(around, "add_prefix_space", found=True)
    spaced = any(token["content"] != token["content"].strip() for token in tokens)
    for token in tokens:
        if reason := _reason(token, composes=composes, prefixes=prefixes, spaced=spaced):
            raise TokenizerError(
                f"{label}: the added token {token['content']!r} is not supported by gigatoken: {reason}"
            )


def _reason(token: dict[str, Any], *, composes: bool, prefixes: bool, spaced: bool) -> str | None:
    content: str = token["content"]
    if token.get("single_word"):
        return "it would be found within words, too (single_word)"
    if (token.get("lstrip") or token.get("rstrip")) and spaced:
        return "it takes the white space around it, and an added token begins or ends with some (lstrip, rstrip)"
    if composes and not content.isascii():
        return "it is not ASCII, and the normalizer is NFC"
    if prefixes and content[:1].isspace():
        return "it begins with white space, and so does each text (add_prefix_space)"
    return None


def _has(part: Any, key: str, found: object) -> bool:  # noqa: ANN401  # of a tokenizer.json
    """Whether something within a part has a value under a key."""
    if isinstance(part, dict):
        return part.get(key) == found or any(_has(one, key, found) for one in part.values())
    return isinstance(part, list) and any(_has(one, key, found) for one in part)
