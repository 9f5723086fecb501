"""The fast reader against a slow one that knows nothing but Python's `json`."""

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings

from headrace.sources.documents import DocumentBatch
from headrace.sources.files import SourceFile
from headrace.sources.jsonl import read_jsonl
from headrace.sources.lines import LineParser

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    database=None,  # nothing is written into the source tree
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BLOCKS = st.sampled_from([1, 2, 3, 7, 16, 61, 1000, 262144])
COMPRESSIONS = {
    None: bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@dataclass
class Outcome:
    """What came out of a file."""

    texts: list[bytes] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    dropped_rows: list[int] = field(default_factory=list)


def reference(data: bytes, path: Sequence[str] = ("text",)) -> Outcome:
    """Read as slowly and plainly as can be."""
    outcome = Outcome()
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    for row, line in enumerate(data[start:].split(b"\n")):
        if line.strip():
            try:
                value = json.loads(line.decode(), parse_int=float)
                for key in path:
                    value = value[key] if isinstance(value, dict) else None
                text = value.encode()
            except (ValueError, KeyError, AttributeError, RecursionError):
                text = b""
            if text:
                outcome.texts.append(text)
                outcome.rows.append(row)
                outcome.offsets.append(start)
            else:
                outcome.dropped_rows.append(row)
        start += len(line) + 1
    return outcome


def outcome_of(batches: list[DocumentBatch]) -> Outcome:
    """Put batches together."""
    return Outcome(
        [text for batch in batches for text in batch.texts],
        [row for batch in batches for row in batch.rows.tolist()],
        [offset for batch in batches for offset in batch.offsets.tolist()],
        [drop.row for batch in batches for drop in batch.drops],
    )


def check(make: Callable[..., SourceFile], data: bytes, block_bytes: int, compression: str | None, path: str) -> None:
    """Compare both readers."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = b"." + data  # a whole-file fault, tested elsewhere
    file = make(COMPRESSIONS[compression](data) if compression else data, compression=compression)
    batches = list(read_jsonl(file, text_field=path, block_bytes=block_bytes, batch_bytes=4 * block_bytes))
    assert outcome_of(batches) == reference(data, path.split("."))
    assert sum(batch.consumed for batch in batches) == file.size


KEYS = st.sampled_from(["text", "id", "a", "b", "é", "text ", "te\u0301xt", ""]) | st.text(max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from(["{", "}", "}\n{", '"', "\\", '\\"', '{"text": "no"}', "\u2028", "\x85", "\r\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.text(max_size=20) | st.text(st.characters(codec=None), max_size=20) | VALUES


@st.composite
def good_lines(draw: st.DrawFn) -> bytes:
    """A line that is JSON, mostly with a text in it."""
    text = draw(TEXTS)
    record = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    items = [*record.items(), ("text", text), ("a", {"b": text})]
    rounds = draw(st.permutations(items)) if draw(st.booleans()) else items
    ascii_only = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r")]))

    def dumped(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, separators=separators)

    # Written pair by pair, so that keys may occur twice.
    body = separators[0].join(dumped(key) + separators[1] + dumped(value) for key, value in rounds)
    return ("{" + body + "}").encode(errors="surrogatepass")


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file of lines, some of them odd; half of the files have none of those."""
    odd = st.sampled_from(
        [b"", b" ", b"\r", b"\x0b", b"\x0c\x1c", b"{}", b"[]", b"null", b"{", b"}", b"]", b'{"text": "a"}{"text": "b"}']
    )
    clean = draw(st.booleans())
    lines = draw(st.lists(good_lines() if clean else good_lines() | odd, max_size=6))
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
    data = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + end.join(lines)
    return data + (end if draw(st.booleans()) else b"")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with a few bytes cut, doubled, or overwritten, most often by what means something in JSON."""
    data = bytearray(draw(files()))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 12)))
        action = draw(st.sampled_from(["cut", "double", "put"]))
        if action == "put":
            data[start:stop] = draw(
                st.sampled_from(list(b'{}[]",:\\\n\r \x00\xff\xc3\x80u0e-')).map(lambda b: bytes([b]))
            )
        else:
            data[start:stop] = b"" if action == "cut" else data[start:stop] * 2
    return bytes(data)


@SETTINGS
@given(data=files(), block_bytes=BLOCKS, path=st.sampled_from(["text", "a.b"]))
def test_valid_files(make_file: Callable[..., SourceFile], data: bytes, block_bytes: int, path: str) -> None:
    """Texts, rows, byte offsets and dropped rows are those of the slow reader, for any block size."""
    check(make_file, data, block_bytes, None, path)


@settings(SETTINGS, max_examples=250)
@given(data=mutated(), block_bytes=BLOCKS, path=st.sampled_from(["text", "a.b"]))
@example(data=b'{"text":"a"}{"text":"b"}\n{"text":"c","x":[1\n}', block_bytes=1000, path="text")
@example(data=b'{"text":"a","x":{"y":1}\n{"z":2}\n}{"text":"b"}\n', block_bytes=1000, path="text")
@example(data=b'{"text":"a","x":{"y":1}\n,"z":2}\n{"text":"b"}{"text":"c"}\n', block_bytes=1000, path="text")
@example(data=b'{"text":"a","x":\n{"y":1}}\n{"text":"b"}{"text":"c"}\n', block_bytes=1000, path="text")
@example(data=b'{"text":"a"},{"text":"b"}\n{"text":"c"}\n', block_bytes=1000, path="text")
@example(data=b'{"text":"a","x":"}\n{"}\n{"text":"b"}{"text":"c"}\n', block_bytes=1000, path="text")
@example(data=b'\n{"text":"a"}\n}', block_bytes=1000, path="text")
@example(data=b"\xef\xbb\xbf", block_bytes=1, path="text")
@example(data=b'\xef\xbb\xbf\xef\xbb\xbf{"text":"a"}', block_bytes=1, path="text")
@example(data=b'\xef\xbb{"text":"a"}', block_bytes=1, path="text")
def test_damaged_files(make_file: Callable[..., SourceFile], data: bytes, block_bytes: int, path: str) -> None:
    """The same holds for files that are not quite right."""
    check(make_file, data, block_bytes, None, path)


@SETTINGS
@given(data=st.binary(max_size=200), block_bytes=BLOCKS)
def test_arbitrary_bytes(make_file: Callable[..., SourceFile], data: bytes, block_bytes: int) -> None:
    """The same holds for bytes that mean nothing, and none of them raises."""
    check(make_file, data, block_bytes, None, "text")


@settings(SETTINGS, max_examples=40)
@given(data=mutated() | files(), block_bytes=BLOCKS, compression=st.sampled_from(["gzip", "zstd", "bz2", "xz"]))
def test_compressed_files(
    make_file: Callable[..., SourceFile], data: bytes, block_bytes: int, compression: str
) -> None:
    """The same holds through every compression; offsets are those of the decompressed stream."""
    check(make_file, data, block_bytes, compression, "text")


def test_many_blocks(make_file: Callable[..., SourceFile]) -> None:
    """The same holds for a file of many blocks with long lines, a fault in some of them, and all kinds of line ends."""
    lines = []
    for number in range(4000):
        text = f"{number} é " * (1 + 30_000 * (number % 1000 == 7))
        lines.append(json.dumps({"id": number, "text": text}, ensure_ascii=number % 3 == 0).encode())
        lines += [b" \r"] * (number % 211 == 0) + [b'{"text": 1}'] * (number % 307 == 0)
    data = b"\n".join(lines)
    for compression in (None, "zstd", "gzip"):
        check(make_file, data, 262144, compression, "text")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_clean_files_take_the_fast_path(
    make_file: Callable[..., SourceFile], monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    """Lines without fault are never parsed by Python's parser, and not one by one; else the speed is gone unnoticed."""

    def refuse(*_: object) -> None:
        raise AssertionError("a clean line was parsed alone")

    monkeypatch.setattr(LineParser, "parse", refuse)
    monkeypatch.setattr("headrace.sources.jsonl._BlockReader._line_text", refuse)
    lines = [json.dumps({"id": n, "text": f"text é {n}"}, ensure_ascii=False).encode() for n in range(50)]
    (batch,) = read_jsonl(make_file(end.join(lines) + end))
    assert len(batch.texts) == 50


@pytest.mark.parametrize("field_name", ['a"b', "a\\b", "a\nb"])
def test_fields_with_odd_names(make_file: Callable[..., SourceFile], field_name: str) -> None:
    """A field may have any name, also one that the fast parser cannot search for."""
    (batch,) = read_jsonl(make_file(json.dumps({field_name: "x"}).encode()), text_field=field_name)
    assert batch.texts == [b"x"]


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"])
def test_other_unicode_encodings(make_file: Callable[..., SourceFile], mark: bytes) -> None:
    """A file in UTF-16 or UTF-32 is one report that says so, not one a line."""
    name = "UTF-32" if len(mark) == 4 else "UTF-16"
    file = make_file(mark + '{"text": "a"}\n{"text": "b"}\n'.encode("utf-16-le"))
    batches = list(read_jsonl(file, on_bad_input="replace", block_bytes=1))
    assert sum(batch.consumed for batch in batches) == file.size
    assert not any(batch.texts for batch in batches)
    assert [str(drop) for batch in batches for drop in batch.drops] == [
        f"a.jsonl: byte 0: invalid UTF-8 (the file is {name})"
    ]


def test_replaced_documents_are_counted(make_file: Callable[..., SourceFile]) -> None:
    """`replace` keeps what `skip` drops, and counts it; `error` reports like `skip` and leaves it to the caller."""
    file = make_file(b'{"text": "\xff"}\n{"text": "a"}\n{"text": "\\ud800"}\n{"text": 1}\n')
    (kept,) = read_jsonl(file, on_bad_input="replace")
    assert (kept.texts, kept.replaced, len(kept.drops)) == (["\ufffd".encode(), b"a", "\ufffd".encode()], 2, 1)
    for mode in ("error", "skip"):
        (dropped,) = read_jsonl(file, on_bad_input=mode)
        assert (dropped.texts, dropped.replaced, len(dropped.drops)) == ([b"a"], 0, 3)


def test_batches_are_cut_by_size(make_file: Callable[..., SourceFile]) -> None:
    """Batches hold whole documents, at least one block and about the bytes asked for; empty texts can be kept."""
    data = b"".join(b'{"text": "%d"}\n' % number for number in range(1000)) + b'{"text": ""}\n'
    file = make_file(data)
    batches = list(read_jsonl(file, keep_empty=True, file_index=7, block_bytes=100, batch_bytes=1000))
    assert [len(batch.files) for batch in batches] == [len(batch.texts) for batch in batches]
    assert {value for batch in batches for value in batch.files.tolist()} == {7}
    assert len(batches) == pytest.approx(len(data) / 1000, rel=0.2)
    assert [text for batch in batches for text in batch.texts] == [*(b"%d" % n for n in range(1000)), b""]
    assert {str(batches[0].rows.dtype), str(batches[0].offsets.dtype)} == {"uint64"}


def test_faults_are_delivered_at_once(make_file: Callable[..., SourceFile]) -> None:
    """Near the start of a file a batch ends with the block that has a fault in it, so that nobody reads on in vain."""
    good, bad = b'{"text": "good"}\n', b'{"body": "bad"}\n'
    batches = read_jsonl(make_file(bad * 500_000))
    first = next(batches)
    assert len(first.drops) > 1000
    assert first.consumed <= 64 * 1024
    assert next(batches).consumed <= 128 * 1024
    batches = read_jsonl(make_file(good * 30_000 + bad + good * 500_000))
    assert next(batches).consumed < 1_000_000
    assert next(batches).consumed > 4_000_000
    batches = read_jsonl(make_file(good * 30_000 + b'{"text": "\xff"}\n' + good * 500_000), on_bad_input="replace")
    assert (batch := next(batches)).consumed < 1_000_000
    assert batch.replaced == 1


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b'{"text":""}\n', b"\xff\n"])
def test_nothing_but_faults(make_file: Callable[..., SourceFile], line: bytes) -> None:
    """However many bad lines there are, only about a thousand reports are held at a time, and none is lost."""
    count = 100_000 // len(line)
    file = make_file(line * count)
    batches = list(read_jsonl(file, on_bad_input="skip", block_bytes=1024, batch_bytes=10**6))
    assert sum(len(batch.drops) for batch in batches) == count
    batches = list(read_jsonl(file, on_bad_input="skip", block_bytes=1024, batch_bytes=10_000))
    assert sum(len(batch.drops) for batch in batches) == count
    assert max(len(batch.drops) for batch in batches) <= 1000 + 1024 // len(line)
    assert len(batches) <= 10 + 10 + count // 700


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("character", ["x", "é\n", "\U0001f600 abc\n"])
def test_memory_for_one_long_line(make_file: Callable[..., SourceFile], character: str, good: bool) -> None:
    """One long document takes at most 12 times its size, beside a bad line too."""
    text = character * (4_000_000 // len(character.encode()))
    line = json.dumps({"text": text}, ensure_ascii=False).encode()
    file = make_file(line + b"\n" + (b"" if good else b"{}\n"))
    del line
    tracemalloc.start()
    (batch,) = read_jsonl(file, block_bytes=file.size)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(batch.texts[0]) == len(text.encode())
    assert peak <= 12 * len(batch.texts[0])


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize(
    "end", [b'"', b'"}x', b'\xff"}', b'\\ud800"}', b'\0"}', b'", "x": NaN}', b'", "x": ' + b"[" * 9999]
)
@pytest.mark.parametrize("character", ["x", "\u00e9", "\U0001f600"])
def test_memory_for_one_long_bad_line(
    make_file: Callable[..., SourceFile], character: str, end: bytes, mode: str
) -> None:
    """The same bound holds where the fault is at the end of the line, whatever it is."""
    line = b'{"text": "' + character.encode() * (1_000_000 // len(character.encode())) + end
    file = make_file(line)
    tracemalloc.start()
    (batch,) = read_jsonl(file, on_bad_input=mode)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(batch.texts) + len(batch.drops) == 1
    assert peak <= 12 * len(line) + 2**19
