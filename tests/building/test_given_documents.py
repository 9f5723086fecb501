"""Documents that a program hands to `build`: any iterable, read once, in order, with its own errors."""

import json
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import headrace
from headrace.errors import BuildError, OutputExistsError, SourceError
from headrace.events import Event, Notice, ShardWritten

TEXTS = [f"document {number} " + "wörd " * (number % 7) for number in range(3000)]


class Stream:
    """Gives rows each time anew, as data sets do."""

    def __init__(self, rows: list) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator:
        return iter(self.rows)


@pytest.fixture(scope="module")
def of_file(tmp_path_factory) -> str:
    """The fingerprint of the corpus of the texts, out of a file."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return headrace.build(folder / "a.jsonl", folder / "c").fingerprint


FORMS = {
    "generator of texts": lambda: (text for text in TEXTS),
    "generator of rows": lambda: ({"text": text, "n": 1} for text in TEXTS),
    "list of rows": lambda: [{"text": text} for text in TEXTS],
    "tuple of other mappings": lambda: tuple(UserDict(text=text) for text in TEXTS),
    "an iterable": lambda: Stream(TEXTS),
    "an array": lambda: np.array(TEXTS, object),
    "keys": lambda: dict.fromkeys(TEXTS).keys(),
    "wrapped texts": lambda: headrace.Documents(TEXTS),
    "wrapped rows": lambda: headrace.Documents([{"text": text} for text in TEXTS]),
    "texts and rows": lambda: (text if number % 2 else {"text": text} for number, text in enumerate(TEXTS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_corpus(of_file, tmp_path, form):
    """What holds the texts does not matter; where a document is from is its item's number, from 1."""
    assert headrace.build(FORMS[form](), tmp_path / "c", workers=3).fingerprint == of_file
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        found = corpus.locate(corpus.documents.bounds(41)[0])
        assert (found.source, found.line, found.byte) == ("documents", 42, 0)
        (source,) = corpus.manifest.sources
        assert (source.path, source.documents) == ("documents", len(TEXTS))


def test_the_hash_is_that_of_the_texts(published, tmp_path):
    """`sha256` is of the documents kept, each behind its length; the same documents give the same bytes."""
    import hashlib
    import struct

    for name in ("a", "b"):
        headrace.build(Stream(["one", "", "zwö"]), tmp_path / name)
    framed = b"".join(struct.pack("<Q", len(text)) + text for text in (b"one", "zwö".encode()))
    with headrace.open(tmp_path / "a") as corpus:
        (source,) = corpus.manifest.sources
    assert (source.sha256, source.size) == (hashlib.sha256(framed).hexdigest(), len(framed))
    assert published(tmp_path / "a") == published(tmp_path / "b")


ITEMS = st.one_of(
    st.text(max_size=5),
    st.builds(lambda text: {"text": text}, st.text(max_size=5)),
    st.sampled_from(
        [None, 3, b"x", {}, {"text": None}, {"text": 3}, {"text": ["x"]}, {"other": "x"}, "\ud800", ("x",)]
    ),
)


def judged(item: object, mode: str) -> tuple[str | None, str | None]:
    """What becomes of an item, in plain words: its text, or a reason."""
    value = item
    if isinstance(item, dict):
        if "text" not in item:
            return None, "no field text"
        value = item["text"]
    elif not isinstance(item, str):
        return None, f"neither a string nor a mapping ({type(item).__name__})"
    if not isinstance(value, str):
        return None, "text is null" if value is None else "text is not a string"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return ("\ufffd" * len(value), None) if mode == "replace" else (None, "lone surrogate")
    return (value, None) if value else (None, "empty")


@settings(max_examples=40)
@given(items=st.lists(ITEMS, max_size=8), mode=st.sampled_from(["skip", "replace"]))
def test_by_the_model(tmp_path_factory, items, mode):
    """Every item is kept, or counted under its reason with its number."""
    folder = tmp_path_factory.mktemp("model")
    model = [judged(item, mode) for item in items]
    wanted = [text for text, _ in model if text is not None]
    if not wanted:
        with pytest.raises(BuildError, match="no documents were kept of xs"):
            headrace.build(headrace.Documents(items, "xs"), folder / "c", on_bad_input=mode)
        return
    headrace.build(headrace.Documents(items, "xs"), folder / "c", on_bad_input=mode)
    with headrace.open(folder / "c") as corpus:
        tokenizer = headrace.Tokenizer()
        assert [tokenizer.decode(document) for document in corpus.documents] == wanted
        lines = [corpus.locate(corpus.documents.bounds(number)[0]).line for number in range(len(wanted))]
    assert lines == [number for number, (text, _) in enumerate(model, 1) if text is not None]
    log = folder / "c" / ".headrace" / "dropped" / "000000-0000.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    told = {row["line"]: (row["file"], row["reason"]) for row in rows}
    assert told == {number: ("xs", reason) for number, (_, reason) in enumerate(model, 1) if reason}


def test_faults_are_named(tmp_path):
    """With item and reason; a field that is nowhere, with those that are there."""
    with pytest.raises(SourceError) as caught:
        headrace.build(Stream([{"text": "a"}, {"text": 3}, 5]), tmp_path / "c")
    assert [str(problem) for problem in caught.value.problems] == [
        "documents:2: text is not a string",
        "documents:3: neither a string nor a mapping (int)",
    ]
    with pytest.raises(SourceError, match="the items have the fields 'body', 'id'"):
        headrace.build([{"body": "a", "id": 1}], tmp_path / "c")
    assert not (tmp_path / "c" / "shards.json").exists()


@pytest.mark.parametrize("at", [0, 1, 2000])
def test_errors_of_the_iterator(tmp_path, at):
    """They come out as they are, with the item's number, and nothing is there; the same call may then be made again."""

    def items() -> Iterator[str]:
        yield from TEXTS[:at]
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's") as caught:
        headrace.build(items(), tmp_path / "c")
    (note,) = caught.value.__notes__
    assert note.startswith(f"raised by item {at + 1:,} of documents")
    assert not list(tmp_path.rglob("*.h5"))
    assert not (tmp_path / "c" / "shards.json").exists()
    assert headrace.build(iter(TEXTS[:5]), tmp_path / "c").documents == 5


@pytest.mark.parametrize("count", [1, 31, 32, 33])
def test_a_source_without_an_end(tmp_path, count):
    """`max_documents` keeps the first ones of it, and the build ends."""

    def endless() -> Iterator[str]:
        number = 0
        while True:
            yield f"document {number} " + "x" * 2000
            number += 1

    report = headrace.build(endless(), tmp_path / "c", max_documents=count, max_document_tokens=100)
    assert report.documents == count
    with headrace.open(tmp_path / "c") as corpus:
        assert len(corpus.manifest.sources[0].sha256) == 64


def test_what_is_there_is_refused(tmp_path):
    """Nobody knows whether documents are those of a corpus before they are read: another folder, append or overwrite."""
    headrace.build(iter(["a", "b"]), tmp_path / "c")
    with pytest.raises(OutputExistsError, match="give append or overwrite"):
        headrace.build(iter(["a", "b"]), tmp_path / "c")
    assert headrace.build(iter(["c"]), tmp_path / "c", append=True).total_tokens == 6
    for existing in (["a", "b"], ["c"]):
        with pytest.raises(OutputExistsError, match="documents: is in the corpus already, as documents"):
            headrace.build(iter(existing), tmp_path / "c", append=True)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert len(corpus.documents) == 3
    assert headrace.build(iter(["c"]), tmp_path / "c", append=True, allow_duplicates=True).total_tokens == 8
    headrace.build(iter(["d"]), tmp_path / "c", overwrite=True)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert headrace.Tokenizer().decode(corpus[:]) == "d"


class StopError(RuntimeError):
    """Ends a build from outside."""


def test_an_unfinished_build_is_begun_anew(tmp_path):
    """Even where all shards were whole: the documents of the second call are those of the corpus."""

    def stop(event: Event) -> None:
        if isinstance(event, ShardWritten):
            raise StopError

    for wanted in (TEXTS, TEXTS[::-1]):
        with pytest.raises(StopError):
            headrace.build(Stream(TEXTS), tmp_path / "c", on_event=stop)
        told: list[Event] = []
        headrace.build(Stream(wanted), tmp_path / "c", on_event=told.append)
        headrace.build(Stream(wanted), tmp_path / "whole", overwrite=True)
        assert not [event for event in told if isinstance(event, Notice)]
        with headrace.open(tmp_path / "c") as corpus, headrace.open(tmp_path / "whole") as whole:
            assert corpus.fingerprint == whole.fingerprint
        for path in sorted((tmp_path / "c").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()


def test_paths_stay_paths(tmp_path, monkeypatch):
    """A list of strings is one of paths; where paths come in another way, they are not built as texts."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"text": "x"}\n')
    for given_paths in ("a.jsonl", Path("a.jsonl"), ["a.jsonl"], (Path("a.jsonl"),), ["a.jsonl", Path("a.jsonl")]):
        headrace.build(given_paths, "c", overwrite=True)
        with headrace.open("c") as corpus:
            assert corpus.manifest.sources[0].path == "a.jsonl"
    for given_paths in ((path for path in ["a.jsonl"]), Path().glob("*.jsonl"), {"a.jsonl"}, Stream([Path("b")])):
        with pytest.raises(SourceError, match="the first document is the path of a file"):
            headrace.build(given_paths, "d")
    headrace.build(headrace.Documents(["a.jsonl"]), "e")
    with headrace.open("e") as corpus:
        assert headrace.Tokenizer().decode(corpus[:]) == "a.jsonl"
    with pytest.raises(SourceError, match="b"):
        headrace.build(["b c d"], "f")
    with pytest.raises(SourceError, match="no inputs"):
        headrace.build([], "f")
    for texts in (["a text of some words"], ["two\nlines"], ["x" * 5000 + "\n"]):
        with pytest.raises(SourceError, match=r"give texts, which are not paths, as headrace.Documents\(texts\)"):
            headrace.build(texts, "f")


@pytest.mark.parametrize("inputs", [3, None, b"a.jsonl", {"text": "x"}, ["a", {"text": "x"}], [3], [["x"]]])
def test_neither_paths_nor_documents(tmp_path, inputs):
    """What is neither is refused, with what was wanted."""
    with pytest.raises(SourceError, match="wanted"):
        headrace.build(inputs, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_data_frames_are_refused(tmp_path):
    """They iterate over the names of their columns, which are no documents; how to give rows is said, and works."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"]})
    with pytest.raises(SourceError, match=r"names of its columns: give its rows, frame.to_dict"):
        headrace.build(frame, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []
    rows = headrace.build(frame.to_dict("records"), tmp_path / "rows")
    assert rows.documents == 2
    assert headrace.build(frame["text"], tmp_path / "column").fingerprint == rows.fingerprint


@pytest.mark.parametrize("name", ["", "my data", "a\nb", "ä/b"])
def test_names(tmp_path, name):
    """A name is shown as that of a file is; an empty one is refused."""
    if not name:
        with pytest.raises(SourceError, match="an empty one"):
            headrace.Documents(["x"], name)
        return
    headrace.build(headrace.Documents(["x"], name), tmp_path / "c")
    with headrace.open(tmp_path / "c") as corpus:
        assert corpus.locate(0).source == name.replace("\n", "\\x0a")


def test_ids_of_a_program(tmp_path):
    """Lists, arrays and mappings that hold them; each is checked."""
    rows = [{"ids": [1, 2]}, {"ids": np.array([3], np.uint8)}, [4, np.int64(5)], np.array([6, 0]), {"ids": (7,)}]
    bad = [
        "x",
        {"ids": [True]},
        {"ids": np.array([1.5])},
        {"ids": np.array([[1]])},
        {"ids": np.array([300])},
        [-1],
        3,
        [0],
    ]
    report = headrace.build(Stream(rows + bad), tmp_path / "c", ids_field="ids", tokenizer="bytes", on_bad_input="skip")
    assert report.dropped == {
        "empty": 1,
        "ids holds a boolean": 1,
        "ids holds a float": 1,
        "ids holds a list": 1,
        "ids holds a negative id": 1,
        "ids holds an id beyond the vocabulary of 257": 1,
        "ids is not a list": 2,
    }
    with headrace.open(tmp_path / "c") as corpus:
        assert [document.tolist() for document in corpus.documents] == [[1, 2, 0], [3, 0], [4, 5, 0], [6, 0], [7, 0]]


def test_its_status(tmp_path):
    """How far a build of documents is, is not known; what it has read is."""
    from headrace.status import build_status

    told = []

    def look(event: Event) -> None:
        told.extend([build_status(tmp_path / "c")] if isinstance(event, ShardWritten) else [])

    headrace.build(Stream(TEXTS), tmp_path / "c", on_event=look)
    assert [(status.state, status.share, status.source_shards) for status in told] == [("running", 0.0, 1)]
    assert build_status(tmp_path / "c").share == 1.0


@pytest.mark.extended
def test_hugging_face_data_sets(of_file, tmp_path):
    """A `Dataset` and an `IterableDataset` are read in blocks, of the one column that is wanted, nested ones included."""
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_dict({"text": TEXTS, "n": list(range(len(TEXTS)))})
    nested = datasets.Dataset.from_list([{"a": {"text": text}, "b": 1} for text in TEXTS])
    forms = {
        "whole": whole,
        "tables": whole.with_format("arrow"),
        "frames": whole.with_format("pandas"),
        "stream": whole.to_iterable_dataset(),
        "shuffled twice": whole.select(range(len(TEXTS))),
        "mapped": whole.to_iterable_dataset().map(lambda row: {"text": row["text"]}),
    }
    for name, form in forms.items():
        assert headrace.build(form, tmp_path / name).fingerprint == of_file
    assert headrace.build(nested, tmp_path / "nested", text_field="a.text").fingerprint == of_file
    ids = whole.map(lambda row: {"input_ids": headrace.Tokenizer().encode(row["text"])}, keep_in_memory=True)
    assert headrace.build(ids, tmp_path / "ids", ids_field="input_ids", tokenizer="bytes").fingerprint == of_file
    with pytest.raises(SourceError, match="the items have the fields"):
        headrace.build(whole, tmp_path / "none", text_field="body")
