"""Which chat template a tokenizer has, by itself or by the user's choice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from headrace.errors import TokenizerError
from headrace.sources.chat import ChatTemplate, check_template
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.file_tokenizer import read_file
from headrace.tokenizers.tokenizer_json import CONFIG_NAME, JsonTokenizer

__all__ = ["TEMPLATE_NAME", "chat_template"]

TEMPLATE_NAME = "chat_template.jinja"
"""The file beside a tokenizer.json that holds its chat template; in a corpus, the one that was used."""
_MORE = "additional_chat_templates"
_DEFAULT = "default"


def chat_template(tokenizer: BatchTokenizer, wanted: str | None = None, *, date: str | None = None) -> ChatTemplate:
    """The chat template of a tokenizer.

    Args:
        tokenizer: a tokenizer.json.
        wanted: name of one of its templates, or else the path of a file; None for its default, or only one. They stand as
            `chat_template` in tokenizer_config.json (one, or a list of named ones), in `chat_template.jinja` or in
            `additional_chat_templates/NAME.jinja` beside it; a file counts before the configuration.
        date: see `ChatTemplate`.

    Raises:
        TokenizerError: no such template, one that is none, or a tokenizer that has no templates.
        MissingExtraError: jinja2 is not installed.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        raise TokenizerError(
            f"a chat template (--chat-field) goes with a tokenizer.json; {tokenizer.ref.name} is a tokenizer of kind "
            f"{tokenizer.ref.kind}"
        )
    template = ChatTemplate(
        _text_of(tokenizer, wanted), _variables(tokenizer.config()), tuple(tokenizer.special_tokens), date
    )
    try:
        check_template(template)
    except ValueError as error:
        raise TokenizerError(f"the chat template of {tokenizer.path} is none: {error}") from error
    return template


def _text_of(tokenizer: JsonTokenizer, wanted: str | None) -> str:
    named = _named(tokenizer)
    if wanted is None and len(named) == 1:
        return next(iter(named.values()))
    name = _DEFAULT if wanted is None else wanted
    if name in named:
        return named[name]
    if wanted is not None and Path(wanted).is_file():
        return _decoded(Path(wanted))
    if not named:
        no_file = "" if wanted is None else f", and there is no file {wanted}"
        raise TokenizerError(
            f"{tokenizer.path}: has no chat template (chat_template of {CONFIG_NAME}, or {TEMPLATE_NAME} beside it){no_file}; "
            "give a file by --chat-template"
        )
    raise TokenizerError(
        f"{tokenizer.path}: has no chat template {name!r}, and there is no such file; it has {', '.join(named)}. Give the name "
        "of one, or a file, by --chat-template"
    )


def _named(tokenizer: JsonTokenizer) -> dict[str, str]:
    found: Any = tokenizer.config().get("chat_template")
    named: dict[str, str] = {}
    if isinstance(found, str):
        named[_DEFAULT] = found
    elif isinstance(found, list):
        for entry in cast("list[Any]", found):
            if not isinstance(entry, dict) or not isinstance(cast("dict[str, Any]", entry).get("template"), str):
                raise TokenizerError(
                    f"{tokenizer.path.with_name(CONFIG_NAME)}: chat_template holds what is no template"
                )
            named[str(entry["name"])] = entry["template"]
    elif found is not None:
        raise TokenizerError(f"{tokenizer.path.with_name(CONFIG_NAME)}: chat_template is neither a text nor a list")
    for path in sorted((tokenizer.path.parent / _MORE).glob("*.jinja")):
        named[path.stem] = _decoded(path)
    beside = tokenizer.path.with_name(TEMPLATE_NAME)
    if beside.is_file():
        named[_DEFAULT] = _decoded(beside)
    return named


def _decoded(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8 (byte {error.start})") from None


def _variables(config: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The special tokens that templates are told of, by their names."""
    found: dict[str, Any] = {}
    for name, value in sorted(config.items()):
        token = cast("dict[str, Any]", value).get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(token, str):
            found[name] = token
    return tuple(found.items())
