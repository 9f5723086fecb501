"""Saving and loading where a run is: exact, at once, and refused by field where it would be another run; law 15."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.corpora import random_documents, small_corpus
from headrace.testing.memory import MemoryCorpus

LENGTHS = [7, 1, 30, 12, 200, 3, 1, 1, 345, 600]
CORPUS = MemoryCorpus(np.arange(sum(LENGTHS)), lengths=LENGTHS)
ORDERS = [
    {"order": "random"},
    {"order": "blocks"},
    {"order": "blocks", "phase": True},
    {"order": "blocks", "shuffle": "local", "piece_windows": 10, "pieces_at_once": 4},
    {"order": "sequential"},
    {"order": "documents", "documents": len(LENGTHS)},
]


def plan(**changes) -> Plan:
    """Return a plan over CORPUS; 74 windows in an epoch of blocks."""
    fields = {"order": "blocks", "token_count": CORPUS.token_count, "window": 16, "batch_size": 12, "seed": 3}
    return Plan(**{**fields, **changes})


def take(loader: Loader, count: int) -> list[int]:
    """Return the starts of the next batches, one after the other."""
    taken: list[int] = []
    for _, batch in zip(range(count), loader, strict=False):
        taken += batch.starts.tolist()
    return taken


def resumed(loader: Loader, made: Plan, **options) -> Loader:
    """Return a new loader that goes on where another one is, through JSON."""
    other = Loader(CORPUS, made, **options)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert other.step == loader.step
    return other


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_resume_at_every_step_serves_a_straight_run(order):
    """From every step of a run over several epochs, their exact ends among them, a resume goes on as if nothing was."""
    made = plan(**order, batch_size=37)  # epochs of blocks end with every second batch
    steps = 9 if made.steps is None else made.steps
    straight = take(Loader(CORPUS, made), steps)
    for stop in range(steps):
        loader = Loader(CORPUS, made)
        taken = take(loader, stop)
        assert taken + take(resumed(loader, made), steps - stop) == straight
    loader = Loader(CORPUS, made)
    taken = take(loader, steps)
    assert taken == straight
    if made.steps is not None:
        assert take(resumed(loader, made), steps) == straight  # a finite pass that has ended begins anew


@settings(max_examples=20)
@given(
    order=st.sampled_from(ORDERS[:4]),
    legs=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 4]), st.sampled_from([12, 24, 36])), min_size=1, max_size=4
    ),
)
def test_resumes_of_resumes_with_other_ranks_and_batch_sizes(order, legs):
    """However often a run is resumed, with whatever ranks and batch sizes, its ranks take the samples of one straight run."""
    made = plan(**order)
    state = None
    taken: list[int] = []
    for steps, world, size in legs:
        loaders = [Loader(CORPUS, plan(**order, batch_size=size), rank=r, world_size=world) for r in range(world)]
        for loader in loaders if state else []:
            loader.load_state_dict(state)
        for _ in range(steps):
            for loader in loaders:
                taken += take(loader, 1)
        states = [loader.state_dict() for loader in loaders]
        assert all(each == states[0] for each in states)
        state = json.loads(json.dumps(states[0]))
        assert state["samples"] == len(taken)
        past = 0
        for step in range(loaders[0].step):  # what was served is still known
            past += loaders[0].plan.batch_size_at(step)
            assert loaders[0].plan.first_sample(step + 1) == past
    straight = Loader(CORPUS, made)
    assert taken == take(straight, -(-len(taken) // 12))[: len(taken)]


@pytest.mark.parametrize("order", [{"order": "sequential"}, {"order": "documents", "documents": 10, "shuffle": "none"}])
@given(sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=5))
def test_a_pass_that_is_resumed_with_other_batch_sizes_is_whole(order, sizes):
    """However a finite pass is cut, and its batch size changed, it serves each window once, in order, and then ends."""
    served: list[int] = []
    state = None
    for steps, size in [*sizes, (1000, 5)]:
        loader = Loader(CORPUS, plan(**order, batch_size=size))
        if state:
            loader.load_state_dict(state)
            if loader.step == len(loader):
                break
        for _, batch in zip(range(steps), loader, strict=False):
            served += batch.starts[loader.plan.valid(batch.step)].tolist()
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["samples"] == len(served)
    whole = [start for batch in Loader(CORPUS, plan(**order, batch_size=1)) for start in batch.starts.tolist()]
    assert served == whole


def test_batch_sizes_need_fit_the_world_only_from_now_on():
    """Steps of the past need not divide into the ranks of today; those to come must, or nothing is loaded."""
    loader = Loader(CORPUS, plan(batch_size=8))
    loader.step = 10
    other = Loader(CORPUS, plan(batch_size=9), rank=1, world_size=3)
    other.load_state_dict(loader.state_dict())
    assert other.plan.batch_size == ((0, 8), (10, 9))
    assert other.batch(10).starts.tolist() == plan(batch_size=1).starts_many(80, 9).reshape(-1)[3:6].tolist()
    with pytest.raises(PlanError, match="must divide the batch size 8"):
        other.batch(9)
    scheduled = Loader(CORPUS, plan(batch_size=[(0, 3), (4, 9), (20, 6)]), world_size=3, rank=2)
    scheduled.load_state_dict(loader.state_dict())
    assert scheduled.plan.batch_size == ((0, 8), (10, 9), (20, 6))
    loader.step = 30
    unfit = Loader(CORPUS, plan(batch_size=[(0, 8), (40, 4)]), world_size=2)
    unfit.world_size = 8
    with pytest.raises(PlanError, match="must divide the batch size 4, found 8"):
        unfit.load_state_dict(loader.state_dict())
    assert unfit.step == 0


@pytest.mark.parametrize("order", [order for order in ORDERS if order["order"] != "sequential"], ids=str)
def test_a_far_state_loads_as_a_near_one(order):
    """State and time to load it do not grow with the step: step 10**9 loads at once, and serves what it should."""
    loader = Loader(CORPUS, plan(**order))
    near = json.dumps(loader.state_dict())
    loader.step = 10**9
    far = json.dumps(loader.state_dict())
    assert len(far) < len(near) + 40
    begin = time.process_time()
    other = Loader(CORPUS, plan(**order))
    other.load_state_dict(json.loads(far))
    batch = next(iter(other))
    assert time.process_time() - begin < 1
    assert batch.step == 10**9
    np.testing.assert_array_equal(batch.starts, loader.batch(10**9).starts)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("window", {"window": 17}),
        ("stride", {"stride": 15}),
        ("seed", {"seed": 4}),
        ("order", {"order": "random"}),
        ("targets", {"targets": "inside"}),
        ("phase", {"phase": True}),
        ("shuffle", {"shuffle": "local"}),
        ("skipped", {"skipped": [(600, 612)]}),
    ],
)
def test_another_plan_is_refused_by_field(field, changes):
    """A state of another plan is refused with each field that differs, and loaded where that is allowed."""
    loader = Loader(CORPUS, plan())
    loader.step = 30
    state = loader.state_dict()
    other = Loader(CORPUS, plan(**changes))
    with pytest.raises(PlanError, match=rf"another run: .*{field}.*\n(.*\n)*  {field}: the state has ") as error:
        other.load_state_dict(state)
    assert other.step == 0
    names = [problem.place for problem in error.value.problems]
    assert field in names
    with pytest.raises(PlanError, match="another run"):
        other.load_state_dict(state, allow=set(names) - {field})
    other.load_state_dict(state, allow=names)
    assert other.step == 30


def test_boundary_loss_is_part_of_a_run():
    """What counts in the loss is as it was, or allowed to be otherwise."""
    state = Loader(CORPUS, plan(), boundary_loss="target").state_dict()
    loader = Loader(CORPUS, plan())
    with pytest.raises(PlanError, match="boundary_loss: the state has target, this loader keep"):
        loader.load_state_dict(state)
    loader.load_state_dict(state, allow="boundary_loss")


def test_skipping_what_is_to_come_goes_on_and_what_was_taken_is_refused():
    """After a spike: the state before it, the plan without its steps. A state from behind it would count wrongly."""
    made = plan()
    loader = Loader(CORPUS, made)
    loader.step = 30
    skipping = made.skip(range(30, 40))
    other = Loader(CORPUS, skipping)
    other.load_state_dict(loader.state_dict(), allow={"skipped"})
    assert take(other, 3) == [start for step in range(40, 43) for start in made.starts(step).tolist()]
    loader.step = 31
    with pytest.raises(PlanError, match=r"skipped: of the 372 samples .* load a state from before them"):
        Loader(CORPUS, skipping).load_state_dict(loader.state_dict(), allow={"skipped"})
    with pytest.raises(PlanError, match="load a state from before them"):
        Loader(CORPUS, made).load_state_dict(other.state_dict(), allow={"skipped"})


def test_another_corpus_is_refused_and_the_version_that_fits_is_named(tmp_path, headrace_append):
    """After an append the state of a run before it does not fit; the error says how to open what it was of."""
    folder = tmp_path / "corpus"
    before = headrace_append(folder, first=True)
    loader = Loader(before, Plan(order="blocks", token_count=len(before), window=8, batch_size=4))
    loader.step = 7
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["loader"]["corpus_kind"] == "content"
    after = headrace_append(folder, first=False)
    grown = Loader(after, Plan(order="blocks", token_count=len(after), window=8, batch_size=4))
    with pytest.raises(PlanError, match=r"corpus.*\n(.*\n)*.*keeps that version: headrace.open") as error:
        grown.load_state_dict(state)
    assert {problem.place for problem in error.value.problems} == {"corpus", "token_count"}
    assert str(before.fingerprint) in str(error.value)
    old = headrace.open(folder, version=str(before.fingerprint))
    again = Loader(old, Plan(order="blocks", token_count=len(old), window=8, batch_size=4))
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.batch(7).input_ids, loader.batch(7).input_ids)


def test_the_state_of_a_corpus_that_has_grown_since_is_of_what_it_was(tmp_path, headrace_append):
    """A loader of a live corpus serves what its plan is of, so its state goes on with that version, whatever came later."""
    folder = tmp_path / "corpus"
    before = headrace_append(folder, first=True)
    live = headrace.open(folder, live=True)
    made = Plan(order="blocks", token_count=len(live), window=8, batch_size=4, corpus=str(live.fingerprint))
    loader = Loader(live, made)
    loader.step = 7
    state = loader.state_dict()
    headrace_append(folder, first=False)
    assert live.refresh()
    assert len(live) > made.token_count
    assert loader.state_dict() == loader.on_rank(1, 2).state_dict() == state
    loader.load_state_dict(state)
    again = Loader(headrace.open(folder, version=str(before.fingerprint)), made)
    again.load_state_dict(loader.state_dict())
    np.testing.assert_array_equal(again.batch(7).input_ids, loader.batch(7).input_ids)


@pytest.fixture
def headrace_append(tmp_path):
    """Build a corpus of one file, then append another; return what is open after each."""

    def run(folder, *, first: bool) -> headrace.Corpus:
        source = tmp_path / f"{first}.txt"
        source.write_text(f"{first} document " * 40, encoding="utf-8")
        headrace.build([source], folder, tokenizer="bytes", append=not first)
        return headrace.open(folder)

    return run


def test_an_unknown_corpus_and_another_tokenizer_are_named(tmp_path):
    """Where no version fits, the error says what differs and no more."""
    corpora = [headrace.open(small_corpus(tmp_path / str(i), random_documents(i, [5]))) for i in range(2)]
    loaders = [
        Loader(corpus, Plan(order="random", token_count=len(corpus), window=8, batch_size=4)) for corpus in corpora
    ]
    with pytest.raises(PlanError, match="corpus: the state has") as error:
        loaders[1].load_state_dict(loaders[0].state_dict())
    assert "keeps that version" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("samples"), "it lacks: samples"),
        (lambda s: s.update(epoch=3), "unknown: epoch"),
        (lambda s: s.update(version=2), "version: the state has 2, this Headrace reads 1"),
        (lambda s: s.update(version=np.ones(2)), "version: the state has"),
        (lambda s: s["plan"].update(window=np.ones(2)), "plan: 'window' is of the type ndarray.*damaged"),
        (lambda s: s["plan"].update(seed=b"x"), "plan: 'seed' is of the type bytes"),
        (lambda s: s["loader"].update(tokenizer=np.ones(2)), "loader: 'tokenizer' is of the type ndarray"),
        (lambda s: s.update(loader={1: 2}), "loader: 1 is of the type int"),
        (lambda s: s.update(plan=[1]), "plan: wanted a mapping, found list"),
        (lambda s: s["plan"].update(window=17), "plan: its fingerprint is not that of its fields"),
        (lambda s: s.update(samples=359), "counts 359 samples in 30 steps"),
        (lambda s: s.update(step=-1), "step must be at least 0"),
        (lambda s: s.update(step="30"), "step must be an integer"),
        (lambda s: s.update(batch_size=[]), "the schedule is empty"),
    ],
)
def test_what_is_no_state_is_refused(change, message):
    """A damaged or foreign state is an error and changes nothing; nothing in it is ignored."""
    loader = Loader(CORPUS, plan())
    loader.step = 30
    state = json.loads(json.dumps(loader.state_dict()))
    change(state)
    with pytest.raises(PlanError, match=message):
        Loader(CORPUS, plan()).load_state_dict(state)
    for wrong in (None, [], 30):
        with pytest.raises(PlanError, match="wanted what state_dict"):
            loader.load_state_dict(wrong)
    for allow, found in (({"speed"}, "speed"), (None, "None"), (5, "5"), ([["seed"]], "seed")):
        with pytest.raises(PlanError, match=f"allow: .*{found}.*: no such field"):
            loader.load_state_dict(loader.state_dict(), allow=allow)
    assert loader.step == 30
