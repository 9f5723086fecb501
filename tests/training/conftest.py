"""A small corpus to train on, and models small enough for a test."""

import json
from pathlib import Path

import pytest

import headrace
from headrace.testing.corpora import random_documents, small_corpus

WINDOW, BATCH = 16, 8
CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 257,
    "n_positions": 32,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
"""Of a model of 35,000 weights, with dropout."""


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory) -> Path:
    """A corpus of three shards, 201 documents and about 6,000 tokens."""
    return small_corpus(tmp_path_factory.mktemp("training") / "corpus", random_documents(5, [70, 1, 130]))


@pytest.fixture
def corpus(corpus_folder):
    """The same, open."""
    with headrace.open(corpus_folder) as corpus:
        yield corpus


@pytest.fixture(scope="session")
def config_file(tmp_path_factory) -> Path:
    """Configuration of a model of 2 layers, 32 wide, with dropout."""
    path = tmp_path_factory.mktemp("model") / "small.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def make_batches(corpus):
    """Serve the batches of `corpus`; keywords are those of a loader."""
    from headrace.torch import PinnedBatches

    def make(of: int = 1, **options) -> PinnedBatches:
        plan = headrace.Plan(
            order="blocks", token_count=len(corpus), window=WINDOW, batch_size=BATCH, corpus=str(corpus.fingerprint)
        )
        return PinnedBatches(headrace.Loader(corpus, plan, **options), "cpu", of=of, ignore_index=-100)

    return make


@pytest.fixture
def make_options(corpus_folder, config_file):
    """Options of a short run with dropout on that corpus."""
    from headrace.training.options import RunOptions

    def make(**fields) -> RunOptions:
        fields = {"config": str(config_file), "steps": 40, "checkpoint_every": 10, "lr": 0.01, "warmup": 0.1} | fields
        return RunOptions(**{"corpus": str(corpus_folder), "window": WINDOW, "batch": BATCH} | fields)

    return make


@pytest.fixture
def rows():
    """The rows of a run's `log.csv`, without what depends on the clock."""
    import csv

    def read(run: Path) -> list[dict[str, str]]:
        with (run / "log.csv").open() as file:
            return [
                {name: value for name, value in row.items() if name != "data_wait_s"} for row in csv.DictReader(file)
            ]

    return read
