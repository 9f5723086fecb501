"""Documents that a program hands over, in place of files: any iterable of texts or of mappings that hold them."""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from headrace.errors import SourceError
from headrace.sources.chat import ChatFault, ChatTemplate
from headrace.sources.decoder import BATCH_BYTES
from headrace.sources.documents import BadInput, BatchBuilder, DocumentBatch, Drop
from headrace.sources.field import Field, Ids, as_field, split_field
from headrace.sources.files import SourceFile, label
from headrace.sources.items import Items
from headrace.sources.lines import without_surrogates
from headrace.sources.pairs import pair
from headrace.sources.rawfile import Observer

__all__ = ["Documents", "framed", "given_documents", "given_file", "read_given", "sample_of"]

_SAMPLE_ITEMS = 1000
_AT_ONCE = 32
"""Items taken together: few, for they may come slowly."""
_NOWHERE = Path("/dev/null/documents")
"""A path at which no file can be."""
_HELP = "give paths as a list, and texts as headrace.Documents(texts)"


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents for `headrace.build`, in place of paths.

    Args:
        items: strings, each the text of a document, or mappings with a field that holds it (or its ids); read once, in order,
            in the process that builds. What its iterator raises ends the build, and is raised with the number of the item.
        name: stands for the file that documents come from, in reports, in `shards.json` and in `corpus.locate`, whose lines
            are then the numbers of items, from 1.

    Raises:
        SourceError: the items are no iterable, or one text, or the name is empty.
    """

    items: Iterable[Any]
    name: str = "documents"

    def __post_init__(self) -> None:
        items = cast("object", self.items)  # callers may be untyped
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise SourceError(f"wanted an iterable of texts or of mappings, found one {type(items).__name__}")
        if callable(getattr(items, "itertuples", None)):
            raise SourceError(
                "wanted an iterable of texts or of mappings, found a data frame, which iterates over the names of its columns: "
                'give its rows, frame.to_dict("records"), or one column, frame["text"]'
            )
        if not self.name:
            raise SourceError("wanted a name for the documents, found an empty one")


def given_documents(inputs: object) -> Documents | None:
    """Tell documents from paths: one path, and a list or tuple of them, are paths; None for these.

    Raises:
        SourceError: it is neither, or both.
    """
    if isinstance(inputs, Documents):
        return inputs
    if isinstance(inputs, str | os.PathLike):
        return None
    if isinstance(inputs, list | tuple):
        items = cast("Sequence[Any]", inputs)
        if all(isinstance(item, str | os.PathLike) for item in items):
            return None
        if not all(isinstance(item, Mapping) for item in items):
            kinds = ", ".join(sorted({type(item).__name__ for item in items}))
            raise SourceError(
                f"wanted a list of paths, or of mappings that hold documents; found {kinds} in it; {_HELP}"
            )
        return Documents(items)
    return Documents(cast("Iterable[Any]", inputs))


def given_file(documents: Documents, field: Field, *, paths: bool) -> SourceFile:
    """List documents as a file of no size, whose items are taken once.

    Args:
        documents: what was given.
        field: that will be read.
        paths: whether the first item may be the path of a file.

    Raises:
        SourceError: it is, and must not be.
    """
    name = label(documents.name)
    columns = dict.fromkeys(split_field(name)[0] for name in field.columns)
    items = Items(documents.items, name, list(columns))
    first = None if paths else next(items.look_ahead(1), None)
    if isinstance(first, os.PathLike) or (isinstance(first, str) and first and os.path.lexists(first)):
        raise SourceError(f"the first document is the path of a file, {label(os.fsdecode(first))}; {_HELP}")
    return SourceFile(_NOWHERE, name, 0, "given", None, given=items)


def read_given(
    file: SourceFile,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,  # noqa: ARG001  # there are no bytes on disk
) -> Iterator[DocumentBatch]:
    """Yield the documents of a program's items, in order, as batches; arguments are those of `read_jsonl`.

    `rows` counts items from 0, `offsets` are 0, and `consumed` counts the bytes of texts.

    Raises:
        Exception: whatever the program's iterator raises.
    """
    assert file.given is not None  # noqa: S101  # what its kind says
    builder = BatchBuilder()
    reader = _Reader(as_field(text_field), BadInput(on_bad_input), keep_empty=keep_empty)
    read = 0

    def add(first: int, items: list[Any]) -> None:
        nonlocal read
        texts: list[bytes] = []
        rows: list[int] = []
        ids: list[bytes | str] = []
        for row, item in enumerate(items, first):
            text, replaced = reader.text_of(item)
            if isinstance(text, str):
                builder.drops.append(Drop(file.label, row, -1, text))
                continue
            if replaced:
                builder.was_replaced(ahead=len(texts))
            texts.append(text)
            rows.append(row)
            if reader.field.id_name:
                ids.append(reader.field.id_of(item))
        size = sum(map(len, texts)) + len(items)
        builder.stream_bytes += size
        places, nowhere = np.array(rows, np.uint64), np.zeros(len(rows), np.uint64)
        builder.add(texts, places, nowhere, file_index, ids=ids, label=file.label, placed=False)
        read += size

    def steps() -> Iterator[None]:
        items, row = iter(file.given or ()), 0
        while some := list(islice(items, _AT_ONCE)):
            yield add(row, some)
            row += len(some)

    yield from builder.batches(steps(), lambda: read, batch_bytes)


def sample_of(file: SourceFile, field: Field) -> Iterator[bytes]:
    """Texts of the first items, which are read again when all are."""
    reader = _Reader(field, BadInput.SKIP, keep_empty=False)
    for item in file.given.look_ahead(_SAMPLE_ITEMS) if file.given else ():
        text, _ = reader.text_of(item)
        if isinstance(text, bytes):
            yield from field.samples(text)


def framed(texts: Sequence[bytes]) -> bytes:
    """What is hashed of documents that lie in no file: the length of each, a little-endian uint64, and its bytes."""
    return b"".join(part for text in texts for part in (struct.pack("<Q", len(text)), text))


class _Reader:
    """One item to one document: the rules of JSON lines, for Python's values."""

    def __init__(self, field: Field, on_bad_input: BadInput, *, keep_empty: bool) -> None:
        self.field = field
        self._replace = on_bad_input is BadInput.REPLACE
        self._keep_empty = keep_empty

    def text_of(self, item: Any) -> tuple[bytes | str, bool]:  # noqa: ANN401  # whatever a program gives
        """Return an item's text or ids, or why there are none; and whether something in it became U+FFFD."""
        if self.field.chat is not None:
            return self._chat_of(item, self.field.chat)
        if self.field.response is not None:
            return self._pair_of(item)
        found, replaced = self._value_of(item, self.field.name)
        return (found, replaced) if found or self._keep_empty else ("empty", False)

    def _chat_of(self, item: Any, chat: ChatTemplate) -> tuple[bytes | str, bool]:  # noqa: ANN401  # as above
        value = _at(item, self.field.name)
        if isinstance(value, _Lacking):
            return value.reason, False
        offered = _at(item, self.field.tools) if self.field.tools else None
        tools = None if isinstance(offered, _Lacking) else offered
        try:
            messages, replaced = self._encoded(self.field.conversation(value, tools), self.field.name)
            if not messages and not self._keep_empty:
                return "empty", False
            return (chat.document(messages), replaced) if isinstance(messages, bytes) else (messages, False)
        except ChatFault as fault:
            return str(fault), False

    def _pair_of(self, item: Any) -> tuple[bytes | str, bool]:  # noqa: ANN401  # as above
        if not isinstance(item, Mapping):
            return f"not a mapping ({type(cast('object', item)).__name__})", False
        texts: list[bytes] = []
        replaced = False
        for name in self.field.texts:
            text, changed = self._value_of(cast("Mapping[str, Any]", item), name)
            if isinstance(text, str):
                return text, False
            texts.append(text)
            replaced = replaced or changed
        return (pair(*texts), replaced) if texts[-1] or self._keep_empty else ("empty", False)

    def _value_of(self, item: Any, name: str) -> tuple[bytes | str, bool]:  # noqa: ANN401  # as above
        value = item
        if isinstance(item, Mapping):
            value = _at(cast("object", item), name)
        elif self.field.ids is None and not isinstance(item, str):
            return f"neither a string nor a mapping ({type(item).__name__})", False
        if isinstance(value, _Lacking):
            return value.reason, False
        if self.field.ids is not None:
            return _ids_of(value, name, self.field.ids), False
        return self._encoded(value, name)

    def _encoded(self, value: object, name: str) -> tuple[bytes | str, bool]:
        if not isinstance(value, str):
            return f"{name} is not a string", False
        try:
            return value.encode(), False
        except UnicodeEncodeError:
            if not self._replace:
                return "lone surrogate", False
            return without_surrogates(value).encode(), True


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Why there is no value in a field."""

    reason: str


def _at(item: object, name: str) -> Any:  # noqa: ANN401  # whatever a program gives
    """What a mapping holds in a field."""
    if not isinstance(item, Mapping):
        return _Lacking(f"not a mapping ({type(item).__name__})")
    value: Any = cast("Mapping[str, Any]", item)
    for key in split_field(name):
        if not isinstance(value, Mapping) or key not in value:
            return _Lacking(f"no field {name}")
        value = cast("Mapping[str, Any]", value)[key]
    return _Lacking(f"{name} is null") if value is None else value


def _ids_of(value: Any, name: str, ids: Ids) -> bytes | str:  # noqa: ANN401  # as above
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.ndim == 1 and array.dtype.kind in "iu":
            bad = array[(array < 0) | (array >= ids.vocab_size)]
            return f"{name} holds {ids.why_not(int(bad[0]))}" if len(bad) else ids.document(array)
        value = array.tolist()
    if not isinstance(value, list | tuple):
        return f"{name} is not a list"
    values = [one.item() if isinstance(one, np.generic) else one for one in cast("Sequence[Any]", value)]
    fault = ids.fault(name, values)
    return ids.document(values) if fault is None else fault
