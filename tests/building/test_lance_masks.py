"""Loss masks of Lance corpora: those of HDF5 builds of the same documents, in a data set of their own."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import CorruptShardError, ManifestError, MissingShardError, OutputExistsError
from headrace.manifest import read_manifest
from headrace.shard_paths import load_index
from headrace.storage.hdf5_corpus import MASK_SIDECAR
from headrace.storage.lance_names import docs_path, mask_path
from headrace.verify import verify_path, verify_shards

lance = pytest.importorskip("lance")

FIELDS = {"prompt_field": "p", "response_field": "r"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=12)


def rows_of(pairs):
    """The pairs as mappings."""
    return [{"p": prompt, "r": response} for prompt, response in pairs]


def some_rows(count, word="word"):
    """Rows of all lengths."""
    return rows_of([(f"{word} {number}", f"{word} " * (number % 4 + 1)) for number in range(count)])


def build(rows, output, **options):
    """A Lance corpus of rows, by one process."""
    return headrace.build(rows, output, **{**FIELDS, "store": "lance", "workers": 1, "chunk_tokens": 8, **options})


def faults(output):
    """What verification finds."""
    return [report.fault for report in verify_path(output) if not report.ok]


def mask_of(corpus):
    """All of it."""
    return corpus.loss_mask(0, len(corpus)).tolist()


@settings(max_examples=10, deadline=None)
@given(
    pairs=PAIRS,
    limit=st.none() | st.integers(1, 9),
    shard_tokens=st.none() | st.integers(1, 60),
    chunk_tokens=st.integers(1, 9),
)
def test_the_mask_is_that_of_an_hdf5_build(pairs, limit, shard_tokens, chunk_tokens):
    """Values, hashes, fingerprint, windows and what a batch learns from; with its sidecar and without, mapped and read."""
    options = {"max_document_tokens": limit, "shard_tokens": shard_tokens, "chunk_tokens": chunk_tokens}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "lance", Path(folder) / "hdf5"
        build(rows_of(pairs), ours, **options)
        build(rows_of(pairs), theirs, store="hdf5", **options)
        wanted = headrace.open(theirs)
        starts = np.arange(len(wanted) - 1)[None]
        windows = np.empty((starts.size, 2), np.uint8)
        for io, sidecar in (("mmap", True), ("pread", True), ("mmap", False)):
            if not sidecar:
                (ours / MASK_SIDECAR).unlink()
            corpus = headrace.open(ours, io=io, verify="full")
            assert corpus.fingerprint == wanted.fingerprint
            hashes = [entry.loss_mask_sha256 for entry in wanted.entries]
            assert [entry.loss_mask_sha256 for entry in corpus.entries] == hashes
            assert mask_of(corpus) == mask_of(wanted)
            corpus.loss_mask_windows(starts, 2).gather_into(0, windows)
            assert windows[:, 1].tolist() == mask_of(wanted)[1:]
            plan = headrace.Plan(order="sequential", token_count=len(corpus), window=1, batch_size=2)
            batches = zip(headrace.Loader(corpus, plan), headrace.Loader(wanted, plan), strict=True)
            assert all(np.array_equal(one.loss_mask, other.loss_mask) for one, other in batches)
        assert not faults(ours)


def test_the_data_sets_of_a_corpus_with_a_mask(tmp_path):
    """The recipe's data set is as it is without one; the mask is another, of the same rows in the same order."""
    build(some_rows(60), tmp_path / "c", shard_tokens=200)
    corpus = headrace.open(tmp_path / "c")
    tokens, masks = (lance.dataset(tmp_path / "c" / name) for name in ("tokens.lance", "loss_mask.lance"))
    assert (tokens.schema.names, masks.schema.names) == (["input_ids"], ["loss_mask"])
    assert str(masks.schema.field("loss_mask")) == "pyarrow.Field<loss_mask: uint8 not null>"
    assert masks.data_storage_version == "2.0"
    assert tokens.count_rows() == masks.count_rows() == len(corpus)
    some = range(150, 300)
    assert [row["input_ids"] for row in tokens.take(some).to_pylist()] == corpus[150:300].tolist()
    assert [row["loss_mask"] for row in masks.take(some).to_pylist()] == corpus.loss_mask(150, 300).tolist()
    (entry, *_) = corpus.entries
    assert mask_path(Path(entry.path)).stat().st_size < entry.token_count + 1000
    assert [*masks.tags.list()] == [f"headrace-{corpus.fingerprint.hex[:16]}"]


def test_appends_and_overwrites(tmp_path):
    """A mask has versions as tokens have; another corpus in its place has its own, or none, and nothing is left of it."""
    out = tmp_path / "c"
    first = build(some_rows(9), out)
    build(headrace.Documents(some_rows(5, "more"), name="more"), out, append=True)
    both, old = headrace.open(out), headrace.open(out, version=first.fingerprint)
    assert mask_of(both)[: len(old)] == mask_of(old)
    assert len(mask_of(both)) == len(both)
    assert lance.dataset(out / "loss_mask.lance", version=1).count_rows() == len(old)
    assert read_manifest(out).lance.loss_mask == 2
    assert not faults(out)
    with pytest.raises(OutputExistsError, match="the corpus has a loss mask, what would be added has none"):
        headrace.build(headrace.Documents(["text"]), out, append=True, store="lance")
    build(some_rows(4), out, overwrite=True)
    assert not faults(out)
    assert len(list((out / "loss_mask.lance" / "data").iterdir())) == 1
    headrace.build(headrace.Documents(["text"]), out, overwrite=True, store="lance")
    assert not headrace.open(out).has_loss_mask
    assert not (out / "loss_mask.lance").exists()
    assert not (out / MASK_SIDECAR).exists()
    build(some_rows(4), out, overwrite=True)
    assert read_manifest(out).lance.loss_mask == 1
    assert not faults(out)
    build(some_rows(4), out, overwrite=True, store="hdf5")
    assert not list(out.glob("*.lance"))


def test_versions_without_bytes(tmp_path):
    """As a power failure leaves them: one that was never published goes with the next build; one that was is told and mended."""
    out, source = tmp_path / "c", tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in some_rows(9)))
    build([source], out)
    versions = out / "loss_mask.lance" / "_versions"
    (versions / f"{(1 << 64) - 1 - 2:020d}.manifest").touch()
    assert not faults(out)
    (manifest,) = versions.glob(f"{(1 << 64) - 1 - 1:020d}.manifest")
    manifest.write_bytes(b"")
    (fault,) = faults(out)
    assert "version 1 cannot be opened" in str(fault)
    build([source], out)
    assert not faults(out)


def test_damage_is_located(tmp_path):
    """Any flipped byte of the mask's file is found, and of its values chunk and documents are named; so are cuts and losses."""
    build(some_rows(9), tmp_path / "c")
    manifest = read_manifest(tmp_path / "c")
    (entry,) = load_index(tmp_path / "c")
    path = mask_path(Path(entry.path))
    data = path.read_bytes()
    for at in range(len(data)):
        if at >= entry.token_count and at % 3:
            continue
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        (report,) = verify_shards([entry], manifest=manifest)
        assert not report.ok, at
        if at < entry.token_count:
            (problem,) = report.problems
            assert problem.place == f"{path}: /loss_mask chunk {at // 8}"
            assert "documents " in problem.reason or "document " in problem.reason
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with headrace.open(tmp_path / "c") as corpus:
        corpus.get_slice(0, 10)
        with pytest.raises(CorruptShardError, match="checksum") as caught:
            corpus.loss_mask(30, 31)
        assert str(path) in str(caught.value)
    path.write_bytes(data[:-1])
    assert not verify_shards([entry], manifest=manifest)[0].ok
    with pytest.raises(CorruptShardError, match="loss_mask"):
        headrace.open(tmp_path / "c").loss_mask(0, 1)
    path.unlink()
    assert verify_shards([entry], manifest=manifest)[0].status == "missing"
    with pytest.raises(MissingShardError, match="loss_mask"):
        headrace.open(tmp_path / "c").loss_mask(0, 1)
    path.write_bytes(data)
    docs_path(path).write_bytes(docs_path(path).read_bytes()[:-1])
    assert not verify_shards([entry], manifest=manifest)[0].ok


def test_an_index_that_contradicts_itself_is_refused(tmp_path):
    """The version of the mask's data set is there if and only if the shards have hashes of it."""
    build(some_rows(9), tmp_path / "c")
    manifest = read_manifest(tmp_path / "c")
    shards = tuple(replace(entry, loss_mask_sha256="") for entry in manifest.shards)
    versions = replace(manifest.lance, loss_mask=0)
    for wrong in (replace(manifest, shards=shards), replace(manifest, lance=versions)):
        (tmp_path / "c" / "shards.json").write_bytes(wrong.to_json())
        with pytest.raises(ManifestError, match=r"lance\.loss_mask"):
            headrace.open(tmp_path / "c")


def test_a_lost_data_set_is_made_again(tmp_path):
    """The same command builds those shards again whose mask is gone."""
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in some_rows(9)))
    wanted = build([source], tmp_path / "c").fingerprint
    (entry,) = load_index(tmp_path / "c")
    mask_path(Path(entry.path)).unlink()
    assert build([source], tmp_path / "c").fingerprint == wanted
    assert not faults(tmp_path / "c")


@pytest.mark.parametrize("mode", ["build", "overwrite"])
def test_what_is_finished_is_followed(tmp_path, mode):
    """Source shards that are whole have their mask for a follower, wherever they lie; the same command goes on from them."""
    good, bad = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    good.write_text("".join(json.dumps(row) + "\n" for row in some_rows(7)))
    bad.write_text('{"p": "x"}\n')
    out = tmp_path / "c"
    options = {} if mode == "build" else {"overwrite": True}
    if options:
        build(some_rows(3, "old"), out)
    with pytest.raises(headrace.HeadraceError, match="no field r"):
        build([good, bad], out, live=True, **options)
    build([good], tmp_path / "alone")
    alone = headrace.open(tmp_path / "alone")
    with headrace.open(out, live=True) as live:
        assert (live[:].tolist(), mask_of(live)) == (alone[:].tolist(), mask_of(alone))
        bad.write_text(json.dumps(some_rows(1)[0]) + "\n")
        assert build([good, bad], out, live=True, **options).resumed == 1
        live.close()  # drops its maps; an overwrite has moved the files since
        assert mask_of(live) == mask_of(alone)
        live.refresh()
        assert len(mask_of(live)) == len(live) > len(alone)
    corpus = headrace.open(out)
    assert mask_of(corpus)[: len(alone)] == mask_of(alone)
    assert not faults(out)
