"""The same inputs and options give the same bytes, however the work is divided and wherever it is done."""

import os
import time
from pathlib import Path

import pytest

import headrace
from headrace.building import passes as build_module
from headrace.events import ShardWritten


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A folder of sources of different sizes and kinds, out of order by size, one with faults."""
    import gzip
    import json

    folder = tmp_path_factory.mktemp("sources") / "in"
    (folder / "sub").mkdir(parents=True)

    def lines(count: int, name: str) -> bytes:
        rows = ({"id": row, "text": f"{name} {row} " + "word " * (row * 7 % 50)} for row in range(count))
        return "".join(json.dumps(row) + "\n" for row in rows).encode()

    (folder / "a.jsonl").write_bytes(lines(300, "a") + b"no JSON\n" + lines(10, "a again"))
    (folder / "b.jsonl").write_bytes(lines(20_000, "b"))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines(9_000, "c")))
    (folder / "sub" / "d.txt").write_bytes(b"one text\n" * 5000)
    (folder / "sub" / "e.txt").write_bytes("another, größer\n".encode() * 5000)
    (folder / "sub" / "f.jsonl").write_bytes(lines(1, "f"))
    return folder


OPTIONS = {"on_bad_input": "skip", "shard_tokens": 400_000, "chunk_tokens": 20_000}


@pytest.fixture(scope="module")
def reference(sources, tmp_path_factory) -> Path:
    """The corpus of one worker."""
    output = tmp_path_factory.mktemp("reference") / "corpus"
    headrace.build(sources, output, workers=1, **OPTIONS)
    return output


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_do_not_matter(sources, reference, published, tmp_path, workers):
    """Worker processes give every file that one process gives, `shards.json`, sidecar and logs included."""
    headrace.build(sources, tmp_path / "c", workers=workers, **OPTIONS)
    assert published(tmp_path / "c") == published(reference)


def test_one_worker_as_a_process(sources, reference, published, tmp_path, monkeypatch):
    """A pool of one process gives what the same work in this process gives."""
    monkeypatch.setattr(
        build_module, "SerialEngine", lambda tokenizer, sample: build_module.PoolEngine(tokenizer, 1, sample)
    )
    headrace.build(sources, tmp_path / "c", workers=1, **OPTIONS)
    assert published(tmp_path / "c") == published(reference)


@pytest.mark.parametrize("spelling", ["relative", "dots", "slash", "glob", "link"])
def test_paths_and_places_do_not_matter(sources, reference, published, tmp_path, monkeypatch, spelling):
    """Another working directory, and another way to name the same folder, change nothing; nor does the time of day."""
    time.sleep(0.01)
    monkeypatch.chdir(sources.parent)
    (tmp_path / "link").symlink_to(sources)
    given = {
        "relative": "in",
        "dots": f"{sources}/sub/..",
        "slash": "./in//",
        "glob": "in/**",
        "link": tmp_path / "link",
    }[spelling]
    headrace.build(given, os.path.relpath(tmp_path / "c"), workers=1, **OPTIONS)
    assert published(tmp_path / "c") == published(reference)


def test_modification_times_do_not_matter(sources, reference, published, tmp_path):
    """What a file says is what counts, not when it was written."""
    for path in sources.rglob("*.*"):
        os.utime(path, (1, 1))
    headrace.build(sources, tmp_path / "c", workers=1, **OPTIONS)
    assert published(tmp_path / "c") == published(reference)


def test_shards_are_in_source_order(reference):
    """The manifest lists sources in byte-wise path order and each source's shards in turn, whoever was done first."""
    with headrace.open(reference) as corpus:
        labels = [source.path for source in corpus.manifest.sources]
        assert labels == ["a.jsonl", "b.jsonl", "c.jsonl.gz", "sub/d.txt", "sub/e.txt", "sub/f.jsonl"]
        ids = [entry.shard_id for entry in corpus.entries]
        assert ids == sorted(ids)
        assert {int(name[:6]) for name in ids} == {0, 1, 2, 3, 4}
        for entry in corpus.entries:
            first = corpus.locate(entry.global_start)
            assert first.source == labels[entry.source]


def test_the_fingerprint_is_the_content(sources, reference, published, tmp_path):
    """Equal corpora have equal fingerprints; another boundary or another order of sources has another."""
    with headrace.open(reference) as corpus:
        wanted = str(corpus.fingerprint)
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    same = headrace.build(files, tmp_path / "same", workers=1, **OPTIONS)
    assert same.fingerprint == wanted
    assert published(tmp_path / "same") == published(reference)
    turned = headrace.build(files[::-1], tmp_path / "turned", workers=1, **OPTIONS)
    other = headrace.build(sources, tmp_path / "other", workers=1, boundary="10", **OPTIONS)
    resharded = headrace.build(sources, tmp_path / "resharded", workers=1, on_bad_input="skip", chunk_tokens=20_000)
    assert len({wanted, turned.fingerprint, other.fingerprint, resharded.fingerprint}) == 4


def test_chunks_are_no_content(sources, tmp_path):
    """The chunk size changes the files, not the fingerprint: the tokens are the same."""
    small = headrace.build(sources / "a.jsonl", tmp_path / "small", on_bad_input="skip", chunk_tokens=300)
    large = headrace.build(sources / "a.jsonl", tmp_path / "large", on_bad_input="skip", chunk_tokens=100_000)
    assert small.fingerprint == large.fingerprint


@pytest.mark.parametrize("workers", [1, 2])
def test_every_shard_is_told_once(sources, reference, tmp_path, workers):
    """The events of a build name each shard once, with the manifest's counts and hash."""
    told = []
    headrace.build(sources, tmp_path / "c", workers=workers, on_event=told.append, **OPTIONS)
    shards = {event.shard_id: event for event in told if isinstance(event, ShardWritten)}
    assert len(shards) == sum(isinstance(event, ShardWritten) for event in told)
    with headrace.open(reference) as corpus:
        assert {
            entry.shard_id: (entry.token_count, entry.document_count, entry.sha256) for entry in corpus.entries
        } == {name: (event.tokens, event.documents, event.sha256) for name, event in shards.items()}
