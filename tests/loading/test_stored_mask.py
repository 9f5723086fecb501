"""Batches of a corpus that stores a loss mask."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.testing.corpora import random_documents, small_corpus


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A corpus with a random mask, and the mask."""
    documents = random_documents(3, [5, 0, 7, 4])
    random = np.random.default_rng(4)
    masks = [[random.integers(0, 2, len(document) + 1) for document in shard] for shard in documents]
    folder = small_corpus(tmp_path_factory.mktemp("masked") / "c", documents, masks=masks, chunk_size=16)
    return headrace.open(folder), np.concatenate([mask for shard in masks for mask in shard])


@settings(max_examples=60, deadline=None)
@given(
    order=st.sampled_from(["random", "blocks", "sequential"]),
    targets=st.sampled_from(["next", "inside"]),
    window=st.integers(2, 20),
    batch=st.integers(1, 6),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_the_mask_of_a_batch_is_about_its_targets(masked, order, targets, window, batch, seed, data):
    """Place t is what is stored of the token behind input t, where that is read; and false where the plan says so."""
    corpus, mask = masked
    plan = headrace.Plan(
        order=order, token_count=len(corpus), window=window, batch_size=batch, seed=seed, targets=targets
    )
    step = data.draw(st.integers(0, (plan.steps or 50) - 1))
    world = data.draw(st.sampled_from([n for n in range(1, batch + 1) if batch % n == 0]))
    rank = data.draw(st.integers(0, world - 1))
    found = headrace.Loader(corpus, plan, rank=rank, world_size=world).batch(step)
    planned = plan.loss_mask(step, rank, world)
    assert found.loss_mask.dtype == np.bool_
    for row, start in enumerate(found.starts.tolist()):
        for t in range(window):
            read = targets == "next" or t + 1 < window
            counts = read and bool(mask[start + t + 1]) and (planned is None or bool(planned[row, t]))
            assert found.loss_mask[row, t] == counts


@given(
    targets=st.sampled_from(["next", "inside"]),
    window=st.integers(2, 80),
    step=st.integers(0, 9),
    micro=st.integers(0, 1),
)
def test_the_mask_of_documents_is_theirs(masked, targets, window, step, micro):
    """Rows of documents have the stored mask of their own tokens, also at the corpus' end; and none of their padding's."""
    corpus, mask = masked
    plan = headrace.Plan(
        order="documents",
        token_count=len(corpus),
        window=window,
        batch_size=4,
        targets=targets,
        documents=len(corpus.documents),
    )
    found = headrace.Loader(corpus, plan, document_ids=True).batch(step, micro=micro, of=2)
    for row, document in enumerate(found.document_ids[:, 0].tolist()):
        start, stop = corpus.documents.bounds(document)
        held = min(stop - start, plan.read_length)
        expected = [t + 1 < held and bool(mask[start + t + 1]) for t in range(window)]
        assert found.loss_mask[row].tolist() == expected


def test_without_a_stored_mask_a_batch_has_what_it_had(tmp_path):
    """An endless plan over a corpus that stores none gives no mask at all."""
    corpus = headrace.open(small_corpus(tmp_path / "c", random_documents(3, [5])))
    plan = headrace.Plan(order="random", token_count=len(corpus), window=4, batch_size=2)
    assert headrace.Loader(corpus, plan).batch(0).loss_mask is None
