"""However a corpus is stored, a run on it is the same."""

import pytest
import torch

import headrace
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training.loop import train

torch.set_num_threads(1)
STORES = {
    "plain": {},
    "chunks": {"chunk_size": 1000},
    "gzip": {"compression": "gzip"},
    "zstd": {"compression": "zstd"},
    "lance": {"store": "lance"},
}


@pytest.mark.parametrize("masked", [False, True])
def test_every_store_gives_the_same_losses(make_options, tmp_path, rows, masked):
    """HDF5 plain, in other chunks, with gzip and zstd, and Lance: the same fingerprint, and the same run to the bit."""
    documents = random_documents(5, [70, 1, 130])
    masks = [[[place % 3 > 0 for place in range(len(document) + 1)] for document in shard] for shard in documents]
    found, fingerprints = {}, set()
    for name, options in STORES.items():
        corpus = small_corpus(tmp_path / name, documents, masks=masks if masked else None, **options)
        with headrace.open(corpus) as opened:
            fingerprints.add(str(opened.fingerprint))
        train(make_options(corpus=str(corpus), steps=8, boundary_loss="after"), tmp_path / f"run-{name}")
        found[name] = rows(tmp_path / f"run-{name}")
    assert len(fingerprints) == 1
    assert len(found["plain"]) == 8
    assert len({row["loss"] for row in found["plain"]}) == 8
    assert all(run == found["plain"] for run in found.values())
