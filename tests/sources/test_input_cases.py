"""Every stored input file gives the documents, and the reports, that it should."""

import hashlib
import json
import struct
from pathlib import Path

import pytest

from headrace.errors import SourceError
from headrace.sources import Drop, discover, read_shard

INPUTS = Path(__file__).parents[1] / "data" / "inputs"
CASES = json.loads((INPUTS / "expected.json").read_text())["cases"]

# Lines and reasons as told; the stored ones are prose.
REASONS = {
    "parquet/null_rows.parquet": ["text is null"] * 2,
    "parquet/nested_struct.parquet": ["data.text is null"] * 2,
    "jsonl/lone_surrogate.jsonl": ["lone surrogate"] * 2,
}


pytest.importorskip("pyarrow")


def read(path: str, **options: str) -> tuple[list[bytes], list[Drop]]:
    """Read a stored file."""
    texts: list[bytes] = []
    drops: list[Drop] = []
    found = discover([INPUTS / path], text_field=options.get("text_field", "text"))
    for shard in found.shards:
        for batch in read_shard(shard, **options):
            texts += batch.texts
            drops += batch.drops
    return texts, drops


def digest(texts: list[bytes]) -> str:
    """Hash texts as `expected.json` does."""
    framed = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    return hashlib.sha256(framed).hexdigest()


READABLE = [
    pytest.param(case, id=case["path"])
    for case in CASES
    if case["path"].split("/")[0] in {"jsonl", "compressed", "text", "parquet"} and "texts_sha256" in case
] + [pytest.param(case, id=case["path"]) for case in CASES if case["path"] == "paths/order"]


@pytest.mark.parametrize("case", READABLE)
def test_kept_texts_and_drops(case: dict) -> None:
    """The kept texts are exactly those wanted, and each other line is reported with its number and reason."""
    texts, drops = read(case["path"], **case.get("options", {}))
    assert digest(texts) == case["texts_sha256"]
    assert len(texts) == case["documents"]
    wanted = case.get("drops", [])
    reasons = REASONS.get(case["path"], [drop["reason"] for drop in wanted])
    if case["path"] != "text/empty.txt":
        assert [(drop.row + 1, drop.reason) for drop in drops] == [
            (drop["line"], reason) for drop, reason in zip(wanted, reasons, strict=True)
        ]


def test_byte_of_a_bad_line() -> None:
    """A report names the byte of the fault, counted from the start of the file."""
    (drop,) = read("jsonl/invalid_utf8.jsonl")[1]
    assert (drop.byte, str(drop)) == (35, "invalid_utf8.jsonl:2: invalid UTF-8 (byte 35)")


@pytest.mark.parametrize(("name", "byte"), [("latin1.txt", 2), ("binary.txt", 128)])
def test_text_that_is_not_utf8(name: str, byte: int) -> None:
    """A text file that is not UTF-8 is one report, which names the file and the first wrong byte."""
    texts, drops = read(f"text/{name}")
    assert not texts
    assert [str(drop) for drop in drops] == [f"{name}: byte {byte}: invalid UTF-8"]


def test_empty_text_file() -> None:
    """An empty text file is counted as empty, and is a document where empty ones are kept."""
    texts, drops = read("text/empty.txt")
    assert (texts, [(drop.row, drop.reason) for drop in drops]) == ([], [(-1, "empty")])
    (shard,) = discover([INPUTS / "text" / "empty.txt"]).shards
    (batch,) = read_shard(shard, keep_empty=True)
    assert (batch.texts, batch.drops) == ([b""], [])


@pytest.mark.parametrize("name", ["truncated.jsonl.gz", "truncated.jsonl.zst"])
def test_truncated_streams(name: str) -> None:
    """A cut compressed file is an error that names it, its format and the place, though whole lines came out before."""
    with pytest.raises(SourceError, match=rf"{name}: the (gzip|zstd) stream ends early, at compressed byte \d+"):
        read(f"compressed/{name}")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("compressed/archive.zip", "a zip archive"),
        ("parquet/missing_column.parquet", "no column text; its columns are content, id"),
        ("parquet/truncated.parquet", "cut or damaged Parquet"),
        ("paths/none/*.jsonl", "no path matches this pattern"),
        ("paths/not_there.jsonl", "does not exist"),
        ("paths/empty_folder", "no input files here"),
    ],
)
def test_inputs_that_are_refused(path: str, reason: str) -> None:
    """What cannot be read is an error before any reading, with the path in it."""
    with pytest.raises(SourceError, match=reason) as caught:
        discover([INPUTS / path])
    assert path in str(caught.value)


def test_folder_of_all_sorts() -> None:
    """A folder's data files are read in byte-wise path order; everything else in it is listed with a reason."""
    found = discover([INPUTS / "paths" / "mixed"])
    assert [file.label for file in found.files] == [
        "a.jsonl",
        "b.txt",
        "c.parquet",
        "looks_like.jsonl/inside.jsonl",
        "sub/d.jsonl.gz",
    ]
    texts = [text for shard in found.shards for batch in read_shard(shard) for text in batch.texts]
    assert texts[0] == b"The first document."
    assert len(texts) == 5
    assert dict(found.skipped) == {
        "._a.jsonl": "a hidden file",
        ".hidden.jsonl": "a hidden file",
        "_SUCCESS": "not a name of documents",
        "LICENSE": "not a name of documents",
        "README.md": "not a name of documents",
        "e.jsonl.part": "not a name of documents",
        "e.jsonl.tmp": "not a name of documents",
        "f.jsonl~": "not a name of documents",
        "stats.json": "a .json file whose first line is no object with the field text",
    }
