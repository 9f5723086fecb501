"""What a document is in its row: a text, ids, a prompt and a response, or a conversation; and the tokenizer that takes it so."""

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import BuildError
from headrace.sources.field import Field, Ids
from headrace.tokenizers.base import BatchTokenizer, TextEncoder
from headrace.tokenizers.chat_template import chat_template
from headrace.tokenizers.chats import Conversations
from headrace.tokenizers.load import load_tokenizer
from headrace.tokenizers.prompts import PromptResponses
from headrace.tokenizers.ready import NoTokenizer, ReadyIds

__all__ = ["DocumentForm", "TokenizerSpec"]

TokenizerSpec = str | os.PathLike[str] | BatchTokenizer | TextEncoder | None
"""What `headrace.build` takes for a tokenizer."""
TEXT_FIELD = "text"
"""The field that is read where none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentForm:
    """The options of a build that say what documents are; see `headrace.build`.

    Raises:
        BuildError: they make no sense together.
    """

    tokenizer: TokenizerSpec
    vocab_size: int | None
    text_field: str
    ids_field: str | None
    id_field: str | None
    prompt_field: str | None
    response_field: str | None
    chat_field: str | None
    tools_field: str | None
    chat_template: str | None
    chat_date: str | None

    def __post_init__(self) -> None:
        if (self.vocab_size is not None or self.ids_field is not None) and (
            self.ids_field is None or (self.vocab_size is None) == (self.tokenizer is None)
        ):
            raise BuildError(
                "ids (--ids-field) need a tokenizer (--tokenizer) whose ids they are, or else a --vocab-size; give one of "
                "the two. Texts have no --vocab-size",
                usage=True,
            )
        pair = self.prompt_field is not None
        if pair != (self.response_field is not None) or (pair and self.ids_field is not None):
            raise BuildError(
                "a document of two texts has a prompt (--prompt-field) and a response (--response-field); give both, and "
                "no --ids-field",
                usage=True,
            )
        if self.chat_field is None and any(
            option is not None for option in (self.chat_template, self.chat_date, self.tools_field)
        ):
            raise BuildError(
                "--chat-template, --chat-date and --tools-field are of conversations: give their --chat-field",
                usage=True,
            )
        if self.chat_field is not None and (pair or self.ids_field is not None):
            raise BuildError(
                "conversations (--chat-field) are documents by themselves: no --prompt-field, no --ids-field",
                usage=True,
            )
        if self.text_field != TEXT_FIELD and (pair or self.ids_field is not None or self.chat_field is not None):
            raise BuildError(
                f"documents are read from one place: give no --text-field ({self.text_field!r}) beside --ids-field, "
                "--prompt-field or --chat-field",
                usage=True,
            )
        if self.chat_date is not None and not _is_date(self.chat_date):
            raise BuildError(f"chat_date (--chat-date): wanted YYYY-MM-DD, found {self.chat_date!r}", usage=True)

    @property
    def field(self) -> Field:
        """What is read of each row, as far as that is known before the tokenizer is."""
        return Field.of(**self._names)

    @property
    def _names(self) -> dict[str, Any]:
        """Of fields, as `Field.of` and `ContentOptions` take them."""
        return {
            "text_field": self.text_field,
            "ids_field": self.ids_field,
            "id_field": self.id_field,
            "prompt_field": self.prompt_field,
            "response_field": self.response_field,
            "chat_field": self.chat_field,
            "tools_field": self.tools_field,
        }

    @property
    def encodes(self) -> bool:
        """Whether a library encodes, which takes long to import."""
        return self.ids_field is None and self.tokenizer is not None and self.tokenizer != "bytes"

    def load(self, on_notice: Callable[[str], None]) -> BatchTokenizer:
        """Load the tokenizer; errors and notices are those of `load_tokenizer`."""
        if self.vocab_size is not None:
            return NoTokenizer(self.vocab_size)
        return load_tokenizer("bytes" if self.tokenizer is None else self.tokenizer, on_notice=on_notice)

    def taking_documents(self, tokenizer: BatchTokenizer, boundary: int, bos: int | None) -> BatchTokenizer:
        """What encodes documents of this form with a tokenizer; arguments as of `options`.

        Raises:
            TokenizerError: it has no such chat template.
        """
        if self.chat_field is not None:
            template = chat_template(tokenizer, self.chat_template, date=self.chat_date)
            return Conversations(tokenizer, template, boundary=boundary, bos=bos)
        if self.ids_field is not None:
            return ReadyIds(tokenizer)
        return tokenizer if self.prompt_field is None else PromptResponses(tokenizer)

    def options(self, tokenizer: BatchTokenizer, boundary: int, bos: int | None) -> dict[str, Any]:
        """These fields of `ContentOptions`.

        Args:
            tokenizer: that of the build.
            boundary: id that ends each document.
            bos: id that begins each, if one does.
        """
        return {
            **self._names,
            "ids": None if self.ids_field is None else Ids(tokenizer.vocab_size, boundary, bos),
            "chat": tokenizer.template if isinstance(tokenizer, Conversations) else None,
        }


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
