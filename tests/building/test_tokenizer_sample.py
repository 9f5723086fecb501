"""The sample that a tokenizer is compared on: bounded, spread over the sources, and never a reason to fail."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from headrace.building.check import SAMPLE_BYTES, sample_texts
from headrace.sources import discover


def sample(folder: Path, text_field: str = "text") -> list[bytes]:
    """The sample of a folder of inputs."""
    return list(sample_texts(discover([folder], text_field=text_field).shards, text_field))


def lines(*texts: str) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 40])
def test_it_is_spread_over_the_sources(tmp_path, count):
    """At most 16 sources give a sample, evenly from the first on; together they give no more than 256 KiB."""
    for number in range(count):
        (tmp_path / f"{number:02d}.jsonl").write_bytes(lines(*[f"{number:02d} é" * 1000] * 100))
    found = sample(tmp_path)
    numbers = sorted({int(text[:2]) for text in found})
    chosen = min(count, 16)
    assert numbers == [number * count // chosen for number in range(chosen)]
    assert 0.9 * SAMPLE_BYTES < sum(map(len, found)) <= SAMPLE_BYTES
    assert all(text.decode() for text in found)


def test_texts_are_those_of_the_documents(tmp_path):
    """Bad and empty lines are passed over; the last line needs no end; a byte order mark is not part of a text."""
    good = lines("one", "", "two")
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + good + b"no JSON\n\xff\n" + lines("three")[:-1])
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfa text")
    assert sample(tmp_path) == [b"one", b"two", b"three", b"a text"]


def test_small_texts_of_a_shard(tmp_path):
    """Of text files that share a shard the first few are taken; those without a byte give nothing."""
    for number in range(40):
        (tmp_path / f"{number:02d}.txt").write_text(f"{number}" * (number % 2))
    assert sample(tmp_path) == [str(number).encode() for number in range(1, 16, 2)]


@pytest.mark.parametrize("damage", ["cut", "gone", "binary", "wide"])
def test_damaged_sources_are_passed_over(tmp_path, damage):
    """What cannot be read is left to the build to report; the other sources give their part."""
    path = tmp_path / ("a.jsonl.gz" if damage == "cut" else "a.jsonl")
    data = {"cut": gzip.compress(lines("x" * 10_000) * 500)[:-9], "binary": bytes(range(256)) * 2000}
    path.write_bytes(data.get(damage, lines("text").decode().encode("utf-16")))
    (tmp_path / "b.jsonl").write_bytes(lines("other"))
    shards = discover([tmp_path]).shards
    if damage == "gone":
        path.unlink()
    found = list(sample_texts(shards, "text"))
    assert b"other" in found
    assert all(text.decode() for text in found)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.jsonl.gz"])
def test_one_long_document_is_not_read_whole(tmp_path, name):
    """A document of many MB costs no more memory than others; a part of it is compared all the same."""
    data = lines("long é " * 5_000_000)
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    del data
    tracemalloc.start()
    found = sample(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20
    assert 0.9 * SAMPLE_BYTES < sum(map(len, found)) <= SAMPLE_BYTES
    assert b"long" in found[0]


def test_a_field_that_is_not_there(tmp_path):
    """Lines without the field give nothing, and little of the file is read in search of it."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines("some text") * 100_000)
    assert sample(tmp_path, "body") == []
