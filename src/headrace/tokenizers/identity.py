"""What a tokenizer.json says: which model it is, how many ids it has, and the hash of what decides them."""

import hashlib
from itertools import chain
from typing import Any, cast

from headrace.errors import Problem, TokenizerError

__all__ = ["identity_sha256", "parse_tokenizer_json", "special_tokens", "vocab_size"]

_VERSION = b"headrace tokenizer identity 1\n"
_MAX_ID = (1 << 32) - 1
_ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def parse_tokenizer_json(text: str, label: str) -> dict[str, Any]:
    """Parse a tokenizer.json that gigatoken may run.

    Args:
        text: content of the file.
        label: what the error calls it.

    Returns:
        The file as parsed; `model` is a BPE model with a `vocab` of ids and `merges`, `added_tokens` is a list.

    Raises:
        TokenizerError: no JSON, no tokenizer.json, or a model that is not supported.
    """
    import msgspec  # noqa: PLC0415  # four times as fast as json on files of many MB

    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{label} is not JSON: {error}") from None
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(f'{label} is no Hugging Face tokenizer.json: it has no "model" object')
    document = cast("dict[str, Any]", document)
    _refuse_model(cast("dict[str, Any]", model), label)
    if document.get("added_tokens") is None:
        document["added_tokens"] = []
    if problems := [*_vocabulary_problems(document["model"]), *_added_token_problems(document["added_tokens"])]:
        raise TokenizerError(f"{label} is a damaged tokenizer.json", problems=problems)
    return document


def _refuse_model(model: dict[str, Any], label: str) -> None:
    kind = model.get("type")
    if kind is None:  # files older than the field
        kind = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    if kind != "BPE":
        raise TokenizerError(
            f"{label}: a {kind} model is not supported by gigatoken; wanted a BPE tokenizer.json "
            "(byte-level like GPT-2's, or SentencePiece-style with byte fallback)"
        )
    if model.get("dropout"):
        raise TokenizerError(
            f"{label}: its BPE dropout of {model['dropout']} makes the ids of a text random; set it to null"
        )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID


def _vocabulary_problems(model: dict[str, Any]) -> list[Problem]:
    vocab, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not vocab:
        return [Problem("model.vocab", "wanted an object with a token's id under its name")]
    vocab = cast("dict[str, Any]", vocab)
    problems: list[Problem] = []
    if set(map(type, vocab.values())) != {int} or min(vocab.values()) < 0 or max(vocab.values()) > _MAX_ID:
        problems += [
            Problem(f"model.vocab[{token!r}]", f"wanted an id from 0 to 2**32 - 1, found {found!r}")
            for token, found in vocab.items()
            if not _is_id(found)
        ]
    if not isinstance(merges, list):
        return [*problems, Problem("model.merges", "wanted a list of pairs")]
    merges = cast("list[Any]", merges)
    problems += [
        Problem(f"model.merges[{place}]", f"wanted a pair of tokens, found {merges[place]!r}")
        for place, pair in enumerate(_pairs(merges))
        if len(pair) != 2  # noqa: PLR2004  # a pair
    ]
    return problems


def _added_token_problems(added: object) -> list[Problem]:
    if not isinstance(added, list):
        return [Problem("added_tokens", "wanted a list")]
    problems: list[Problem] = []
    for place, token in enumerate(cast("list[Any]", added)):
        entry = cast("dict[str, Any]", token) if isinstance(token, dict) else {}
        if not _is_id(entry.get("id")) or not isinstance(entry.get("content"), str):
            problems.append(Problem(f"added_tokens[{place}]", "wanted an object with an integer id and a content"))
    return problems


def _pairs(merges: list[Any]) -> list[list[str]]:
    """Merges as pairs, which are written as lists of two today, and were as strings with a space between before.

    What is neither becomes an empty list. The two usual forms go through whole, a tenth of a second apart from one by one.
    """
    kinds = set(map(type, merges))
    if kinds == {str}:
        return [merge.split(" ") for merge in merges]
    if kinds == {list} and set(map(type, chain.from_iterable(merges))) == {str}:
        return merges
    return [_pair(merge) for merge in merges]


def _pair(merge: object) -> list[str]:
    if isinstance(merge, str):
        return merge.split(" ")
    parts = cast("list[Any]", merge) if isinstance(merge, list) else []
    return parts if all(isinstance(part, str) for part in parts) else []


def vocab_size(document: dict[str, Any]) -> int:
    """Highest id + 1, added tokens included: a vocabulary may have holes."""
    highest = max(document["model"]["vocab"].values())
    return 1 + max([highest, *(token["id"] for token in document["added_tokens"])])


def special_tokens(document: dict[str, Any]) -> dict[str, int]:
    """Added tokens marked special, and their ids, by id."""
    marked = (token for token in document["added_tokens"] if token.get("special"))
    return {token["content"]: token["id"] for token in sorted(marked, key=lambda token: token["id"])}


def identity_sha256(document: dict[str, Any]) -> str:
    """Hash of what decides the ids of a text: 64 hex digits.

    That is the vocabulary, the merges in order, the model's options, the normalizer, the pre-tokenizer and the added
    tokens. Truncation, padding, post-processor and decoder decide nothing here, nor do white space, the order of keys,
    the two ways of writing a merge, or an option that is spelled out with its default. Hashed is a line that names this
    rule's version, then JSON without white space, keys sorted, in UTF-8, escaping only what JSON must.
    """
    import msgspec  # noqa: PLC0415  # as above

    model: dict[str, Any] = document["model"]
    options = {key: value for key, value in model.items() if value and key not in {"type", "vocab", "merges"}}
    decisive = {
        "added_tokens": sorted(
            [token["id"], token["content"], *(bool(token.get(flag)) for flag in _ADDED_FLAGS)]
            for token in document["added_tokens"]
        ),
        "merges": _pairs(model["merges"]),
        "normalizer": document.get("normalizer"),
        "options": options,
        "pre_tokenizer": document.get("pre_tokenizer"),
        "vocab": model["vocab"],
    }
    canonical = msgspec.json.encode(decisive, order="sorted")
    return hashlib.sha256(_VERSION + canonical).hexdigest()
