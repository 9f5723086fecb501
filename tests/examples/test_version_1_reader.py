"""Code written for the first version reads our uint16 corpora from the corpus folder, and refuses what it cannot hold."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.manifest import TokenizerRef


def read_as_version_1(tokens_dtype: str = "<u2") -> tuple[np.ndarray, int]:
    """A reader as the description has it, run in the corpus folder: SWMR, truncated at token_count, hashes checked."""
    index = json.loads(Path("shards.json").read_text())
    parts, documents = [], 0
    for shard in index["shards"]:
        with h5py.File(shard["path"], "r", swmr=True) as file:
            count = int(file["tokens"].attrs["token_count"])
            assert count == shard["token_count"]
            tokens = file["tokens"][:count].astype(tokens_dtype)
            if hashlib.sha256(tokens.tobytes()).hexdigest() != shard["sha256"]:
                raise ValueError(f"shard {shard['shard_id']} does not match its hash")
            attribute = file["tokens"].attrs["sha256"]
            assert (attribute.decode() if isinstance(attribute, bytes) else attribute) == shard["sha256"]
        assert sum(map(len, parts)) == shard["global_start"]
        parts.append(tokens)
        documents += shard["document_count"]
    line = np.concatenate(parts)
    assert len(line) == index["total_tokens"]
    return line, documents


def test_a_built_corpus(tmp_path, monkeypatch):
    """Of a corpus that `build` made it reads every token and the number of documents; 0 ends each of them."""
    texts = [f"document {number}: " + "x" * (number * 37 % 300) for number in range(200)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", chunk_tokens=512, shard_tokens=10_000)
    monkeypatch.chdir(tmp_path / "c")
    line, documents = read_as_version_1()
    assert documents == len(texts)
    pieces = np.split(line, np.flatnonzero(line == 0) + 1)[:-1]
    assert [headrace.Tokenizer().decode(piece) for piece in pieces] == texts


def test_a_corpus_of_the_pipeline(tmp_path, monkeypatch):
    """Likewise of one that `write_corpus` made, with an empty shard in it."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path, chunk_size=8)
    pipeline.write_corpus({"a": ["one", "two"], "b": [], "c": ["three"]})
    monkeypatch.chdir(tmp_path)
    line, documents = read_as_version_1()
    assert documents == 3
    assert headrace.Tokenizer().decode(line) == "onetwothree"


class Wide(headrace.Tokenizer):
    """More ids than uint16 has."""

    ref = TokenizerRef(kind="bytes", name="wide", sha256="0" * 63 + "1", vocab_size=70_000)
    vocab_size = 70_000

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The bytes, above 65,535."""
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32) + 65_536
        return ids, np.cumsum([len(text) for text in texts], dtype=np.int64)


def test_wide_tokens_are_refused(tmp_path, monkeypatch):
    """Ids of more than 16 bits make its check of the hash fail: it never trains on wrapped ids."""
    headrace.ShardedTokenizationPipeline(Wide(), tmp_path).write_corpus({"a": ["text"]})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="shard a does not match its hash"):
        read_as_version_1()
