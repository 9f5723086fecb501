"""Builds of random good and bad lines against a slow reader that knows nothing but Python's `json`."""

import bz2
import gzip
import json
import lzma
import re
from pathlib import Path

import h5py
import hypothesis.strategies as st
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings

import headrace
from headrace.building.faults import BadDocumentsError
from headrace.errors import BuildError
from headrace.events import BuildFinished, Notice
from headrace.sources.jsonl import read_jsonl

COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
NOT_FINITE = object()


class Slow:
    """What becomes of each line of a file."""

    def __init__(self, data: bytes, mode: str) -> None:
        self.texts: list[bytes] = []
        self.places: list[tuple[int, int]] = []
        """Line, from 0, and byte of each document kept."""
        self.drops: list[tuple[int, str]] = []
        """Line, from 1, and how the reason begins."""
        self.replaced = 0
        byte = 3 if data.startswith(b"\xef\xbb\xbf") else 0
        for row, line in enumerate(data[byte:].split(b"\n")):
            if line.strip():
                found, replaced = self._text(line, mode)
                if isinstance(found, bytes):
                    self.texts.append(found)
                    self.places.append((row, byte))
                    self.replaced += replaced
                else:
                    self.drops.append((row + 1, found))
            byte += len(line) + 1

    def _text(self, line: bytes, mode: str) -> tuple[bytes | str, bool]:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            if mode != "replace":
                return "invalid UTF-8", False
            exact = self._found(line.decode(errors="surrogateescape"))
            text = line.decode(errors="replace" if re.search("[\udc80-\udcff]", exact[0]) else "surrogateescape")
        found, reason = self._found(text)
        if reason:
            return reason, False
        clean = re.sub("[\ud800-\udfff]", "\ufffd", found)
        if clean != found and mode != "replace":
            return "lone surrogate", False
        return clean.encode(), clean != found or (text != line.decode(errors="surrogateescape"))

    def _found(self, line: str) -> tuple[str, str]:
        """The text, or an empty one and the reason."""
        try:
            row = json.loads(line, parse_int=float, parse_constant=lambda _: NOT_FINITE)
        except json.JSONDecodeError as error:
            return "", "extra data" if error.msg == "Extra data" else "not JSON"
        except RecursionError:
            return "", "not JSON (nested too deeply)"
        if not isinstance(row, dict) or "text" not in row:
            return "", "no field text" if isinstance(row, dict) else "not an object"
        value = row["text"]
        if isinstance(value, str):
            return value, "" if value else "empty"
        return (
            "",
            "text is null" if value is None else "not JSON (NaN" if value is NOT_FINITE else "text is not a string",
        )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """A line that is JSON, mostly a document."""
    row = draw(st.dictionaries(st.sampled_from(["id", "a", "x"]), VALUES, max_size=2))
    row["text"] = draw(st.text(max_size=12) | st.text(st.characters(codec=None), max_size=6) | VALUES)
    return json.dumps(row, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@st.composite
def broken_lines(draw: st.DrawFn) -> bytes:
    """A line with a byte cut, put in or changed, or one that is wrong from the start."""
    line = bytearray(draw(json_lines()))
    place = draw(st.integers(0, len(line)))
    line[place : place + draw(st.integers(0, 3))] = draw(
        st.sampled_from(
            [b"", b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b'"', b"}", b"{", b",", b"\\", b"\\ud800", b"\0", b"\r"]
        )
    )
    return bytes(line).replace(b"\n", b"")


ODD = st.sampled_from(
    [
        *(
            b"",
            b" ",
            b"\r",
            b"{}",
            b"[]",
            b"null",
            b"7",
            b"no JSON",
            b'{"text": NaN}',
            b'{"text": ""}',
            b'{"text": "a"',
        ),
        *(
            b'{"text": "a"}{"text": "b"}',
            b'{"text": "a", "text": 1}',
            b"[" * 5000,
            "{}".encode("utf-16-le"),
            b"\xff" * 9,
        ),
    ]
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file of good, odd and broken lines."""
    lines = draw(st.lists(json_lines() | json_lines() | ODD | broken_lines(), max_size=10))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + end.join(lines) + draw(st.sampled_from([b"", end]))


def stored(corpus: Path) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The texts, out of byte tokens, and where each comes from."""
    with headrace.open(corpus, verify="full") as opened:
        texts = [(document[:-1] - 1).astype(np.uint8).tobytes() for document in opened.documents]
    (shard,) = corpus.glob("*.h5")
    with h5py.File(shard) as file:
        rows, offsets = file["documents/source_row"][:], file["documents/source_byte"][:]
    return texts, list(zip(rows.tolist(), offsets.tolist(), strict=True))


def begins(found: list[tuple[int, str]], wanted: list[tuple[int, str]]) -> bool:
    """Whether lines are equal, and each reason begins as wanted."""
    return [line for line, _ in found] == [line for line, _ in wanted] and all(
        reason.startswith(start) for (_, reason), (_, start) in zip(found, wanted, strict=True)
    )


@settings(
    max_examples=120,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=files(),
    mode=st.sampled_from(["error", "skip", "replace"]),
    suffix=st.sampled_from(["", "", *COMPRESSIONS]),
    block_bytes=st.sampled_from([5, 64, 1000, 262144]),
)
def test_builds_do_what_a_slow_reader_does(tmp_path_factory, data, mode, suffix, block_bytes):
    """Kept texts, their lines and bytes, what is dropped and why, what is replaced, and all bad lines of an error."""
    slow = Slow(data, mode)
    if data.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"[") or data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = b"7\n" + data  # an array, or another encoding, as a whole: tested elsewhere
        slow = Slow(data, mode)
    folder = tmp_path_factory.mktemp("oracle")
    source, output = folder / f"a.jsonl{suffix}", folder / "c"
    source.write_bytes(COMPRESSIONS[suffix](data))
    bad = [drop for drop in slow.drops if drop[1] != "empty"]
    told: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(read_jsonl.__kwdefaults__, "block_bytes", block_bytes)
        patch.setitem(read_jsonl.__kwdefaults__, "batch_bytes", 4 * block_bytes)
        outcome: object = None
        try:
            outcome = headrace.build(source, output, on_bad_input=mode, workers=1, on_event=told.append)
        except (BadDocumentsError, BuildError) as error:
            outcome = error
    if isinstance(outcome, BadDocumentsError):
        assert mode == "error"
        assert begins([(drop.row + 1, drop.reason) for drop in outcome.drops], bad)
        assert (outcome.documents, outcome.complete) == (len(bad), True)
    elif isinstance(outcome, BuildError):
        assert "no documents were kept" in str(outcome)
        assert not slow.texts
    if not isinstance(outcome, BuildFinished):
        assert not output.exists()
        return
    assert mode != "error" or not bad
    assert stored(output) == (slow.texts, slow.places)
    assert (outcome.documents_in, outcome.documents) == (len(slow.texts) + len(slow.drops), len(slow.texts))
    assert outcome.replaced == slow.replaced
    assert sum(outcome.dropped.values()) == len(slow.drops)
    notices = [event.message for event in told if isinstance(event, Notice) and event.kind == "dropped"]
    assert [int(message.split(":")[1]) for message in notices] == [line for line, _ in bad]
    logs = list((output / ".headrace" / "dropped").glob("*")) if slow.drops else []
    rows = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    assert begins([(row["line"], row["reason"]) for row in rows], slow.drops)
