"""headrace.torch: samples by number through torch's map-style DataLoader, and the sampler of the steps."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from headrace.errors import OutOfRangeError, PlanError
from headrace.torch import BatchStream, PinnedBatches, SampleDataset, StepDataLoader, StepSampler

ORDERS = ["blocks", "sequential", "documents"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("targets", ["next", "inside"])
def test_samples_are_the_rows_of_the_steps(make_loader, assert_batch, order, targets):
    """Sample s is row s % B of step s // B, marks and masks included, and torch's own collate makes the loader's batch."""
    loader = make_loader(
        plan_order=order, plan_targets=targets, document_ids=True, position_ids=True, boundary_loss="both"
    )
    dataset = SampleDataset(loader)
    assert len(dataset) == loader.plan.windows
    for step, tensors in enumerate(islice(DataLoader(dataset, batch_size=8), len(dataset) // 8)):
        assert_batch(tensors, loader.batch(step))
        if step == 3:
            assert_batch(
                {name: torch.stack([dataset[24 + row][name] for row in range(8)]) for name in tensors}, loader.batch(3)
            )


def test_any_samples_in_any_order(make_loader):
    """A sampler of torch's decides the order; a whole batch is read in one call, and each row is the sample that was asked for."""
    dataset = SampleDataset(make_loader(plan_order="random"), samples=1000)
    numbers = np.random.default_rng(0).permutation(1000).tolist()
    batches = DataLoader(dataset, batch_size=50, sampler=numbers)
    found = torch.cat([batch["input_ids"] for batch in batches])
    for row, number in enumerate(numbers[:200]):
        assert torch.equal(found[row], dataset[number]["input_ids"])
    rows = dataset.__getitems__([4, 5])
    assert len(rows) == 2
    assert torch.equal(rows[-1]["targets"], dataset[5]["targets"])


def test_a_random_plan_needs_a_number_of_samples(make_loader):
    """Random windows have no epochs, so the data set's length must be said; a sample outside of it is an IndexError."""
    with pytest.raises(PlanError, match="samples"):
        SampleDataset(make_loader(plan_order="random"))
    dataset = SampleDataset(make_loader(plan_order="random"), samples=10)
    for sample in (10, -1):
        with pytest.raises(OutOfRangeError, match="outside"):
            dataset[sample]
    with pytest.raises(OutOfRangeError, match="samples -1 to -1"):
        dataset.__getitems__([-1])
    for wrong in ("1", 1.0, slice(0, 2), None):
        with pytest.raises(TypeError, match="sample: wanted the number of one, found"):
            dataset[wrong]
    with pytest.raises(PlanError, match="at least one, found none"):
        dataset.__getitems__([])


def test_a_sampler_of_steps_in_the_place_of_one_of_samples(make_loader):
    """A DataLoader that was given it as `sampler` is told where it goes."""
    loader = make_loader()
    with pytest.raises(TypeError, match="batch_sampler=sampler"):
        next(iter(DataLoader(SampleDataset(loader), sampler=StepSampler(loader))))


def test_what_is_no_loader_is_refused(make_loader):
    """A corpus, nothing, or an adapter in the place of a loader is told by what it is; so is what no label can be."""
    for wrong in (make_loader().corpus, None, StepDataLoader(make_loader())):
        for adapter in (BatchStream, StepDataLoader, StepSampler, SampleDataset, lambda it: PinnedBatches(it, "cpu")):
            with pytest.raises(TypeError, match=f"wanted a headrace.Loader, found {type(wrong).__name__}"):
                adapter(wrong)
    for adapter in (BatchStream, SampleDataset, lambda it, **options: PinnedBatches(it, "cpu", **options)):
        for index in ("-100", 1.0):
            with pytest.raises(PlanError, match="ignore_index must be an integer"):
                adapter(make_loader(), ignore_index=index)


@pytest.mark.parametrize("order", ["blocks", "sequential"])
def test_the_sampler_of_steps_gives_the_steps(make_loader, assert_batch, any_workers, order):
    """With StepSampler the batches are those of the plan's steps, padding of the last included, from where it was set."""
    loader = make_loader(plan_order=order, rank=1, world_size=2)
    loader.batch(3)
    sampler = StepSampler(loader, of=2, steps=None if order == "sequential" else 12)
    batches = DataLoader(SampleDataset(loader), batch_sampler=sampler, **any_workers)
    assert len(batches) == len(sampler)
    for first in (0, 9):
        sampler.set_step(first)
        found = list(batches)
        assert len(found) == len(sampler) - 2 * first
        for number, tensors in enumerate(found, 2 * first):
            assert_batch(tensors, loader.batch(number // 2, micro=number % 2, of=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_keeps_the_sampler_s_state(make_loader, workers):
    """StatefulDataLoader goes on behind the last batch it handed out, though workers were asked for more."""
    loader = make_loader()
    options = {"multiprocessing_context": "fork"} if workers else {}
    state, number = None, 0
    for taken in (3, 1, 6):
        batches = StatefulDataLoader(
            SampleDataset(loader), batch_sampler=StepSampler(loader), num_workers=workers, **options
        )
        if state is not None:
            batches.load_state_dict(state)
        iterator = iter(batches)
        for tensors in islice(iterator, taken):
            np.testing.assert_array_equal(tensors["input_ids"].numpy(), loader.batch(number).input_ids)
            number += 1
        state = batches.state_dict()
        del iterator


def test_parts_must_divide_the_rows(make_loader):
    """Parts that do not divide a rank's rows are refused with both numbers."""
    with pytest.raises(PlanError, match="3 parts do not divide 8"):
        next(iter(StepSampler(make_loader(), of=3)))
