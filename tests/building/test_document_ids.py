"""`id_field`: the id of a document is kept beside its source, and found again, in every form of input and of corpus."""

import gzip
import json
from pathlib import Path

import h5py
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import headrace
from headrace.building import build as build_module
from headrace.errors import CorruptShardError, OutputExistsError, SourceError, WriterError
from headrace.events import Event, ShardWritten
from headrace.sources import SourceShard, read_shard
from headrace.sources.field import Field
from headrace.sources.files import SourceFile
from headrace.sources.given import Documents, given_file
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.verify import verify_path

VALUES = st.one_of(
    st.text(max_size=4),
    st.integers(),
    st.sampled_from([None, True, 1.0, [1], {"a": 1}, "\ud800", 10**30, -0, "x" * 300]),
)
ROWS = st.fixed_dictionaries(
    {}, optional={"text": st.sampled_from(["a", "b\ud800", "", 3]), "id": VALUES, "n": st.none()}
)


def id_of(row: dict) -> str | tuple[str]:
    """The id of a row in plain words; in a tuple, why there is none."""
    if "id" not in row:
        return ("no field id",)
    value = row["id"]
    if value is None:
        return ("id is null",)
    if type(value) not in {int, str}:
        return ("id is neither a string nor an integer",)
    return ("lone surrogate in id",) if value == "\ud800" else str(value)


def listed(folder: Path, rows: list[dict], form: str) -> SourceFile:
    """The rows as a source file, or as what a program gives."""
    if form == "given":
        return given_file(Documents(rows), Field("text", id_name="id"), paths=True)
    lines = [json.dumps(row) for row in rows]
    data = "[" + ",".join(lines) + "]" if form == "array" else "".join(line + "\n" for line in lines)
    (folder / "a").write_text(data)
    return SourceFile(folder / "a", "a", len(data), form, None)


@pytest.mark.parametrize("form", ["jsonl", "array", "given"])
@settings(max_examples=80)
@given(rows=st.lists(ROWS, max_size=8), mode=st.sampled_from(["skip", "replace"]))
def test_by_the_model(tmp_path_factory, form, rows, mode):
    """A document with a text and an id is kept, with its id; another is counted under one reason, that of its text first."""
    file = listed(tmp_path_factory.mktemp("rows"), rows, form)
    kept, dropped, replaced = {}, {}, []
    for batch in read_shard(SourceShard(0, (file,)), text_field=Field("text", id_name="id"), on_bad_input=mode):
        numbers = batch.rows.tolist()
        kept |= {row: (text, name) for row, text, name in zip(numbers, batch.texts, batch.ids, strict=True)}
        dropped |= {drop.row: drop.reason for drop in batch.drops}
        replaced += [numbers[place] for place in batch.replaced_texts]
    wanted, reasons = {}, {}
    for number, row in enumerate(rows):
        text, found = row.get("text"), id_of(row)
        if text in {"a", "b\ud800"} and not (mode == "skip" and text != "a"):
            if isinstance(found, str):
                wanted[number] = (text.replace("\ud800", "\ufffd").encode(), found.encode())
            else:
                reasons[number] = found[0]
        else:
            other = "text is not a string" if text == 3 else "lone surrogate"
            reasons[number] = "no field text" if "text" not in row else "empty" if text == "" else other
    assert (kept, dropped) == (wanted, reasons)
    assert replaced == [number for number, (text, _) in wanted.items() if text != b"a"]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columns(tmp_path, form):
    """Strings of any type and integers of any type; null and bytes that are no UTF-8 are bad."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    integers = [pa.int8(), pa.int64(), pa.uint64(), pa.dictionary(pa.int8(), pa.int32())]
    strings = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
    for number, kind in enumerate(integers + strings):
        texts = ["7", None, "100"] if kind in integers else ["ü", None, ""]
        plain = [None if text is None else int(text) for text in texts] if kind in integers else texts
        plain = [text and text.encode() for text in texts] if kind == pa.binary() else plain
        plain = [b"", *plain[:2]] if kind == pa.binary() else plain
        texts = ["", *texts[:2]] if kind == pa.binary() else texts
        column = pa.array(plain)
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        table = pa.table({"x": [1, 2, 3], "text": ["a", "b", "c"], "id": column})
        path = tmp_path / f"{number}.{form}"
        (parquet.write_table if form == "parquet" else feather.write_feather)(table, path)
        headrace.build(path, tmp_path / f"c{number}", id_field="id", on_bad_input="skip")
        with headrace.open(tmp_path / f"c{number}", verify="full") as corpus:
            found = [corpus.locate(corpus.documents.bounds(document)[0]).id for document in range(2)]
            assert found == [text for text in texts if text is not None]
            assert corpus.manifest.sources[0].dropped == {"id is null": 1}
    bad = pa.table({"text": ["a", "b"], "id": pa.array([b"ok", b"\xff"])})
    parquet.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(SourceError, match=r"bad\.parquet:2: invalid UTF-8 in id"):
        headrace.build(tmp_path / "bad.parquet", tmp_path / "bad", id_field="id")
    for name, reason in (("uid", "no column uid; its columns are text, id"), ("text.id", "no column text.id")):
        with pytest.raises(SourceError, match=f"{reason}.*--id-field"):
            headrace.build(tmp_path / "bad.parquet", tmp_path / "bad", id_field=name)
    parquet.write_table(pa.table({"text": ["a"], "id": [0.5]}), tmp_path / "bad.parquet")
    with pytest.raises(SourceError, match=r"the column id holds double; wanted strings or integers \(--id-field\)"):
        headrace.build(tmp_path / "bad.parquet", tmp_path / "bad", id_field="id")


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """Two files, whose documents are named in several ways."""
    folder = tmp_path_factory.mktemp("ids") / "in"
    folder.mkdir()
    for name in ("a", "b"):
        rows = [
            {
                "text": f"{name} " + "word " * (number % 40),
                "meta": {"id": number if number % 3 else f"{name}-ü-{number}"},
            }
            for number in range(500)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def names(corpus: headrace.Corpus) -> list[str | None]:
    """The ids of all documents."""
    return [corpus.locate(corpus.documents.bounds(number)[0]).id for number in range(len(corpus.documents))]


WANTED = [str(n) if n % 3 else f"{name}-ü-{n}" for name in ("a", "b") for n in range(500)]
OPTIONS = {"id_field": "meta.id", "chunk_tokens": 1000}


@pytest.mark.parametrize(
    ("compression", "shard_tokens"),
    [
        *(pytest.param(*case, marks=pytest.mark.extended) for case in (("none", None), ("gzip", None), ("none", 3000))),
        ("gzip", 3000),
    ],
)
def test_they_are_found_again(sources, published, tmp_path, shard_tokens, compression):
    """Each document by any of its tokens, over shards and rolls; any number of workers writes the same bytes."""
    options = OPTIONS | {"shard_tokens": shard_tokens, "compression": compression}
    for workers in (1, 2):
        headrace.build(sources, tmp_path / f"c{workers}", workers=workers, **options)
    assert published(tmp_path / "c1") == published(tmp_path / "c2")
    with headrace.open(tmp_path / "c1", verify="full") as corpus:
        assert names(corpus) == WANTED
        start, stop = corpus.documents.bounds(601)
        assert corpus.locate(stop - 1).id == corpus.locate(start).id == WANTED[601]
        assert corpus.manifest.options["id_field"] == "meta.id"


def test_where_none_are_asked_for(sources, tmp_path):
    """There is no column, no id, and the fingerprint is that of the corpus with ids: it is of tokens alone."""
    plain = headrace.build(sources, tmp_path / "c")
    assert plain.fingerprint == headrace.build(sources, tmp_path / "d", id_field="meta.id").fingerprint
    with headrace.open(tmp_path / "c") as corpus:
        assert set(names(corpus)) == {None}
        with h5py.File(corpus.entries[0].path) as file:
            assert "id" not in file["documents"]
    with pytest.raises(OutputExistsError, match=r"id_field \(--id-field\): was None, is 'meta.id'"):
        headrace.build(sources, tmp_path / "c", id_field="meta.id")
    with pytest.raises(SourceError, match=r"no field text\.id"):
        headrace.build(sources, tmp_path / "e", id_field="text.id")


def test_appended_with_and_without(sources, tmp_path):
    """Each append has its own choice."""
    headrace.build(sources / "a.jsonl", tmp_path / "c", id_field="meta.id")
    headrace.build(sources / "b.jsonl", tmp_path / "c", append=True)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert names(corpus) == WANTED[:500] + [None] * 500


def test_followed_while_they_are_written(sources, tmp_path):
    """A live corpus tells them of what is whole, of rolls that are finished and of the shard that grows."""
    seen: list[int] = []

    def look(event: Event) -> None:
        with headrace.open(tmp_path / "c", live=True) as corpus:
            found = names(corpus)
        assert found == WANTED[: len(found)]
        seen.extend([len(found)] if isinstance(event, ShardWritten) else [])

    headrace.build(sources, tmp_path / "c", workers=1, live=True, shard_tokens=6000, on_event=look, **OPTIONS)
    assert max(seen) > 400


def test_a_growing_shard(tmp_path):
    """Between two chunks a reader has the ids of the documents that it is shown."""
    path = tmp_path / "000000-0000-0000.h5"
    with HDF5ShardWriter(path, 10, source_files=["a"], document_ids=True) as writer:
        for number in range(40):
            one = np.array([number], np.uint64)
            writer.add_documents(
                np.arange(3), [3], rows=one, offsets=one, files=one * np.uint64(0), ids=[f"id {number}".encode()]
            )
            with h5py.File(path, "r", swmr=True, locking=False) as file:
                count = int(file["tokens"].attrs["document_count"])
                ends, data = file["documents/id_end"][:count], file["documents/id"][:]
                found = [bytes(data[a:b]).decode() for a, b in zip([0, *ends[:-1]], ends, strict=False)]
                assert found == [f"id {n}" for n in range(count)]
        assert count > 30
    assert len(writer.result("x").sources_sha256) == 64


@pytest.mark.parametrize("column", ["id", "id_end"])
def test_damage_is_found(sources, tmp_path, column):
    """A changed byte of an id, or a changed end, is found by `verify` and by whoever asks for documents."""
    headrace.build(sources / "a.jsonl", tmp_path / "c", **OPTIONS)
    (shard,) = (tmp_path / "c").glob("*.h5")
    for place in (0, 7, -1):
        with h5py.File(shard, "r+", locking=False) as file:
            before = file[f"documents/{column}"][place]
            file[f"documents/{column}"][place] = before + 1
        (report,) = verify_path(tmp_path / "c")
        assert report.status == "corrupt"
        assert any("/documents" in str(problem) for problem in report.problems)
        with headrace.open(tmp_path / "c") as corpus, pytest.raises(CorruptShardError):
            corpus.locate(0)
        with h5py.File(shard, "r+", locking=False) as file:
            file[f"documents/{column}"][place] = before
    with h5py.File(shard, "r+", locking=False) as file:
        del file[f"documents/{column}"]
    (report,) = verify_path(tmp_path / "c")
    assert report.status == "corrupt"


def test_a_writer_that_is_misused(tmp_path):
    """Ids of other documents than there are, or where none are expected, are refused, and so is a writer without sources."""
    one = np.zeros(1, np.uint64)
    origin = {"rows": one, "offsets": one, "files": one}
    with pytest.raises(WriterError, match="asks for source_files"):
        HDF5ShardWriter(tmp_path / "a.h5", 4, document_ids=True)
    with HDF5ShardWriter(tmp_path / "a.h5", 4, source_files=["a"], document_ids=True) as writer:
        for ids in ((), (b"a", b"b")):
            with pytest.raises(WriterError, match="takes an id for each of 1 documents"):
                writer.add_documents([1], [1], ids=ids, **origin)
    writer = HDF5ShardWriter(tmp_path / "b.h5", 4, source_files=["a"])
    with writer, pytest.raises(WriterError, match="takes no ids"):
        writer.add_documents([1], [1], ids=[b"a"], **origin)


def test_documents_without_a_field(tmp_path):
    """Text files are left out of folders and refused where they are named; plain strings of a program are bad."""
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(SourceError, match=r"a\.txt: a text file, which holds no field for the id"):
        headrace.build(tmp_path / "a.txt", tmp_path / "c", id_field="id")
    with pytest.raises(SourceError, match="documents:1: no field id"):
        headrace.build(iter(["x"]), tmp_path / "c", id_field="id")
    report = headrace.build(iter([{"text": "x", "id": np.int64(5)}]), tmp_path / "c", id_field="id")
    assert report.documents == 1
    with headrace.open(tmp_path / "c") as corpus:
        assert names(corpus) == ["5"]


def test_with_the_first_documents(sources, tmp_path):
    """A batch that is cut is cut with its ids."""
    headrace.build(sources, tmp_path / "c", max_documents=501, **OPTIONS)
    with headrace.open(tmp_path / "c") as corpus:
        assert names(corpus) == WANTED[:501]


@pytest.mark.parametrize(
    ("form", "max_documents"),
    [
        *(pytest.param(*case, marks=pytest.mark.extended) for case in (("jsonl", None), ("parquet", 333))),
        *(("jsonl", 333), ("jsonl.gz", None), ("jsonl.gz", 333), ("parquet", None)),
    ],
)
def test_of_files_that_are_cut(tmp_path, monkeypatch, published, form, max_documents):
    """Ids, and documents that come as ids, are found at the same lines however a file is cut and by whomever it is read."""
    rows = [{"uid": f"u{n}" if n % 7 else n, "ids": [n % 200 + 1] * (n % 11 + 1)} for n in range(500)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pa.table({"uid": [str(row["uid"]) for row in rows], "ids": [row["ids"] for row in rows]})
        parquet.write_table(table, path, row_group_size=60)
    else:
        path.write_bytes(gzip.compress(lines, mtime=0) if form == "jsonl.gz" else lines)
    options = {"id_field": "uid", "ids_field": "ids", "tokenizer": "bytes", "max_documents": max_documents}
    headrace.build(path, tmp_path / "whole", **options)
    monkeypatch.setattr(build_module, "CUT_BYTES", 1500)
    for workers in (1, 3):
        headrace.build(path, tmp_path / f"cut{workers}", workers=workers, **options)
    assert published(tmp_path / "cut1") == published(tmp_path / "cut3")
    with headrace.open(tmp_path / "whole") as whole, headrace.open(tmp_path / "cut1", verify="full") as cut:
        assert len(cut.entries) > len(whole.entries)
        assert len(cut.documents) == len(whole.documents) == (max_documents or 500)
        assert names(cut) == names(whole) == [str(row["uid"]) for row in rows[:max_documents]]
        for number in range(0, len(cut.documents), 50):
            here, there = (c.locate(c.documents.bounds(number)[0]) for c in (cut, whole))
            assert (here.line, here.byte) == (there.line, there.byte) == (number + 1, there.byte)
            assert cut.documents[number].tolist() == [*rows[number]["ids"], 0]
