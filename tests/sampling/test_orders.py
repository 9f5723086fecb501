"""The laws that every order keeps: shuffled globally or locally, moved on, of documents, scheduled, skipped in."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.sampling import Plan

SIZES = [1, 2, 6, 12, 36]


@st.composite
def plans(draw, orders=("random", "blocks", "sequential", "documents"), skips=True) -> dict:
    """Draw the fields of a small plan, of any order and with any of its options, that has at least one window."""
    order = draw(st.sampled_from(orders))
    targets = draw(st.sampled_from(["next", "inside"]))
    window = draw(st.integers(1 if targets == "next" else 2, 8))
    fields = {
        "order": order,
        "targets": targets,
        "window": window,
        "token_count": 2 * window + 4 + draw(st.integers(0, 150)),
        "batch_size": draw(st.sampled_from(SIZES)),
        "seed": draw(st.one_of(st.integers(0, 5), st.integers(0, 2**80))),
    }
    if order in {"blocks", "sequential"} and draw(st.booleans()):
        fields["stride"] = draw(st.integers(1, window + 3))
    if order == "documents":
        fields["documents"] = draw(st.integers(1, fields["token_count"]))
    shuffle = draw(st.sampled_from(["global", "local", "none"]))
    if order == "documents" or (order == "blocks" and shuffle != "none"):
        fields["shuffle"] = shuffle
        if shuffle == "local":
            fields["piece_windows"], fields["pieces_at_once"] = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    if order == "blocks":
        fields["phase"] = draw(st.booleans())
    if draw(st.booleans()):
        changes = draw(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(SIZES)), max_size=3))
        steps = np.cumsum([0, *(gap for gap, _ in changes)]).tolist()
        fields["batch_size"] = list(zip(steps, [fields["batch_size"], *(size for _, size in changes)], strict=True))
    if skips and draw(st.booleans()):
        fields["skipped"] = drawn_skips(draw, None if order == "random" else Plan(**fields))
    return fields


def drawn_skips(draw, plan: Plan | None) -> list[tuple[int, int]]:
    """Draw some ranges of samples, which leave at least one of a finite plan."""
    limit = plan.windows - 1 if plan is not None and plan.finite else 200
    edges = sorted(draw(st.sets(st.integers(0, limit), max_size=6)))
    return list(zip(edges[::2], edges[1::2], strict=False))


def numbers(plan: Plan, first: int, steps: int, rank: int = 0, world_size: int = 1) -> np.ndarray:
    """Return what the rows of some steps are: starts, or documents."""
    many = plan.documents_many if plan.order == "documents" else plan.starts_many
    return many(first, steps, rank, world_size)


def served(plan: Plan, count: int) -> list[int]:
    """Return what the first `count` samples are, as steps serve them, without padding."""
    count = min(count, plan.first_sample(plan.step_limit))
    found: list[int] = []
    step = 0
    while len(found) < count:
        steps = min(-(-(count - len(found)) // plan.batch_size_at(step)), plan.steps_alike(step).stop - step)
        found += numbers(plan, step, steps).reshape(-1).tolist()
        step += steps
    return found[:count]


@given(fields=plans(), first=st.integers(0, 2**40), steps=st.integers(1, 4))
def test_every_order_equals_plain_integers(model, fields, first, steps):
    """Every row of every step is that of exact integer arithmetic, sample by sample, far away too."""
    plan = Plan(**fields)
    plain = {**fields, "batch_size": plan.batch_size, "skipped": [list(pair) for pair in plan.skipped]}
    if plan.steps is not None:
        first %= plan.steps
    alike = plan.steps_alike(first)
    assert alike.start <= first < alike.stop
    steps = min(steps, alike.stop - first)
    found = numbers(plan, first, steps)
    assert found.dtype == np.int64
    assert found.tolist() == [model.starts(plain, first + i) for i in range(steps)]
    assert plan.fingerprint == model.fingerprint(plain)


@settings(max_examples=60)
@given(fields=plans(), first=st.integers(0, 60))
def test_ranks_together_are_the_batch_of_one(fields, first):
    """For every divisor of the step's batch, the parts in rank order are the whole batch; law 9."""
    plan = Plan(**fields)
    first = first if plan.steps is None else first % plan.steps
    steps = min(2, plan.steps_alike(first).stop - first)
    whole = numbers(plan, first, steps)
    mask = plan.loss_mask(first)
    size = plan.batch_size_at(first)
    assert whole.shape == (steps, size)
    for world in (w for w in range(1, size + 1) if size % w == 0):
        ranks = range(world)
        np.testing.assert_array_equal(
            np.concatenate([numbers(plan, first, steps, r, world) for r in ranks], axis=1), whole
        )
        np.testing.assert_array_equal(np.concatenate([plan.valid(first, r, world) for r in ranks]), plan.valid(first))
        if mask is not None:
            np.testing.assert_array_equal(np.concatenate([plan.loss_mask(first, r, world) for r in ranks]), mask)


@given(fields=plans(orders=("blocks", "documents"), skips=False), epochs=st.integers(1, 3))
def test_each_epoch_visits_everything_once(fields, epochs):
    """Cut into epochs, the samples are permutations of all windows, each moved by its epoch's phase; of all documents."""
    plan = Plan(**fields)
    epochs = 1 if plan.finite else epochs
    samples = np.array(served(plan, epochs * plan.windows)).reshape(epochs, plan.windows)
    every = np.arange(plan.windows) * plan.effective_stride
    for epoch, order in enumerate(samples):
        front = 0 if plan.order == "documents" else plan.tails(epoch)[0]
        np.testing.assert_array_equal(np.sort(order), every + front)
        if plan.order != "documents":
            assert plan.tails(epoch) == (order.min(), plan.token_count - order.max() - plan.read_length)
            assert sum(plan.tails(epoch)) == plan.tail_tokens


@given(fields=plans(), size=st.integers(1, 50))
def test_batch_sizes_only_cut_the_sequence(fields, size):
    """Any schedule gives the same samples in the same order, and the same fingerprint; law 15 rests on it."""
    one, other = Plan(**fields), Plan(**{**fields, "batch_size": size})
    assert served(one, 150) == served(other, 150)
    assert one.fingerprint == other.fingerprint


@given(fields=plans(), step=st.integers(0, 50))
def test_steps_and_samples_convert(fields, step):
    """Step and row of a sample, and the first sample of a step, are inverses; rows count up without gaps."""
    plan = Plan(**fields)
    step = step if plan.steps is None else step % plan.steps
    first, following = plan.first_sample(step), plan.first_sample(step + 1)
    rows = int(plan.valid(step).sum())
    assert following == first + rows
    assert [plan.step_of(first + row) for row in range(rows)] == [(step, row) for row in range(rows)]
    if step:
        assert plan.step_of(first - 1)[0] == step - 1
    assert plan.first_sample(0) == 0


@settings(max_examples=60)
@given(fields=plans(), data=st.data())
def test_skipping_takes_steps_out_and_moves_the_rest_up(fields, data):
    """Skipped steps are gone from the sequence of samples, which closes up, once and again, and nothing else changes."""
    plan = Plan(**fields)
    for _ in range(3):
        limit = 20 if plan.steps is None else plan.steps
        begin = data.draw(st.integers(0, limit - 1))
        stop = data.draw(st.integers(begin + 1, min(begin + 5, limit)))
        first, last = plan.first_sample(begin), plan.first_sample(stop)
        expected = served(plan, last + 100)
        del expected[first:last]
        if not expected:
            with pytest.raises(PlanError, match="are left out"):
                plan.skip(range(begin, stop))
            return
        before, plan = plan, plan.skip(range(begin, stop) if stop > begin + 1 else begin)
        assert served(plan, len(expected)) == expected
        assert plan.batch_size == before.batch_size
        assert plan.fingerprint != before.fingerprint
        assert Plan(**{**fields, "skipped": plan.skipped}) == plan


@given(fields=plans(), data=st.data())
def test_steps_of_finds_exactly_the_rows_that_read_a_token(fields, data):
    """Of all rows of some epochs and steps, exactly those whose window touches the tokens are found, in order."""
    plan = Plan(**fields)
    epochs = 1 if plan.finite else 3
    if plan.order == "random":
        last = data.draw(st.integers(1, 40))
    else:
        last = plan.step_of(max(len(served(plan, epochs * plan.windows)) - 1, 0))[0] + 1
        last = min(last, data.draw(st.integers(1, 60)))
    first = data.draw(st.integers(0, last - 1))
    steps = range(first, last)
    limit = plan.windows if plan.order == "documents" else plan.token_count
    begin = data.draw(st.integers(0, limit - 1))
    wanted = range(begin, data.draw(st.integers(begin + 1, limit)))
    length = 1 if plan.order == "documents" else plan.read_length
    find = plan.documents_steps if plan.order == "documents" else plan.steps_of
    expected = [
        (step, row)
        for step in steps
        for row, number in enumerate(numbers(plan, step, 1)[0].tolist())
        if plan.valid(step)[row] and number < wanted.stop and number + length > wanted.start
    ]
    found = find(wanted, steps=steps)
    assert found.steps.dtype == found.rows.dtype == np.int64
    assert list(zip(found.steps.tolist(), found.rows.tolist(), strict=True)) == expected


@given(fields=plans(orders=("blocks", "sequential", "documents")), epoch=st.integers(0, 3), data=st.data())
def test_steps_of_an_epoch_are_its_own(fields, epoch, data):
    """Asked for an epoch, it finds the rows of that epoch alone; asked for steps as well, those of both."""
    plan = Plan(**fields)
    epoch = 0 if plan.finite else epoch
    count = plan.windows if plan.order == "documents" else plan.token_count
    find = plan.documents_steps if plan.order == "documents" else plan.steps_of
    whole = find(range(count), range(epoch, epoch + 1))
    gone = sum(
        max(0, min(stop, (epoch + 1) * plan.windows) - max(first, epoch * plan.windows)) for first, stop in plan.skipped
    )
    assert len(whole.steps) == plan.windows - gone
    assume(len(whole.steps))
    samples = [plan.first_sample(s) + r for s, r in zip(whole.steps.tolist(), whole.rows.tolist(), strict=True)]
    assert samples == list(range(samples[0], samples[0] + len(samples)))
    step = data.draw(st.sampled_from(whole.steps.tolist()))
    both = find(range(count), range(epoch, epoch + 1), steps=range(step, step + 1))
    np.testing.assert_array_equal(both.rows, whole.rows[whole.steps == step])


def test_the_inverse_costs_what_it_finds():
    """A document of a corpus of 10**13 tokens is found in epoch 10**6 at once; random rows far away are scanned."""
    for shuffle in ("global", "local"):
        plan = Plan(order="blocks", token_count=10**13, window=1024, batch_size=512, shuffle=shuffle, phase=True)
        found = plan.steps_of(range(5 * 10**12, 5 * 10**12 + 3000), range(10**6, 10**6 + 2))
        assert 6 <= len(found.steps) <= 10
        for step, row in zip(found.steps.tolist(), found.rows.tolist(), strict=True):
            start = int(plan.starts(step)[row])
            assert 5 * 10**12 - plan.read_length < start < 5 * 10**12 + 3000
            assert plan.epoch(step) in {10**6 - 1, 10**6, 10**6 + 1}
    plan = Plan(order="random", token_count=10**6, window=1024, batch_size=64)
    steps = range(10**9, 10**9 + 20_000)
    found = plan.steps_of(range(500, 501), steps=steps)
    starts = plan.starts_many(steps.start, len(steps))
    at, rows = np.nonzero(starts <= 500)
    np.testing.assert_array_equal(found.steps, at + steps.start)
    np.testing.assert_array_equal(found.rows, rows)


@pytest.mark.parametrize(
    ("order", "call", "message"),
    [
        ("blocks", lambda p: p.steps_of(range(5)), "endless plan: say which epochs or steps"),
        ("blocks", lambda p: p.steps_of(range(99, 101), range(1)), r"tokens: wanted .* within \[0, 100\)"),
        ("blocks", lambda p: p.steps_of(range(0, 8, 2), range(1)), "tokens: wanted a range without gaps"),
        ("blocks", lambda p: p.steps_of(range(4, 4), range(1)), "not empty"),
        ("blocks", lambda p: p.documents_steps(range(1), range(1)), "has windows, not documents"),
        ("blocks", lambda p: p.documents_many(0, 1), "has windows, not documents"),
        ("sequential", lambda p: p.steps_of(range(4), range(2)), r"epochs: .* within \[0, 1\)"),
        ("sequential", lambda p: p.steps_of(range(4), steps=range(3, 9)), "found step 8"),
        ("random", lambda p: p.steps_of(range(4)), "a random plan has no epochs"),
        ("random", lambda p: p.steps_of(range(4), range(1), steps=range(1)), "a random plan has no epochs"),
        ("documents", lambda p: p.steps_of(range(4), range(1)), "take documents_steps, or Loader.steps_of"),
        ("documents", lambda p: p.starts(0), "take documents_many, or a Loader"),
        ("documents", lambda p: p.tail_tokens, r"tail_tokens: .*unserved_targets\(\)"),
        ("documents", lambda p: p.lost_targets, "lost_targets: "),
        ("documents", lambda p: p.documents_steps(range(8, 10), range(1)), r"documents: wanted .* within \[0, 9\)"),
        ("blocks", lambda p: p.skip(range(3, 3)), "steps: wanted a range without gaps"),
        ("blocks", lambda p: p.skip(-1), "steps must be at least 0"),
        ("sequential", lambda p: p.skip(range(2, 5)), "has the steps 0 to 2, found step 4"),
        ("blocks", lambda p: p.first_sample(2**62), "step must be below"),
        ("sequential", lambda p: p.first_sample(4), "step must be below 4"),
        ("sequential", lambda p: p.step_of(12), "sample must be below 12"),
    ],
)
def test_impossible_questions_are_refused(order, call, message):
    """What a plan cannot answer is refused with the way to ask."""
    documents = {"documents": 9} if order == "documents" else {}
    plan = Plan(order=order, token_count=100, window=8, batch_size=4, **documents)
    with pytest.raises(PlanError, match=message):
        call(plan)


def test_a_block_of_steps_has_one_batch_size():
    """Steps of different batches do not fit one array: they are asked for in parts, which `steps_alike` names."""
    plan = Plan(order="blocks", token_count=1000, window=8, batch_size=[(0, 4), (10, 8), (12, 8), (20, 2)])
    assert plan.batch_size == ((0, 4), (10, 8), (20, 2))
    assert [plan.steps_alike(step) for step in (0, 9, 10, 19)] == [range(10), range(10), range(10, 20), range(10, 20)]
    assert plan.steps_alike(25).start == 20
    assert plan.steps_alike(25).stop == plan.step_limit
    with pytest.raises(PlanError, match="the batch size changes within steps 8 to 11"):
        plan.starts_many(8, 4)
    assert [plan.batch_size_at(step) for step in (0, 9, 10, 19, 20, 10**12)] == [4, 4, 8, 8, 2, 2]
    assert plan.rebatched(15, 3).batch_size == ((0, 4), (10, 8), (15, 3))
    assert plan.rebatched(15, [(0, 3), (17, 5)]).batch_size == ((0, 4), (10, 8), (15, 3), (17, 5))
    assert plan.rebatched(0, 4).batch_size == 4


@given(fields=plans(orders=("sequential",)))
def test_an_evaluation_counts_each_served_target_once(fields):
    """Also with windows skipped and batches of changing size, the masks of a pass count what is read once and no more."""
    plan = Plan(**fields)
    counted: list[int] = []
    reach: set[int] = set()
    for step in range(plan.steps):
        starts, valid, mask = plan.starts(step), plan.valid(step), plan.loss_mask(step)
        assert not mask[~valid].any()
        counted += (starts[:, np.newaxis] + 1 + np.arange(plan.window))[mask].tolist()
        reach |= {start + 1 + i for start in starts[valid].tolist() for i in range(plan.read_length - 1)}
    assert sorted(counted) == sorted(reach)
