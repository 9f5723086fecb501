"""A small corpus on disk, its plan and its batches, for every adapter."""

from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.testing.corpora import random_documents, small_corpus

WINDOW, BATCH = 16, 8
WORKERS = [
    (None, 0),
    ("fork", 2),
    *(
        pytest.param((context, number), marks=pytest.mark.extended)
        for context in ("fork", "spawn", "forkserver")
        for number in (1, 2, 8)
        if (context, number) != ("fork", 2)
    ),
]
"""How workers are started, and how many of them."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A corpus of three shards and about 6,000 tokens."""
    return small_corpus(tmp_path_factory.mktemp("adapters") / "corpus", random_documents(5, [70, 1, 130]))


@pytest.fixture(params=WORKERS, ids=lambda worker: f"{worker[0]}-{worker[1]}")
def any_workers(request) -> dict[str, object]:
    """Options of torch's DataLoader, of workers of each kind and number; empty without any."""
    context, number = request.param
    return {"num_workers": number, "multiprocessing_context": context} if number else {}


@pytest.fixture(autouse=True)
def one_machine(monkeypatch) -> None:
    """Groups of processes meet on this machine, whatever its name leads to."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.fixture
def make_loader(folder):
    """Make a loader of a newly opened corpus; keywords of the plan come as `plan_...`."""

    def make(**options) -> headrace.Loader:
        corpus = headrace.open(folder)
        fields = {"order": "blocks", "window": WINDOW, "batch_size": BATCH, "seed": 1}
        fields |= {name.removeprefix("plan_"): options.pop(name) for name in list(options) if name.startswith("plan_")}
        if fields["order"] == "documents":
            fields["documents"] = len(corpus.documents)
        plan = headrace.Plan(token_count=len(corpus), corpus=str(corpus.fingerprint), **fields)
        return headrace.Loader(corpus, plan, **options)

    return make


@pytest.fixture(scope="session")
def assert_batch():
    """Compare tensors, or arrays, with the loader's batch, value by value."""

    def check(tensors, batch) -> None:
        assert {"input_ids"} < tensors.keys()
        for name in ("input_ids", "targets", "labels", "loss_mask", "document_ids", "position_ids"):
            wanted = getattr(batch, name)
            assert (name in tensors) == (wanted is not None), name
            if wanted is not None:
                np.testing.assert_array_equal(np.asarray(tensors[name]), wanted)

    return check
