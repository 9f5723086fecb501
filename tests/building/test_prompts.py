"""Documents of a prompt and a response, from every kind of source, and the mask that is stored of them."""

import json
import tempfile
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import headrace
from headrace.errors import BuildError, OutputExistsError, SourceError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=12)
FIELDS = {"prompt_field": "q.p", "response_field": "r"}


def model(pairs, *, limit=None, bos=None, keep_empty=False):
    """Tokens and mask that pairs must give: a byte b is id b + 1, the boundary 0."""
    tokens, mask = [], []
    for prompt, response in pairs:
        if not response and not keep_empty:
            continue
        ids = [byte + 1 for byte in (prompt + response).encode()]
        counts = [0] * len(prompt.encode()) + [1] * len(response.encode())
        cut = limit is not None and len(ids) > limit
        start = [] if bos is None else [bos]
        tokens += start + ids[:limit] + [0]
        mask += [0] * len(start) + counts[:limit] + [int(not cut)]
    return tokens, mask


def rows_of(pairs):
    """The pairs as mappings."""
    return [{"q": {"p": prompt}, "r": response} for prompt, response in pairs]


def written(folder, kind, pairs):
    """The pairs as a source of one kind."""
    rows = rows_of(pairs)
    if kind == "given":
        return rows
    if kind == "data set":
        return datasets.Dataset.from_list(rows)
    path = Path(folder) / f"a.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    elif kind == "json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        table = pa.table(
            {"q": [row["q"] for row in rows], "r": pa.array([row["r"] for row in rows]).dictionary_encode()}
        )
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=3)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
    return [path]


def served(corpus):
    """All tokens, and their mask."""
    return corpus[:].tolist(), corpus.loss_mask(0, len(corpus)).tolist()


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "arrow", "given", "data set"])
@settings(max_examples=5, deadline=None)
@given(pairs=PAIRS, limit=st.none() | st.integers(1, 9), keep_empty=st.booleans())
def test_tokens_and_mask_are_the_model(kind, pairs, limit, keep_empty):
    """From every source, prompts are 0, responses and boundaries 1; a cut document's boundary is 0; all is verified."""
    tokens, mask = model(pairs, limit=limit, keep_empty=keep_empty)
    with tempfile.TemporaryDirectory() as folder:
        inputs, out = written(folder, kind, pairs), Path(folder) / "c"
        options = {**FIELDS, "max_document_tokens": limit, "keep_empty": keep_empty, "shard_tokens": 30, "workers": 1}
        if not tokens:
            with pytest.raises(BuildError, match="no documents were kept"):
                headrace.build(inputs, out, **options)
            return
        report = headrace.build(inputs, out, **options, chunk_tokens=7, validate=True)
        corpus = headrace.open(out)
        assert served(corpus) == (tokens, mask)
        kept = [pair for pair in pairs if pair[1] or keep_empty]
        assert report.documents == len(kept)
        assert report.text_bytes == sum(len((prompt + response).encode()) for prompt, response in kept)
        assert report.dropped == ({} if len(kept) == len(pairs) else {"empty": len(pairs) - len(kept)})


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "arrow", "given"])
def test_a_document_without_one_of_its_texts_is_bad(tmp_path, kind):
    """Null and a missing field are told with the field that lacks, its line, and the option by which it is known."""
    pairs = [("a", "b"), (None, "b"), ("a", None), ("c", "d")]
    inputs = written(tmp_path, kind, pairs)
    with pytest.raises(SourceError) as caught:
        headrace.build(inputs, tmp_path / "c", **FIELDS)
    told = [str(problem) for problem in caught.value.problems]
    assert any(":2: q.p is null" in problem for problem in told)
    assert any(":3: r is null" in problem for problem in told)
    headrace.build(inputs, tmp_path / "c", **FIELDS, on_bad_input="skip")
    assert served(headrace.open(tmp_path / "c")) == model([pairs[0], pairs[3]])


def test_other_faults_of_lines(tmp_path):
    """What is no string, no field, no UTF-8 or a lone surrogate is told by its field; `replace` puts U+FFFD, and says so."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"q": {"p": 1}, "r": "x"}\n{"q": {}, "r": "x"}\n{"q": {"p": "a"}, "r": []}\n{"q": {"p": "a"}}\n'
        b'{"q": {"p": "\xff"}, "r": "x"}\n{"q": {"p": "a"}, "r": "\\ud800"}\n{"q": {"p": "a"}, "r": "b"}\n'
    )
    with pytest.raises(SourceError) as caught:
        headrace.build([path], tmp_path / "c", **FIELDS)
    assert [problem.reason.partition(" (byte")[0] for problem in caught.value.problems] == [
        "q.p is not a string",
        "no field q.p",
        "r is not a string",
        "no field r",
        "invalid UTF-8",
        "lone surrogate",
    ]
    report = headrace.build([path], tmp_path / "c", **FIELDS, on_bad_input="replace")
    assert report.replaced == 2
    assert served(headrace.open(tmp_path / "c")) == model([("\ufffd", "x"), ("a", "\ufffd"), ("a", "b")])


def test_options_that_make_no_sense(tmp_path):
    """One of the two fields alone, or ids beside them, is refused before anything is read; so are text files."""
    for options in ({"prompt_field": "p"}, {"response_field": "r"}, {**FIELDS, "ids_field": "i", "tokenizer": "bytes"}):
        with pytest.raises(BuildError, match="--response-field"):
            headrace.build([tmp_path], tmp_path / "c", **options)
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(SourceError, match="no prompts and responses"):
        headrace.build([tmp_path / "a.txt"], tmp_path / "c", **FIELDS)
    with pytest.raises(SourceError, match="response-field"):
        headrace.build(
            written(tmp_path, "parquet", [("a", "b")]), tmp_path / "c", prompt_field="q.p", response_field="z"
        )


def test_many_workers_cuts_and_a_second_run_give_the_same_bytes(tmp_path, monkeypatch):
    """The division of the work decides nothing, and the same command finds the corpus there."""
    monkeypatch.setattr("headrace.building.build.CUT_BYTES", 300)
    pairs = [(f"prompt {number}", f"response {number} " * (number % 3 + 1)) for number in range(60)]
    path = written(tmp_path, "jsonl", pairs)
    for name, workers in (("one", 1), ("two", 2)):
        headrace.build(path, tmp_path / name, **FIELDS, workers=workers, chunk_tokens=16, max_documents=50)
    names = sorted(file.name for file in (tmp_path / "one").iterdir() if file.is_file())
    assert len(names) > 3
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert served(headrace.open(tmp_path / "one")) == model(pairs[:50])
    headrace.build(path, tmp_path / "one", **FIELDS, workers=1, chunk_tokens=16, max_documents=50)
    with pytest.raises(OutputExistsError, match=r"response_field \(--response-field\)"):
        headrace.build(
            path, tmp_path / "one", prompt_field="q.p", response_field="q.p", chunk_tokens=16, max_documents=50
        )


def test_append_keeps_the_mask_and_refuses_texts(tmp_path):
    """What is added has a mask too; the corpus before it opens with its own; texts are refused, and pairs by texts."""
    first, second = [("a", "b"), ("c", "d")], [("e", "fgh")]
    out = tmp_path / "c"
    headrace.build(rows_of(first), out, **FIELDS)
    before = headrace.open(out).fingerprint.hex
    headrace.build(headrace.Documents(rows_of(second), name="more"), out, **FIELDS, append=True)
    assert served(headrace.open(out)) == model(first + second)
    assert served(headrace.open(out, version=before)) == model(first)
    headrace.open(out, verify="full")
    with pytest.raises(OutputExistsError, match="the corpus has a loss mask, what would be added has none"):
        headrace.build(headrace.Documents(["text"]), out, append=True)
    headrace.build(headrace.Documents(["text"]), tmp_path / "texts")
    with pytest.raises(OutputExistsError, match="the corpus has none, what would be added has a loss mask"):
        headrace.build(rows_of(first), tmp_path / "texts", **FIELDS, append=True)


def test_overwritten_by_texts_nothing_of_the_mask_is_left(tmp_path):
    """Neither the sidecar nor the mask outlives its corpus."""
    out = tmp_path / "c"
    headrace.build(rows_of([("a", "b")]), out, **FIELDS)
    assert (out / ".headrace" / "loss_mask.bin").exists()
    headrace.build(headrace.Documents(["text"]), out, overwrite=True)
    assert not (out / ".headrace" / "loss_mask.bin").exists()
    assert not headrace.open(out).has_loss_mask


def test_batches_learn_responses_alone(tmp_path):
    """From build to batch: what counts in a batch are the bytes of responses, and boundaries."""
    pairs = [(f"<{number}>", "abc"[: number % 3 + 1]) for number in range(40)]
    headrace.build(rows_of(pairs), tmp_path / "c", **FIELDS)
    corpus = headrace.open(tmp_path / "c")
    plan = headrace.Plan(order="sequential", token_count=len(corpus), window=8, batch_size=4)
    learned = np.concatenate([batch.targets[batch.loss_mask] for batch in headrace.Loader(corpus, plan)])
    wanted = b"".join(response.encode() + b"\xff" for _, response in pairs)
    assert bytes((token - 1) % 256 for token in learned.tolist()) == wanted[: len(learned)]
    assert len(learned) > len(wanted) - 8


def test_a_build_that_was_stopped_goes_on_and_is_followed(tmp_path):
    """What is finished has its mask for a follower, the same command goes on from it, and the bytes are the undisturbed ones."""
    good = [("a", "bc"), ("d", "efg")]
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text("".join(json.dumps(row) + "\n" for row in rows_of(good)))
    second.write_text('{"q": {"p": "x"}}\n')
    out = tmp_path / "c"
    with pytest.raises(SourceError, match="no field r"):
        headrace.build([first, second], out, **FIELDS, workers=1, live=True)
    with headrace.open(out, live=True) as live:
        assert live.has_loss_mask
        assert served(live) == model(good)
        second.write_text(json.dumps(rows_of([("x", "y")])[0]) + "\n")
        report = headrace.build([first, second], out, **FIELDS, workers=1, live=True)
        assert report.resumed == 1
        assert live.refresh()
        assert served(live) == model([*good, ("x", "y")])
    headrace.build([first, second], tmp_path / "d", **FIELDS, workers=2)
    for path in (*(tmp_path / "d").glob("*.h5"), tmp_path / "d" / "shards.json"):
        assert path.read_bytes() == (out / path.name).read_bytes()
