"""JSON files that hold one array: an element a document, found without reading the file whole."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from headrace.errors import SourceError
from headrace.sources.compressed import ByteStream, open_stream, read_all
from headrace.sources.decoder import BATCH_BYTES, BLOCK_BYTES, FIRST_BLOCK_BYTES, fast_decoder, fast_id_decoder
from headrace.sources.documents import BadInput, BatchBuilder, DocumentBatch, Drop
from headrace.sources.field import Field
from headrace.sources.files import CUT_BYTES, SourceFile
from headrace.sources.lines import ENDS_EARLY, LineFault, LineParser
from headrace.sources.rawfile import Observer
from headrace.sources.utf8 import first_invalid_utf8

__all__ = ["first_elements", "is_closed", "read_array"]

EXTRA = "extra data after the array"
NOTHING = "not JSON (an empty element)"

_TOKEN = re.compile(rb'["\[\]{},]')
"""What nests, separates, or begins a string."""
_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_OPENING = frozenset(b"[{")
_SPACE = b" \t\r\n"


class _Element(NamedTuple):
    byte: int
    """Where it begins in the decompressed stream."""
    data: bytes
    """Without the white space around it."""
    fault: str = ""
    """Why it is none."""


def read_array(
    file: SourceFile,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    file_index: int = 0,
    block_bytes: int = BLOCK_BYTES,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
    cut_bytes: int = CUT_BYTES,
) -> Iterator[DocumentBatch]:
    """Yield the documents of one file, in order, as batches; arguments and errors are those of `read_jsonl`.

    `rows` counts elements from 0, `offsets` are the bytes at which they begin; elements are judged as lines of JSON lines
    are. What is missing at the end of the array, or follows it, is one more drop. Memory is bounded by `batch_bytes` and the
    longest element.
    """
    builder = BatchBuilder()
    reader = _Reader(
        file.label,
        file_index,
        LineParser(text_field, BadInput(on_bad_input), keep_empty=keep_empty),
        builder,
        cut_bytes,
    )
    with open_stream(file, observe) as stream:
        steps = map(reader.add, _blocks(_elements(stream, block_bytes), block_bytes))
        yield from builder.batches(steps, lambda: stream.consumed, batch_bytes)


def first_elements(file: SourceFile, count: int) -> list[bytes]:
    """Return the first elements of a file's array, as they lie there; those before damage."""
    found: list[bytes] = []
    try:
        with open_stream(file, buffer_bytes=FIRST_BLOCK_BYTES) as stream:
            found.extend(element.data for element in islice(_elements(stream, FIRST_BLOCK_BYTES), count))
    except SourceError:
        pass  # told where the file is read
    return found


def is_closed(data: bytes) -> bool:
    """Tell whether the array that begins with the first byte ends in these, by brackets and quotes alone."""
    return _Scan().cuts(data[1:])[1] >= 0


def _blocks(elements: Iterator[_Element], block_bytes: int) -> Iterator[list[_Element]]:
    block: list[_Element] = []
    size, limit = 0, min(FIRST_BLOCK_BYTES, block_bytes)
    for element in elements:
        block.append(element)
        size += len(element.data) + 1
        if size >= limit:
            yield block
            block, size, limit = [], 0, min(2 * limit, block_bytes)
    if block:
        yield block


def _elements(stream: ByteStream, block_bytes: int) -> Iterator[_Element]:
    """Find the elements by brackets, commas and quotes alone; whether they are JSON is for the parser."""
    scan, data, base, begun, separated = _Scan(), b"", 0, False, False
    while more := read_all(stream, max(block_bytes, len(data))):
        data += more
        if not begun:
            at = data.find(b"[")
            if at < 0:
                continue
            data, base, begun = data[at + 1 :], at + 1, True
        commas, end = scan.cuts(data)
        start = 0
        for stop in commas:
            yield _element(data[start:stop], base + start)
            start = stop + 1
        separated = separated or bool(commas)
        if end >= 0:
            if separated or data[start:end].strip(_SPACE):
                yield _element(data[start:end], base + start)
            yield from _behind(stream, data[end + 1 :], base + end + 1)
            return
        data, base = data[start:], base + start
        scan.seen -= start
    yield _element(data, base)._replace(fault=ENDS_EARLY)


def _element(data: bytes, base: int) -> _Element:
    bare = data.lstrip(_SPACE)
    return _Element(base + len(data) - len(bare), bare.rstrip(_SPACE), "" if bare else NOTHING)


def _behind(stream: ByteStream, data: bytes, base: int) -> Iterator[_Element]:
    told = False
    while True:
        bare = data.lstrip(_SPACE)
        if bare and not told:
            yield _Element(base + len(data) - len(bare), b"", EXTRA)
            told = True
        base += len(data)
        data = stream.read(BLOCK_BYTES)
        if not data:
            return


class _Scan:
    """How far an array was looked through."""

    def __init__(self) -> None:
        self.seen = 0
        """Bytes of the data that is held."""
        self._depth = 1

    def cuts(self, data: bytes) -> tuple[list[int], int]:
        """Return the places of further commas between elements, and of the bracket that ends the array or -1."""
        commas: list[int] = []
        place = self.seen
        while match := _TOKEN.search(data, place):
            at, place = match.start(), match.end()
            token = data[at]
            if token == _QUOTE:
                place = _behind_string(data, place)
                if not place:
                    self.seen = at
                    return commas, -1
            elif token == _COMMA:
                if self._depth == 1:
                    commas.append(at)
            else:
                self._depth += 1 if token in _OPENING else -1
                if not self._depth:
                    return commas, at
        self.seen = len(data)
        return commas, -1


def _behind_string(data: bytes, start: int) -> int:
    """Return the place behind the closing quote of a string whose first character is at `start`; 0 if it goes on."""
    end = data.find(b'"', start)
    while end >= 0:
        before = end
        while before > start and data[before - 1] == _BACKSLASH:
            before -= 1
        if (end - before) % 2 == 0:
            return end + 1
        end = data.find(b'"', end + 1)
    return 0


class _Reader:
    """Turns elements into documents and drops."""

    def __init__(self, label: str, file_index: int, parser: LineParser, builder: BatchBuilder, cut_bytes: int) -> None:
        self._label = label
        self._file_index = file_index
        self._parser = parser
        self._builder = builder
        self._cut_bytes = cut_bytes
        self._decode = fast_decoder(parser.field)
        self._decode_ids = fast_id_decoder(parser.field) if parser.field.id_name else None
        self._row = 0

    def add(self, block: list[_Element]) -> None:
        """Read the next elements."""
        for number, elements in groupby(block, lambda element: element.byte // self._cut_bytes):
            self._builder.begin_cut(number, self._row)
            self._add(list(elements))

    def _add(self, block: list[_Element]) -> None:
        self._builder.stream_bytes += sum(len(element.data) + 1 for element in block)
        texts = self._fast_texts(block)
        kept = list(range(len(block)))
        fast = texts is not None
        if texts is None or (b"" in texts and not self._parser.keep_empty):
            texts, kept = self._careful_texts(block)
        rows = np.array(kept, np.uint64) + np.uint64(self._row)
        offsets = np.array([block[number].byte for number in kept], np.uint64)
        ids = (
            self._ids([block[number].data for number in kept], self._decode_ids, fast=fast) if self._decode_ids else ()
        )
        self._builder.add(texts, rows, offsets, self._file_index, ids=ids, label=self._label)
        self._row += len(block)

    def _ids(
        self, elements: list[bytes], decode: Callable[[bytes], list[bytes] | None], *, fast: bool
    ) -> Sequence[bytes | str]:
        ids = decode(b"\n".join(elements)) if fast else None
        return [self._parser.id_of(element) for element in elements] if ids is None else ids

    def _fast_texts(self, block: list[_Element]) -> list[bytes] | None:
        """All at once, where each element holds one object: with an object at either end of each, no fewer than these."""
        objects = all(element.data[:1] == b"{" and element.data[-1:] == b"}" and not element.fault for element in block)
        joined = b"\n".join(element.data for element in block)
        if self._decode is None or not objects or first_invalid_utf8(joined) >= 0:
            return None
        texts = self._decode(joined)
        return texts if texts is not None and len(texts) == len(block) else None

    def _careful_texts(self, block: list[_Element]) -> tuple[list[bytes], list[int]]:
        texts: list[bytes] = []
        kept: list[int] = []
        for number, element in enumerate(block):
            fault = LineFault(element.fault)
            found, replaced = (fault, False) if element.fault else self._parser.parse(element.data)
            if isinstance(found, LineFault):
                place = element.byte + found.byte
                self._builder.drops.append(Drop(self._label, self._row + number, place, found.reason))
            else:
                if replaced:
                    self._builder.was_replaced(ahead=len(texts))
                texts.append(found)
                kept.append(number)
        return texts, kept
