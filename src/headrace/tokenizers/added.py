"""Which added tokens gigatoken finds in a text where the `tokenizers` library does.

What it takes otherwise may be too rare for the sample of a build to show it, and then the corpus has other ids.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.errors import TokenizerError

__all__ = ["require_added_as_gigatoken"]


def require_added_as_gigatoken(tokens: Sequence[dict[str, Any]], label: str, *, around: Any) -> None:  # noqa: ANN401  # JSON
    """See whether gigatoken 0.10 takes added tokens as a tokenizer.json says it.

    Args:
        tokens: its `added_tokens`.
        label: what errors call it.
        around: what else the file says of texts: its normalizer and pre-tokenizer.

    Raises:
        TokenizerError: the first one that it does not.
    """
    composes = _has(around, "type", "NFC")
    prefixes = _has(around, "add_prefix_space", found=True)
    special = [token["content"] for token in tokens if token.get("special")]
    plain = [token for token in tokens if not token.get("special")]
    spaced = any(token["content"] != token["content"].strip() for token in plain)
    reasons = (
        (token["content"], _reason(token, composes=composes, prefixes=prefixes, spaced=spaced)) for token in plain
    )
    for content, reason in (*reasons, *_hidden(special, plain)):
        if reason:
            raise TokenizerError(f"{label}: the added token {content!r} is not supported by gigatoken: {reason}")


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


def _hidden(special: Sequence[str], plain: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Tokens that the two find at different places where they overlap with another, and why.

    The library looks for all that are not normalized before the others, and for special tokens with the rest: of a special
    token's spelling, which is a text, no part is then another token. gigatoken takes the first one of all but these.
    """
    exact = [token["content"] for token in plain if not token.get("normalized")]
    normalized = [token["content"] for token in plain if token.get("normalized")]
    for first, second in _overlaps(special, [token["content"] for token in plain]):
        yield second, f"it would be found within the special token {first!r}, too"
    for first, second in _overlaps(normalized, exact):
        yield first, f"{second!r}, which is not normalized, comes before it where they overlap"


def _overlaps(firsts: Sequence[str], seconds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of which the second one may begin within the first."""
    begin = {second[:stop]: second for second in seconds for stop in range(1, len(second) + 1)}
    for first in firsts if begin else ():
        yield from ((first, second) for second in seconds if second in first and second != first)
        ends = (first[start:] for start in range(1, len(first)))
        yield from ((first, begin[end]) for end in ends if end in begin)


def _has(part: Any, key: str, found: object) -> bool:  # noqa: ANN401  # of a tokenizer.json
    """Whether something within a part has a value under a key."""
    if isinstance(part, dict):
        return part.get(key) == found or any(_has(one, key, found) for one in part.values())
    return isinstance(part, list) and any(_has(one, key, found) for one in part)
