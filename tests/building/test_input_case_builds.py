"""Every stored input, through the command: the right documents, or an error that names the place and leaves nothing."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import headrace as library
from headrace.errors import HeadraceError

pytest.importorskip("pyarrow")

INPUTS = Path(__file__).parents[1] / "data" / "inputs"
CASES = {case["path"]: case for case in json.loads((INPUTS / "expected.json").read_text())["cases"]}
MIXED, FOLDER = "paths/mixed", "paths/empty_folder"
REFUSED = [
    path
    for path, case in CASES.items()
    if case["want"] == "error" and not path.startswith("text/") and path != "jsonl/json_array.json"
]
"""Never read, or not to the end, whatever the options."""
NOTHING = [
    *("jsonl/empty.jsonl", "text/empty.txt", "text/latin1.txt", "text/binary.txt"),
    "parquet/zero_rows.parquet",
]
"""Inputs of which no document can be kept."""
READ = [path for path in CASES if path not in {*REFUSED, *NOTHING, MIXED}]
CLEAN = [path for path in READ if CASES[path]["want"] != "error_or_skip"]
FAULTY = [path for path in READ if CASES[path]["want"] == "error_or_skip"]


def options(path: str) -> list[str]:
    """What the case asks for."""
    field = CASES[path].get("options", {}).get("text_field")
    return ["--text-field", field] if field else []


def kept_texts(corpus: Path) -> list[bytes]:
    """The documents' texts, out of byte tokens."""
    with library.open(corpus, verify="full") as opened:
        documents = list(opened.documents)
    assert all(document[-1] == 0 for document in documents)
    return [(document[:-1] - 1).astype(np.uint8).tobytes() for document in documents]


def digest(texts: list[bytes]) -> str:
    """As `expected.json` defines it."""
    return hashlib.sha256(b"".join(struct.pack("<Q", len(text)) + text for text in texts)).hexdigest()


def assert_nothing_left(output: Path) -> None:
    """The output folder is not there, or holds nothing that could be taken for a corpus, nor what was begun."""
    assert not output.exists()
    assert [path.name for path in output.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("mode", ["error", "replace"])
@pytest.mark.parametrize("path", CLEAN)
def test_clean_inputs_are_read_whole(headrace, tmp_path, path, mode):
    """An input without faults gives the wanted texts under every way to treat bad ones; the manifest knows its hash."""
    ran = headrace("build", INPUTS / path, "-o", tmp_path / "c", "--on-bad-input", mode, *options(path))
    assert ran.code == 0, ran.err
    assert digest(kept_texts(tmp_path / "c")) == CASES[path]["texts_sha256"]
    sources = json.loads((tmp_path / "c" / "shards.json").read_text())["sources"]
    files = [INPUTS / path] if (INPUTS / path).is_file() else sorted((INPUTS / path).iterdir(), key=bytes)
    assert [source["sha256"] for source in sources] == [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]


@pytest.mark.parametrize("path", FAULTY)
def test_bad_documents_stop_a_build_by_default(headrace, tmp_path, path):
    """By default the first bad document stops the build; each is named by file, line and reason; nothing is left."""
    ran = headrace("build", INPUTS / path, "-o", tmp_path / "c", *options(path))
    drops = CASES[path]["drops"]
    assert ran.code == 1
    assert f"headrace: {len(drops)} bad document" in ran.err
    listed = [line.strip() for line in ran.err.splitlines() if line.startswith("  ")]
    assert [line.split(": ")[0] for line in listed] == [f"{Path(path).name}:{drop['line']}" for drop in drops]
    assert_nothing_left(tmp_path / "c")


@pytest.mark.parametrize("path", FAULTY)
def test_bad_documents_are_left_out_on_request(headrace, tmp_path, path):
    """With skip, exactly the good documents are kept; each other one is told, counted and listed with line and reason."""
    case, output = CASES[path], tmp_path / "c"
    ran = headrace("build", INPUTS / path, "-o", output, "--on-bad-input", "skip", *options(path))
    assert ran.code == 0, ran.err
    assert digest(kept_texts(output)) == case["texts_sha256"]
    name = Path(path).name
    told = [line for line in ran.err.splitlines() if line.startswith("dropped: ")]
    assert [line.split(": ")[1] for line in told] == [f"{name}:{drop['line']}" for drop in case["drops"]]
    (log,) = (output / ".headrace" / "dropped").iterdir()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["file"], row["line"]) for row in rows] == [(name, drop["line"]) for drop in case["drops"]]
    (source,) = json.loads((output / "shards.json").read_text())["sources"]
    assert sum(source["dropped"].values()) == len(case["drops"])
    assert source["documents"] == case["documents"]
    assert f"{case['documents'] + len(case['drops']):,} in, {case['documents']:,} kept" in ran.out


@pytest.mark.parametrize(
    ("path", "replaced", "texts"),
    [
        ("jsonl/invalid_utf8.jsonl", 1, {1: "bad \ufffd\ufffd byte"}),
        ("jsonl/lone_surrogate.jsonl", 2, {}),
    ],
)
def test_invalid_text_is_replaced_on_request(headrace, tmp_path, path, replaced, texts):
    """With replace, every document is kept with U+FFFD in it, and the report counts those it was put into."""
    ran = headrace("build", INPUTS / path, "-o", tmp_path / "c", "--on-bad-input", "replace")
    assert ran.code == 0, ran.err
    assert f"U+FFFD in {replaced} documents" in ran.out
    found = [text.decode() for text in kept_texts(tmp_path / "c")]
    assert len(found) == CASES[path]["documents"] + replaced
    assert sum("\ufffd" in text for text in found) == replaced
    for number, text in texts.items():
        assert found[number] == text


@pytest.mark.parametrize("mode", ["error", "skip"])
@pytest.mark.parametrize("path", NOTHING)
def test_a_build_that_keeps_nothing_fails(headrace, tmp_path, path, mode):
    """No document kept is an error that names the file, under skip as well; no corpus of zero tokens appears."""
    ran = headrace("build", INPUTS / path, "-o", tmp_path / "c", "--on-bad-input", mode)
    assert ran.code == 1
    assert Path(path).name in ran.err
    if mode == "skip":
        assert "no documents were kept" in ran.err
    assert_nothing_left(tmp_path / "c")


@pytest.mark.parametrize(("name", "byte"), [("latin1.txt", 2), ("binary.txt", 128)])
def test_a_text_file_that_is_not_utf8(headrace, tmp_path, name, byte):
    """It is one bad document, named with the first wrong byte; beside a good file it can be left out."""
    ran = headrace("build", INPUTS / "text" / name, "-o", tmp_path / "c")
    assert f"{name}: byte {byte}: invalid UTF-8" in ran.err
    both = [INPUTS / "text" / name, INPUTS / "text" / "plain.txt"]
    ran = headrace("build", *both, "-o", tmp_path / "c", "--on-bad-input", "skip")
    assert ran.code == 0
    assert f"dropped: {name}: byte {byte}: invalid UTF-8" in ran.err
    assert digest(kept_texts(tmp_path / "c")) == CASES["text/plain.txt"]["texts_sha256"]


@pytest.mark.parametrize("mode", ["error", "skip", "replace"])
@pytest.mark.parametrize("path", REFUSED)
def test_refused_inputs(headrace, tmp_path, path, mode):
    """What cannot be read is an error that names it, whatever becomes of bad documents; nothing is left."""
    given = INPUTS / path
    if path == FOLDER:  # which version control does not keep
        given = tmp_path / "inputs" / "empty_folder"
        given.mkdir(parents=True)
    ran = headrace("build", given, "-o", tmp_path / "c", "--on-bad-input", mode)
    assert ran.code == 1
    assert Path(path).name in ran.err
    assert ran.out == ""
    if path.startswith("compressed/truncated"):
        assert "stream ends early" in ran.err
    assert_nothing_left(tmp_path / "c")


def test_a_missing_file_among_good_ones(headrace, tmp_path):
    """It is found before any work, with every other missing input in the same report."""
    good = INPUTS / "jsonl" / "crlf.jsonl"
    ran = headrace("build", good, "not_there.jsonl", good, "none/*.jsonl", "-o", tmp_path / "c")
    assert ran.code == 1
    assert "2 problems" in ran.err
    assert "not_there.jsonl: does not exist" in ran.err
    assert "none/*.jsonl: no path matches" in ran.err
    assert_nothing_left(tmp_path / "c")


def test_a_folder_of_all_sorts(headrace, tmp_path):
    """Its documents are read, and each file that is left out is told with a reason."""
    ran = headrace("build", INPUTS / MIXED, "-o", tmp_path / "c")
    assert ran.code == 0, ran.err
    assert digest(kept_texts(tmp_path / "c")) == CASES[MIXED]["texts_sha256"]
    told = {line.split(": ")[1] for line in ran.err.splitlines() if line.startswith("skipped: ")}
    assert told == {
        *("._a.jsonl", ".hidden.jsonl", "LICENSE", "README.md", "_SUCCESS"),
        *("e.jsonl.part", "e.jsonl.tmp", "f.jsonl~", "stats.json"),
    }


@pytest.mark.parametrize("path", READ)
def test_gpt2_tokens(tmp_path, gpt2, path):
    """With GPT-2 the ids, boundaries left out, are those of the reference implementation."""
    case = CASES[path]
    field = case.get("options", {}).get("text_field", "text")
    library.build(INPUTS / path, tmp_path / "c", tokenizer=gpt2, text_field=field, on_bad_input="skip", workers=1)
    with library.open(tmp_path / "c") as corpus:
        documents = list(corpus.documents)
        assert corpus.dtype == np.uint16
    assert all(document[-1] == 50256 for document in documents)
    ids = np.concatenate([document[:-1] for document in documents])
    assert hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest() == case["gpt2_tokens_sha256"]
    assert len(documents) == case["documents"]


def test_gpt2_through_the_command(headrace, tmp_path, gpt2_folder):
    """The command finds tokenizer and boundary in the folder, and leaves a copy that decodes the corpus."""
    source = INPUTS / "jsonl" / "special_literals.jsonl"
    ran = headrace("build", source, "-o", tmp_path / "c", "--tokenizer", gpt2_folder, "--validate")
    assert ran.code == 0, ran.err
    shown = headrace("show", tmp_path / "c", "--document", 0)
    first = json.loads(source.read_text().splitlines()[0])["text"]
    assert f"\n{first}<|boundary|>" in shown.out


def test_inputs_are_not_touched(headrace, tmp_path):
    """A build reads its inputs and writes into its output alone."""
    before = {path: path.stat().st_mtime_ns for path in INPUTS.rglob("*")}
    headrace("build", INPUTS / MIXED, "-o", tmp_path / "c")
    assert {path: path.stat().st_mtime_ns for path in INPUTS.rglob("*")} == before


def test_the_library_raises_what_the_command_reports(tmp_path):
    """`headrace.build` raises an error that is also a ValueError, with all problems."""
    with pytest.raises(HeadraceError) as caught:
        library.build(INPUTS / "jsonl" / "scalars.jsonl", tmp_path / "c")
    assert isinstance(caught.value, ValueError)
    assert [problem.place for problem in caught.value.problems] == [f"scalars.jsonl:{line}" for line in (1, 2, 3, 4)]
