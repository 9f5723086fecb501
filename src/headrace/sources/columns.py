"""The texts in a column of an Arrow table, whatever type of strings it has. Needs the extra `parquet`."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import HeadraceError, MissingExtraError
from headrace.sources.documents import BadInput, BatchBuilder, Drop
from headrace.sources.files import label
from headrace.sources.lines import split_field
from headrace.sources.rawfile import RawFile
from headrace.sources.utf8 import first_invalid_utf8

__all__ = ["PIECE_ROWS", "ColumnReader", "column_fault", "load_pyarrow", "steps_of", "told_as_damage"]

PIECE_ROWS = 1024
"""Most rows turned into texts at a time: a dictionary may make them a thousand times larger than they are stored."""
_MOST_NAMES = 20
_MOST_CHARACTERS = 200
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
        shown = label(lines[0][:_MOST_CHARACTERS].rstrip(". "))
        raise raw.damaged(f"damaged {what} ({shown}); fetch the file again") from error


def steps_of(raw: RawFile, what: str, steps: Iterator[None]) -> Iterator[None]:
    """Take the steps of a reader, whose errors are told as damage; those of whoever takes them are not."""
    while True:
        with told_as_damage(raw, what):
            if next(steps, _END) is _END:
                return
        yield


def column_fault(schema: Any, text_field: str) -> str | None:  # noqa: ANN401  # as above
    """Say why a schema has no texts under a dotted field, or return None where it has."""
    import pyarrow as pa  # noqa: PLC0415  # the caller has a schema of it

    names: list[str] = schema.names
    kind, above = None, ""
    for key in split_field(text_field):
        if names.count(key) > 1:
            return f"{names.count(key)} columns are named {label(above + key)}; wanted one"
        if key not in names:
            shown = ", ".join(label(above + name) for name in names[:_MOST_NAMES])
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            have = f"its columns are {shown}{more}" if names else "it has no columns"
            return f"no column {label(text_field)}; {have} (--text-field)"
        kind = _stored((schema if kind is None else kind).field(key).type)
        above += f"{key}."
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    assert kind is not None  # noqa: S101  # a field has at least one part
    value = _stored(kind.value_type) if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(value) or any(test(value) for test in _strings()):
        return None
    return f"the column {label(text_field)} holds {label(str(kind))[:_MOST_CHARACTERS]}; wanted strings (--text-field)"


def _strings() -> Sequence[Any]:
    import pyarrow as pa  # noqa: PLC0415  # as above

    types = pa.types
    return (
        *(types.is_string, types.is_large_string, types.is_string_view, types.is_fixed_size_binary),
        *(types.is_binary, types.is_large_binary, types.is_binary_view),
    )


def _stored(kind: Any) -> Any:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


class _Texts(NamedTuple):
    texts: list[bytes | None]
    valid: bool
    """Whether all are UTF-8."""


class ColumnReader:
    """Turns the record batches of one file into documents and drops.

    Args:
        label: of the file.
        file_index: what to write into `DocumentBatch.files`.
        text_field: dotted, as for JSON lines; `column_fault` has found nothing against it.
        on_bad_input: only `replace` makes a difference.
        keep_empty: deliver empty texts.
        builder: collects the documents.

    Attributes:
        rows: read so far.
    """

    def __init__(
        self,
        label: str,
        file_index: int,
        text_field: str,
        on_bad_input: BadInput,
        *,
        keep_empty: bool,
        builder: BatchBuilder,
    ) -> None:
        self.rows = 0
        self._label = label
        self._file_index = file_index
        self._field = text_field
        self._path = split_field(text_field)
        self._replace = on_bad_input is BadInput.REPLACE
        self._keep_empty = keep_empty
        self._builder = builder

    def pieces(self, batch: Any) -> Iterator[None]:  # noqa: ANN401  # a pyarrow.RecordBatch
        """Read the rows of a batch, a piece at a time.

        Raises:
            pyarrow.ArrowException: its buffers contradict each other.
        """
        array = batch.column(batch.schema.get_field_index(self._path[0]))
        for key in self._path[1:]:
            array = _storage(array)
            array = array.flatten()[array.type.get_field_index(key)]
        array = _storage(array)
        array.validate()
        values = _dictionary(array)
        for start in range(0, len(array), PIECE_ROWS):
            piece = array.slice(start, PIECE_ROWS)
            self._add(_texts(piece if values is None else values.take(piece.indices)))
            yield

    def _add(self, found: _Texts) -> None:
        texts = found.texts
        kept: Any = np.arange(len(texts))
        if not found.valid or None in texts or (not self._keep_empty and b"" in texts):
            texts, kept = self._judged(texts)
        good: list[bytes] = texts  # pyright: ignore[reportAssignmentType]  # no None is left
        self._builder.stream_bytes += sum(map(len, good)) + len(found.texts)  # a row of no text is no nothing
        rows = (kept + self.rows).astype(np.uint64)
        self._builder.add(good, rows, np.zeros(len(good), np.uint64), self._file_index)
        self.rows += len(found.texts)

    def _judged(self, texts: list[bytes | None]) -> tuple[list[bytes | None], Any]:
        good: list[bytes | None] = []
        kept: list[int] = []
        for row, text in enumerate(texts):
            reason = self._fault(text)
            if reason:
                self._builder.drops.append(Drop(self._label, self.rows + row, -1, reason))
                continue
            assert text is not None  # noqa: S101  # that is a fault
            if self._replace and first_invalid_utf8(text) >= 0:
                text = text.decode(errors="replace").encode()  # noqa: PLW2901  # what is kept
                self._builder.was_replaced(ahead=len(good))
            good.append(text)
            kept.append(row)
        return good, np.array(kept, np.int64)

    def _fault(self, text: bytes | None) -> str | None:
        if text is None:
            return f"{self._field} is null"
        if not text and not self._keep_empty:
            return "empty"
        return None if self._replace or first_invalid_utf8(text) < 0 else "invalid UTF-8"


def _storage(array: Any) -> Any:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _dictionary(array: Any) -> Any:  # noqa: ANN401  # as above
    """Return the values that the rows of an array choose from, as bytes; None where it holds its own."""
    import pyarrow as pa  # noqa: PLC0415  # as above

    if not pa.types.is_dictionary(array.type):
        return None
    values = _as_bytes(_storage(array.dictionary))
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
