"""Any bytes under any name: documents, counted drops, or an error that names the file; nothing else, and soon."""

import bz2
import gzip
import io
import json
import lzma

import hypothesis.strategies as st
import pytest
import zstandard
from hypothesis import given, settings

from headrace.errors import SourceError
from headrace.sources import discover, read_shard

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = [{"text": "first", "id": 1}, {"text": "zweite é", "id": 2}, {"text": "", "id": 3}, {"text": None, "id": 4}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS, indent=1).encode()


def table(write) -> bytes:
    """A table in some format."""
    file = io.BytesIO()
    write(pa.Table.from_pylist(ROWS * 3), file)
    return file.getvalue()


def ipc(new):
    """A writer of Arrow data."""

    def write(rows, file):
        with new(file, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=4)

    return write


PLAIN = {".jsonl": LINES, ".json": ARRAY, ".txt": "Ein Text.\n€\n".encode()}
COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
VALID = {
    **{kind + end: press(data) for kind, data in PLAIN.items() for end, press in COMPRESSIONS.items()},
    ".parquet": table(lambda rows, file: pq.write_table(rows, file, row_group_size=5, write_page_checksum=True)),
    ".zstd.parquet": table(lambda rows, file: pq.write_table(rows, file, compression="zstd", data_page_version="2.0")),
    ".file.arrow": table(ipc(pa.ipc.new_file)),
    ".stream.arrow": table(ipc(pa.ipc.new_stream)),
}


@st.composite
def damaged(draw) -> tuple[str, bytes]:
    """A name and bytes: random ones, or a valid file of that name that was cut, changed or joined."""
    name = draw(st.sampled_from(sorted(VALID)))
    data = bytearray(VALID[draw(st.one_of(st.just(name), st.sampled_from(sorted(VALID))))])
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["cut", "flip", "put", "remove", "end"])):
            case "cut":
                del data[start:]
            case "flip" if start < len(data):
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "put":
                data[start:start] = draw(st.binary(max_size=12))
            case "remove":
                del data[start : start + draw(st.integers(1, 12))]
            case _:
                data += draw(st.binary(max_size=12))
    return name, bytes(data) if draw(st.integers(0, 9)) else draw(st.binary(max_size=64))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("any")


@settings(max_examples=400)
@given(file=damaged(), chosen=st.booleans(), mode=st.sampled_from(["error", "skip", "replace"]))
def test_any_bytes(folder, file, chosen, mode):
    """Reading ends, with valid texts and drops in order of the rows and every byte seen, or with a SourceError."""
    name, data = file
    path = folder / f"a{name}"
    path.write_bytes(data)
    seen: list[bytes] = []
    try:
        found = discover([path if chosen else folder])
        for shard in found.shards:
            last = -1
            for batch in read_shard(shard, on_bad_input=mode, observe=lambda _, piece: seen.append(piece)):
                assert all(text and text.decode() is not None for text in batch.texts)
                rows = batch.rows.tolist()
                assert rows == sorted(rows)
                assert not rows or rows[0] > last
                last = rows[-1] if rows else last
                assert all(drop.reason and drop.path == f"a{name}" for drop in batch.drops)
        if found.files:
            assert b"".join(seen) == data
    except SourceError as error:
        assert path.name in str(error) or str(folder) in str(error)  # noqa: PT017  # what is not raised is right too
    finally:
        path.unlink()
