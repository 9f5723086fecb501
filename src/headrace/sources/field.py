"""What is taken out of a row: the text of a document or its token ids, and the id that it goes by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SourceError
from headrace.manifest import dtype_name_for
from headrace.sources.chat import ChatTemplate, conversation_text
from headrace.sources.pairs import PAIR_BYTES, parts_of

__all__ = ["Field", "Ids", "as_field", "split_field"]

_KINDS: dict[type, str] = {bool: "a boolean", float: "a float", str: "a string", list: "a list", dict: "an object"}


def split_field(name: str) -> tuple[str, ...]:
    """Split a dotted field: `data.text` is the field `text` of the object in the field `data`.

    Raises:
        SourceError: (a ValueError) it is no name that a field can have.
    """
    if not name:
        raise SourceError("wanted the name of the field, got an empty one", usage=True)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"wanted the name of the field, got {name!r}, which is no UTF-8", usage=True) from None
    return tuple(name.split("."))


@dataclass(frozen=True, slots=True)
class Ids:
    """What a list of token ids must be, and how it is handed on.

    As a document's text, the readers deliver the bytes of its ids, of `dtype` each: without the boundary that ends the list,
    and without the BOS that begins it, where the build adds these itself, so that neither is there twice.
    """

    vocab_size: int = 1 << 32
    """Highest id + 1."""
    boundary: int | None = None
    """Left out where it is the last id."""
    bos: int | None = None
    """Left out where it is the first."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """uint16 or uint32, little-endian, as the ids are stored."""
        return np.dtype(dtype_name_for(self.vocab_size)).newbyteorder("<")

    def fault(self, name: str, values: Sequence[Any]) -> str | None:
        """Say what is wrong with the first of some values that is no id; None if all are."""
        for value in values:
            if type(value) is not int:
                return f"{name} holds {'null' if value is None else _KINDS.get(type(value), 'something else')}"
            if not 0 <= value < self.vocab_size:
                return f"{name} holds {self.why_not(value)}"
        return None

    def why_not(self, value: int) -> str:
        """Name an integer that is no id."""
        return "a negative id" if value < 0 else f"an id beyond the vocabulary of {self.vocab_size}"

    def document(self, values: Sequence[int] | NDArray[Any]) -> bytes:
        """One document of checked ids."""
        return self.documents(np.asarray(values, np.int64), np.array([len(values)], np.int64))[0]

    def documents(self, flat: NDArray[Any], lengths: NDArray[np.int64]) -> list[bytes]:
        """Cut checked ids into documents.

        Args:
            flat: the ids of one document behind another's, (n,).
            lengths: of each document, (d,), n in all.
        """
        stops = np.cumsum(lengths)
        starts = stops - lengths
        if self.bos is not None:
            full = np.flatnonzero(starts < stops)
            starts[full] += flat[starts[full]] == self.bos
        if self.boundary is not None:
            full = np.flatnonzero(starts < stops)
            stops[full] -= flat[stops[full] - 1] == self.boundary
        data, size = flat.astype(self.dtype).tobytes(), self.dtype.itemsize
        return [data[start:stop] for start, stop in zip((starts * size).tolist(), (stops * size).tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a row.

    Raises:
        SourceError: (a ValueError) a name is empty, or no UTF-8.
    """

    name: str
    """Dotted where it is nested."""
    ids: Ids | None = None
    """Given where it holds token ids, not text."""
    id_name: str | None = None
    """Another field, which holds a string or an integer that the document goes by; None if none is kept."""
    response: str | None = None
    """Another field, where a document is two texts, a prompt and a response: then `name` is that of the prompt, and the
    readers deliver what `pair` makes of them."""
    chat: ChatTemplate | None = None
    """Given where it holds the messages of a conversation: then the readers deliver what that makes of them."""
    tools: str | None = None
    """Another field, which holds the tools that a conversation is offered; None if none is read."""

    def __post_init__(self) -> None:
        for name in (self.name, self.id_name, self.response, self.tools):
            if name is not None:
                split_field(name)

    @classmethod
    def of(
        cls,
        *,
        text_field: str,
        ids_field: str | None,
        id_field: str | None,
        prompt_field: str | None,
        response_field: str | None,
        chat_field: str | None,
        tools_field: str | None,
        ids: Ids | None = None,
        chat: ChatTemplate | None = None,
    ) -> "Field":
        """What is read where a build has these options; of ids and messages as much as is known by then."""
        if chat_field is not None:
            return cls(chat_field, id_name=id_field, chat=chat or ChatTemplate(), tools=tools_field)
        if prompt_field is not None:
            return cls(prompt_field, id_name=id_field, response=response_field)
        if ids_field is not None:
            return cls(ids_field, ids or Ids(), id_field)
        return cls(text_field, id_name=id_field)

    @property
    def path(self) -> tuple[str, ...]:
        """The name, split at its dots."""
        return split_field(self.name)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the fields that make up a document."""
        return (self.name,) if self.response is None else (self.name, self.response)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all fields that are read."""
        return (*self.texts, *(name for name in (self.tools, self.id_name) if name is not None))

    def conversation(self, messages: object, tools: object, *, sparse: bool = False) -> str:
        """The JSON text of a conversation out of what its two fields hold; arguments and errors as of `conversation_text`."""
        return conversation_text(messages, self.name, tools=tools, tools_name=self.tools or "", sparse=sparse)

    def samples(self, document: bytes) -> tuple[bytes, ...]:
        """The texts that a document was made of; none of a conversation, which is encoded otherwise."""
        if self.chat is not None:
            return ()
        return (document,) if self.response is None else parts_of(document)

    def text_bytes(self, documents: Sequence[bytes]) -> int:
        """Bytes of text in documents; 0 where they are ids."""
        if self.ids is not None:
            return 0
        if self.chat is not None:
            return sum(len(parts_of(document)[0]) for document in documents)
        return sum(map(len, documents)) - (0 if self.response is None else PAIR_BYTES * len(documents))

    @property
    def id_path(self) -> tuple[str, ...]:
        """The name of the id's field, split at its dots; empty if none is kept."""
        return () if self.id_name is None else split_field(self.id_name)

    def id_of(self, row: object) -> bytes | str:
        """The id in a row as UTF-8, an integer in digits; or why there is none."""
        value = row
        for key in self.id_path:
            if not isinstance(value, Mapping) or key not in value:
                return f"no field {self.id_name}"
            value = cast("Mapping[str, object]", value)[key]
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            return f"{self.id_name} is {'null' if value is None else 'neither a string nor an integer'}"
        try:
            return value.encode()
        except UnicodeEncodeError:
            return f"lone surrogate in {self.id_name}"

    @property
    def flag(self) -> str:
        """The option that names it."""
        if self.response is not None:
            return "--prompt-field"
        if self.chat is not None:
            return "--chat-field"
        return "--text-field" if self.ids is None else "--ids-field"

    @property
    def wanted(self) -> str:
        """What it must hold."""
        if self.chat is not None:
            return "lists of messages"
        return "strings" if self.ids is None else "lists of integers"


def as_field(field: str | Field) -> Field:
    """A plain name is that of a text field."""
    return Field(field) if isinstance(field, str) else field
