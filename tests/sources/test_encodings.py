"""Files that are not UTF-8: recognized as what they are, never kept as noise in silence."""
# ruff: noqa: RUF001 -- the letters that look like others are the point

import json
from collections.abc import Callable

import pytest

from headrace.sources import SourceFile
from headrace.sources.jsonl import read_jsonl
from headrace.sources.text import read_text
from headrace.sources.utf8 import unmarked_wide_encoding

Maker = Callable[..., SourceFile]

TEXTS = {
    "English": "All human beings are born free and equal in dignity and rights. They are endowed with reason.\n" * 3,
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.\n" * 3,
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.\n" * 3,
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا.\n" * 3,
    "Thai": "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์ และสิทธิ ต่างมีเหตุผลและมโนธรรม\n" * 3,
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।\n" * 3,
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。\n" * 3,
}
WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
NARROW = {
    "English": [],
    "Russian": ["cp1251", "koi8-r", "cp866"],
    "Greek": ["cp1253", "iso8859-7"],
    "Thai": ["tis-620"],
    "Japanese": ["shift-jis", "euc-jp", "gb18030"],
}


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("language", TEXTS)
def test_wide_text_without_a_mark(make_file: Maker, language: str, encoding: str) -> None:
    """UTF-16 and UTF-32 text is never kept, also where its bytes happen to be valid UTF-8, nor under `replace`."""
    file = make_file(TEXTS[language].encode(encoding), "a.txt", "text")
    (batch,) = read_text([file])
    (drop,) = batch.drops
    name = encoding[:6].upper()
    assert not batch.texts
    assert str(drop) == f"a.txt: byte 0: invalid UTF-8 (the file looks like {name})" or (
        language == "Japanese" and drop.reason == "invalid UTF-8"
    )
    (batch,) = read_text([file], on_bad_input="replace")
    assert not batch.texts or language == "Japanese"


@pytest.mark.parametrize("language", TEXTS)
def test_utf8_text_is_never_taken_for_another_encoding(make_file: Maker, language: str) -> None:
    """Text in UTF-8 is kept, control characters and NULs in it or not."""
    for text in (
        TEXTS[language],
        TEXTS[language] + "\0",
        "\0" * 20 + TEXTS[language],
        "\0" * 40,
        "\x01\x02\0" * 30,
        "a\0b",
    ):
        (batch,) = read_text([make_file(text.encode(), "a.txt", "text")])
        assert batch.texts == [text.encode()]


@pytest.mark.parametrize("encoding", [name for names in NARROW.values() for name in names])
def test_narrow_encodings(make_file: Maker, encoding: str) -> None:
    """Text in an encoding of one or two bytes a letter is invalid UTF-8, told with the first wrong byte."""
    language = next(language for language, names in NARROW.items() if encoding in names)
    data = b"ok " + TEXTS[language].encode(encoding, "ignore")
    (batch,) = read_text([make_file(data, "a.txt", "text")])
    with pytest.raises(UnicodeDecodeError) as first:
        data.decode()
    assert [(drop.byte, drop.reason) for drop in batch.drops] == [(first.value.start, "invalid UTF-8")]


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("language", ["English", "Russian", "Thai"])
def test_wide_json_lines_without_a_mark(make_file: Maker, language: str, encoding: str) -> None:
    """Each line is a drop of its own, and the reason says what the file looks like."""
    text = "".join(json.dumps({"text": TEXTS[language]}, ensure_ascii=False) + "\n" for _ in range(3))
    file = make_file(text.encode(encoding))
    for mode in ("skip", "replace"):
        batches = list(read_jsonl(file, on_bad_input=mode))
        drops = [drop for batch in batches for drop in batch.drops]
        assert not any(batch.texts for batch in batches)
        assert [drop.row for drop in drops][:3] == [0, 1, 2]
        assert {drop.reason for drop in drops[:3]} == {f"not JSON (it looks like {encoding[:6].upper()})"}


def test_too_little_to_tell() -> None:
    """A few bytes say nothing; neither do bytes that follow no pattern."""
    assert unmarked_wide_encoding(b"") is None
    assert unmarked_wide_encoding(b"a\0b\0c\0") is None
    assert unmarked_wide_encoding(bytes(range(256)) * 16) is None
    assert unmarked_wide_encoding(bytes(5000)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xc0\xaf",  # overlong
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xed\xa0\x80",  # a surrogate
        b"\xed\xa0\xbd\xed\xb8\x80",  # CESU-8: a pair of them
        b"\xf4\x90\x80\x80",  # above U+10FFFF
        b"\xf5\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfe",
        b"\x80",  # no start
        b"\xc3",  # no end
        b"\xe6\x97",
        b"\xf0\x9f\x98",
    ],
)
@pytest.mark.parametrize("at_the_end", [True, False])
def test_invalid_sequences(make_file: Maker, data: bytes, at_the_end: bool) -> None:
    """Overlong forms, surrogates, code points that are none and cut characters are faults in either kind of file."""
    rest = b"" if at_the_end else b'"}\n{"text": "fine"}\n'
    (batch,) = read_jsonl(make_file(b'{"text": "ok"}\n{"text": "' + data + rest))
    assert batch.texts == [b"ok"] + [b"fine"] * (not at_the_end)
    assert [(drop.row, drop.byte, drop.reason) for drop in batch.drops] == [(1, 25, "invalid UTF-8")]
    (batch,) = read_text([make_file(b"text" + data + rest, "a.txt", "text")])
    assert [(drop.row, drop.byte, drop.reason) for drop in batch.drops] == [(-1, 4, "invalid UTF-8")]
