"""The loader: batches as a pure function of the step, for any rank, in any order, any number of times."""

import json
import operator
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.loading.rows import BLOCK_STARTS
from headrace.sampling import Plan
from headrace.testing.corpora import small_corpus
from headrace.testing.memory import MemoryCorpus

LINE = np.random.default_rng(0).integers(0, 2**16, 5000, dtype=np.uint16)


def plan(order="random", **changes) -> Plan:
    """Return a plan over LINE."""
    return Plan(**{"order": order, "token_count": LINE.size, "window": 16, "batch_size": 12, "seed": 3, **changes})


def assert_equal(one, other) -> None:
    """Compare all arrays of two batches."""
    assert one.step == other.step
    for name in ("input_ids", "targets", "labels", "loss_mask", "starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@given(
    order=st.sampled_from(["random", "blocks", "sequential"]),
    targets=st.sampled_from(["next", "inside"]),
    window=st.integers(2, 40),
    step=st.integers(0, 5000),
)
def test_batches_are_the_windows_that_the_plan_names(order, targets, window, step):
    """Row i is the line from starts[i] on; targets exist only with `next`, labels only with `inside`; law 12."""
    made = plan(order, window=window, targets=targets)
    step %= made.steps or 5001
    batch = Loader(MemoryCorpus(LINE), made).batch(step)
    starts = made.starts(step)
    rows = np.stack([LINE[start : start + made.read_length] for start in starts]).astype(np.int64)
    assert batch.step == step
    np.testing.assert_array_equal(batch.starts, starts)
    assert batch.starts.dtype == batch.input_ids.dtype == np.int64
    np.testing.assert_array_equal(batch.input_ids, rows[:, :window])
    if targets == "next":
        assert batch.labels is None
        assert batch.targets.dtype == np.int64
        np.testing.assert_array_equal(batch.targets, rows[:, 1:])
        np.testing.assert_array_equal(batch.targets[:, :-1], batch.input_ids[:, 1:])
    else:
        assert batch.targets is None
        np.testing.assert_array_equal(batch.labels, batch.input_ids)
    if order == "sequential":
        np.testing.assert_array_equal(batch.loss_mask, made.loss_mask(step))
    else:
        assert batch.loss_mask is None
    assert batch.document_ids is None
    assert batch.position_ids is None


@pytest.mark.parametrize("order", ["random", "blocks", "sequential"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 12])
def test_ranks_together_are_the_batch_of_one(order, world_size):
    """The parts in rank order are the whole batch, and all ranks serve equally many; laws 9 and 18."""
    made = plan(order, window=17)
    whole = Loader(MemoryCorpus(LINE), made)
    parts = [Loader(MemoryCorpus(LINE), made, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in (0, 1, (made.steps or 2000) - 1):
        batches = [part.batch(step) for part in parts]
        for name in ("input_ids", "targets", "starts", *(["loss_mask"] if order == "sequential" else [])):
            together = np.concatenate([getattr(batch, name) for batch in batches])
            np.testing.assert_array_equal(together, getattr(whole.batch(step), name))
    if made.steps is not None:
        assert made.windows % made.batch_size == 6  # so the last batch is padded
        assert {len(list(part)) for part in parts} == {made.steps}


@pytest.mark.parametrize("order", ["random", "blocks"])
def test_iteration_goes_on_from_step(order):
    """Stopping and resuming, again and again and in a new loader, serves each step once: step + 1 follows step."""
    made = plan(order)
    reference = Loader(MemoryCorpus(LINE), made)
    loader = Loader(MemoryCorpus(LINE), made)
    expected = 0
    for taken in (1, 4, 1030, 2):
        for _, batch in zip(range(taken), loader, strict=False):
            assert_equal(batch, reference.batch(expected))
            expected += 1
            assert loader.step == expected
        loader = Loader(MemoryCorpus(LINE), made)
        loader.step = np.int64(expected)
    assert next(iter(loader)).step == expected


def test_step_counts_what_was_handed_out():
    """After a batch is handed out, `step` is the next one: a checkpoint written then repeats and skips nothing."""
    loader = Loader(MemoryCorpus(LINE), plan())
    for batch in loader:
        assert loader.step == batch.step + 1
        if batch.step == 5:
            break
    assert next(iter(loader)).step == 6


def test_a_finite_pass_can_be_repeated():
    """Each pass over a sequential plan is whole: also the second, one after a stop, and one that resumes at the end."""
    made = plan("sequential")
    loader = Loader(MemoryCorpus(LINE), made)
    assert len(loader) == made.steps == 26
    every = list(range(26))
    assert [batch.step for batch in loader] == every
    assert [batch.step for batch in loader] == every
    loader.step = 20
    assert [batch.step for batch in loader] == every[20:]
    loader.step = 26
    assert [batch.step for batch in loader] == every


def test_evaluation_counts_every_target_once():
    """Masked targets of a whole pass are the line without its first token and its tail, in order."""
    made = plan("sequential")
    served = np.concatenate([batch.targets[batch.loss_mask] for batch in Loader(MemoryCorpus(LINE), made)])
    np.testing.assert_array_equal(served, LINE[1 : LINE.size - made.tail_tokens])


def test_overlapping_evaluation_counts_every_target_once():
    """With a stride below the window each target counts where it has the most context before it, and only there."""
    made = plan("sequential", stride=5)
    served = np.concatenate([batch.targets[batch.loss_mask] for batch in Loader(MemoryCorpus(LINE), made)])
    np.testing.assert_array_equal(served, LINE[1 : LINE.size - made.tail_tokens])


@pytest.mark.parametrize("order", ["random", "blocks"])
def test_len_of_an_endless_plan_is_a_type_error(order):
    """There is no number to give; what asks for a length is told so, what merely hints goes on."""
    loader = Loader(MemoryCorpus(LINE), plan(order))
    with pytest.raises(TypeError, match="endless"):
        len(loader)
    assert operator.length_hint(loader, 7) == 7


@given(steps=st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_steps_in_any_order_give_the_same_batches(steps):
    """What was asked before does not matter, however the steps jump between the blocks of starts kept."""
    made = plan("blocks")
    loader = Loader(MemoryCorpus(LINE), made)
    for step in (*steps, *reversed(steps)):
        assert_equal(loader.batch(step), Loader(MemoryCorpus(LINE), made).batch(step))


def test_batches_belong_to_the_caller():
    """Writing into a batch changes neither another batch nor the corpus nor the starts that the loader keeps."""
    loader = Loader(MemoryCorpus(LINE), plan())
    first, second, again = loader.batch(0), loader.batch(1), loader.batch(0)
    kept = second.input_ids.copy()
    first.input_ids[:] = -1
    first.starts[:] = -1
    np.testing.assert_array_equal(second.input_ids, kept)
    assert_equal(loader.batch(0), again)


def test_threads_share_a_loader():
    """Threads that ask for far steps at once each get their own step's batch."""
    made = plan()
    loader = Loader(MemoryCorpus(LINE), made)
    wrong = []

    def ask(base: int) -> None:
        for i in range(60):
            step = base * 10**6 + i * 700
            if not np.array_equal(loader.batch(step).starts, made.starts(step)):
                wrong.append(step)

    threads = [threading.Thread(target=ask, args=(base,)) for base in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dtype_of_the_file():
    """The narrow dtype is served on request, with the same ids."""
    made = plan()
    narrow = Loader(MemoryCorpus(LINE), made, dtype=np.uint16).batch(9)
    assert narrow.input_ids.dtype == narrow.targets.dtype == np.uint16
    np.testing.assert_array_equal(narrow.input_ids, Loader(MemoryCorpus(LINE), made).batch(9).input_ids)


def test_memory_does_not_grow_with_steps_or_batch():
    """A loader keeps one bounded block of starts, whatever the batch size; law 16."""
    tracemalloc.start()
    try:
        loader = Loader(MemoryCorpus(LINE), plan(window=1, batch_size=65_536))
        before, _ = tracemalloc.get_traced_memory()
        for step in range(0, 10**6, 10**5):
            loader.batch(step)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 8 * BLOCK_STARTS + 200_000
    assert peak < 20_000_000


def test_a_plan_for_another_corpus_is_refused():
    """The plan's token count and fingerprint must be the corpus' own; the error names the field."""
    corpus = MemoryCorpus(LINE)
    Loader(corpus, plan(corpus=corpus.fingerprint))
    with pytest.raises(PlanError, match="token_count: the plan was made for 4999 tokens, the corpus holds 5000"):
        Loader(corpus, plan(token_count=4999))
    with pytest.raises(PlanError, match="corpus: the plan was made for the corpus abcd, this one is"):
        Loader(corpus, plan(corpus="abcd"))
    with pytest.raises(PlanError, match="the nearest that does is 4 or 6"):
        Loader(corpus, plan(), world_size=5)
    with pytest.raises(PlanError, match="rank must be below 4"):
        Loader(corpus, plan(), rank=4, world_size=4)


def test_a_fingerprint_is_as_good_as_its_digits(tmp_path):
    """A plan takes what `Corpus.fingerprint` is, and its state is that of the digits."""
    corpus = headrace.open(small_corpus(tmp_path, [[range(1, 90)]]))
    digits, value = (
        plan(token_count=len(corpus), corpus=given) for given in (str(corpus.fingerprint), corpus.fingerprint)
    )
    assert digits == value
    assert json.loads(json.dumps(Loader(corpus, value).state_dict())) == Loader(corpus, digits).state_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float32"}, "dtype: wanted int64 or the corpus' own, uint16; found 'float32'"),
        ({"dtype": np.int32}, "dtype: wanted int64 or the corpus' own, uint16; found"),
        ({"dtype": ">i8"}, "dtype: wanted int64"),
        ({"dtype": "tokens"}, "dtype: wanted int64.*found 'tokens'"),
        ({"dtype": None}, "dtype: wanted int64.*found None"),
        ({"dtype": 5}, "dtype: wanted int64.*found 5"),
        ({"document_ids": "no"}, "document_ids must be True or False, found 'no'"),
        ({"position_ids": np.ones(2)}, "position_ids must be True or False"),
        ({"prefetch": 1.5}, "prefetch must be an integer"),
    ],
)
def test_options_that_there_are_not_are_refused(options, message):
    """When the loader is made, not at its first batch, and in our own words."""
    corpus = MemoryCorpus(LINE, lengths=[LINE.size])
    with pytest.raises(PlanError, match=message):
        Loader(corpus, plan(), **options)


def test_what_is_no_corpus_or_no_plan_is_refused():
    """Arguments in the wrong place, or of the wrong kind, are told by what they are."""
    corpus = MemoryCorpus(LINE)
    for wrong, message in (
        ("corpus", "found str.*open it first: headrace.open"),
        (LINE, "ndarray"),
        (None, "NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            Loader(wrong, plan())
    for wrong in (None, {"order": "blocks"}, corpus):
        with pytest.raises(TypeError, match=f"plan: wanted a headrace.Plan, found {type(wrong).__name__}"):
            Loader(corpus, wrong)


@pytest.mark.parametrize("order", ["random", "blocks", "sequential"])
def test_samples_that_are_none_are_refused(order):
    """At least one integer, in a list."""
    loader = Loader(MemoryCorpus(LINE), plan(order))
    assert loader.samples([4, 0]).starts.tolist() == plan(order).starts_of([4, 0]).tolist()
    for wrong in ([], 4, [[1, 2]], [0.5], None):
        with pytest.raises(PlanError, match="samples: wanted"):
            loader.samples(wrong)


@pytest.mark.parametrize("step", [-1, 26, 27, 10**6, True, 1.0])
def test_steps_outside_are_refused(step):
    """A step that the plan does not have is an error, whether or not its block is at hand; so is setting it."""
    loader = Loader(MemoryCorpus(LINE), plan("sequential"))
    for _ in range(2):
        with pytest.raises(PlanError, match="step"):
            loader.batch(step)
        loader.batch(25)
    if step != 26:
        with pytest.raises(PlanError, match="step"):
            loader.step = step
