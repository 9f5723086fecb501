"""The system as first described, used as a reader of the description would; the example, run as a user would."""

import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from headrace import (
    HDF5ShardWriter,
    JSONLSource,
    MmapTokenStore,
    ShardedTokenizationPipeline,
    SlidingWindowDataloader,
    Tokenizer,
    load_index,
    validate_corpus,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "as_described.py"
SHARDS = ["rivers tokens=2064 sha256=d6b77d3d5caa", "wheels tokens=2463 sha256=6587ed725ab7"]
CHECKSUMS = [
    "cbf56f69",
    "32d13d50",
    "dca406d6",
    "32e73bef",
    "ee8a2e31",
    "1f86c01d",
    "8b412416",
    "ae9ce178",
    "6998bc3b",
    "217a1239",
]
"""Of the ten batches. They pin tokens, sharding and the order of random windows: a change is announced as such."""

DOCUMENTS = {"b": ["first document", "", "second"], "a": ["third — with an em dash"], "c": []}


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A small corpus in three shards, one of them empty."""
    ShardedTokenizationPipeline(Tokenizer(), tmp_path / "corpus", chunk_size=16).write_corpus(DOCUMENTS)
    return tmp_path / "corpus"


@pytest.mark.parametrize("directory", [".", "/"])
def test_the_example(directory):
    """It ends with exit code 0 and prints the same two shards and ten checksums on any machine, from any directory."""
    done = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, check=False, cwd=EXAMPLE.parents[1] / directory
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        *(f"[shard] {shard}" for shard in SHARDS),
        "[validate] all 2 shards match shards.json",
        *(f"[batch] step={step} shape=(4, 64) checksum={checksum}" for step, checksum in enumerate(CHECKSUMS)),
    ]


def test_the_byte_tokenizer():
    """0 is the boundary, 1 to 256 the bytes; 257 ids; text comes back."""
    tokenizer = Tokenizer()
    assert tokenizer.vocab_size == 257
    assert tokenizer.encode("aé") == [98, 196, 170]
    assert tokenizer.decode(tokenizer.encode("aé \0 😀")) == "aé \0 😀"


def test_a_jsonl_source_skips_and_counts(tmp_path):
    """Lines that are malformed, no object, or without a text are skipped and counted; blank lines are neither."""
    good = ['{"text": "one"}', '{"id": 3, "text": "two"}']
    bad = ["{broken", "[1]", '"text"', '{"id": 1}', '{"text": null}', '{"text": 5}', '{"text": ""}']
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([good[0], "", *bad, "   ", good[1]]))
    source = JSONLSource(path)
    assert list(source) == ["one", "two"]
    assert source.dropped_lines == len(bad)
    assert list(JSONLSource(path, text_field="id")) == []


def test_a_shard_by_hand(tmp_path):
    """Documents and boundaries one by one; the data set grows by whole chunks; attributes count and hash the tokens."""
    with HDF5ShardWriter(tmp_path / "s.h5", 8, dataset_name="ids") as writer:
        for text in ("hello", "a longer document"):
            writer.add_document(Tokenizer().encode(text))
            writer.add_boundary()
    result = writer.result("s")
    assert (result.token_count, result.document_count) == (24, 2)
    with h5py.File(tmp_path / "s.h5", "r", swmr=True) as file:
        assert file["ids"].chunks == (8,)
        assert file["ids"].maxshape == (None,)
        assert int(file["ids"].attrs["token_count"]) == 24
        assert int(file["ids"].attrs["document_count"]) == 2


def test_documents_go_through(corpus):
    """What goes in comes out, in the mapping's order, each document ended by one boundary and nothing else injected."""
    ids = [token for texts in DOCUMENTS.values() for text in texts if text for token in [*Tokenizer().encode(text), 0]]
    with MmapTokenStore(load_index(corpus)) as store:
        assert store.total_tokens == len(ids)
        assert store.get_slice(0, store.total_tokens).tolist() == ids
        for start, stop in itertools.combinations(range(0, len(ids) + 1, 5), 2):
            assert store.get_slice(start, stop).tolist() == ids[start:stop]


@pytest.mark.parametrize("bounds", [(-1, 3), (0, 10_000), (5, 4), (10_000, 10_001), (-3, -1), (47, 49)])
def test_slices_outside(corpus, bounds):
    """A slice that is not within the corpus is a ValueError, never a short or an empty array."""
    with MmapTokenStore(load_index(corpus)) as store:
        assert store.total_tokens == 48
        with pytest.raises(ValueError, match="48"):
            store.get_slice(*bounds)
        assert len(store.get_slice(48, 48)) == 0


def test_the_index_by_file_and_by_folder(corpus, monkeypatch):
    """`load_index` takes the folder or the file, relative or absolute; the paths it gives exist from anywhere."""
    monkeypatch.chdir(corpus)
    given = [corpus, str(corpus), corpus / "shards.json", ".", "shards.json"]
    entries = [load_index(path) for path in given]
    assert all(found == entries[0] for found in entries)
    monkeypatch.chdir("/")
    assert all(Path(entry.path).is_absolute() and Path(entry.path).exists() for entry in entries[-1])
    assert [(entry.shard_id, entry.global_start) for entry in entries[0]] == [("b", 0), ("a", 22), ("c", 48)]


def test_the_index_is_the_described_one(corpus):
    """`shards.json` has the described keys, and paths relative to its folder."""
    body = json.loads((corpus / "shards.json").read_text())
    assert {"version", "chunk_size", "total_tokens", "shards"} <= body.keys()
    assert (body["chunk_size"], body["total_tokens"]) == (16, 48)
    for shard in body["shards"]:
        assert {"shard_id", "path", "token_count", "document_count", "sha256", "global_start"} <= shard.keys()
        assert (corpus / shard["path"]).exists()


def test_validation_names_the_failing_shards(corpus):
    """Shards whose tokens are not those of the index are named, in order; the others are not."""
    entries = load_index(corpus)
    assert validate_corpus(entries) == []
    path = Path(entries[1].path)
    tokens = np.array(Tokenizer().encode(DOCUMENTS["a"][0]), "<u2").tobytes()
    chunk = tokens[:32]
    path.write_bytes(path.read_bytes().replace(chunk, chunk[::-1]))
    assert validate_corpus(entries) == validate_corpus(corpus) == ["a"]
    Path(entries[0].path).unlink()
    assert validate_corpus(entries) == ["b", "a"]


def test_windows_are_the_same_for_the_same_seed(corpus):
    """Two loaders of one seed give identical batches, input and target shifted by one; another seed gives others."""

    def take(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
        with MmapTokenStore(load_index(corpus)) as store:
            return SlidingWindowDataloader(store, window_size=8, batch_size=3, seed=seed).take(20)

    first, again, other = take(1), take(1), take(2)
    for (inputs, targets), (inputs_again, targets_again) in zip(first, again, strict=True):
        assert inputs.shape == targets.shape == (3, 8)
        assert np.array_equal(inputs, inputs_again)
        assert np.array_equal(targets, targets_again)
        assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    assert any(not np.array_equal(one[0], two[0]) for one, two in zip(first, other, strict=True))


def test_iteration_is_endless_and_take_goes_on(corpus):
    """Iterating never ends; `take` continues where the last one stopped; every window is one of the corpus."""
    with MmapTokenStore(load_index(corpus)) as store:
        line = store.get_slice(0, store.total_tokens)
        windows = {line[start : start + 9].tobytes() for start in range(len(line) - 8)}
        loader = SlidingWindowDataloader(store, window_size=8, batch_size=2, seed=3)
        parts = loader.take(2) + loader.take(3)
        whole = list(itertools.islice(SlidingWindowDataloader(store, window_size=8, batch_size=2, seed=3), 200))
    for (inputs, targets), (inputs_again, _) in zip(parts, whole, strict=False):
        assert np.array_equal(inputs, inputs_again)
        for row in range(2):
            assert np.append(inputs[row], targets[row][-1]).tobytes() in windows
    seen = {np.append(inputs[row], targets[row][-1]).tobytes() for inputs, targets in whole for row in range(2)}
    assert seen == windows  # windows straddle documents and shards, and all of them are drawn


def test_a_store_travels_to_workers(corpus):
    """A store pickles as where its shards lie, for the workers of a loader."""
    with MmapTokenStore(load_index(corpus)) as store:
        again = pickle.loads(pickle.dumps(store))  # noqa: S301  # our own
        assert again.get_slice(3, 30).tolist() == store.get_slice(3, 30).tolist()
        again.close()
