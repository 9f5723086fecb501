"""One line, one document or one reason."""

import pytest

from headrace.sources.documents import BadInput
from headrace.sources.field import split_field
from headrace.sources.lines import LineFault, LineParser


def parse(line: bytes, field: str = "text", mode: BadInput = BadInput.SKIP, *, keep_empty: bool = False):
    """Parse one line."""
    return LineParser(field, mode, keep_empty=keep_empty).parse(line)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text": "a"}', b"a"),
        (b' \t{"text": "a"} \r', b"a"),
        (b'{"x": NaN, "y": [-Infinity, Infinity], "text": "a"}', b"a"),
        (b'{"text": "a", "text": "b"}', b"b"),
        (b'{"text": 1, "text": "b"}', b"b"),
        (rb'{"te\u0078t": "a"}', b"a"),
        (rb'{"text": "\ud83d\ude00"}', "\U0001f600".encode()),
        (rb'{"text": "a", "x": "\ud800", "\udfff": 1}', b"a"),
        (b'{"text": "a", "n": ' + b"1" * 5000 + b"}", b"a"),
        (b'{"text": "a", "n": ' + b"[" * 300 + b"]" * 300 + b"}", b"a"),
        (b'{"text": "\x7f"}', b"\x7f"),
    ],
)
def test_kept(line: bytes, text: bytes) -> None:
    """A line is kept where Python's parser finds a text in it that can be written as UTF-8."""
    assert parse(line) == (text, False)


@pytest.mark.parametrize(
    ("line", "reason", "byte"),
    [
        (b'{"text": "a\xff"}', "invalid UTF-8", 11),
        (b'{"text": "a", "x": "\xc3("}', "invalid UTF-8", 20),
        (b'{"text": "a", "\xed\xa0\x80": 1}', "invalid UTF-8", 15),
        (rb'{"text": "\ud800"}', "lone surrogate", 0),
        (rb'{"text": "\ude00\ud83d"}', "lone surrogate", 0),
        (b'{"body": "a"}', "no field text", 0),
        (b'{"text": null}', "text is null", 0),
        (b'{"text": 1}', "text is not a string", 0),
        (b'{"text": 1e999}', "text is not a string", 0),
        (b'{"text": ["a"]}', "text is not a string", 0),
        (b'{"text": "a", "text": 1}', "text is not a string", 0),
        (b'{"text": NaN}', "not JSON (NaN or Infinity in text)", 0),
        (b'{"text": -Infinity}', "not JSON (NaN or Infinity in text)", 0),
        (b'{"text": ""}', "empty", 0),
        (b'"text"', "not an object", 0),
        (b'["text"]', "not an object", 0),
        (b"null", "not an object", 0),
        (b'{"text": "a"}{"text": "b"}', "extra data", 13),
        (b'{"text": "a"} x', "extra data", 14),
        (b'{"text": "a",}', "not JSON", 13),
        ('{"é": 1, "text": a}'.encode(), "not JSON", 18),
        (b'{"text": "a\x01"}', "not JSON", 11),
        (b'{"text": "a\x00b"}', "not JSON", 11),
        (b"\0" * 50, "not JSON", 0),
        ('{"text": "a"}'.encode("utf-16-le"), "not JSON (it looks like UTF-16)", 1),
        (b"[2026-01-01] started", "not JSON", 5),
        (b"{'text': 'a'}", "not JSON", 1),
        (b'{"text": "a"} // a comment', "extra data", 14),
        (b'\x1e{"text": "a"}', "not JSON", 0),
        ('\u00a0{"text": "a"}'.encode(), "not JSON", 0),
        (rb'{"text": "\x"}', "not JSON", 10),
        (rb'{"text": "\u12"}', "not JSON", 11),
        (b'{"text": 01}', "not JSON", 10),
        (b'\xef\xbb\xbf{"text": "a"}', "not JSON", 0),
        (b'{"text": "a", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON (nested too deeply)", 0),
    ],
)
def test_dropped(line: bytes, reason: str, byte: int) -> None:
    """Every other line has a reason and, where the fault has a place, its byte."""
    assert parse(line) == (LineFault(reason, byte), False)


@pytest.mark.parametrize(
    "line",
    [
        rb'{"id": -1.5e-7, "ok": [true, false, null], "n": 0.25, "text": "a \u12ab \" \\ b", "x": {"y": [1, "z"]}}',
        '{"é": "日本", "text": "ü"}'.encode(),
    ],
)
def test_a_line_cut_anywhere(line: bytes) -> None:
    """A line that ends too soon says so, wherever it was cut; inside a character it is invalid UTF-8."""
    for cut in range(1, len(line)):
        fault = parse(line[:cut])[0]
        assert isinstance(fault, LineFault)
        try:
            line[:cut].decode()
        except UnicodeDecodeError:
            assert fault.reason == "invalid UTF-8"
        else:
            assert fault.reason == "not JSON, ends early", line[:cut]


def test_dotted_field() -> None:
    """A dotted name goes down into objects, and is told whole where it leads nowhere."""
    assert parse(b'{"a": {"b": "x"}, "a.b": "y"}', "a.b") == (b"x", False)
    for line in (b'{"a.b": "y"}', b'{"a": {}}', b'{"a": "b"}', b'{"a": null}', b'{"a": [{"b": "x"}]}'):
        assert parse(line, "a.b")[0] == LineFault("no field a.b")
    assert parse(b'{"a": {"b": null}}', "a.b")[0] == LineFault("a.b is null")


def at_depth(calls: int, line: bytes):
    """Parse a line that many calls further down."""
    return at_depth(calls - 1, line) if calls else parse(line)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_does_not_depend_on_the_caller(opening: bytes) -> None:
    """A line that is nested deeply is kept or not whatever calls lie above, which differ between a worker and a script."""
    closing = b"]" if opening == b"[" else b"}"
    outcomes = []
    for depth in range(880, 1020, 4):
        line = b'{"text": "a", "n": ' + opening * depth + b"1" + closing * depth + b"}"
        outcomes.append(parse(line))
        assert all(at_depth(calls, line) == outcomes[-1] for calls in (0, 1, 40, 300, 700))
    assert outcomes[0] == (b"a", False)
    assert outcomes[-1] == (LineFault("not JSON (nested too deeply)"), False)


def test_empty_field_name() -> None:
    """A field without a name is refused before any reading."""
    with pytest.raises(ValueError, match="name of the field"):
        split_field("")


def test_keep_empty() -> None:
    """Empty texts are documents where they are kept; a missing one still is none."""
    assert parse(b'{"text": ""}', keep_empty=True) == (b"", False)
    assert parse(b"{}", keep_empty=True)[0] == LineFault("no field text")


@pytest.mark.parametrize(
    ("line", "text", "replaced"),
    [
        (b'{"text": "a\xff\xfeb"}', "a\ufffd\ufffdb", True),
        (b'{"text": "a\xe6\x97b"}', "a\ufffdb", True),
        (rb'{"text": "\ud800x\ude00\ud83d"}', "\ufffdx\ufffd\ufffd", True),
        (b'{"text": "\xef\xbf\xbd", "x": "\xff"}', "\ufffd", False),
        (b'{"text": "a", "\xff": 1}', "a", False),
        (rb'{"text": "\ufffd"}', "\ufffd", False),
    ],
)
def test_replace(line: bytes, text: str, replaced: bool) -> None:
    """Under `replace`, each invalid sequence and lone surrogate of the text is U+FFFD; only such texts are counted."""
    assert parse(line, mode=BadInput.REPLACE) == (text.encode(), replaced)


def test_replace_does_not_hide_other_faults() -> None:
    """Replacing bytes makes no JSON of what is none; the byte of the fault is that of the file."""
    assert parse(b'{"x": "\xff\xff", }', mode=BadInput.REPLACE) == (LineFault("not JSON", 12), False)
