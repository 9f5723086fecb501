"""headrace.torch.LanceDataset and LanceSampler: the published recipe's samples, resumable, in workers of any kind."""

from itertools import islice

import lance
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace
from headrace.errors import OutOfRangeError, PlanError
from headrace.testing.lance import write_lists, write_recipe
from headrace.torch import LanceDataset, LanceSampler

BLOCK = 64
COUNT = 5000
TOKENS = np.random.default_rng(9).integers(0, 50_257, COUNT)


@pytest.fixture(scope="module", params=["2.0", "2.2", "lists"])
def path(request, tmp_path_factory):
    """The tokens as the recipe writes them with old ones of Lance and with new ones, and as lists."""
    path = tmp_path_factory.mktemp("recipe") / "data.lance"
    parts = np.split(TOKENS, [100, 1500, 1501, 4000])
    if request.param == "lists":
        write_lists(path, parts, storage_version="2.2")
    else:
        write_recipe(path, parts, storage_version=request.param, max_rows_per_file=1800)
    return path


def recipe(path, block_size):
    """The samples as the recipe takes them: all that there are, by their starts."""
    dataset = lance.dataset(str(path))
    length = dataset.count_rows() - block_size
    starts = range(0, length, block_size)
    return {
        start: [row["input_ids"] for row in dataset.take(list(range(start, start + block_size))).to_pylist()]
        for start in starts
    }


@pytest.mark.parametrize("path", ["2.0", "2.2"], indirect=True)
def test_samples_of_the_recipe(path):
    """The length, each sample of an epoch and the starts are those of the recipe's own calls, `take(...).to_pylist()`."""
    dataset = LanceDataset(path, BLOCK)
    wanted = recipe(path, BLOCK)
    assert len(dataset) == COUNT - BLOCK
    sampler = LanceSampler(dataset, BLOCK)
    assert len(sampler) == len(wanted)
    assert sorted(sampler) == sorted(wanted)
    for start, tokens in wanted.items():
        sample = dataset[start]
        assert sample["input_ids"].dtype == sample["labels"].dtype == torch.int64
        assert sample["input_ids"].tolist() == sample["labels"].tolist() == tokens


def test_labels_are_their_own(path):
    """What is masked in the labels is not masked in the inputs."""
    sample = LanceDataset(path, BLOCK)[7]
    sample["labels"][:] = -100
    assert sample["input_ids"].tolist() == TOKENS[7 : 7 + BLOCK].tolist()


def test_workers(path, any_workers):
    """Workers of any kind and number make the same batches, and end; also where a Lance handle was open before the fork."""
    opened = lance.dataset(str(path))
    opened.take([1, 2, 3])  # its threads run
    dataset = LanceDataset(path, BLOCK)
    loader = DataLoader(
        dataset,
        shuffle=False,
        batch_size=8,
        sampler=LanceSampler(dataset, BLOCK, seed=3),
        pin_memory=torch.cuda.is_available(),
        timeout=200 if any_workers else 0,
        **any_workers,
    )
    starts = list(LanceSampler(dataset, BLOCK, seed=3))
    found = list(loader)
    assert torch.equal(
        torch.cat([batch["input_ids"] for batch in found]), torch.cat([batch["labels"] for batch in found])
    )
    ids = torch.cat([batch["input_ids"] for batch in found]).numpy()
    np.testing.assert_array_equal(ids, TOKENS[np.array(starts)[:, None] + np.arange(BLOCK)])


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator:UserWarning")
def test_pinned(path):
    """`pin_memory=True`, as the recipe has it, passes; without an accelerator torch warns and does not pin."""
    dataset = LanceDataset(path, BLOCK)
    loader = DataLoader(dataset, batch_size=8, sampler=LanceSampler(dataset, BLOCK), pin_memory=True)
    assert sum(len(batch["labels"]) for batch in loader) == len(LanceSampler(dataset, BLOCK))


def test_a_corpus_of_headrace(folder):
    """The same classes take any corpus of ours, by path or open."""
    corpus = headrace.open(folder)
    for dataset in (LanceDataset(folder, 16), LanceDataset(corpus, 16)):
        assert len(dataset) == len(corpus) - 16
        assert dataset[100]["labels"].tolist() == corpus[100:116].tolist()


def test_borders(path):
    """Fewer tokens than a block are an error that says both; samples outside are an IndexError, so that a loop ends."""
    with pytest.raises(PlanError, match=f"holds {COUNT} tokens, fewer than one block of {COUNT + 1}"):
        LanceDataset(path, COUNT + 1)
    whole = LanceDataset(path, COUNT)
    assert len(whole) == len(LanceSampler(whole, COUNT)) == len(list(LanceSampler(whole, COUNT))) == 0
    dataset = LanceDataset(path, COUNT - 3)
    assert len(list(dataset)) == 3
    for outside in (-1, 3, 1 << 70):
        with pytest.raises(OutOfRangeError):
            dataset[outside]
    with pytest.raises(PlanError, match="block_size"):
        LanceDataset(path, 0)


@pytest.mark.parametrize(("length", "block"), [(1, 1), (7, 1), (64, 64), (65, 64), (1000, 64), (9000, 2)])
def test_sampler(length, block):
    """Every start once an epoch, in an order of (seed, epoch) alone."""
    data = range(length)
    orders = {}
    for seed in (0, 1):
        for epoch in (0, 1):
            sampler = LanceSampler(data, block, seed=seed)
            sampler.set_epoch(epoch)
            orders[seed, epoch] = list(sampler)
            assert list(sampler) == list(LanceSampler(data, block, seed=seed, epoch=epoch)) == orders[seed, epoch]
            assert sorted(orders[seed, epoch]) == list(range(0, length, block))
    if len(orders[0, 0]) > 10:
        assert len(set(map(tuple, orders.values()))) == 4


def test_resume():
    """A state taken anywhere goes on from there, in its epoch; the next iteration is whole."""
    data = range(3000)
    for taken in (0, 1, 17, 46, 47):
        sampler = LanceSampler(data, BLOCK, seed=4, epoch=2)
        begun = list(islice(sampler, taken))
        state = sampler.state_dict()
        assert state == sampler.state_at(taken)
        other = LanceSampler(data, BLOCK, seed=4)
        other.load_state_dict(state)
        assert begun + list(other) == list(LanceSampler(data, BLOCK, seed=4, epoch=2)) == list(other)
    for field, wrong in (("seed", LanceSampler(data, BLOCK)), ("block_size", LanceSampler(data, 65, seed=4))):
        with pytest.raises(PlanError, match=field):
            wrong.load_state_dict(state)
    with pytest.raises(PlanError, match="length"):
        LanceSampler(range(10), BLOCK, seed=4).load_state_dict(state)
    for none in (None, [], {}, {"seed": 4}, {**state, "step": 3}):
        with pytest.raises(PlanError, match=r"wanted what state_dict\(\) of a LanceSampler returned"):
            LanceSampler(data, BLOCK, seed=4).load_state_dict(none)


@pytest.mark.parametrize("path", ["2.2"], indirect=True)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.extended)])
def test_resume_of_a_stateful_loader(path, workers):
    """Torchdata's loader goes on with the batch after the one that was consumed last."""

    def make():
        dataset = LanceDataset(path, BLOCK)
        options = {"multiprocessing_context": "fork"} if workers else {}
        return StatefulDataLoader(
            dataset, batch_size=4, sampler=LanceSampler(dataset, BLOCK, seed=1), num_workers=workers, **options
        )

    straight = [batch["input_ids"] for batch in make()]
    loader = make()
    for _ in islice(loader, 5):
        pass
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)
    rest = [batch["input_ids"] for batch in again]
    assert len(rest) == len(straight) - 5
    assert all(torch.equal(one, other) for one, other in zip(rest, straight[5:], strict=True))
