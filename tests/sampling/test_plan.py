"""The laws of a plan: one order for all ranks, every window once, constant cost, and clear refusals."""

import pickle
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.sampling import Plan


@st.composite
def plans(draw, orders=("random", "blocks", "sequential")) -> dict:
    """Draw the fields of a small plan that has at least one window."""
    order = draw(st.sampled_from(orders))
    targets = draw(st.sampled_from(["next", "inside"]))
    window = draw(st.integers(1 if targets == "next" else 2, 12))
    fields = {
        "order": order,
        "targets": targets,
        "window": window,
        "token_count": window + 1 + draw(st.integers(0, 150)),
        "batch_size": draw(st.sampled_from([1, 2, 6, 12, 36])),
        "seed": draw(st.one_of(st.integers(0, 5), st.integers(0, 2**80))),
    }
    if order != "random" and draw(st.booleans()):
        fields["stride"] = draw(st.integers(1, window + 3))
    return fields


@given(fields=plans(), first=st.integers(0, 2**40), steps=st.integers(1, 4))
def test_starts_equal_plain_integers(model, fields, first, steps):
    """Every step's starts are those of exact integer arithmetic, sample by sample, far away too."""
    plan = Plan(**fields)
    if plan.steps is not None:
        first, steps = first % plan.steps, 1
    starts = plan.starts_many(first, steps)
    assert starts.dtype == np.int64
    assert starts.tolist() == [model.starts(fields, first + i) for i in range(steps)]


@given(fields=plans(), first=st.integers(0, 1000))
def test_ranks_together_are_the_batch_of_one(fields, first):
    """For every divisor of the batch, the parts in rank order are the whole batch; law 9."""
    plan = Plan(**fields)
    steps = 3
    if plan.steps is not None:
        first = first % plan.steps
        steps = min(steps, plan.steps - first)
    whole = plan.starts_many(first, steps)
    mask = plan.loss_mask(first)
    for world in (w for w in range(1, plan.batch_size + 1) if plan.batch_size % w == 0):
        parts = [plan.starts_many(first, steps, rank, world) for rank in range(world)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
        np.testing.assert_array_equal([plan.starts(first, rank, world) for rank in range(world)], [p[0] for p in parts])
        valid = np.concatenate([plan.valid(first, rank, world) for rank in range(world)])
        np.testing.assert_array_equal(valid, plan.valid(first))
        masks = [plan.loss_mask(first, rank, world) for rank in range(world)]
        if mask is None:
            assert masks == [None] * world
        else:
            np.testing.assert_array_equal(np.concatenate(masks), mask)


@given(fields=plans(orders=("blocks",)), epochs=st.integers(1, 4))
def test_each_epoch_visits_every_window_once(fields, epochs):
    """Cut into epochs, the samples are permutations of all windows; batches straddle them and none is dropped."""
    plan = Plan(**fields)
    steps = -(-epochs * plan.windows // plan.batch_size)
    samples = plan.starts_many(0, steps).reshape(-1)[: epochs * plan.windows].reshape(epochs, plan.windows)
    every = np.arange(plan.windows) * plan.effective_stride
    for order in samples:
        np.testing.assert_array_equal(np.sort(order), every)
    assert every[-1] + plan.read_length <= plan.token_count


@given(fields=plans(orders=("blocks",)), size=st.integers(1, 50))
def test_batch_size_only_cuts_the_sequence(fields, size):
    """Another batch size gives the same samples in the same order, and the same fingerprint; law 15 rests on it."""
    one, other = Plan(**fields), Plan(**{**fields, "batch_size": size})
    count = 200
    left = one.starts_many(0, -(-count // one.batch_size)).reshape(-1)[:count]
    right = other.starts_many(0, -(-count // size)).reshape(-1)[:count]
    np.testing.assert_array_equal(left, right)
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("seed", [0, 1, 2**64, 3**90])
def test_orders_of_epochs_and_seeds_differ(seed):
    """64 windows: no two of forty epochs share an order, nor do epoch e + 1 and the next seed's epoch e; law 10."""
    orders = {
        (s, e): Plan(order="blocks", token_count=65, window=1, batch_size=64, seed=s).starts(e).tobytes()
        for s in (seed, seed + 1)
        for e in range(20)
    }
    assert len(set(orders.values())) == len(orders)


@given(fields=plans(orders=("random",)))
def test_random_starts_stay_inside(fields):
    """A random window never reads past the end."""
    plan = Plan(**fields)
    starts = plan.starts_many(0, 50)
    assert starts.min() >= 0
    assert starts.max() + plan.read_length <= plan.token_count


@pytest.mark.parametrize(("targets", "read"), [("next", 9), ("inside", 8)])
def test_random_starts_are_uniform_over_the_inclusive_range(targets, read):
    """All N - R + 1 starts, the first and last among them, come up alike: chi-square within 6 sigma; law 11."""
    plan = Plan(order="random", token_count=read + 99, window=8, batch_size=100, targets=targets, seed=11)
    counts = np.bincount(plan.starts_many(0, 1000).reshape(-1), minlength=100)
    assert counts.size == plan.windows == 100
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert abs(chi_square - 99) < 6 * (2 * 99) ** 0.5


def test_random_starts_of_seeds_and_ranks_differ():
    """Neighbouring seeds and ranks draw from unrelated streams."""
    first, second = (Plan(order="random", token_count=2**40, window=8, batch_size=64, seed=s) for s in (0, 1))
    assert not np.intersect1d(first.starts_many(0, 100), second.starts_many(0, 100)).size
    assert not np.intersect1d(first.starts_many(0, 50, 0, 2), first.starts_many(0, 50, 1, 2)).size


@given(fields=plans(orders=("sequential",)))
def test_a_sequential_pass_counts_each_target_once(fields):
    """Evaluation serves the windows in order, and its masks count every served target exactly once, padding none."""
    plan = Plan(**fields)
    assert plan.steps is not None
    served, rows = Counter(), 0
    for step in range(plan.steps):
        starts, valid, mask = plan.starts(step), plan.valid(step), plan.loss_mask(step)
        assert mask is not None
        assert mask.shape == (plan.batch_size, plan.window)
        assert not mask[~valid].any()
        assert (starts[valid] == (rows + np.arange(valid.sum())) * plan.effective_stride).all()
        assert (starts[~valid] == (plan.windows - 1) * plan.effective_stride).all()
        rows += int(valid.sum())
        served.update((starts[:, np.newaxis] + 1 + np.arange(plan.window))[mask].tolist())
    assert rows == plan.windows
    assert set(served.values()) <= {1}
    assert len(served) + plan.lost_targets + plan.tail_tokens == plan.token_count - 1
    assert plan.starts(0)[0] == 0


@pytest.mark.parametrize("order", ["random", "blocks"])
def test_any_step_costs_the_same(order):
    """Step 10**15 takes no longer than step 0 would: resuming never replays."""
    plan = Plan(order=order, token_count=2**40, window=1024, batch_size=512)
    begin = time.process_time()
    assert plan.starts(10**15).shape == (512,)
    assert plan.epoch(10**15) == (10**15 * 512 // plan.windows if order == "blocks" else 0)
    assert time.process_time() - begin < 0.5


def test_fingerprint_follows_the_order_and_nothing_else():
    """Each field that changes the order changes the fingerprint; spelling out the default stride does not."""
    base = {"order": "blocks", "token_count": 1000, "window": 10, "batch_size": 4}
    prints = {Plan(**base).fingerprint}
    for change in (
        {"order": "random"},
        {"order": "sequential"},
        {"token_count": 1001},
        {"window": 11},
        {"seed": 1},
        {"targets": "inside"},
        {"stride": 9},
        {"corpus": "ab"},
    ):
        prints.add(Plan(**{**base, **change}).fingerprint)
    assert len(prints) == 9
    assert Plan(**base, stride=10).fingerprint in prints


def test_plans_are_values():
    """A plan survives pickling, equals its like, hashes, and takes numpy integers of any width."""
    plan = Plan(order="blocks", token_count=40_000, window=300, batch_size=250, seed=2**90)
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301  # our own bytes
    narrow = Plan(
        order="blocks", token_count=np.uint16(40_000), window=np.int16(300), batch_size=np.uint8(250), seed=2**90
    )
    assert narrow == plan
    assert hash(narrow) == hash(plan)
    step = np.uint8(200)
    np.testing.assert_array_equal(narrow.starts(step, np.int8(1), np.uint8(2)), plan.starts(200)[125:])
    assert narrow.epoch(step) == 200 * 250 // 133


@pytest.mark.parametrize("world_size", [0, -1, 3, 5, 48, 65, 2.0, True])
def test_world_size_must_divide_the_batch(world_size):
    """A world size that does not divide the batch is refused with the nearest that does; law 9."""
    plan = Plan(order="random", token_count=1000, window=8, batch_size=64)
    with pytest.raises(PlanError, match="world_size must") as error:
        plan.starts(0, 0, world_size)
    nearest = {3: "2 or 4", 5: "is 4", 48: "32 or 64", 65: "is 64"}
    assert nearest.get(world_size, str(world_size)) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_count": 8}, r"holds 8 tokens; a window of 8 with targets='next' reads 9"),
        ({"token_count": 0}, "holds 0 tokens"),
        ({"token_count": 7, "targets": "inside"}, r"holds 7 tokens; a window of 8 with targets='inside' reads 8"),
        ({"token_count": -1}, "token_count must be at least 0, found -1"),
        ({"token_count": 2**63}, "token_count must be below"),
        ({"window": 0}, "window must be at least 1, found 0"),
        ({"window": 1, "targets": "inside"}, "window must be at least 2, found 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": True}, "batch_size must be an integer, found the bool"),
        ({"batch_size": np.True_}, "batch_size must be an integer"),
        ({"window": 8.0}, r"window must be an integer, found 8.0 \(float\)"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": None}, "seed must be an integer, found None"),
        ({"seed": "1"}, "seed must be an integer, found '1'"),
        ({"stride": 0, "order": "blocks"}, "stride must be at least 1"),
        ({"stride": 8}, "a random plan has no stride"),
        ({"order": "shuffled"}, "order must be one of random, blocks, sequential, documents; found 'shuffled'"),
        ({"targets": "labels"}, "targets must be one of next, inside"),
        ({"shuffle": "local"}, "shuffle of order='random' must be left out; found 'local'"),
        ({"order": "sequential", "shuffle": "global"}, "must be left out"),
        ({"order": "blocks", "shuffle": "none"}, "'global' or 'local'; found 'none'; order='sequential' is blocks"),
        ({"order": "blocks", "piece_windows": 4}, "piece_windows is for shuffle='local'; found 4"),
        ({"order": "blocks", "pieces_at_once": 4}, "pieces_at_once is for shuffle='local'"),
        ({"order": "blocks", "shuffle": "local", "piece_windows": 0}, "piece_windows must be at least 1"),
        ({"phase": True}, "phase is True or False, and for order='blocks'; found True"),
        ({"order": "blocks", "phase": 3}, "phase is True or False"),
        ({"order": "blocks", "phase": np.array([True, False])}, "phase is True or False"),
        ({"corpus": None}, "corpus: wanted the fingerprint, as str.*found None"),
        ({"corpus": 0.5}, "corpus: wanted the fingerprint"),
        ({"order": "blocks", "phase": True, "token_count": 15}, "reads 9 and up to 7 before them with phase=True"),
        ({"documents": 4}, "documents, their number, goes with order='documents' and with no other; found 4"),
        ({"order": "documents"}, "goes with order='documents' and with no other; found None"),
        ({"order": "documents", "documents": 0}, "documents must be at least 1"),
        ({"order": "documents", "documents": 101}, "101 documents do not fit into 100 tokens"),
        ({"order": "documents", "documents": 9, "stride": 8}, "a plan of documents has no stride"),
        ({"batch_size": []}, "batch_size: the schedule is empty"),
        ({"batch_size": [(1, 4)]}, "ascend from 0.*found step 1 first"),
        ({"batch_size": [(0, 4), (0, 8)]}, "ascend from 0.*found step 0 after 0"),
        ({"batch_size": [(0, 4), (5, 0)]}, "batch_size must be at least 1, found 0"),
        ({"batch_size": [4]}, r"pairs \(from_step, rows\), found the item 4"),
        ({"batch_size": [(0, 4), (2**62, 8)]}, "begins at sample .*; wanted one below 2"),
        ({"batch_size": "12"}, "batch_size must be an integer, found '12'"),
        ({"skipped": [(4, 4)]}, r"the range of samples \[4, 4\) is empty"),
        ({"skipped": [4]}, "skipped: wanted pairs"),
        ({"order": "sequential", "skipped": [(11, 13)]}, r"has the samples 0 to 11, found \(11, 13\)"),
        ({"order": "sequential", "skipped": [(0, 12)]}, "all 12 samples of the plan are left out"),
    ],
)
def test_impossible_plans_are_refused(changes, message):
    """A plan that cannot be carried out is refused when it is made, and says what was wanted and found."""
    with pytest.raises(PlanError, match=message):
        Plan(**{"order": "random", "token_count": 100, "window": 8, "batch_size": 4, **changes})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plan: plan.starts(3), "has the steps 0 to 2, found step 3"),
        (lambda plan: plan.starts_many(1, 3), "has the steps 0 to 2, found step 3"),
        (lambda plan: plan.valid(3), "found step 3"),
        (lambda plan: plan.loss_mask(-1), "step must be at least 0"),
        (lambda plan: plan.epoch(3), "found step 3"),
        (lambda plan: plan.starts(0, 4, 4), "rank must be below 4, found 4"),
        (lambda plan: plan.starts(0, -1, 4), "rank must be at least 0"),
        (lambda plan: plan.starts(True), "found the bool True"),
    ],
)
def test_steps_and_ranks_outside_are_refused(call, message):
    """A finite plan has exactly its steps; ranks are those of the world."""
    plan = Plan(order="sequential", token_count=81, window=8, batch_size=4)
    assert plan.steps == 3
    assert plan.starts_many(3 - 1, 1).shape == (1, 4)
    with pytest.raises(PlanError, match=message):
        call(plan)


@pytest.mark.parametrize("numbers", [5, (0, 5), slice(0, 5), range(0, 6, 2), range(5, 5), range(-1, 5), "0-5"])
def test_what_is_no_range_is_refused(numbers):
    """Tokens, epochs and steps come as ranges; anything else is an error that says so, and no end is guessed."""
    plan = Plan(order="blocks", token_count=81, window=8, batch_size=4)
    for arguments in ({"tokens": numbers, "epochs": range(1)}, {"epochs": numbers}, {"steps": numbers}):
        with pytest.raises(PlanError, match="wanted a range without gaps within"):
            plan.steps_of(**{"tokens": range(5), **arguments})
    if numbers != 5:
        with pytest.raises(PlanError, match="steps"):
            plan.skip(numbers)


@pytest.mark.parametrize("order", ["random", "blocks", "sequential"])
def test_samples_are_integers(order):
    """No sample number is rounded, a list of none has no starts, and a list is as good as an array."""
    plan = Plan(order=order, token_count=81, window=8, batch_size=4)
    assert plan.starts_of([]).shape == plan.starts_of(np.array([], np.int64)).shape == (0,)
    np.testing.assert_array_equal(plan.starts_of([3, 1]), plan.starts_of(np.array([3, 1], np.uint8)))
    for wrong in ([0.5], np.array([1.0]), ["1"], [None], [True]):
        with pytest.raises(PlanError, match="samples: wanted an array of integers, found"):
            plan.starts_of(wrong)
        with pytest.raises(PlanError, match="samples: wanted an array of integers, found"):
            plan.loss_mask_of(wrong)


def test_the_last_sample_is_below_two_to_the_63():
    """An endless plan ends where samples stop fitting 64 bits, with an error and not a wrap."""
    plan = Plan(order="blocks", token_count=2**63 - 1, window=1, batch_size=2**20)
    last = 2**43 - 1
    assert plan.starts(last).shape == (2**20,)
    with pytest.raises(PlanError, match=f"0 to {last}, found step {last + 1}"):
        plan.starts(last + 1)
