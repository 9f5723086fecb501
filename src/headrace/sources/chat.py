"""Conversations as a chat template writes them, with what the assistant says told from the rest. Needs the extra `chat`."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

from headrace.errors import MissingExtraError
from headrace.sources.pairs import pair, parts_of

__all__ = ["Chat", "ChatFault", "ChatTemplate", "chat_of", "check_template", "conversation_text"]

ASSISTANT = "assistant"
_LAST_CODE = 0x10FFFD
"""Private characters are taken from here downwards."""
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_QUOTED = re.compile(r"'([^']*)'")
_LOST = "headrace_marks"


class ChatFault(Exception):  # noqa: N818  # a document's fault, not the program's
    """Why messages are no document."""


class Chat(NamedTuple):
    """A conversation as one text."""

    text: str
    """As the template wrote it; where a message spells a special token, one private character stands for the spelling."""
    counts: tuple[tuple[int, int], ...]
    """Characters [start, stop) of it that the assistant says, its turns' ends included."""
    spelled: Mapping[str, str]
    """The spelling that each private character stands for."""
    ends: bool
    """Whether the assistant speaks last."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """How messages become one text."""

    text: str = ""
    """Of the template, in jinja."""
    variables: tuple[tuple[str, Any], ...] = ()
    """What it is told beside the messages, such as `bos_token`."""
    special: tuple[str, ...] = ()
    """Spellings of the tokenizer's special tokens, which messages can only spell, not use."""
    date: str | None = None
    """`YYYY-MM-DD`: what `strftime_now` takes for today; a template has no such function where this is None."""

    def document(self, conversation: bytes) -> bytes:
        """What the readers deliver of a conversation; `chat_of` reads it.

        Args:
            conversation: see `conversation_text`.

        Raises:
            ChatFault: the template refuses it, writes nothing, or does not show what the assistant says.
        """
        if not conversation:
            return pair(b"", b'{"counts": [], "spelled": {}, "ends": false}')
        used = {*conversation.decode(), *self.text}
        private = _private(used)
        begin, end = next(private), next(private)
        (hidden, tools), spelled = self._hidden(json.loads(conversation), private)
        writer = _Writer(self, (begin, end), tools)
        text, counts = writer.marked(hidden) if _GENERATION.search(self.text) else writer.told_apart(hidden)
        if not text:
            raise ChatFault("the chat template writes nothing of it")
        ends = hidden[-1].get("role") == ASSISTANT
        rest = {"counts": counts, "spelled": spelled, "ends": ends}
        return pair(text.encode(), json.dumps(rest, ensure_ascii=False).encode())

    def _hidden(self, conversation: list[Any], private: Iterator[str]) -> tuple[list[Any], dict[str, str]]:
        """Messages and tools with a private character for each spelling of a special token."""
        if not self.special:
            return conversation, {}
        spelling = _spelling(self.special)
        texts = list(_strings(conversation))
        found: list[str] = [spelled for text in texts for spelled in spelling.findall(text)]
        if found != spelling.findall("".join(texts)):
            raise ChatFault("two of its strings together spell a special token")
        stands_for = dict(zip(dict.fromkeys(found), private, strict=False))
        if not stands_for:
            return conversation, {}
        hidden = _mapped(conversation, lambda text: spelling.sub(lambda found: stands_for[found[0]], text))
        return hidden, {character: text for text, character in stands_for.items()}


def chat_of(document: bytes) -> Chat:
    """What `ChatTemplate.document` has made."""
    text, rest = parts_of(document)
    found: dict[str, Any] = json.loads(rest)
    return Chat(text.decode(), tuple(map(tuple, found["counts"])), found["spelled"], found["ends"])


def check_template(template: ChatTemplate) -> None:
    """See whether a template can be read.

    Raises:
        MissingExtraError: jinja2 is not installed.
        ValueError: it is no template; the message names the line.
    """
    _compiled(template.text, template.date)


def conversation_text(
    messages: object, name: str, *, tools: object = None, tools_name: str = "", sparse: bool = False
) -> str:
    """The JSON text of a conversation, messages and tools in a list; empty where there are no messages.

    A key of a message that is null is left out, but for `content`: tables have all keys in all rows.

    Args:
        messages: what the field of that name holds.
        name: of the field.
        tools: what the field of tools holds: a list of objects, or its JSON text, as tables have it for objects of
            different keys; None for no tools.
        tools_name: of that field.
        sparse: leave out what is null deeper within, too.

    Raises:
        ChatFault: it is no list of messages, each an object with a role, or no list of tools.
    """
    kept: list[dict[str, Any]] = []
    for number, fields in enumerate(_objects(messages, name)):
        if not isinstance(fields.get("role"), str):
            raise ChatFault(f"{name}[{number}] has no role")
        message = {key: part for key, part in fields.items() if part is not None or key == "content"}
        kept.append({key: _without_nulls(part) for key, part in message.items()} if sparse else message)
    offered = _objects(_parsed(tools, tools_name), tools_name)
    if not kept:
        return ""
    texts = (_json(kept, name), _json(_without_nulls(offered) if sparse else offered, tools_name))
    return f"[{', '.join(texts)}]"


def _parsed(tools: object, name: str) -> object:
    if tools is None:
        return []
    if not isinstance(tools, str):
        return tools
    try:
        return json.loads(tools) if tools.strip() else []
    except (ValueError, RecursionError) as error:
        raise ChatFault(f"{name} is not JSON") from error


def _objects(value: object, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | tuple):
        raise ChatFault(f"{name} is not a list")
    parts = cast("Sequence[object]", value)
    for number, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise ChatFault(f"{name}[{number}] is not an object")
    return list(cast("Sequence[Mapping[str, Any]]", parts))


def _json(value: object, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatFault(f"{name} holds what JSON does not have") from error


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # whatever JSON has
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {key: _without_nulls(part) for key, part in pairs if part is not None}
    return [_without_nulls(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


def _private(used: set[str]) -> Iterator[str]:
    """Private characters that are not in use."""
    return (character for code in range(_LAST_CODE, 0xFFFF, -1) if (character := chr(code)) not in used)


@lru_cache(maxsize=4)
def _spelling(special: tuple[str, ...]) -> re.Pattern[str]:
    """Matches the longest special token at a place, as tokenizers do."""
    return re.compile("|".join(map(re.escape, sorted(special, key=lambda text: (-len(text), text)))))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in cast("dict[str, Any]", value).items():
            yield key
            yield from _strings(part)
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from _strings(part)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401  # as above
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(part, change) for key, part in cast("dict[str, Any]", value).items()}
    return [_mapped(part, change) for part in cast("list[Any]", value)] if isinstance(value, list) else value


class _Writer:
    """Writes one conversation.

    Args:
        template: how.
        marks: two characters that are nowhere in it, nor in the template.
        tools: that it is offered; empty for none.
    """

    def __init__(self, template: ChatTemplate, marks: tuple[str, str], tools: list[Any]) -> None:
        self._template = template
        self._marks = marks
        self._tools = tools

    def marked(self, messages: list[Any]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and what the template itself says is the assistant's."""
        begin, end = self._marks
        counts: list[tuple[int, int]] = []
        parts: list[str] = []
        start, length, depth = 0, 0, 0
        for part in re.split(f"([{begin}{end}])", self._write(messages)):
            if part == begin:
                start = start if depth else length
                depth += 1
            elif part == end:
                depth -= 1
                if not depth and length > start:
                    counts.append((start, length))
            else:
                parts.append(part)
                length += len(part)
        return "".join(parts), counts

    def told_apart(self, messages: list[Any]) -> tuple[str, list[tuple[int, int]]]:
        """The text, and what each message of the assistant adds to what was there before."""
        whole = self._write(messages)
        counts: list[tuple[int, int]] = []
        for number, message in enumerate(messages):
            if message.get("role") != ASSISTANT:
                continue
            before = self._write(messages[:number], asks=True)
            after = self._write(messages[: number + 1])
            if not (after.startswith(before) and whole.startswith(after)):
                raise ChatFault(
                    f"the chat template writes the messages before and with number {number + 1} in such a way that what "
                    "the assistant says cannot be told; use one with {% generation %}"
                )
            stop = self._end_of_turn(after, len(before))
            if stop > len(before):
                counts.append((len(before), stop))
        return whole, counts

    def _end_of_turn(self, text: str, start: int) -> int:
        """Where a turn ends: behind its last special token, if nothing but white space follows; else where the text does."""
        stop = start
        if self._template.special:
            for found in _spelling(self._template.special).finditer(text, start):
                stop = found.end()
        return len(text) if stop == start or text[stop:].strip() else stop

    def _write(self, messages: list[Any], *, asks: bool = False) -> str:
        template = self._template
        variables = {**dict(template.variables), "tools": self._tools or None, "documents": None, _LOST: self._marks}
        try:
            return _compiled(template.text, template.date).render(
                messages=messages, add_generation_prompt=asks, **variables
            )
        except Exception as error:  # whatever a template does
            raise ChatFault(_said(error, template)) from error


def _said(error: Exception, template: ChatTemplate) -> str:
    """What went wrong, in words that are the template's, not the document's."""
    import jinja2  # noqa: PLC0415  # an extra

    message = str(error)
    if isinstance(error, jinja2.UndefinedError):
        if "strftime_now" in message:
            return (
                "the chat template asks for the date of today, which must not decide a corpus: give one by --chat-date"
            )
        names = [name for name in _QUOTED.findall(message) if not name.endswith(" object")]
        known = all(name in template.text for name in names)
        return f"the chat template lacks something: {message}" if known else "the chat template lacks something"
    if isinstance(error, jinja2.TemplateError):
        return "the chat template refuses it" + (f": {message}" if message and message in template.text else "")
    return f"the chat template fails ({type(error).__name__})"


@lru_cache(maxsize=4)
def _compiled(text: str, date: str | None) -> Any:  # noqa: ANN401  # a jinja2.Template
    """A template in a sandbox as that of Hugging Face, but for the clock.

    Raises:
        MissingExtraError, ValueError: see `check_template`.
    """
    try:
        import jinja2  # noqa: PLC0415  # an extra
        from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415  # likewise
        from jinja2.nodes import CallBlock  # noqa: PLC0415  # likewise
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise MissingExtraError("a chat template needs jinja2: pip install 'headrace[chat]'") from error

    class Generation(Extension):
        """`{% generation %}`: what the assistant says."""

        tags = {"generation"}  # noqa: RUF012  # jinja2's way

        def parse(self, parser: Any) -> Any:  # noqa: ANN401  # jinja2 has no stubs for these
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

        @staticmethod
        @jinja2.pass_context
        def mark(context: Any, caller: Callable[[], str]) -> str:  # noqa: ANN401  # likewise
            begin, end = context[_LOST]
            return f"{begin}{caller()}{end}"

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], autoescape=False
    )
    names = cast("dict[str, Any]", environment.globals)
    environment.filters["tojson"] = _to_json
    names["raise_exception"] = _raise
    if date is not None:
        today = dt.date.fromisoformat(date)
        names["strftime_now"] = today.strftime
    try:
        return environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.message}") from error


def _raise(message: str) -> None:
    import jinja2  # noqa: PLC0415  # an extra

    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,  # noqa: ANN401  # whatever a template has
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  # as templates call it
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002  # likewise
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
