"""One line of JSON to one document: the rule, and the reason where there is none.

This is what decides; the fast path in `jsonl` only skips it where it can prove that the outcome is the same.
"""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from headrace.sources.chat import ChatFault
from headrace.sources.documents import BadInput
from headrace.sources.field import Field, Ids, as_field, split_field
from headrace.sources.pairs import pair
from headrace.sources.utf8 import unmarked_wide_encoding

__all__ = ["ENDS_EARLY", "JSON_DECODER", "LineFault", "LineParser", "without_surrogates"]

ENDS_EARLY = "not JSON, ends early"

_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_SPACE = " \t\r\n"
# What is left, from the fault on, of a line that was cut inside a literal or a number, or inside an escape sequence.
_CUT_TOKEN = re.compile(
    r"t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?|N|Na|-?(I|In|Inf|Infi|Infin|Infini|Infinit)", re.ASCII
)
_CUT_ESCAPE = re.compile(r"\\?u?[0-9a-fA-F]{0,4}", re.ASCII)


class _Constant:
    """Stands for NaN or Infinity: read by Python's parser, no JSON."""


_CONSTANT = _Constant()


def _constant(_name: str) -> _Constant:
    return _CONSTANT


# Numbers are not looked at: `float` takes any number of digits, where `int` refuses thousands.
JSON_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_constant)
"""Python's parser, the reference for what is JSON here."""
_ID_DIGITS = 10
_INT_DIGITS = 1000


def _whole(digits: str) -> int | float:
    """An integer, where it may be an id: `int` refuses thousands of digits."""
    return int(digits) if len(digits) <= _ID_DIGITS else -1 if digits[0] == "-" else 1 << 32


def _digits(digits: str) -> str:
    return "0" if digits == "-0" else digits


def _number(digits: str) -> int | float:
    """An integer as it is, but for one of thousands of digits, which `int` refuses."""
    return int(digits) if len(digits) <= _INT_DIGITS else float(digits)


_CHAT_DECODER = json.JSONDecoder(parse_int=_number, parse_constant=_constant)
_ID_DECODER = json.JSONDecoder(parse_int=_digits, parse_constant=_constant)
_IDS_DECODER = json.JSONDecoder(parse_int=_whole, parse_constant=_constant)


def without_surrogates(text: str) -> str:
    """Put U+FFFD for each surrogate."""
    return _SURROGATE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class LineFault:
    """Why a line gives no document."""

    reason: str
    byte: int = 0
    """Offset of the fault in the line; 0 where it has no place of its own."""


class LineParser:
    """Reads the text out of single lines. Thread-safe; holds no state between lines."""

    def __init__(self, text_field: str | Field, on_bad_input: BadInput, *, keep_empty: bool) -> None:
        self.field = as_field(text_field)
        self.keep_empty = keep_empty
        self._path = self.field.path
        self._replace = on_bad_input is BadInput.REPLACE
        self._decoder = JSON_DECODER if self.field.ids is None else _IDS_DECODER
        if self.field.chat is not None:
            self._decoder = _CHAT_DECODER

    def parse(self, line: bytes) -> tuple[bytes | LineFault, bool]:
        """Return a line's text as UTF-8, or its ids, or its fault; and whether something in the text was replaced by U+FFFD.

        `line` comes without its line feed; a carriage return is white space. Of equal keys the last one counts. NaN and
        Infinity are let pass outside the text field.
        """
        try:
            decoded = line.decode()
        except UnicodeDecodeError as error:
            if not self._replace:
                return LineFault("invalid UTF-8", error.start), False
            # Here each invalid byte is a surrogate of its own: offsets are exact, and those in the text can be told.
            found = self._text(line.decode(errors="surrogateescape"))
            texts = (found,) if isinstance(found, str) else found if isinstance(found, tuple) else ()
            replaced = any(_SURROGATE.search(text) for text in texts)
            if replaced:
                found = self._text(line.decode(errors="replace"))
        else:
            found, replaced = self._text(decoded), False
        if isinstance(found, LineFault):
            return found, False
        if not (found[-1] if isinstance(found, tuple) else found) and not self.keep_empty:
            return LineFault("empty"), False
        if isinstance(found, bytes):
            return found, False
        return self._written(*self._encode(found, replaced=replaced))

    def _written(self, document: bytes | LineFault, replaced: bool) -> tuple[bytes | LineFault, bool]:  # noqa: FBT001  # a pair's
        """What the chat template makes of messages; anything else as it is."""
        if self.field.chat is None or isinstance(document, LineFault):
            return document, replaced
        try:
            return self.field.chat.document(document), replaced
        except ChatFault as fault:
            return LineFault(str(fault)), False

    def id_of(self, line: bytes) -> bytes | str:
        """Return the id in a line that `parse` has found a text in, or why there is none."""
        return self.field.id_of(_decode(line.decode(errors="replace"), _ID_DECODER))

    def _encode(self, found: str | tuple[str, str], *, replaced: bool) -> tuple[bytes | LineFault, bool]:
        if isinstance(found, tuple):
            prompt, response = (self._encode(text, replaced=replaced) for text in found)
            for text, _ in (prompt, response):
                if isinstance(text, LineFault):
                    return text, False
            return pair(cast("bytes", prompt[0]), cast("bytes", response[0])), prompt[1] or response[1]
        try:
            return found.encode(), replaced
        except UnicodeEncodeError:
            if not self._replace:
                return LineFault("lone surrogate"), False
            return without_surrogates(found).encode(), True

    def _text(self, line: str) -> "_Found | LineFault":
        try:
            value = _decode(line, self._decoder)
        except json.JSONDecodeError as error:
            return LineFault(
                _syntax_fault(line, error), len(line[: _place(line, error)].encode(errors="surrogateescape"))
            )
        except RecursionError:
            return LineFault("not JSON (nested too deeply)")
        return self._field_of(value) if isinstance(value, dict) else LineFault("not an object")

    def _field_of(self, row: object) -> "_Found | LineFault":
        if self.field.response is not None:
            return self._pair_of(row)
        name = self.field.name
        value = _value_of(row, self._path, name)
        if isinstance(value, LineFault):
            return value
        if self.field.ids is not None:
            return _ids_of(value, name, self.field.ids)
        if self.field.chat is not None:
            return self._conversation_of(row, value)
        return value if isinstance(value, str) else LineFault(f"{name} is not a string")

    def _conversation_of(self, row: object, messages: object) -> str | LineFault:
        tools = _at(row, split_field(self.field.tools), None) if self.field.tools else None
        try:
            return self.field.conversation(messages, tools)
        except ChatFault as fault:
            return LineFault(str(fault))

    def _pair_of(self, row: object) -> tuple[str, str] | LineFault:
        texts: list[str] = []
        for name in self.field.texts:
            value = _value_of(row, split_field(name), name)
            if not isinstance(value, str):
                return value if isinstance(value, LineFault) else LineFault(f"{name} is not a string")
            texts.append(value)
        return texts[0], texts[1]


_Found = str | bytes | tuple[str, str]
"""A text, the bytes of ids, or a prompt and a response."""


def _value_of(row: object, path: Sequence[str], name: str) -> object:
    """What a field holds, or its fault."""
    value = _at(row, path, LineFault(f"no field {name}"))
    if value is None:
        return LineFault(f"{name} is null")
    return LineFault(f"not JSON (NaN or Infinity in {name})") if value is _CONSTANT else value


def _at(row: object, path: Sequence[str], default: object) -> object:
    """What a field holds; the default where there is none."""
    value: Any = row
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return default
        value = cast("Mapping[str, Any]", value)[key]
    return value


def _ids_of(value: object, name: str, ids: Ids) -> bytes | LineFault:
    if not isinstance(value, list):
        return LineFault(f"{name} is not a list")
    values = cast("list[Any]", value)
    if _CONSTANT in values:
        return LineFault(f"not JSON (NaN or Infinity in {name})")
    fault = ids.fault(name, values)
    return ids.document(values) if fault is None else LineFault(fault)


def _decode(line: str, decoder: json.JSONDecoder) -> object:
    """Parse a line; how deep it may be nested does not depend on how deep in calls the caller is, as it would at once.

    Raises:
        RecursionError: it is nested deeper than about the interpreter's recursion limit.
        JSONDecodeError: it is no JSON.
    """
    try:
        return decoder.decode(line)
    except RecursionError:
        with ThreadPoolExecutor(1) as fresh:  # a thread begins with no calls at all
            return fresh.submit(decoder.decode, line).result()


def _place(line: str, error: json.JSONDecodeError) -> int:
    """Where the fault is, for all versions of Python: 3.13 names a trailing comma, earlier ones what follows it."""
    if not error.msg.startswith("Illegal trailing comma"):
        return error.pos
    after = line[error.pos + 1 :]
    return len(line) - len(after.lstrip(_JSON_SPACE))


def _syntax_fault(line: str, error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "extra data"
    rest = line[error.pos :].rstrip(_JSON_SPACE)
    cut = _CUT_ESCAPE if error.msg.startswith("Invalid \\u") else _CUT_TOKEN
    if not rest or error.msg.startswith("Unterminated string") or cut.fullmatch(rest):
        return ENDS_EARLY
    if encoding := unmarked_wide_encoding(line[:4096].encode(errors="surrogateescape")):
        return f"not JSON (it looks like {encoding})"
    return "not JSON"
