"""headrace.torch: whole batches through torch's DataLoader and torchdata's, without workers and with them."""

import copy
import json
import os
import pickle
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from headrace.errors import PlanError
from headrace.torch import BatchStream, StepDataLoader, StepSampler

MARKED = {"document_ids": True, "position_ids": True, "boundary_loss": "both"}
WORKERS = [0, *(pytest.param(workers, marks=pytest.mark.extended) for workers in (1, 8)), 2]


def steps_of(loader, batches) -> list[int]:
    """The step of each batch, by its tokens: no two of the first 200 are alike."""
    steps = {loader.batch(step).input_ids.tobytes(): step for step in range(200)}
    return [steps[batch["input_ids"].numpy().tobytes()] for batch in batches]


@pytest.mark.parametrize("kept", [False, True])
def test_the_same_bytes_with_any_workers(make_loader, assert_batch, any_workers, kept):
    """Law 17: any number and kind of workers, also after reads in the parent, which has maps open then; set_step moves all."""
    loader = make_loader(**MARKED)
    stream = BatchStream(loader, steps=40)
    batches = DataLoader(stream, batch_size=None, persistent_workers=kept and bool(any_workers), **any_workers)
    loader.batch(0)
    stream.batch(17)
    for first in (0, 13, 36):
        stream.set_step(first)
        found = list(batches)
        assert len(found) == 40 - first
        for step, tensors in enumerate(found, first):
            assert_batch(tensors, loader.batch(step))
    loader.corpus.close()


def test_kept_workers_begin_again_where_it_is_said(make_loader):
    """A worker that is kept reads the step that is set for its next iteration, after an iteration that was left early, too."""
    loader = make_loader()
    stream = BatchStream(loader)
    batches = DataLoader(
        stream, batch_size=None, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    for first in (5, 100, 3):
        stream.set_step(first)
        assert steps_of(loader, islice(batches, 5)) == list(range(first, first + 5))


def test_a_worker_cannot_set_the_step(make_loader):
    """Steps are set in the main process; in a worker it is refused, where it would reach one of them only."""
    stream = BatchStream(make_loader(), steps=4)
    batches = DataLoader(
        stream, batch_size=None, num_workers=1, multiprocessing_context="fork", worker_init_fn=_set_step
    )
    with pytest.raises(PlanError, match="main process"):
        list(batches)


def _set_step(_number) -> None:
    torch.utils.data.get_worker_info().dataset.set_step(1)


def test_a_copy_is_on_its_own(make_loader):
    """Copies and pickles of a stream keep its step, and setting theirs does not move it."""
    stream = BatchStream(make_loader())
    stream.set_step(7)
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):  # noqa: S301  # our own
        assert other.step == 7
        other.set_step(9)
        assert (stream.step, other.step) == (7, 9)
        assert torch.equal(next(iter(other))["input_ids"], stream.batch(9)["input_ids"])


def test_pickles_by_path(make_loader):
    """What is sent to a worker is where the corpus is, not its tokens: a few kilobytes."""
    stream = BatchStream(make_loader())
    next(iter(stream))
    assert len(pickle.dumps(stream)) < 5_000


def test_parts_of_a_step(make_loader, assert_batch):
    """With of=4 each step is four batches, its parts in order, and iteration begins at the first of a step."""
    loader = make_loader(rank=1, world_size=2)
    stream = BatchStream(loader, of=4, steps=3)
    stream.set_step(1)
    found = list(stream)
    assert len(found) == 8
    assert len(stream) == 12
    for number, tensors in enumerate(found):
        assert_batch(tensors, loader.batch(1 + number // 4, micro=number % 4, of=4))


def test_an_endless_stream_has_no_length(make_loader):
    """As a Loader's: len of an endless stream is a TypeError; a finite plan's is its steps."""
    with pytest.raises(TypeError, match="endless"):
        len(BatchStream(make_loader()))
    finite = make_loader(plan_order="sequential")
    assert len(BatchStream(finite)) == len(list(BatchStream(finite))) == finite.plan.steps


@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}])
def test_a_batch_of_batches_is_refused(make_loader, options):
    """A DataLoader without batch_size=None would stack whole batches; it is told what to say instead."""
    with pytest.raises(PlanError, match="batch_size=None"):
        next(iter(DataLoader(BatchStream(make_loader()), **options)))


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"batch_size": 4},
        {"drop_last": True},
        {"sampler": [1, 2]},
        {"num_workers": 2, "in_order": False},
    ],
)
def test_options_that_the_plan_decides_are_refused(make_loader, options):
    """Whatever would change order or size of the batches is refused by name."""
    with pytest.raises(PlanError, match=next(reversed(options))):
        StepDataLoader(make_loader(), **options)


def test_options_that_say_what_the_plan_does_are_taken(make_loader, assert_batch):
    """What a DataLoader over whole batches needs, and torch's own defaults, change nothing."""
    loader = make_loader()
    for options in (
        {"batch_size": None},
        {"shuffle": False, "drop_last": False},
        {"collate_fn": None, "in_order": True},
    ):
        assert_batch(next(iter(StepDataLoader(loader, **options))), loader.batch(0))


@pytest.mark.parametrize("workers", WORKERS)
def test_the_step_loader_counts_what_was_taken(make_loader, workers):
    """Its state is what the trainer took, not what workers made ahead: a resume of a resume, with other workers, is exact."""
    reference = make_loader()
    state, step = None, 0
    for taken, number in ((3, workers), (7, 0), (1, workers), (5, 2)):
        loader = make_loader()
        context = {"multiprocessing_context": "fork"} if number else {}
        batches = StepDataLoader(loader, num_workers=number, **context)
        if state is not None:
            batches.load_state_dict(json.loads(json.dumps(state)))
        assert batches.step == step
        assert steps_of(reference, islice(batches, taken)) == list(range(step, step + taken))
        step += taken
        state = batches.state_dict()
        assert state["step"] == step
        plain = make_loader()
        plain.load_state_dict(state)
        assert plain.step == step


def test_the_step_loader_counts_whole_steps(make_loader):
    """A step of which parts are missing was not taken: its gradients are lost with the process, so it is taken again."""
    batches = StepDataLoader(BatchStream(make_loader(), of=4))
    found = list(islice(batches, 7))
    assert batches.state_dict()["step"] == 1
    assert torch.equal(next(iter(batches))["input_ids"], found[4]["input_ids"])


def test_the_step_loader_can_be_set_within_a_loop(make_loader):
    """After set_step in the body of a loop the next batch is that step's, with workers that have made others ahead, too."""
    loader = make_loader()
    batches = StepDataLoader(loader, num_workers=2, multiprocessing_context="fork")
    seen = []
    for batch in batches:
        seen += steps_of(loader, [batch])
        if len(seen) == 3:
            batches.set_step(50)
        if len(seen) == 6:
            break
    assert seen == [0, 1, 2, 50, 51, 52]
    assert batches.step == 53


def test_the_step_loader_draws_no_random_numbers(make_loader):
    """Iterating leaves torch's generator as it is, so that a resumed model drops out what it would have."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    list(islice(StepDataLoader(make_loader()), 3))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_finite_pass_begins_anew(make_loader):
    """After its last step a finite plan begins anew, as a Loader does."""
    loader = make_loader(plan_order="sequential")
    batches = StepDataLoader(loader)
    assert len(batches) == len(list(batches)) == len(list(batches)) == loader.plan.steps


def test_a_state_of_another_run_is_refused(make_loader):
    """What a Loader refuses, the adapters do, with the field's name."""
    state = StepDataLoader(make_loader()).state_dict()
    with pytest.raises(PlanError, match="seed"):
        StepDataLoader(make_loader(plan_seed=2)).load_state_dict(state)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("of", [1, 4])
def test_torchdata_s_state_is_what_was_consumed(make_loader, workers, of):
    """StatefulDataLoader goes on behind the last batch it handed out, again and again, at any worker count."""
    reference = BatchStream(make_loader(), of=of)
    state, number = None, 0
    for taken in (3, 1, 6):
        stream = BatchStream(make_loader(), of=of)
        context = {"multiprocessing_context": "fork"} if workers else {}
        batches = StatefulDataLoader(stream, batch_size=None, num_workers=workers, **context)
        if state is not None:
            batches.load_state_dict(state)
        iterator = iter(batches)
        for tensors in islice(iterator, taken):
            assert torch.equal(tensors["input_ids"], reference.batch(number)["input_ids"])
            number += 1
        state = batches.state_dict()
        del iterator


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_refuses_a_state_of_another_run(make_loader, workers):
    """The state of another plan is refused by field, in a worker as in the main process."""
    context = {"multiprocessing_context": "fork"} if workers else {}
    batches = StatefulDataLoader(BatchStream(make_loader()), batch_size=None, num_workers=workers, **context)
    next(iter(batches))
    state = batches.state_dict()
    other = StatefulDataLoader(BatchStream(make_loader(plan_seed=2)), batch_size=None, num_workers=workers, **context)
    other.load_state_dict(state)
    with pytest.raises(PlanError, match="seed"):
        next(iter(other))


@pytest.mark.parametrize("name", ["stream", "sampler"])
def test_what_is_no_state_of_theirs_is_refused(make_loader, name):
    """A loader's state, a part of a state, and one whose numbers contradict each other are told from a good one."""

    def fresh():
        loader = make_loader()
        return iter(BatchStream(loader, of=2)) if name == "stream" else StepSampler(loader, of=2)

    one = fresh()
    for _ in zip(range(3), one, strict=False):
        pass
    good = one.state_dict()
    fresh().load_state_dict(json.loads(json.dumps(good)))
    for wrong in (None, [], {}, good["loader"], {**good, "more": 1}, {k: v for k, v in good.items() if k != "batch"}):
        with pytest.raises(PlanError, match=rf"wanted what state_dict\(\) of a {name} returned, .*set_step"):
            fresh().load_state_dict(wrong)
    for change in ({"batch": 1}, {"batch": 7}, {"micro": 1 - good["micro"]}):
        with pytest.raises(PlanError, match="it is damaged"):
            fresh().load_state_dict({**good, **change})
    with pytest.raises(PlanError, match="batch must be"):
        fresh().load_state_dict({**good, "batch": "3"})


def test_prefetch_changes_nothing(make_loader):
    """A loader with a prefetch thread gives the stream the same batches, also in workers that were forked from it."""
    loader = make_loader(prefetch=3)
    stream = BatchStream(loader, steps=12)
    iterator = iter(stream)
    next(iterator)  # the thread is at work while workers are forked
    for workers in (0, 2):
        context = {"multiprocessing_context": "fork"} if workers else {}
        found = DataLoader(stream, batch_size=None, num_workers=workers, **context)
        assert steps_of(make_loader(), found) == list(range(12))


def test_nothing_is_left_in_shared_memory(make_loader):
    """Streams and workers leave no name in /dev/shm."""
    shared = Path("/dev/shm")  # noqa: S108  # that very folder
    before = {*shared.iterdir()}
    list(StepDataLoader(BatchStream(make_loader(), steps=6), num_workers=2, multiprocessing_context="fork"))
    new = {path.name for path in {*shared.iterdir()} - before}
    assert [name for name in new if f"-{os.getpid()}-" in name or f"_{os.getpid()}_" in name] == []
