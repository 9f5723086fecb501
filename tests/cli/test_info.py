"""`headrace info`: figures that are right, and a warning where documents are too short."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import headrace as library
from headrace.inspection import describe

FORMATS = Path(__file__).parent.parent / "data" / "formats"


def info(headrace, *arguments) -> dict:
    """The summary as JSON."""
    ran = headrace("info", *arguments, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_the_figures(headrace, known):
    """Tokens, documents, their median length, shards, chunk, share of boundaries and bytes are those of the files."""
    found = info(headrace, known.path)
    lengths = np.diff(known.starts)
    assert (found["tokens"], found["documents"]) == (known.starts[-1], len(known.texts))
    assert found["median_document_tokens"] == np.median(lengths)
    assert found["median_is_sampled"] is False
    assert found["boundary_share"] == len(known.texts) / known.starts[-1]
    assert found["bytes_on_disk"] == sum(path.stat().st_size for path in known.path.glob("*.h5"))
    assert (found["shards"], found["chunk_tokens"]) == (len(list(known.path.glob("*.h5"))), 64)
    assert (found["dtype"], found["vocab_size"], found["boundary_token_id"]) == ("uint16", 257, 0)
    assert (found["tokenizer"], found["dropped"], found["window"]) == ("bytes", {}, None)
    assert found["compression"] == "none"
    with library.open(known.path) as corpus:
        assert (found["fingerprint"], found["fingerprint_kind"]) == (str(corpus.fingerprint), "content")


def test_as_text(headrace, known):
    """The same for people, one row a figure, and no warning where documents are long enough."""
    ran = headrace("info", known.path, "--window", 64)
    rows = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert rows["tokens"].strip().startswith(f"{known.starts[-1]:,} (uint16, vocabulary of 257)")
    assert rows["documents"].strip() == str(len(known.texts))
    assert ran.err == ""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_median_of_few(headrace, tmp_path, write_lines, count):
    """The median is that of all documents, boundary included, odd or even in number, over several shards."""
    texts = ["x" * length for length in (50, 1, 400, 30, 31)[:count]]
    library.build(write_lines(tmp_path / "a.jsonl", texts), tmp_path / "c", shard_tokens=40)
    assert info(headrace, tmp_path / "c")["median_document_tokens"] == np.median([len(text) + 1 for text in texts])


@pytest.mark.parametrize(("length", "warns"), [(18, True), (19, False), (20, False), (1, True)])
def test_the_warning_about_boundaries(headrace, tmp_path, write_lines, length, warns):
    """Above 5 % of boundary tokens `info` warns on stderr; at 5 % it does not."""
    library.build(write_lines(tmp_path / "a.jsonl", ["x" * length] * 10), tmp_path / "c")
    ran = headrace("info", tmp_path / "c")
    assert ran.code == 0
    assert ("warning: " in ran.err) is warns
    assert f"{1 / (length + 1):.2%} of the tokens" in ran.out


def test_what_was_dropped(headrace, tmp_path):
    """Documents that the build left out are summed up by reason."""
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"text": ""}\n[]\n[]\n')
    library.build(tmp_path / "a.jsonl", tmp_path / "c", on_bad_input="skip")
    assert info(headrace, tmp_path / "c")["dropped"] == {"empty": 1, "not an object": 2}
    assert "1 empty, 2 not an object" in headrace("info", tmp_path / "c").out


@pytest.mark.parametrize(
    ("tokens", "window", "chunk"), [(96, 5, 7), (97, 16, 16), (1000, 64, 64), (130, 129, 3), (77, 1, 1)]
)
def test_windows_against_brute_force(headrace, tmp_path, write_lines, tokens, window, chunk):
    """Full windows and tail are those of walking along the corpus; chunks touched, the mean over all places of a chunk."""
    library.build(write_lines(tmp_path / "a.jsonl", ["x" * (tokens - 1)]), tmp_path / "c", chunk_tokens=chunk)
    found = info(headrace, tmp_path / "c", "--window", window)["window"]
    starts = [start for start in range(0, tokens, window) if start + window + 1 <= tokens]
    targets = {start + offset + 1 for start in starts for offset in range(window)}
    assert found["windows"] == len(starts)
    assert found["tail_tokens"] == len(set(range(1, tokens)) - targets)
    touched = [(start + window) // chunk - start // chunk + 1 for start in range(chunk)]
    assert found["chunks_touched"] == pytest.approx(np.mean(touched))
    assert found["chunk_fits"] is (chunk % window == 0)


def test_tokens_in_one_piece(headrace):
    """Where a file has no chunks, none are counted, and nothing is said of them."""
    path = FORMATS / "h5_contiguous" / "tokens.h5"
    found = info(headrace, path, "--window", 64)
    assert (found["chunk_tokens"], found["compression"]) == (None, "none")
    assert (found["window"]["chunks_touched"], found["window"]["chunk_fits"]) == (None, None)
    assert found["window"]["windows"] == (found["tokens"] - 1) // 64
    ran = headrace("info", path, "--window", 64)
    assert "chunks touched" not in ran.out
    assert re.search("^chunk  +none: each shard lies in one piece$", ran.out, re.MULTILINE)
    assert ran.err == ""


@pytest.mark.parametrize("compression", ["none", "gzip:6", "zstd:3"])
@pytest.mark.parametrize(("window", "fits"), [(32, True), (64, True), (24, False), (100, False)])
def test_the_warning_about_compressed_chunks(headrace, tmp_path, compression, window, fits):
    """Of a compressed corpus a chunk that is no multiple of the window is warned of, with one that is; the rest is said."""
    if compression.startswith("zstd"):
        pytest.importorskip("hdf5plugin")
    path = tmp_path / "shard.h5"
    with library.HDF5ShardWriter(path, 64, vocab_size=257, compression=compression) as writer:
        writer.add_document(range(1, 250))
        writer.add_boundary()
    ran = headrace("info", path, "--window", window)
    assert ran.code == 0
    assert re.search(f"^compression  +{compression}$", ran.out, re.MULTILINE)
    assert ("warning: " in ran.err) is (compression != "none" and not fits)
    if ran.err:
        better = int(re.search(r"--chunk-tokens (\d+)", ran.err)[1])
        assert better % window == 0
        assert abs(better - 64) <= max(window / 2, 36)
    assert info(headrace, path)["compression"] == compression
    assert headrace("info", path).err == ""


def test_a_compressed_file_of_another_tool(headrace):
    """Filters are named in the order of writing."""
    assert info(headrace, FORMATS / "h5_gzip_shuffle" / "tokens.h5")["compression"].startswith("shuffle+gzip:")


def test_a_window_that_does_not_fit(headrace, known):
    """A window longer than the corpus is exit code 1 and says how many tokens there are; one of zero is wrong usage."""
    ran = headrace("info", known.path, "--window", known.starts[-1])
    assert (ran.code, ran.out) == (1, "")
    assert str(known.starts[-1]) in ran.err
    assert headrace("info", known.path, "--window", 0).code == 2


def test_the_median_of_a_sample(known, monkeypatch):
    """Of very many documents, whole shards spread over the corpus are looked at, and the summary says so."""
    from headrace import inspection

    monkeypatch.setattr(inspection, "_MEDIAN_DOCUMENTS", 10)
    with library.open(known.path) as corpus:
        summary = describe(corpus)
        chosen = [corpus.documents.lengths(shard) for shard in range(0, len(corpus.entries), 3)]
    assert summary.median_is_sampled
    assert summary.median_document_tokens == np.median(np.concatenate(chosen))
    assert summary.documents == len(known.texts)


def test_nothing_there(headrace, tmp_path):
    """A path without a corpus is exit code 1 and named."""
    for path in (tmp_path / "absent", tmp_path):
        for command in ("info", "verify"):
            ran = headrace(command, path)
            assert (ran.code, ran.out) == (1, "")
            assert str(path) in ran.err
