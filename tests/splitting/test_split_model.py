"""A split is what plain Python makes of it: each document on its side, in order, and nothing else."""

import gzip
import json
import shutil
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import headrace
from headrace.events import Notice, Progress, SplitFinished, SplitStarted
from headrace.manifest import read_manifest
from headrace.splitting import pieces
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import small_corpus

DOCUMENTS = st.lists(st.lists(st.integers(1, 3), max_size=4), max_size=12)
"""Few ids, so that many documents are equal."""
PARTS = st.lists(st.integers(1, 999), min_size=1, max_size=3).map(
    lambda thousandths: (
        [
            (f"part{number}", str(Decimal(part) / max(sum(thousandths), 1000)))
            for number, part in enumerate(thousandths)
            if sum(thousandths) <= 1000
        ]
        or [("only", "1")]
    )
)


def expected(model: dict, shards: list[list[list[int]]], seed: int, parts: list[tuple[str, str]]) -> dict:
    """Shards and their documents, boundary included, of each part, by name."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for number, shard in enumerate(shards):
        for document in shard:
            name = model["side"](model["of_tokens"](document), seed, parts)
            found.setdefault(name, {}).setdefault(f"{number:06d}-0000-0000", []).append([*document, 0])
    return found


@settings(max_examples=25)
@given(
    shards=st.lists(DOCUMENTS, max_size=3),
    parts=PARTS,
    seed=st.integers(0, 2**63 - 1),
    vocab_size=st.sampled_from([257, 70_000]),
    how=st.sampled_from([{}, {}, {"compression": "gzip:1"}, {"compression": "zstd"}, {"store": "lance"}]),
)
def test_by_the_model(tmp_path_factory, model, documents, shards, parts, seed, vocab_size, how):
    """Shards, their names, and the documents of each are the model's; parts without documents are empty corpora."""
    folder = tmp_path_factory.mktemp("split")
    small_corpus(folder / "c", shards, chunk_size=8, vocab_size=vocab_size, **how)
    report = headrace.split(folder / "c", folder / "o", parts, seed=seed)
    wanted = expected(model, shards, seed, parts)
    whole = sum((Fraction(text) for _, text in parts), Fraction(0)) == 1
    assert [part.name for part in report.parts] == [name for name, _ in parts] + (["train"] if not whole else [])
    for part in report.parts:
        place = folder / "o" / part.name
        found = documents(place)
        shards_of_part = wanted.get(part.name, {})
        assert found == [document for shard in shards_of_part.values() for document in shard]
        manifest = read_manifest(place)
        assert [(entry.shard_id, entry.document_count) for entry in manifest.shards] == [
            (name, len(shard)) for name, shard in shards_of_part.items()
        ]
        assert part.fingerprint == manifest.fingerprint.hex
        assert (part.documents, part.shards) == (len(found), len(shards_of_part))
        with headrace.open(place) as corpus:
            assert corpus.dtype == np.dtype("uint16" if vocab_size == 257 else "uint32")


@settings(max_examples=8)
@given(old=DOCUMENTS, new=DOCUMENTS, seed=st.integers(0, 99))
def test_a_corpus_that_grows(tmp_path_factory, documents, old, new, seed):
    """Documents in front, behind and between move none: a part of the larger corpus has what it had of the smaller."""
    folder = tmp_path_factory.mktemp("split")
    for name, shards in (("small", [old]), ("large", [new, old, new])):
        small_corpus(folder / name, shards, chunk_size=8)
        headrace.split(folder / name, folder / f"o-{name}", {"val": 0.3}, seed=seed)
    known = {"val": {}, "train": {}}
    for part, found in known.items():
        for name in ("small", "large"):
            found[name] = {tuple(document) for document in documents(folder / f"o-{name}" / part)}
        assert found["small"] <= found["large"]
    assert not known["val"]["large"] & known["train"]["large"]  # no text is on two sides


def write_sources(folder: Path) -> Path:
    """JSON lines with ids and equal texts, plain and compressed, a file without documents, and text files."""
    folder.mkdir()
    rows = [{"text": f"{number % 70} wörd" * (number % 9), "id": number} for number in range(300)]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "a.jsonl").write_text("".join(lines))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[::3]).encode(), mtime=0))
    (folder / "empty.jsonl").write_text('{"text": "", "id": 1}\n')
    return folder


def places(folder: Path) -> list[tuple]:
    """Every document: its tokens, and all that is known of its origin."""
    with headrace.open(folder, verify="full") as corpus:
        found = []
        for number in range(len(corpus.documents)):
            start, _ = corpus.documents.bounds(number)
            place = corpus.locate(start)
            origin = (place.shard_id, place.source, place.line, place.byte, place.id)
            found.append((origin, corpus.documents[number].tobytes()))
        return found


@pytest.mark.parametrize("compression", ["none", "zstd", pytest.param("gzip", marks=pytest.mark.extended)])
def test_where_documents_came_from(tmp_path, documents, compression):
    """File, line, byte and id of each document are those that it had, in a corpus that was appended to, too."""
    sources = write_sources(tmp_path / "in")
    options = {"id_field": "id", "chunk_tokens": 64, "compression": compression, "workers": 1}
    headrace.build([sources / "a.jsonl", sources / "empty.jsonl"], tmp_path / "c", shard_tokens=3000, **options)
    headrace.build(sources / "b.jsonl.gz", tmp_path / "c", append=True, **options)
    report = headrace.split(tmp_path / "c", tmp_path / "o", {"val": "0.2", "test": "0.1"}, rest="rest", seed=1)
    whole = places(tmp_path / "c")
    parts = {part.name: places(tmp_path / "o" / part.name) for part in report.parts}
    assert sorted(place for part in parts.values() for place in part) == sorted(whole)
    assert min(map(len, parts.values())) > 20
    for name, part in parts.items():
        documents(tmp_path / "o" / name)
        chosen = set(part)
        assert part == [place for place in whole if place in chosen]
    texts = [{tokens for _, tokens in part} for part in parts.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))
    manifests = [read_manifest(tmp_path / "o" / name) for name in parts]
    original = read_manifest(tmp_path / "c")
    for number, source in enumerate(original.sources):
        of_parts = [manifest.sources[number] for manifest in manifests]
        assert sum(one.documents for one in of_parts) == source.documents
        assert {(one.path, one.size, one.sha256, *one.dropped.items()) for one in of_parts} == {
            (source.path, source.size, source.sha256, *source.dropped.items())
        }
    assert manifests[0].splits[-1].appends == original.appends
    assert manifests[0].splits[-1].base == original.fingerprint.hex


def test_text_files_that_share_a_shard(tmp_path, documents):
    """Each is a document of one line; a part lists all of them as sources."""
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number:02d}.txt").write_text(f"text {number}")
    headrace.build(tmp_path / "in", tmp_path / "c", workers=1)
    headrace.split(tmp_path / "c", tmp_path / "o", {"val": 0.4})
    found = [*places(tmp_path / "o" / "val"), *places(tmp_path / "o" / "train")]
    assert sorted(found) == places(tmp_path / "c")
    assert {origin[1] for origin, _ in found} == {f"{number:02d}.txt" for number in range(40)}
    documents(tmp_path / "o" / "val")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_part_that_has_all_is_the_corpus(small, tmp_path, files, compression):
    """Its shards, sidecar and tokenizer are the same bytes: nothing is lost on the way."""
    shutil.rmtree(small)
    options = {"chunk_tokens": 32, "shard_tokens": 500, "on_bad_input": "skip", "max_bad": 1}
    headrace.build(tmp_path / "in", small, workers=1, compression=compression, **options)
    headrace.split(small, tmp_path / "o", {"all": 1})
    found, wanted = files(tmp_path / "o" / "all"), files(small)
    own = {"shards.json", ".headrace/journal.jsonl", *(name for name in wanted if "dropped" in name)}
    assert {name: found[name] for name in found if name not in own} == {
        name: wanted[name] for name in wanted if name not in own
    }
    assert read_manifest(tmp_path / "o" / "all").fingerprint == read_manifest(small).fingerprint
    assert not (tmp_path / "o" / "train").exists()


def test_the_corpus_is_left_as_it_is(small, tmp_path, files):
    """No byte of it changes, and no file comes or goes."""
    before = files(small)
    headrace.split(small, tmp_path / "o", {"val": 0.5})
    assert files(small) == before


def test_by_texts(tmp_path, model, documents):
    """Where hashes of texts are stored, documents go by these, and the parts store them, too; by tokens if that is asked."""
    texts = [f"text {number}" for number in range(100)]
    folder = small_corpus(tmp_path / "c", [[[5]]])
    path = folder / "000000-0000-0000.h5"
    ends = np.arange(1, 101) * 2
    tokens = np.where(np.arange(200) % 2, 0, np.arange(200) // 2 + 1)
    hashes = np.frombuffer(b"".join(map(model["of_text"], texts)), np.uint8).reshape(-1, 16)
    with HDF5ShardWriter(path, 64, vocab_size=257, source_files=["a"], text_hashes=True) as writer:
        writer.add_documents(
            tokens, ends, rows=np.arange(100), offsets=np.arange(100), files=np.zeros(100, int), hashes=hashes
        )
    manifest = read_manifest(folder)
    entry = replace(writer.result(path.stem), path=path.name)
    (folder / "shards.json").write_bytes(replace(manifest, shards=(entry,)).to_json())
    shutil.rmtree(folder / ".headrace")
    asked = [("val", "0.4")]
    for by in ("auto", "text", "tokens"):
        report = headrace.split(folder, tmp_path / by, asked, by=by)
        assert report.by == ("tokens" if by == "tokens" else "text")
        for name in ("val", "train"):
            wanted = [
                [number + 1, 0]
                for number, text in enumerate(texts)
                if model["side"](
                    model["of_tokens"]([number + 1]) if by == "tokens" else model["of_text"](text), 0, asked
                )
                == name
            ]
            assert documents(tmp_path / by / name) == wanted
            with headrace.open(tmp_path / by / name) as corpus:
                kept = corpus.documents.text_hashes(0)
                assert kept.tobytes() == b"".join(model["of_text"](texts[first - 1]) for first, _ in wanted)


@pytest.mark.parametrize("how", [{}, {"compression": "gzip"}, {"store": "lance"}], ids=str)
def test_loss_masks(tmp_path, model, documents, how):
    """Each token keeps what its mask says of it; a part that has all is the corpus."""
    random = np.random.default_rng(0)
    shards = [[random.integers(1, 9, random.integers(1, 9)).tolist() for _ in range(30)] for _ in range(2)]
    masks = [[random.integers(0, 2, len(document) + 1).tolist() for document in shard] for shard in shards]
    small_corpus(tmp_path / "c", shards, chunk_size=8, masks=masks, **how)
    asked = [("val", "0.4")]
    headrace.split(tmp_path / "c", tmp_path / "o", asked)
    for name in ("val", "train"):
        wanted = [
            (document, mask)
            for shard, its_masks in zip(shards, masks, strict=True)
            for document, mask in zip(shard, its_masks, strict=True)
            if model["side"](model["of_tokens"](document), 0, asked) == name
        ]
        assert documents(tmp_path / "o" / name) == [[*document, 0] for document, _ in wanted]
        with headrace.open(tmp_path / "o" / name) as corpus:
            found = corpus.loss_mask(0, len(corpus)).tolist()
        assert found == [value for _, mask in wanted for value in mask]
    headrace.split(tmp_path / "c", tmp_path / "all", {"all": 1})
    assert read_manifest(tmp_path / "all" / "all").fingerprint == read_manifest(tmp_path / "c").fingerprint
    assert (tmp_path / "all" / "all" / ".headrace" / "loss_mask.bin").exists()


@pytest.mark.parametrize("store", ["hdf5", "lance"])
def test_what_builds_can_keep(tmp_path, model, documents, store):
    """Of a build without duplicates, of prompts and responses with ids: documents go by their texts, nothing is lost."""
    rows = [{"q": f"why {number}?", "a": f"because {number}", "id": f"n{number}"} for number in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows[:9]]))
    options = {"prompt_field": "q", "response_field": "a", "id_field": "id", "dedup": "exact", "workers": 1}
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", chunk_tokens=32, store=store, **options)
    report = headrace.split(tmp_path / "c", tmp_path / "o", {"val": 0.3})
    assert report.by == "text"
    whole = marked(tmp_path / "c")
    parts = [marked(tmp_path / "o" / name) for name in ("val", "train")]
    assert len(whole) == 60
    assert sorted([*parts[0], *parts[1]]) == sorted(whole)
    for name in ("val", "train"):
        documents(tmp_path / "o" / name)
        with headrace.open(tmp_path / "o" / name) as corpus:
            hashes = corpus.documents.text_hashes(0)
            assert {model["side"](row.tobytes(), 0, [("val", "0.3")]) for row in hashes} == {name}


def marked(folder: Path) -> list[tuple]:
    """Every document with all that is known of it, the loss mask and the hash of its text too."""
    with headrace.open(folder) as corpus:
        masks = [corpus.loss_mask(*corpus.documents.bounds(n)).tobytes() for n in range(len(corpus.documents))]
        hashes = [row.tobytes() for shard in range(len(corpus.entries)) for row in corpus.documents.text_hashes(shard)]
    return list(zip(places(folder), masks, hashes, strict=True))


def test_workers_change_nothing(tmp_path, small, files):
    """Two processes make the same bytes as one."""
    for workers in (1, 2):
        headrace.split(small, tmp_path / f"o{workers}", {"val": 0.3}, workers=workers)
    assert files(tmp_path / "o1") == files(tmp_path / "o2")


def test_long_shards_in_pieces(tmp_path, small, files, monkeypatch):
    """However little is read at once, the parts are the same."""
    headrace.split(small, tmp_path / "o", {"val": 0.3}, workers=1)
    for rows, tokens in ((1, 1), (7, 10**6), (10**6, 50)):
        monkeypatch.setattr(pieces, "_ROWS", rows)
        monkeypatch.setattr(pieces, "_TOKENS", tokens)
        headrace.split(small, tmp_path / f"o{rows}-{tokens}", {"val": 0.3}, workers=1)
        assert files(tmp_path / f"o{rows}-{tokens}") == files(tmp_path / "o")


def test_a_part_can_be_split_by_another_seed(small, tmp_path, documents):
    """Both splits are told; by the same seed it is refused, for its hashes are of one side already."""
    headrace.split(small, tmp_path / "o", {"val": 0.2}, seed=4)
    with pytest.raises(headrace.HeadraceError, match="is a part of a split by seed 4"):
        headrace.split(tmp_path / "o" / "train", tmp_path / "p", {"val": 0.2}, seed=4)
    headrace.split(tmp_path / "o" / "train", tmp_path / "p", {"val": 0.2}, seed=5)
    assert [(split.part, split.seed) for split in read_manifest(tmp_path / "p" / "val").splits] == [
        ("train", 4),
        ("val", 5),
    ]
    assert len(documents(tmp_path / "p" / "val")) + len(documents(tmp_path / "p" / "train")) == len(
        documents(tmp_path / "o" / "train")
    )


def test_another_compression(small, tmp_path, documents):
    """The parts may be compressed otherwise; their content and fingerprints do not change."""
    prints = {}
    for compression in (None, "gzip:1", "zstd:5"):
        place = tmp_path / str(compression)
        report = headrace.split(small, place, {"val": 0.5}, compression=compression)
        prints[compression] = [part.fingerprint for part in report.parts]
        options = read_manifest(place / "val").options
        assert options["compression"] == (compression or "none")
        documents(place / "train")
    assert len({tuple(found) for found in prints.values()}) == 1


def test_what_is_told(small, tmp_path):
    """Events: what begins, how far it is, and a report whose counts are those of the parts."""
    events = []
    report = headrace.split(small, tmp_path / "o", {"val": 0.5}, seed=2, on_event=events.append)
    kinds = [type(event) for event in events]
    assert (kinds[0], kinds[-1]) == (SplitStarted, SplitFinished)
    with headrace.open(small) as corpus:
        progress = [event for event in events if isinstance(event, Progress)][-1]
        assert (progress.documents, progress.tokens) == (len(corpus.documents), len(corpus))
        assert progress.input_bytes == events[0].input_bytes == 2 * len(corpus)
        assert sum(part.documents for part in report.parts) == len(corpus.documents)
        assert sum(part.tokens for part in report.parts) == len(corpus)
        assert report.base == str(corpus.fingerprint)
    assert events[-1] == report


@pytest.mark.parametrize(
    ("fraction", "equal", "told"), [(0.0001, 1, "has 0 of"), (0.5, 1, ""), (0.5, 1000, "has 0 of")]
)
def test_a_part_that_is_smaller_than_asked(tmp_path, fraction, equal, told):
    """A part without documents, or with far fewer, is told of; it is a corpus all the same."""
    shard = [[1 + number // equal % 200, 1 + number // equal // 200] for number in range(1000)]
    small_corpus(tmp_path / "c", [shard])
    events = []
    headrace.split(tmp_path / "c", tmp_path / "o", {"val": fraction}, seed=3, on_event=events.append)
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert bool(notices) == bool(told)
    assert all(told in message for message in notices)
    with headrace.open(tmp_path / "o" / "val", verify="full") as corpus:
        assert len(corpus.documents) == sum(part.documents for part in events[-1].parts if part.name == "val")


def test_lists_of_what_was_not_kept(tmp_path):
    """Each part counts the documents that the build did not keep, and lists them by file and line as the corpus does."""
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a"}\n{"text": ""}\n{"text": "b"}\n{"text": "a"}\n{"other": 1}\n')
    headrace.build(source, tmp_path / "c", dedup="exact", on_bad_input="skip")
    headrace.split(tmp_path / "c", tmp_path / "parts", fractions={"val": 0.5}, seed=3)
    (whole,) = (tmp_path / "c" / ".headrace" / "dropped").iterdir()
    assert len(whole.read_bytes().splitlines()) == 3
    for name in ("val", "train"):
        part = tmp_path / "parts" / name
        assert (part / ".headrace" / "dropped" / whole.name).read_bytes() == whole.read_bytes()
        with headrace.open(part) as corpus:
            assert sum(corpus.manifest.sources[0].dropped.values()) == 3
