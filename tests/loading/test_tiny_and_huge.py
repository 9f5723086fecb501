"""Corpora about as long as a window, and one of 10**12 tokens."""

import numpy as np
import pytest

import headrace
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus
from headrace.testing.sparse import sparse_corpus

T = 8
ORDERS = {
    "random": {},
    "blocks": {},
    "local": {"order": "blocks", "shuffle": "local"},
    "sequential": {},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("tokens", "windows"), [(T - 1, 0), (T, 0), (T + 1, 1), (T + 2, 1)])
def test_a_corpus_about_as_long_as_a_window(order, tokens, windows):
    """A corpus without a window is refused; the only one there is is served for ever, or once, whatever the order."""
    fields = {"order": order, "token_count": tokens, "window": T, "batch_size": 3, **ORDERS[order]}
    if not windows:
        with pytest.raises(PlanError, match=f"holds {tokens} tokens; a window of 8"):
            Plan(**fields)
        return
    made = Plan(**fields)
    loader = Loader(MemoryCorpus(np.arange(tokens), lengths=[1] * tokens), made, position_ids=True)
    for step in range(made.steps or 200):
        batch = loader.batch(step)
        assert set(batch.starts.tolist()) <= ({0, 1} if order == "random" and tokens > T + 1 else {0})
        np.testing.assert_array_equal(batch.targets, batch.input_ids + 1)
        assert not batch.position_ids.any()


@pytest.mark.parametrize("tokens", [1, T - 1, T, T + 1, T + 2])
def test_documents_of_a_corpus_about_as_long_as_a_row(tokens):
    """Documents need no whole window: one, and as many as there are tokens, are served however short the corpus is."""
    for lengths in ([tokens], [1] * tokens):
        made = Plan(order="documents", token_count=tokens, window=T, batch_size=3, documents=len(lengths), seed=2)
        batch = Loader(MemoryCorpus(np.arange(tokens) + 1, lengths=lengths), made).batch(5)
        assert batch.loss_mask.sum() == 3 * min(lengths[0] - 1, T)
        assert (batch.input_ids[:, 0] == batch.starts + 1).all()


def test_a_corpus_of_a_million_million_tokens(tmp_path):
    """Far beyond 2**32, documents, places and the way back are those of the documents' ends, in an epoch far away."""
    corpus = headrace.open(sparse_corpus(tmp_path / "corpus", 10**12))
    ends = corpus.documents.ends
    assert ends[-1] == 10**12
    made = Plan(order="blocks", token_count=10**12, window=1024, batch_size=64, shuffle="local", phase=True)
    loader = Loader(corpus, made, document_ids=True, position_ids=True, boundary_loss="target")
    batch = loader.batch(10**9)
    assert made.epoch(10**9) == 65
    assert batch.starts.max() > 2**32
    for row, start in enumerate(batch.starts.tolist()):
        assert batch.document_ids[row, 0] == corpus.locate(start).document
        assert batch.document_ids[row, -1] == corpus.locate(start + 1023).document
    found = loader.steps_of(range(int(ends[0]) - 1, int(ends[0])), epochs=range(65, 67))
    assert len(found.steps) == 2
    last = loader.batch(int(found.steps[0]))
    column = int(ends[0]) - 2 - int(last.starts[found.rows[0]])
    assert not last.loss_mask[found.rows[0], column]
    assert last.loss_mask[found.rows[0]].sum() == 1023
