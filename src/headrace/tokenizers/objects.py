"""Tokenizer objects of the libraries that people use, as the files that say the same.

Their own `encode` adds tokens, takes the spelling of a special token for it, or refuses it, each in its way. Read from a
file, they are what the same tokenizer is when it is named by its path: the same ids, identity and copy in the corpus.
"""

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from headrace.tokenizers.ranks import canonical_ranks
from headrace.tokenizers.sentencepiece import SentencePieceTokenizer
from headrace.tokenizers.tiktoken import TiktokenTokenizer
from headrace.tokenizers.tokenizer_json import CONFIG_NAME, JsonTokenizer

__all__ = ["TokenizerFiles", "files_of"]

TokenizerFiles = tuple[str, dict[str, bytes]]
"""A name for people, and the files by name, the tokenizer itself first."""
_END_OF_TEXT = "<|endoftext|>"
_ROLES = ("bos_token", "eos_token")


def files_of(tokenizer: Any) -> TokenizerFiles | None:  # noqa: ANN401  # any object
    """What a tokenizer of `tokenizers`, `transformers` (a fast one), `tiktoken` or `sentencepiece` is as files; else None."""
    made_by = type(tokenizer)
    libraries = {base.__module__.partition(".")[0] for base in made_by.__mro__}
    if "transformers" in libraries and hasattr(tokenizer, "backend_tokenizer"):
        return _of_transformers(tokenizer)
    if "tokenizers" in libraries and hasattr(tokenizer, "to_str"):
        return made_by.__name__, {JsonTokenizer.usual_name: tokenizer.to_str().encode()}
    if "tiktoken" in libraries and hasattr(tokenizer, "_mergeable_ranks"):
        return _of_tiktoken(tokenizer)
    if "sentencepiece" in libraries and hasattr(tokenizer, "serialized_model_proto"):
        return made_by.__name__, {SentencePieceTokenizer.usual_name: tokenizer.serialized_model_proto()}
    return None


def _of_transformers(tokenizer: Any) -> TokenizerFiles:  # noqa: ANN401  # a PreTrainedTokenizerFast
    config: dict[str, Any] = {
        role: str(token) for role in _ROLES if (token := getattr(tokenizer, role, None)) is not None
    }
    template: Any = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        config["chat_template"] = [{"name": name, "template": text} for name, text in template.items()]
    elif template is not None:
        config["chat_template"] = template
    name = str(getattr(tokenizer, "name_or_path", "")).rstrip("/").rpartition("/")[2] or type(tokenizer).__name__
    return name, {
        JsonTokenizer.usual_name: tokenizer.backend_tokenizer.to_str().encode(),
        CONFIG_NAME: json.dumps(config).encode(),
    }


def _of_tiktoken(tokenizer: Any) -> TokenizerFiles:  # noqa: ANN401  # a tiktoken.Encoding
    # What it was made of is private to it, and has had these names since tiktoken 0.1.
    special: dict[str, int] = tokenizer._special_tokens  # noqa: SLF001  # see above
    scheme: dict[str, Any] = {"pattern": tokenizer._pat_str, "special_tokens": special}  # noqa: SLF001  # likewise
    if _END_OF_TEXT in special:
        scheme["eos_token"] = _END_OF_TEXT
    ranks: dict[bytes, int] = tokenizer._mergeable_ranks  # noqa: SLF001  # likewise
    return tokenizer.name, {
        TiktokenTokenizer.usual_name: canonical_ranks(dict(sorted(ranks.items(), key=itemgetter(1)))),
        f"{TiktokenTokenizer.usual_name}.json": json.dumps(scheme).encode(),
    }
