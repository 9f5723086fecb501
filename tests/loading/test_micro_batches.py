"""Steps that are cut into ranks and micro batches, and batches whose size changes on the way."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.loading import Batch, Loader
from headrace.sampling import Plan
from headrace.testing.memory import MemoryCorpus

LENGTHS = [7, 1, 30, 12, 200, 3, 1, 1, 345, 600, 1, 299]
CORPUS = MemoryCorpus(np.arange(sum(LENGTHS)), lengths=LENGTHS)
FIELDS = ("input_ids", "targets", "labels", "loss_mask", "starts", "document_ids", "position_ids")
SCHEDULE = [(0, 12), (5, 24), (9, 12), (200, 36)]


def plan(order: str = "blocks", **changes) -> Plan:
    """Return a plan over CORPUS, scheduled."""
    documents = {"documents": len(LENGTHS)} if order == "documents" else {}
    fields = {"token_count": CORPUS.token_count, "window": 16, "batch_size": SCHEDULE, "seed": 3}
    return Plan(**{"order": order, **fields, **documents, **changes})


def parts(batches: list[Batch], name: str) -> np.ndarray | None:
    """Return one field of several batches, one below the other."""
    values = [getattr(batch, name) for batch in batches]
    return None if values[0] is None else np.concatenate(values)


@pytest.mark.parametrize("order", ["random", "blocks", "sequential", "documents"])
@settings(max_examples=25)
@given(world=st.sampled_from([1, 2, 3, 6]), of=st.sampled_from([1, 2]), step=st.integers(0, 300))
def test_micro_batches_of_all_ranks_are_the_batch(order, world, of, step):
    """The micro batches of a rank in order are its batch, and those of all ranks in rank order the global one; law 9."""
    made = plan(order)
    step %= made.steps or 301
    options = {"document_ids": True, "position_ids": True, "boundary_loss": "both"}
    whole = Loader(CORPUS, made, **options).batch(step)
    assert len(whole.starts) == made.batch_size_at(step)
    loaders = [Loader(CORPUS, made, rank=rank, world_size=world, **options) for rank in range(world)]
    micro = [loader.batch(step, micro=k, of=of) for loader in loaders for k in range(of)]
    for name in FIELDS:
        np.testing.assert_array_equal(parts(micro, name), getattr(whole, name))
    for rank, loader in enumerate(loaders):
        for name in FIELDS:
            np.testing.assert_array_equal(
                parts(micro[rank * of : (rank + 1) * of], name), getattr(loader.batch(step), name)
            )


@pytest.mark.parametrize("order", ["random", "blocks", "sequential", "documents"])
def test_iteration_follows_a_schedule(order):
    """Iteration serves the steps of a schedule as asked for singly, each with its rows, and all samples without a gap."""
    made = plan(order)
    loader, reference = Loader(CORPUS, made), Loader(CORPUS, plan(order, batch_size=12))
    rows = 0
    for _, batch in zip(range(240), loader, strict=False):
        assert batch.step + 1 == loader.step
        assert len(batch.starts) == made.batch_size_at(batch.step)
        np.testing.assert_array_equal(batch.input_ids[:, 0], CORPUS.tokens[batch.starts])
        for part in range(0, len(batch.starts), 12):
            if (step := (rows + part) // 12) < reference.plan.step_limit:
                np.testing.assert_array_equal(batch.starts[part : part + 12], reference.batch(step).starts)
        rows += len(batch.starts)
    if made.steps is not None:
        assert loader.step == made.steps == len(loader)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"of": 5}, "of must divide the 12 rows of a rank's batch, found 5; the nearest that does is 4 or 6"),
        ({"of": 0}, "of must be at least 1"),
        ({"of": 2, "micro": 2}, "micro must be below 2"),
        ({"micro": 1}, "micro must be below 1"),
        ({"micro": -1, "of": 2}, "micro must be at least 0"),
        ({"of": 1.5}, "of must be an integer"),
        ({"of": 1.0}, "of must be an integer"),
        ({"micro": 0.0}, "micro must be an integer"),
        ({"micro": None}, "micro must be an integer"),
        ({"micro": ""}, "micro must be an integer"),
    ],
)
def test_parts_that_a_step_does_not_have_are_refused(arguments, message):
    """A step is cut into equal parts only, and asked for those that it has."""
    loader = Loader(CORPUS, plan())
    for _ in range(2):
        with pytest.raises(PlanError, match=message):
            loader.batch(0, **arguments)
        loader.batch(0)


def test_a_world_must_divide_every_batch_to_come():
    """A world size that a later batch size does not fit is refused at the start, not in the middle of the night."""
    made = plan(batch_size=[(0, 8), (1000, 12)])
    Loader(CORPUS, made, world_size=4)
    with pytest.raises(PlanError, match="must divide the batch size 12, found 8"):
        Loader(CORPUS, made, world_size=8)


def test_a_loader_is_sent_to_another_process_without_what_it_keeps():
    """A pickled loader serves the same batches, and goes on at the same step."""
    loader = Loader(CORPUS, plan(), document_ids=True)
    for _ in zip(range(3), loader, strict=False):
        pass
    copy = pickle.loads(pickle.dumps(loader))  # noqa: S301  # our own bytes
    assert copy.step == loader.step == 3
    np.testing.assert_array_equal(next(iter(copy)).document_ids, loader.batch(3).document_ids)
