"""Corpora that other tools wrote: verify, info and show read them, and name what is wrong with damaged ones."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

FORMATS = Path(__file__).parents[1] / "data" / "formats"
BROKEN = Path(__file__).parents[1] / "data" / "formats_broken"
FILES = sorted(path.name for path in FORMATS.iterdir() if (path / "tokens.h5").exists())


def tokens(headrace, path: Path, count: int) -> np.ndarray:
    """All tokens, as `show` gives them."""
    ran = headrace("show", path, "--window", 0, "--length", count + 5, "--json")
    assert ran.code == 0, ran.err
    pieces = json.loads(ran.out)["pieces"]
    return np.array([token for piece in pieces for token in piece["tokens"] + [0] * piece["boundary"]], dtype="<u4")


@pytest.mark.parametrize("name", [*FILES, "lesson_hdf5"])
def test_foreign_corpora(headrace, name):
    """They verify, their figures are right, and every token is shown."""
    folder = FORMATS / name
    expected = json.loads((folder / "expected.json").read_text())
    path = folder if name == "lesson_hdf5" else folder / "tokens.h5"
    assert headrace("verify", path).code == 0
    assert headrace("verify", path, "--quick").code == 0
    found = json.loads(headrace("info", path, "--json").out)
    assert (found["tokens"], found["version"]) == (expected["token_count"], 1)
    assert found["documents"] == (None if expected.get("no_document_boundaries_stored") else expected["document_count"])
    ids = tokens(headrace, path, expected["token_count"])
    assert hashlib.sha256(ids.tobytes()).hexdigest() == expected["tokens_sha256_u32le"]


def test_documents_of_the_lesson(headrace):
    """A corpus of the first version has documents: its boundary is 0, which belongs to the document that it ends."""
    expected = json.loads((FORMATS / "lesson_hdf5" / "expected.json").read_text())
    stops = np.cumsum(expected["document_lengths"])
    for number in (0, 1, 60, 112):
        start, stop = stops[number] - expected["document_lengths"][number], stops[number]
        ran = headrace("show", FORMATS / "lesson_hdf5", "--document", number, "--tokenizer", "bytes")
        assert ran.out.startswith(f"tokens [{start}, {stop})\n-- document {number} [{start}, {stop})\n")
        assert ran.out.endswith("<|boundary|>\n")
    assert headrace("show", FORMATS / "lesson_hdf5", "--document", 113).code == 1
    median = json.loads(headrace("info", FORMATS / "lesson_hdf5", "--json").out)["median_document_tokens"]
    assert median == np.median(expected["document_lengths"])


@pytest.mark.parametrize("name", FILES)
def test_files_without_documents(headrace, name):
    """A file without a document index shows windows, and says why it shows no documents."""
    path = FORMATS / name / "tokens.h5"
    for option in ("--document", "--at"):
        ran = headrace("show", path, option, 0)
        assert (ran.code, ran.out) == (1, "")
        assert "stores no document index" in ran.err
    assert "no document index is stored" in headrace("info", path).out


@pytest.mark.parametrize(
    ("name", "path", "named"),
    [
        ("h5_cut", "tokens.h5", ["tokens.h5", "is truncated"]),
        ("h5_killed_swmr_writer", "tokens.h5", ["tokens.h5", "its writer never closed it"]),
        ("h5_token_count_past_end", "tokens.h5", ["token_count 9999 against a dataset of 5691"]),
        ("lesson_shard_missing", "", ["shard-0001.h5"]),
        ("lesson_index_cut", "", ["shards.json", "line ", "column "]),
    ],
)
@pytest.mark.parametrize("command", [["verify"], ["verify", "--quick"], ["info"], ["show", "--window", 0]])
def test_damaged_ones(headrace, name, path, named, command):
    """Each is exit code 1, and the message names what `expected.json` says it must."""
    ran = headrace(*command, BROKEN / name / path)
    assert ran.code == 1
    for words in named:
        assert words in ran.err
    assert command[0] == "verify" or ran.out == ""


def test_reading_writes_nothing(headrace):
    """Commands that read leave a foreign folder as it was."""
    before = {path: path.stat().st_mtime_ns for path in FORMATS.rglob("*")}
    for command in (["verify"], ["info", "--window", 64], ["show", "--at", 1]):
        assert headrace(*command, FORMATS / "lesson_hdf5").code == 0
    assert {path: path.stat().st_mtime_ns for path in FORMATS.rglob("*")} == before
