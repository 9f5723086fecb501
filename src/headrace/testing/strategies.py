"""Strategies of Hypothesis: input files, and what is in them. Needs the package `hypothesis`."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from hypothesis import strategies as st

__all__ = ["Content", "InputFile", "InputText", "JSONLines", "Noise", "contents", "input_file", "texts"]


class Noise(Enum):
    """A line that holds no text."""

    BAD = b'{"mark": ]\n'
    """No JSON."""
    BLANK = b" \r\n"
    """No document either, but no fault."""


@dataclass(frozen=True, slots=True)
class JSONLines:
    """What a file of JSON lines holds."""

    lines: tuple[Noise | tuple[str, bool], ...]
    """Texts, each with whether it is escaped to ASCII, and noise between them."""
    last_line_feed: bool
    """Whether the last line ends in one."""


Content = JSONLines | str
"""JSON lines, or a text."""


@dataclass(frozen=True, slots=True)
class InputText:
    """A text and where it lies in its file."""

    text: str
    line: int
    """From 1."""
    byte: int
    """Where its line begins, or its text if the file is one."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of documents."""

    suffix: Literal["jsonl", "txt"]
    data: bytes
    texts: tuple[InputText, ...]
    """In order, empty ones included."""
    bad: int
    """Lines that are no documents."""


def texts(longest: int = 200) -> st.SearchStrategy[str]:
    """Texts: any that UTF-8 can encode, and often empty ones, long ones and those that end where a line or a file may.

    Args:
        longest: characters of the long ones.
    """
    awkward = st.sampled_from(["", "", "\r\n", "\x00", "aé\U0001f30a" * 4])
    return st.text(st.characters(codec="utf-8"), max_size=12) | awkward | st.integers(20, longest).map(_long)


def _long(length: int) -> str:
    return "x" * length


def contents(most_lines: int = 6) -> st.SearchStrategy[Content]:
    """What input files hold; `input_file` makes files of it."""
    text = st.tuples(texts(), st.booleans())
    lines = st.lists(text | text | text | st.sampled_from(Noise), max_size=most_lines)
    return st.builds(JSONLines, lines.map(tuple), st.booleans()) | texts()


def input_file(content: Content, mark: str = "") -> InputFile:
    """Make a file.

    Args:
        content: what it holds.
        mark: letters that make files of equal content differ (empty ones, and those of blank lines alone, do not): JSON
            lines have it in a field of its own, a text ends in it.
    """
    if isinstance(content, str):
        text = content and content + mark
        marked = text.startswith("\ufeff")  # the byte order mark is no text, but it counts as bytes
        return InputFile("txt", text.encode(), (InputText(text[marked:], 1, 3 * marked),), 0)
    data = b""
    found: list[InputText] = []
    for number, line in enumerate(content.lines, 1):
        if isinstance(line, Noise):
            data += line.value.replace(b"mark", mark.encode())
        else:
            text, ascii_only = line
            found.append(InputText(text, number, len(data)))
            data += json.dumps({"mark": mark, "text": text}, ensure_ascii=ascii_only).encode() + b"\n"
    return InputFile(
        "jsonl",
        data if content.last_line_feed else data.removesuffix(b"\n"),
        tuple(found),
        content.lines.count(Noise.BAD),
    )
