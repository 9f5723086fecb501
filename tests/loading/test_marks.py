"""Documents in a batch: whose each token is, its place, which predictions count; and rows that hold one document each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NoDocumentsError, PlanError
from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus

LENGTHS = st.lists(st.one_of(st.integers(1, 3), st.integers(1, 30)), min_size=1, max_size=40)
LOSSES = ["keep", "target", "after", "both"]


def corpus_of(lengths: list[int]) -> MemoryCorpus:
    """Return a corpus whose tokens are all different, so that each tells its position; the boundaries too."""
    return MemoryCorpus(np.arange(100, 100 + sum(lengths)), lengths=lengths)


def documents_of(lengths: list[int]) -> tuple[list[int], list[int], list[bool]]:
    """Return of each position its document, its place in it, and whether it is the document's last."""
    ids = [number for number, length in enumerate(lengths) for _ in range(length)]
    places = [place for length in lengths for place in range(length)]
    last = [place == length - 1 for length in lengths for place in range(length)]
    return ids, places, last


def counted(lengths: list[int], position: int, loss: str) -> bool:
    """Whether the prediction of the token at a position, which is not the first of all, counts."""
    _, _, last = documents_of(lengths)
    drops_target = loss in {"target", "both"} and last[position]
    drops_after = loss in {"after", "both"} and last[position - 1]
    return not (drops_target or drops_after)


@given(
    lengths=LENGTHS,
    order=st.sampled_from(["random", "blocks", "sequential"]),
    targets=st.sampled_from(["next", "inside"]),
    window=st.integers(2, 12),
    loss=st.sampled_from(LOSSES),
    data=st.data(),
)
def test_marks_of_windows_equal_those_of_a_loop(lengths, order, targets, window, loss, data):
    """Document, place since the row's or the document's begin, and what counts, are right for every token of every row."""
    lengths = [*lengths, window + 1]
    made = Plan(
        order=order,
        token_count=sum(lengths),
        window=window,
        batch_size=4,
        targets=targets,
        seed=data.draw(st.integers(0, 9)),
    )
    loader = Loader(corpus_of(lengths), made, document_ids=True, position_ids=True, boundary_loss=loss)
    step = data.draw(st.integers(0, (made.steps or 50) - 1))
    batch = loader.batch(step)
    ids, places, _ = documents_of(lengths)
    planned = made.loss_mask(step)
    for row, start in enumerate(batch.starts.tolist()):
        at = range(start, start + window)
        assert batch.document_ids[row].tolist() == [ids[position] for position in at]
        assert batch.position_ids[row].tolist() == [min(places[p], p - start) for p in at]
        if loss == "keep":
            continue
        read = [t < made.read_length - 1 for t in range(window)]
        expected = [read[t] and counted(lengths, start + t + 1, loss) for t in range(window)]
        if planned is not None:
            expected = (np.array(expected) & planned[row]).tolist()
        assert batch.loss_mask[row].tolist() == expected
    if loss == "keep":
        np.testing.assert_array_equal(batch.loss_mask, planned)
    assert batch.document_ids.dtype == batch.position_ids.dtype == np.int64


def test_the_known_example():
    """Documents of 3, 2 and 4 tokens in one row have the places 0 1 2 0 1 0 1 2 3, whatever ids the boundaries have."""
    corpus = MemoryCorpus([5, 5, 0, 5, 0, 5, 0, 5, 0, 7], lengths=[3, 2, 4, 1])
    made = Plan(order="sequential", token_count=10, window=9, batch_size=1)
    batch = Loader(corpus, made, document_ids=True, position_ids=True, boundary_loss="both").batch(0)
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3]]
    assert batch.document_ids.tolist() == [[0, 0, 0, 1, 1, 2, 2, 2, 2]]
    # Targets are tokens 1 to 9; boundaries are 2, 4, 8 and 9, first tokens 3, 5 and 9. The 0 at 6 is an ordinary token.
    assert batch.loss_mask.tolist() == [[True, False, False, False, False, True, True, False, False]]


@given(
    lengths=LENGTHS,
    shuffle=st.sampled_from(["global", "local", "none"]),
    targets=st.sampled_from(["next", "inside"]),
    window=st.integers(2, 12),
    loss=st.sampled_from(LOSSES),
    data=st.data(),
)
def test_rows_of_documents(lengths, shuffle, targets, window, loss, data):
    """A row is one document's beginning; what it lacks is padding, which is nobody's and does not count."""
    made = Plan(
        order="documents",
        token_count=sum(lengths),
        window=window,
        batch_size=4,
        targets=targets,
        documents=len(lengths),
        shuffle=shuffle,
        seed=data.draw(st.integers(0, 9)),
    )
    corpus = corpus_of(lengths)
    loader = Loader(corpus, made, document_ids=True, position_ids=True, boundary_loss=loss, pad_id=7)
    step = data.draw(st.integers(0, (made.steps or 50) - 1))
    batch, numbers, valid = loader.batch(step), made.documents_many(step, 1)[0], made.valid(step)
    begins = np.cumsum([0, *lengths])
    for row, number in enumerate(numbers.tolist()):
        start = int(begins[number])
        held = corpus.tokens[start : start + min(lengths[number], made.read_length)].tolist()
        padded = [*held, *[7] * made.read_length][: made.read_length]
        assert batch.starts[row] == start
        assert batch.input_ids[row].tolist() == padded[:window]
        if targets == "next":
            assert batch.targets[row].tolist() == padded[1:]
        else:
            assert batch.labels[row].tolist() == padded
        inputs = min(len(held), window)
        assert batch.document_ids[row].tolist() == [number] * inputs + [-1] * (window - inputs)
        assert batch.position_ids[row].tolist() == list(range(window))
        expected = [
            bool(valid[row]) and t + 1 < len(held) and counted(lengths, start + t + 1, loss) for t in range(window)
        ]
        assert batch.loss_mask[row].tolist() == expected


@given(lengths=LENGTHS, window=st.integers(1, 12))
def test_a_pass_over_documents_serves_all_but_what_it_says(lengths, window):
    """In a pass each document comes once; what counts, and what no row serves, make all predictions within documents."""
    made = Plan(
        order="documents", token_count=sum(lengths), window=window, batch_size=3, documents=len(lengths), shuffle="none"
    )
    loader = Loader(corpus_of(lengths), made)
    batches = list(loader)
    assert len(batches) == len(loader) == made.steps
    targets = np.concatenate([batch.targets[batch.loss_mask] for batch in batches])
    assert len(set(targets.tolist())) == len(targets)
    assert len(targets) + loader.unserved_targets() == sum(lengths) - len(lengths)


@given(lengths=LENGTHS, window=st.integers(1, 12), data=st.data())
def test_rows_that_read_a_document_are_found(lengths, window, data):
    """`steps_of` of some tokens is exactly the rows in which they are; beyond what a row holds, they are in none."""
    made = Plan(
        order="documents", token_count=sum(lengths), window=window, batch_size=3, documents=len(lengths), seed=1
    )
    loader = Loader(corpus_of(lengths), made, pad_id=0)
    first = data.draw(st.integers(0, sum(lengths) - 1))
    tokens = range(first, data.draw(st.integers(first + 1, sum(lengths))))
    steps = range(made.step_of(2 * len(lengths) - 1)[0] + 1)
    expected = []
    for step in steps:
        batch = loader.batch(step)
        ids = np.concatenate([batch.input_ids, batch.targets[:, -1:]], axis=1) - 100
        rows = np.flatnonzero(np.isin(ids, list(tokens)).any(axis=1)).tolist()
        expected += [(step, row) for row in rows]
    found = loader.steps_of(tokens, steps=steps)
    assert list(zip(found.steps.tolist(), found.rows.tolist(), strict=True)) == expected


def test_unserved_targets_of_windows():
    """Of other orders it is the tail, and what lies between windows too far apart; random windows leave nothing out."""
    corpus = corpus_of([10, 93])
    plans = {
        order: Plan(order=order, token_count=103, window=10, batch_size=1, **options)
        for order, options in {"blocks": {}, "sequential": {"stride": 12}, "random": {}}.items()
    }
    unserved = {order: Loader(corpus, made).unserved_targets() for order, made in plans.items()}
    assert unserved == {"blocks": 2, "sequential": 102 - 8 * 10, "random": 0}


def test_documents_must_be_known():
    """A corpus that does not know its documents, or has another number of them, is refused before any batch."""
    unknown, known = MemoryCorpus(np.arange(100)), corpus_of([50, 50])
    made = Plan(order="random", token_count=100, window=8, batch_size=4)
    for options in ({"document_ids": True}, {"position_ids": True}, {"boundary_loss": "target"}):
        with pytest.raises(NoDocumentsError, match="MemoryCorpus does not say where its documents end"):
            Loader(unknown, made, **options)
        Loader(known, made, **options)
    Loader(unknown, made)
    with pytest.raises(PlanError, match="made for 3 documents, the corpus holds 2"):
        Loader(known, Plan(order="documents", token_count=100, window=8, batch_size=4, documents=3))
    with pytest.raises(PlanError, match="boundary_loss must be one of keep, target, after, both; found 'drop'"):
        Loader(known, made, boundary_loss="drop")
    with pytest.raises(PlanError, match="pad_id must be at least 0"):
        Loader(known, made, pad_id=-1)
    with pytest.raises(PlanError, match="pad_id must be below 65536"):
        Loader(known, made, pad_id=2**16, dtype=np.uint16)
