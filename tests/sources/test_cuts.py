"""Cuts of large files: read side by side or one after another, they hold what the file holds, each line once."""

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from headrace.sources.cuts import in_file, lines_before
from headrace.sources.documents import WHOLE_FILE, DocumentBatch, Drop
from headrace.sources.files import SourceFile, SourceShard, byte_cuts
from headrace.sources.jsonl import read_jsonl
from headrace.sources.rawfile import DamagedFileError
from headrace.sources.read import read_shard

SETTINGS = settings(
    max_examples=200,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LINES = st.one_of(
    st.text(max_size=30).map(lambda text: json.dumps({"text": text}).encode()),
    st.sampled_from(
        [b"", b" ", b"\r", b'{"text": ""}', b"no JSON", b'{"text": "a"}\r', b'{"text": "\xff"}', b"{" * 40]
    ),
)
FILES = st.builds(
    lambda mark, lines, end: mark + b"\n".join(lines) + end,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(LINES, max_size=12),
    st.sampled_from([b"", b"\n", b"\n\n"]),
)
CUTS = st.one_of(st.integers(1, 80), st.sampled_from([1, 2, 3, 1000]))


def write(folder: Path, data: bytes) -> SourceFile:
    """A file as it is listed."""
    path = folder / "a.jsonl"
    path.write_bytes(data)
    return SourceFile(path, "a.jsonl", len(data), "jsonl", None)


def shards(file: SourceFile, cut_bytes: int) -> list[SourceShard]:
    """Its cuts."""
    cuts = byte_cuts(file.size, file.path.stat().st_mtime_ns, cut_bytes)
    return [SourceShard(0, (file,), cut) for cut in cuts or (None,)]


def told(batches: list[DocumentBatch]) -> tuple[list[tuple[bytes, int, int]], list[Drop]]:
    """Text, row and byte of each document, and the drops."""
    documents = [
        one for batch in batches for one in zip(batch.texts, batch.rows.tolist(), batch.offsets.tolist(), strict=True)
    ]
    return documents, [drop for batch in batches for drop in batch.drops]


def line_starts(data: bytes) -> list[int]:
    """Where the lines of a file begin."""
    starts = [0] + [place + 1 for place, byte in enumerate(data) if byte == 0x0A]
    return [start for start in starts if start < len(data)]


@SETTINGS
@given(data=FILES, cut_bytes=CUTS, block=st.sampled_from([1, 7, 50, 1 << 18]))
@example(data=b'{"text": "' + b"x" * 300 + b'"}\n{"text": "b"}', cut_bytes=40, block=16)
@example(data=b"\n" * 20, cut_bytes=3, block=7)
@example(data=b"\xff\xfe{\0\n\0{\0", cut_bytes=2, block=1)
def test_cuts_hold_the_file(tmp_path, data, cut_bytes, block):
    """Side by side: every document and drop once, in order, at its line and byte; the bytes of the lines cover the file."""
    file = write(tmp_path, data)
    documents, drops = told(list(read_jsonl(file, cut_bytes=1 << 40)))
    starts = line_starts(data)
    found: list[tuple[bytes, int, int]] = []
    found_drops: list[Drop] = []
    seen: list[bytes] = []
    base = 0
    for shard in shards(file, cut_bytes):
        batches = list(
            read_jsonl(
                file, block_bytes=block, batch_bytes=block, cut=shard.cut, observe=lambda _, more: seen.append(more)
            )
        )
        if shard.cut:
            first = next((start for start in starts if start >= shard.cut.start), shard.cut.stop)
            assert {batch.cut for batch in batches} == {shard.cut.number}
            assert {batch.start for batch in batches} == {min(first, shard.cut.stop)}
            assert lines_before(file, shard.cut.start) == sum(start < shard.cut.start for start in starts)
        assert sum(batch.consumed for batch in batches) == shard.size
        some, bad = told(batches)
        found += [(text, row + base, byte) for text, row, byte in some]
        found_drops += in_file(shard, bad)
        base += sum(batch.rows_read for batch in batches)
    assert found == documents
    assert found_drops == drops
    assert b"".join(seen) == data
    if data != b"\xef\xbb\xbf" and not any(drop.row == WHOLE_FILE for drop in drops):
        assert base == len(starts)


@SETTINGS
@given(data=FILES, cut_bytes=CUTS, block=st.sampled_from([1, 7, 50, 1 << 18]))
def test_cuts_of_a_stream(tmp_path, data, cut_bytes, block):
    """One after another: the documents of a batch begin in one cut, whose first line the batch knows; nothing else differs."""
    file = write(tmp_path, data)
    whole = told(list(read_jsonl(file, cut_bytes=1 << 40)))
    batches = list(read_jsonl(file, block_bytes=block, cut_bytes=cut_bytes))
    assert told(batches) == whole
    assert sum(batch.consumed for batch in batches) == len(data)
    starts = line_starts(data)
    mark = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    for batch in batches:
        begins = [0 if offset == mark else offset for offset in batch.offsets.tolist()]
        assert {begin // cut_bytes for begin in begins} <= {batch.cut}
        if batch.texts:
            assert batch.row_base == sum(start < batch.cut * cut_bytes for start in starts)


def test_a_file_that_changes(tmp_path):
    """Each cut notices a file that was written to since it was listed, whether it has its size or not."""
    data = b'{"text": "abc"}\n' * 20
    for change in (data + b"\n", data[:-1], data[:200] + b"\n" + data[201:]):
        file = write(tmp_path, data)
        parts = shards(file, 100)
        file.path.write_bytes(change)
        for shard in parts:
            with pytest.raises(DamagedFileError, match=r"changed while it was read"):
                list(read_shard(shard))


def test_a_file_that_changes_while_a_cut_is_read(tmp_path):
    """It is noticed at the end of the cut, for which the bytes before it may be other ones."""
    data = b'{"text": "abc"}\n' * 50_000
    for place in (0, 1, 2):
        file = write(tmp_path, data)
        batches = read_jsonl(file, cut=shards(file, 300_000)[place].cut, batch_bytes=1)
        next(batches)
        with file.path.open("ab") as more:
            more.write(b"\n")
        with pytest.raises(DamagedFileError, match=r"changed while it was read: 800000 bytes when .*, 800001 now"):
            list(batches)
