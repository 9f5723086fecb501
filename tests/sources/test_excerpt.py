"""Excerpts of bad lines: shown on request only, short, printable, and of the right place."""

import bz2
import gzip
import lzma
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings

from headrace.sources import SourceFile
from headrace.sources.excerpt import EXCERPT_CHARACTERS, excerpts

Maker = Callable[..., SourceFile]


@pytest.mark.parametrize(
    ("data", "place", "shown"),
    [
        (b"one\ntwo\nthree\n", 4, "two"),
        (b"one\ntwo\nthree\n", 6, "two"),
        (b"one\ntwo\nthree\n", 7, "two"),
        (b"one\r\ntwo\r\n", 7, "two"),
        (b"one", 0, "one"),
        (b"one\n{", 5, "{"),
        (b'{"text": "a\xff\xc3b\x00\x1b[31m\t"}\n', 11, r'{"text": "a\xff\xc3b\x00\x1b[31m\x09"}'),
        ("a\u202e\u200b\x85 \u2028é日".encode(), 0, r"a\u202e\u200b\x85 \u2028é日"),
        (b"x" * 500, 0, "x" * 160 + "..."),
        (b"x" * 500, 300, "..." + "x" * 160 + "..."),
        (b"x" * 500, 499, "..." + "x" * 41),
        ("日".encode() * 300, 300, "..." + "日" * 160 + "..."),
        (b"a\n" + b"x" * 39 + b"!" * 20, 41, "x" * 39 + "!" * 20),
    ],
)
def test_what_is_shown(make_file: Maker, data: bytes, place: int, shown: str) -> None:
    """The line around the byte, cut to a length, dots where it was cut; nothing in it moves the terminal's cursor."""
    assert excerpts(make_file(data), [place]) == {place: shown}


@settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=st.binary(max_size=3000),
    places=st.lists(st.integers(0, 3100), max_size=8),
    compress=st.sampled_from([None, gzip.compress, zstandard.compress, bz2.compress, lzma.compress]),
)
def test_any_places(
    make_file: Maker, data: bytes, places: list[int], compress: Callable[[bytes], bytes] | None
) -> None:
    """Any places of any file, in one pass: what is shown is printable, short, and lies around the place."""
    names = {gzip.compress: "gzip", zstandard.compress: "zstd", bz2.compress: "bz2", lzma.compress: "xz"}
    file = make_file(compress(data) if compress else data, compression=compress and names[compress])
    found = excerpts(file, places)
    assert {place for place in places if place < len(data)} <= found.keys() <= set(places)
    for place, text in found.items():
        assert text.isprintable()
        assert len(text) <= EXCERPT_CHARACTERS + 6
        if place < len(data) and chr(data[place]).isprintable() and data[place] < 0x80:
            assert chr(data[place]) in text


def test_a_place_far_into_a_file(make_file: Maker) -> None:
    """A compressed file is read up to the place, in pieces."""
    line = b"x" * 99 + b"\n"
    file = make_file(gzip.compress(line * 50_000 + b"here\n" + line * 10), compression="gzip")
    assert excerpts(file, [5_000_000, 0]) == {0: "x" * 99, 5_000_000: "here"}


def test_a_file_that_is_damaged_or_gone(make_file: Maker) -> None:
    """What can be read is shown; no error hides the report."""
    whole = bytes(range(200)) * 5000
    cut = make_file(gzip.compress(b"first\n" + whole)[:-30], compression="gzip")
    assert excerpts(cut, [0, 999_999, 10**9])[0] == "first"
    cut.path.unlink()
    assert excerpts(cut, [0]) == {}
