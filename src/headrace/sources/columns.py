"""The texts or ids in a column of an Arrow table, whatever type of strings or lists it has. Needs the extra `parquet`."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np

from headrace.errors import HeadraceError, MissingExtraError
from headrace.sources.chat import ChatFault, ChatTemplate
from headrace.sources.documents import BadInput, BatchBuilder, Drop
from headrace.sources.field import Field, Ids, split_field
from headrace.sources.files import Cut, label
from headrace.sources.lists import id_faults, lists_of, storage
from headrace.sources.pairs import pair
from headrace.sources.rawfile import RawFile
from headrace.sources.schema import MOST_CHARACTERS
from headrace.sources.utf8 import first_invalid_utf8

__all__ = ["PIECE_ROWS", "ColumnReader", "load_pyarrow", "steps_of", "told_as_damage"]

PIECE_ROWS = 1024
"""Most rows turned into texts at a time: a dictionary may make them a thousand times larger than they are stored."""
_END = object()
_ASKED = re.compile(r"(?<=size )\d+")
"""In pyarrow's message about memory."""
_PLAUSIBLE_BYTES, _PLAUSIBLE_RATIO = 1 << 32, 1000
"""What a sound file may ask for at once, in bytes and in terms of its size: more is a damaged length."""


def load_pyarrow(wanted: str) -> Any:  # noqa: ANN401  # the module has no types
    """Import pyarrow.

    Raises:
        MissingExtraError: it is not installed; `wanted` says what needs it.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  # heavy, and an extra
    except ImportError as error:
        raise MissingExtraError(f"{wanted}, which needs pyarrow: pip install 'headrace[parquet]'") from error
    return pa


@contextmanager
def told_as_damage(raw: RawFile, what: str) -> Generator[None]:
    """Around calls of pyarrow alone: what they raise becomes a DamagedFileError, memory that is short left out."""
    import pyarrow as pa  # noqa: PLC0415  # the caller has loaded it

    try:
        yield
    except HeadraceError:
        raise
    except MemoryError as error:
        asked = _ASKED.search(str(error))
        if asked is None or int(asked[0]) <= max(_PLAUSIBLE_BYTES, _PLAUSIBLE_RATIO * raw.file.size):
            raise
        raise raw.damaged(f"damaged {what} (it claims to hold {asked[0]} bytes in one piece)") from error
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raw.check_unchanged()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        shown = label(lines[0][:MOST_CHARACTERS].rstrip(". "))
        raise raw.damaged(f"damaged {what} ({shown}); fetch the file again") from error


def steps_of(raw: RawFile, what: str, steps: Iterator[None]) -> Iterator[None]:
    """Take the steps of a reader, whose errors are told as damage; those of whoever takes them are not."""
    while True:
        with told_as_damage(raw, what):
            if next(steps, _END) is _END:
                return
        yield


class _Texts(NamedTuple):
    texts: list[bytes | None]
    valid: bool
    """Whether all are UTF-8."""


class ColumnReader:
    """Turns the record batches of one file into documents and drops.

    Args:
        label: of the file.
        file_index: what to write into `DocumentBatch.files`.
        field: as for JSON lines; `column_fault` has found nothing against it.
        on_bad_input: only `replace` makes a difference.
        keep_empty: deliver empty texts.
        builder: collects the documents.

    Attributes:
        rows: read so far, and those before the cut of the file that is read.
        text_bytes: in the rows read so far, kept or not.
    """

    def __init__(
        self,
        label: str,
        file_index: int,
        field: Field,
        on_bad_input: BadInput,
        *,
        keep_empty: bool,
        builder: BatchBuilder,
    ) -> None:
        self.rows = 0
        self._start = 0
        self._ids_of_batch: Any = None
        self.text_bytes = 0
        self._cut = 0
        self._label = label
        self._file_index = file_index
        self._field = field
        self._replace = on_bad_input is BadInput.REPLACE
        self._keep_empty = keep_empty
        self._builder = builder

    def begin(self, cut: Cut) -> None:
        """Read one cut, all of whose rows are known."""
        assert cut.row_base is not None  # noqa: S101  # of tables it is known
        self.rows, self._cut = cut.row_base, cut.number
        self._builder.begin_cut(cut.number, cut.row_base)
        self._builder.start = cut.start

    def begin_cut(self) -> None:
        """Let what follows be of the next cut."""
        self._cut += 1
        self._builder.begin_cut(self._cut, self.rows)

    def pieces(self, batch: Any) -> Iterator[None]:  # noqa: ANN401  # a pyarrow.RecordBatch
        """Read the rows of a batch, a piece at a time.

        Raises:
            pyarrow.ArrowException: its buffers contradict each other.
        """
        self._start = self.rows
        self._ids_of_batch = _column(batch, self._field.id_path) if self._field.id_name else None
        if self._field.ids is not None:
            array = _column(batch, self._field.path)
            for start in range(0, len(array), PIECE_ROWS):
                self._add_ids(array.slice(start, PIECE_ROWS), self._field.ids)
                yield
            return
        if self._field.chat is not None:
            columns = [_column(batch, split_field(name)) for name in (self._field.name, self._field.tools) if name]
            for start in range(0, len(columns[0]), PIECE_ROWS):
                found = [column.slice(start, PIECE_ROWS).to_pylist() for column in columns]
                self._add_chats(found[0], found[1] if len(found) > 1 else [None] * len(found[0]), self._field.chat)
                yield
            return
        pieces = [_text_pieces(_column(batch, split_field(name))) for name in self._field.texts]
        for found in zip(*pieces, strict=True):
            if len(found) == 1:
                self._add(found[0])
            else:
                self._add_pairs(*found)
            yield

    def _add_chats(self, values: list[Any], tools: list[Any], chat: ChatTemplate) -> None:
        documents: list[bytes] = []
        kept: list[int] = []
        for row, (value, offered) in enumerate(zip(values, tools, strict=True)):
            document = self._chat_of(value, offered, chat)
            if isinstance(document, str):
                self._builder.drops.append(Drop(self._label, self.rows + row, -1, document))
                continue
            documents.append(document)
            kept.append(row)
        self.text_bytes += self._field.text_bytes(documents)
        self._keep(documents, np.array(kept, np.int64), len(values))

    def _chat_of(self, value: object, tools: object, chat: ChatTemplate) -> bytes | str:
        if value is None:
            return f"{self._field.name} is null"
        try:
            text = self._field.conversation(value, tools, sparse=True)
            return chat.document(text.encode()) if text or self._keep_empty else "empty"
        except ChatFault as fault:
            return str(fault)

    def _add_pairs(self, prompts: _Texts, responses: _Texts) -> None:
        """Take rows of two texts, of which the second must not be empty."""
        rows = len(prompts.texts)
        columns = [
            self._judged(found.texts, name) for found, name in zip((prompts, responses), self._field.texts, strict=True)
        ]
        self.text_bytes += sum(len(text) for found in (prompts, responses) for text in found.texts if text)
        documents: list[bytes] = []
        kept: list[int] = []
        for row, (prompt, response) in enumerate(zip(*columns, strict=True)):
            fault = next((text for text in (prompt[0], response[0]) if isinstance(text, str)), None)
            if fault is None and not response[0] and not self._keep_empty:
                fault = "empty"
            if fault is not None:
                self._builder.drops.append(Drop(self._label, self.rows + row, -1, fault))
                continue
            if prompt[1] or response[1]:
                self._builder.was_replaced(ahead=len(documents))
            documents.append(pair(cast("bytes", prompt[0]), cast("bytes", response[0])))
            kept.append(row)
        self._keep(documents, np.array(kept, np.int64), rows)

    def _add(self, found: _Texts) -> None:
        texts = found.texts
        self.text_bytes += sum(map(len, filter(None, texts)))
        kept: Any = np.arange(len(texts))
        if not found.valid or None in texts or (not self._keep_empty and b"" in texts):
            texts, kept = self._good(texts)
        good: list[bytes] = texts  # pyright: ignore[reportAssignmentType]  # no None is left
        self._keep(good, kept, len(found.texts))

    def _add_ids(self, array: Any, ids: Ids) -> None:  # noqa: ANN401  # as above
        name = self._field.name
        found = lists_of(array)
        texts = ids.documents(found.flat, found.lengths)
        self.text_bytes += sum(map(len, texts))
        faults = {row: f"{name} {why}" for row, why in id_faults(found, ids)}
        if not self._keep_empty:
            faults = {row: "empty" for row, text in enumerate(texts) if not text} | faults
        self._builder.drops += [Drop(self._label, self.rows + row, -1, faults[row]) for row in sorted(faults)]
        kept = np.delete(np.arange(len(texts)), list(faults))
        self._keep([texts[row] for row in kept.tolist()] if faults else texts, kept, len(texts))

    def _keep(self, texts: list[bytes], kept: Any, rows: int) -> None:  # noqa: ANN401  # an array
        self._builder.stream_bytes += sum(map(len, texts)) + rows  # a row of no text is no nothing
        ids: list[bytes | str] = []
        if self._ids_of_batch is not None:
            all_ids = self._ids(self._ids_of_batch.slice(self.rows - self._start, rows))
            ids = [all_ids[row] for row in kept.tolist()]
        places = (kept + self.rows).astype(np.uint64)
        nowhere = np.zeros(len(texts), np.uint64)
        self._builder.add(texts, places, nowhere, self._file_index, ids=ids, label=self._label, placed=False)
        self.rows += rows

    def _ids(self, array: Any) -> list[bytes | str]:  # noqa: ANN401  # as above
        found = _id_texts(array)
        name = self._field.id_name
        ids: list[bytes | str] = []
        for value in found.texts:
            if value is None:
                ids.append(f"{name} is null")
            else:
                ids.append(value if found.valid or first_invalid_utf8(value) < 0 else f"invalid UTF-8 in {name}")
        return ids

    def _good(self, texts: list[bytes | None]) -> tuple[list[bytes | None], Any]:
        good: list[bytes | None] = []
        kept: list[int] = []
        for row, (text, replaced) in enumerate(self._judged(texts, self._field.name)):
            reason = text if isinstance(text, str) else "" if text or self._keep_empty else "empty"
            if reason:
                self._builder.drops.append(Drop(self._label, self.rows + row, -1, reason))
                continue
            if replaced:
                self._builder.was_replaced(ahead=len(good))
            good.append(cast("bytes", text))
            kept.append(row)
        return good, np.array(kept, np.int64)

    def _judged(self, texts: list[bytes | None], name: str) -> Iterator[tuple[bytes | str, bool]]:
        """Each text, and whether something in it was replaced; or why it is none."""
        for text in texts:
            if text is None:
                yield f"{name} is null", False
            elif first_invalid_utf8(text) < 0:
                yield text, False
            else:
                yield (text.decode(errors="replace").encode(), True) if self._replace else ("invalid UTF-8", False)


def _column(batch: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # as above
    array = batch.column(batch.schema.get_field_index(path[0]))
    for key in path[1:]:
        array = storage(array)
        array = array.flatten()[array.type.get_field_index(key)]
    array = storage(array)
    array.validate()
    return array


def _id_texts(array: Any) -> _Texts:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    if pa.types.is_dictionary(array.type):
        array.validate(full=True)
        array = storage(array.dictionary_decode())
    return _texts(array.cast(pa.string()) if pa.types.is_integer(array.type) else array)


def _text_pieces(array: Any) -> Iterator[_Texts]:  # noqa: ANN401  # as above
    """The texts of a column, `PIECE_ROWS` at a time."""
    values = _dictionary(array)
    for start in range(0, len(array), PIECE_ROWS):
        piece = array.slice(start, PIECE_ROWS)
        yield _texts(piece if values is None else values.take(piece.indices))


def _dictionary(array: Any) -> Any:  # noqa: ANN401  # as above
    """Return the values that the rows of an array choose from, as bytes; None where it holds its own."""
    import pyarrow as pa  # noqa: PLC0415  # as above

    if not pa.types.is_dictionary(array.type):
        return None
    values = _as_bytes(storage(array.dictionary))
    return values if pa.types.is_null(values.type) else values.cast(pa.large_binary())  # more than 2 GiB once chosen


def _texts(array: Any) -> _Texts:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    if pa.types.is_null(array.type):
        return _Texts([None] * len(array), valid=True)
    found = _as_bytes(array)
    return _Texts(found.to_numpy(zero_copy_only=False).tolist(), valid=_is_utf8(found))


def _as_bytes(array: Any) -> Any:  # noqa: ANN401  # as above
    """Return the same values as a type of bytes: of a string type they are not known to be UTF-8 either.

    Raises:
        pyarrow.ArrowInvalid: its offsets lead out of its data.
    """
    import pyarrow as pa  # noqa: PLC0415  # as above

    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    for same_bytes, strings in _pairs():
        if array.type == strings:
            array = array.view(same_bytes)
    array.validate(full=True)
    return array


def _is_utf8(array: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    strings = next(strings for same_bytes, strings in _pairs() if array.type == same_bytes)
    try:
        array.cast(strings)
    except pa.ArrowInvalid:
        return False
    return True


def _pairs() -> Sequence[tuple[Any, Any]]:
    import pyarrow as pa  # noqa: PLC0415  # as above

    return (
        (pa.binary(), pa.string()),
        (pa.large_binary(), pa.large_string()),
        (pa.binary_view(), pa.string_view()),
    )
