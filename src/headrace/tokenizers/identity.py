"""What a tokenizer.json says: which model it is, how many ids it has, and the hash of what decides them."""

import hashlib
from itertools import chain
from typing import Any, cast

from headrace.errors import Problem, TokenizerError

__all__ = [
    "identity_sha256",
    "parse_tokenizer_json",
    "special_tokens",
    "vocab_size",
    "vocabulary",
    "without_special_tokens",
]

_VERSION = b"headrace tokenizer identity 1\n"
_MAX_ID = (1 << 32) - 1
_MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")
_ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def parse_tokenizer_json(text: str, label: str) -> dict[str, Any]:
    """Parse a tokenizer.json.

    Args:
        text: content of the file.
        label: what the error calls it.

    Returns:
        The file as parsed; `model.type` is BPE, WordPiece, WordLevel or Unigram, and `added_tokens` is a list.

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
    _name_model(cast("dict[str, Any]", model), label)
    if document.get("added_tokens") is None:
        document["added_tokens"] = []
    if problems := [*_vocabulary_problems(document["model"]), *_added_token_problems(document["added_tokens"])]:
        raise TokenizerError(f"{label} is a damaged tokenizer.json", problems=problems)
    return document


def _name_model(model: dict[str, Any], label: str) -> None:
    """Set `type` in files older than the field; refuse what no library runs, and ids that are random."""
    if model.get("type") is None:
        model["type"] = (
            "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
        )
    if model["type"] not in _MODELS:
        raise TokenizerError(f"{label}: a model of type {model['type']!r}; wanted {', '.join(_MODELS)}")
    if model.get("dropout"):
        raise TokenizerError(
            f"{label}: its BPE dropout of {model['dropout']} makes the ids of a text random; set it to null"
        )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID


def _vocabulary_problems(model: dict[str, Any]) -> list[Problem]:
    vocab = model.get("vocab")
    if model["type"] == "Unigram":
        return _unigram_problems(vocab)
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
    return [*problems, *_merge_problems(model.get("merges"))] if model["type"] == "BPE" else problems


def _unigram_problems(vocab: object) -> list[Problem]:
    if not isinstance(vocab, list) or not vocab:
        return [Problem("model.vocab", "wanted a list of pairs of a token and its score")]
    return [
        Problem(f"model.vocab[{place}]", f"wanted a token and its score, found {entry!r}")
        for place, entry in enumerate(cast("list[Any]", vocab))
        if not (isinstance(entry, list) and list(map(type, entry)) in ([str, float], [str, int]))
    ]


def _merge_problems(merges: object) -> list[Problem]:
    if not isinstance(merges, list):
        return [Problem("model.merges", "wanted a list of pairs")]
    merges = cast("list[Any]", merges)
    return [
        Problem(f"model.merges[{place}]", f"wanted a pair of tokens, found {merges[place]!r}")
        for place, pair in enumerate(_pairs(merges))
        if len(pair) != 2  # noqa: PLR2004  # a pair
    ]


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


def vocabulary(model: dict[str, Any]) -> dict[str, int]:
    """Entries and their ids; a Unigram model's ids are the places in its list."""
    if model["type"] != "Unigram":
        return model["vocab"]
    return {piece: token_id for token_id, (piece, _) in enumerate(model["vocab"])}


def vocab_size(document: dict[str, Any]) -> int:
    """Highest id + 1, added tokens included: a vocabulary may have holes."""
    highest = max(vocabulary(document["model"]).values())
    return 1 + max([highest, *(token["id"] for token in document["added_tokens"])])


def special_tokens(document: dict[str, Any]) -> dict[str, int]:
    """Added tokens marked special, and their ids, by id."""
    marked = (token for token in document["added_tokens"] if token.get("special"))
    return {token["content"]: token["id"] for token in sorted(marked, key=lambda token: token["id"])}


def without_special_tokens(document: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer of another model than BPE in which no text yields a special token's id.

    Such models find entries by their spelling, special or not: T5's Unigram takes a `</s>` in a text for its own. So those
    entries are spelled as no text is, with noncharacters around them. The unknown token keeps its name. The tokens stay among
    the added ones, for the ids of those behind them.
    """
    model = document["model"]
    hidden = {token: f"\uffff\ufffe{token}\ufffe\uffff" for token in special_tokens(document)}
    hidden.pop(model.get("unk_token"), None)
    if model["type"] == "Unigram":
        vocab: Any = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
    else:
        vocab = {hidden.get(token, token): token_id for token, token_id in model["vocab"].items()}
    added = [
        {**token, "content": hidden.get(token["content"], token["content"])} if token.get("special") else token
        for token in document["added_tokens"]
    ]
    return {**document, "added_tokens": added, "post_processor": None, "model": {**model, "vocab": vocab}}


def identity_sha256(document: dict[str, Any]) -> str:
    """Hash of what decides the ids of a text: 64 hex digits.

    That is the vocabulary, the merges in order, the model's options, the normalizer, the pre-tokenizer and the added
    tokens. Truncation, padding, post-processor and decoder decide nothing here, nor do white space, the order of keys,
    the two ways of writing a merge, or an option that is spelled out with its default. Hashed is a line that names this
    rule's version, then JSON without white space, keys sorted, in UTF-8, escaping only what JSON must.
    """
    import msgspec  # noqa: PLC0415  # as above

    decisive = {
        "added_tokens": sorted(
            [token["id"], token["content"], *(bool(token.get(flag)) for flag in _ADDED_FLAGS)]
            for token in document["added_tokens"]
        ),
        "normalizer": document.get("normalizer"),
        "pre_tokenizer": document.get("pre_tokenizer"),
        **_decisive_parts(document["model"]),
    }
    canonical = msgspec.json.encode(decisive, order="sorted")
    return hashlib.sha256(_VERSION + canonical).hexdigest()


def _decisive_parts(model: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in model.items() if key not in {"type", "vocab", "merges"}}
    if model["type"] == "BPE":
        options = {key: value for key, value in others.items() if value}
        return {"merges": _pairs(model["merges"]), "options": options, "vocab": model["vocab"]}
    vocab = model["vocab"]
    if model["type"] == "Unigram":
        vocab = [[piece, float(score)] for piece, score in vocab]
    # An `unk_id` of 0 is an option, as an absent one is not.
    options = {key: value for key, value in others.items() if value is not None and value is not False}
    return {"model": model["type"], "options": options, "vocab": vocab}
