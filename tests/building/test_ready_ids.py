"""`ids_field`: documents that are token ids already become the corpus that their texts would become."""

import json
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import BoundaryError, BuildError, OutputExistsError, SourceError, TokenizerError
from headrace.excerpts import corpus_tokenizer, excerpt
from headrace.tokenizers.load import load_from_corpus

TEXTS = [f"document {number} " + "wörd " * (number % 7) for number in range(400)]
TEXTS += ["", "a", "x" * 5000]


def ids_of(text: str) -> list[int]:
    """Those of the byte tokenizer."""
    return headrace.Tokenizer().encode(text)


def write(path: Path, rows: list[list[int]]) -> Path:
    """Lists of ids as the file's name says."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps([{"input_ids": row} for row in rows]))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import feather, parquet

        table = pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))})
        (parquet.write_table if path.suffix == ".parquet" else feather.write_feather)(table, path)
    return path


@pytest.fixture(scope="module")
def of_texts(tmp_path_factory) -> str:
    """The fingerprint of the corpus of the texts."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return headrace.build(folder / "a.jsonl", folder / "c", max_document_tokens=1000).fingerprint


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "a.arrow"])
def test_the_same_corpus(of_texts, tmp_path, name, ended):
    """Ids of the tokenizer, whether or not each list ends with the boundary, give the corpus of the texts; so does max_document_tokens."""
    rows = [ids_of(text) + [0] * ended for text in TEXTS]
    report = headrace.build(
        write(tmp_path / name, rows), tmp_path / "c", ids_field="input_ids", tokenizer="bytes", max_document_tokens=1000
    )
    assert report.fingerprint == of_texts
    assert (report.dropped, report.cut_tokens, report.text_bytes) == ({"empty": 1}, 4000, 0)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert corpus.documents[1].tolist() == [*ids_of(TEXTS[1]), 0]
        assert excerpt(corpus, 0, 5, corpus_tokenizer(corpus)).pieces[0].text == TEXTS[0][:5]
        assert corpus.manifest.options["ids_field"] == "input_ids"
        assert corpus.locate(corpus.documents.bounds(3)[0]).line == 4


def test_any_workers(published, tmp_path):
    """Two workers write the bytes of one."""
    for number in range(3):
        write(tmp_path / f"{number}.jsonl", [ids_of(text) for text in TEXTS[number::3]])
    for workers in (1, 2):
        files = sorted(tmp_path.glob("*.jsonl"))
        headrace.build(files, tmp_path / f"c{workers}", ids_field="input_ids", tokenizer="bytes", workers=workers)
    assert published(tmp_path / "c1") == published(tmp_path / "c2")


def test_bos_is_there_once(tmp_path, bytes_with_bos):
    """With `bos` each document begins with it once; without, a list that begins with it keeps it."""
    rows = [[3, 5, 6], [5, 6], [3], [3, 0], [3, 3, 5]]
    file = write(tmp_path / "a.jsonl", rows)
    for bos, wanted in (
        (True, [[3, 5, 6, 0], [3, 5, 6, 0], [3, 3, 5, 0]]),
        (False, [[3, 5, 6, 0], [5, 6, 0], [3, 0], [3, 0], [3, 3, 5, 0]]),
    ):
        headrace.build(file, tmp_path / f"c{bos}", ids_field="input_ids", tokenizer=bytes_with_bos, bos=bos)
        with headrace.open(tmp_path / f"c{bos}") as corpus:
            assert [document.tolist() for document in corpus.documents] == wanted


def test_inner_boundaries_stay(tmp_path):
    """Only one boundary at the end is the document's own; what else a list holds is kept."""
    file = write(tmp_path / "a.jsonl", [[0, 5, 0, 6], [5, 0, 0]])
    headrace.build(file, tmp_path / "c", ids_field="input_ids", tokenizer="bytes")
    with headrace.open(tmp_path / "c") as corpus:
        assert [document.tolist() for document in corpus.documents] == [[0, 5, 0, 6, 0], [5, 0, 0]]


def test_bad_lists_are_named(tmp_path):
    """Each with its file, line and reason; under `skip` they are left out and counted."""
    lines = ["[1, 2]", "[1, 2.0]", "[true]", '["5"]', "null", "[null]", "[-1]", "[257]", '"1"', "[3]"]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"ids": {line}}}\n' for line in lines))
    options = {"ids_field": "ids", "tokenizer": "bytes"}
    with pytest.raises(SourceError) as caught:
        headrace.build(tmp_path / "a.jsonl", tmp_path / "c", **options)
    assert [(problem.place, problem.reason.partition(" (byte")[0]) for problem in caught.value.problems] == [
        ("a.jsonl:2", "ids holds a float"),
        ("a.jsonl:3", "ids holds a boolean"),
        ("a.jsonl:4", "ids holds a string"),
        ("a.jsonl:5", "ids is null"),
        ("a.jsonl:6", "ids holds null"),
        ("a.jsonl:7", "ids holds a negative id"),
        ("a.jsonl:8", "ids holds an id beyond the vocabulary of 257"),
        ("a.jsonl:9", "ids is not a list"),
    ]
    report = headrace.build(tmp_path / "a.jsonl", tmp_path / "c", on_bad_input="skip", **options)
    assert (report.documents, sum(report.dropped.values())) == (2, 8)


@pytest.mark.parametrize("vocab_size", [1, 7, 65_536, 65_537, 1 << 32])
def test_without_a_tokenizer(tmp_path, vocab_size):
    """The size of the vocabulary and a boundary are enough; the corpus says that no tokenizer is known."""
    last = vocab_size - 1
    rows = [[last], [0, last, 0], [0, 0]]
    file = write(tmp_path / "a.jsonl", rows)
    options = {"ids_field": "input_ids", "vocab_size": vocab_size, "boundary": str(last)}
    headrace.build(file, tmp_path / "c", keep_empty=True, **options)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert corpus.dtype == ("uint16" if vocab_size <= 65_536 else "uint32")
        assert corpus.manifest.vocab_size == vocab_size
        assert corpus.manifest.tokenizer.kind == "none"
        assert corpus.manifest.tokenizer.vocab_size == vocab_size
        wanted = [[last], [0, last, 0, last], [0, 0, last]] if last else [[0], [0, 0, 0], [0, 0]]
        assert [document.tolist() for document in corpus.documents] == wanted
        assert corpus_tokenizer(corpus) is None
    known = load_from_corpus(tmp_path / "c")
    for use, given in ((known.decode, [0]), (known.encode, "x"), (known.encode_documents, [b"x"])):
        with pytest.raises(TokenizerError, match="is not known"):
            use(given)
    assert headrace.build(file, tmp_path / "c", keep_empty=True, **options).resumed == 1
    with pytest.raises(OutputExistsError, match="tokenizer"):
        headrace.build(
            file,
            tmp_path / "c",
            keep_empty=True,
            append=True,
            **(options | {"vocab_size": vocab_size // 2 + 2, "boundary": "0"}),
        )


def test_what_is_asked_of_the_user(tmp_path):
    """A tokenizer or a size, not both and not neither; a boundary where nothing says it; a size that is one."""
    file = write(tmp_path / "a.jsonl", [[1]])
    for options in (
        {"ids_field": "input_ids"},
        {"ids_field": "input_ids", "tokenizer": "bytes", "vocab_size": 257},
        {"vocab_size": 257},
        {"vocab_size": 257, "tokenizer": "bytes"},
    ):
        with pytest.raises(BuildError, match="give one of the two"):
            headrace.build(file, tmp_path / "c", **options)
    with pytest.raises(BoundaryError, match="the id that ends each document, 0 to 256, by --boundary"):
        headrace.build(file, tmp_path / "c", ids_field="input_ids", vocab_size=257)
    for size in (0, -1, (1 << 32) + 1, 1.0):
        with pytest.raises((BuildError, TokenizerError), match="1"):
            headrace.build(file, tmp_path / "c", ids_field="input_ids", vocab_size=size, boundary="0")
    with pytest.raises(SourceError, match=r"the lines have the fields 'input_ids'\n  a.jsonl:1: no field ids"):
        headrace.build(file, tmp_path / "c", ids_field="ids", tokenizer="bytes")
    assert not (tmp_path / "c" / "shards.json").exists()


def test_ids_are_a_pure_function_of_the_list(tmp_path):
    """Random lists of a large vocabulary come back as they were given, over many batches and shards."""
    random = np.random.default_rng(7)
    rows = [random.integers(0, 1 << 20, random.integers(1, 3000)).tolist() for _ in range(1500)]
    headrace.build(
        write(tmp_path / "a.jsonl", rows),
        tmp_path / "c",
        ids_field="input_ids",
        vocab_size=1 << 20,
        boundary="5",
        shard_tokens=300_000,
    )
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert len(corpus.entries) > 5
        assert [document[:-1].tolist() for document in corpus.documents] == [
            row[:-1] if row[-1] == 5 else row for row in rows
        ]
        assert all(document[-1] == 5 for document in corpus.documents)
