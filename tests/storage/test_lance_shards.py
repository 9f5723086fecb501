"""Lance corpora as we write them: how they lie on disk, and what nobody has to import to read them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.storage.stores import inspect_shard
from headrace.testing.corpora import line_of, random_documents, small_corpus

lance = pytest.importorskip("lance")

SHARDS = random_documents(21, (12, 0, 1, 0, 0, 30, 5, 0))
"""Shards of many documents, of one and of none."""
WIDE = random_documents(22, (20, 0, 9), vocab_size=151_936)
READERS = """
import sys
import headrace
corpus = headrace.open(sys.argv[1], verify="full" if "full" in sys.argv else "quick")
corpus[:], corpus.documents[3], corpus.locate(100), corpus.documents.ends
plan = headrace.Plan(order="random", token_count=len(corpus), window=16, batch_size=2, corpus=str(corpus.fingerprint))
headrace.Loader(corpus, plan).batch(0)
print(sorted({"lance", "pyarrow"} & set(sys.modules)))
"""


def test_lance_is_the_hdf5_corpus(tmp_path):
    """Equal content and sharding have one fingerprint, and equal tokens, whatever the store."""
    stores = [headrace.open(small_corpus(tmp_path / store, SHARDS, store=store)) for store in ("hdf5", "lance")]
    assert stores[0].fingerprint == stores[1].fingerprint
    assert np.array_equal(stores[0][:], stores[1][:])
    assert [report.ok for report in stores[1].verify()] == [True] * len(SHARDS)


@pytest.mark.parametrize("how", ["quick", "full"])
def test_reading_imports_no_lance(tmp_path, how):
    """With the sidecar or without it, Lance is not imported to open, read, sample, trace and verify."""
    for sidecar in (True, False):
        corpus = small_corpus(tmp_path / str(sidecar), SHARDS, store="lance", sidecar=sidecar)
        command = [sys.executable, "-P", "-c", READERS, corpus, how]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_the_calls_of_the_recipe(tmp_path):
    """The published training recipe reads what we wrote by its own calls; each published version has a tag."""
    folder = small_corpus(tmp_path, SHARDS, store="lance")
    tokens, lengths = line_of(SHARDS)
    data = lance.dataset(folder / "tokens.lance")
    assert data.count_rows() == len(tokens)
    assert data.data_storage_version == "2.0"
    assert str(data.schema.field("input_ids")) == "pyarrow.Field<input_ids: uint16 not null>"
    assert [row["input_ids"] for row in data.take(range(100, 300)).to_pylist()] == tokens[100:300].tolist()
    corpus = headrace.open(folder)
    (tag,) = data.tags.list()
    assert tag == f"headrace-{corpus.fingerprint.hex[:16]}"
    docs = lance.dataset(folder / "docs.lance", version=tag).to_table()
    assert docs.num_rows == len(lengths)
    assert docs["end"].to_pylist()[:12] == np.cumsum(lengths)[:12].tolist()
    pinned = json.loads((folder / "shards.json").read_bytes())["lance"]
    assert pinned == {"tokens": 1, "docs": 1, "data_storage_version": "2.0"}


def test_data_files_are_flat(tmp_path):
    """A token takes as many bytes as its dtype has, one behind the other, whatever the tokens are."""
    constant = [[np.zeros(200_000, np.int64)]]
    (entry,) = headrace.open(small_corpus(tmp_path, constant, store="lance")).entries
    layout = inspect_shard(Path(entry.path))
    assert (layout.first.tolist(), layout.file_size < 2 * 200_001 + 1000) == ([0], True)
    assert re.fullmatch(r"000000-0000-0000-[0-9a-f]{12}\.lance", Path(entry.path).name)
