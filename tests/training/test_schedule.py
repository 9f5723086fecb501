"""The learning rate: its two seams, its shape, and what it refuses."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TrainingError
from headrace.training.schedule import WarmupCosine

PEAKS = st.floats(1e-12, 1e3)


@st.composite
def schedules(draw) -> WarmupCosine:
    """Any schedule whose warm-up leaves at least one step."""
    steps = draw(st.integers(1, 10**7))
    peak = draw(PEAKS)
    floor = draw(st.none() | st.floats(0, peak))
    return WarmupCosine(peak, draw(st.integers(0, steps - 1)), steps, floor)


@given(schedules(), st.integers(0, 10**9))
def test_the_seams_are_exact(schedule, past):
    """0 at step 0 of a warm-up, the peak at its end, the floor at the end and pinned past it: to the last bit."""
    assert schedule.lr(0) == (0 if schedule.warmup else schedule.peak)
    assert schedule.lr(schedule.warmup) == schedule.peak
    assert schedule.lr(schedule.steps) == schedule.lr(schedule.steps + past) == schedule.end
    assert schedule.end == (schedule.peak * 0.1 if schedule.floor is None else schedule.floor)


@given(schedules(), st.data())
def test_it_is_the_formula(schedule, data):
    """Each step has the learning rate of the formula, and no step but the seams depends on another one."""
    step = data.draw(st.integers(0, schedule.steps))
    if step <= schedule.warmup and schedule.warmup:
        wanted = schedule.peak * step / schedule.warmup
    else:
        progress = (step - schedule.warmup) / (schedule.steps - schedule.warmup)
        wanted = schedule.end + (schedule.peak - schedule.end) * (1 + math.cos(math.pi * progress)) / 2
    assert schedule.lr(step) == pytest.approx(wanted, rel=1e-9)


@given(st.integers(1, 200), PEAKS, st.data())
def test_it_rises_and_falls(steps, peak, data):
    """It grows up to the peak, the highest of all, and falls from there."""
    schedule = WarmupCosine(peak, data.draw(st.integers(0, steps - 1)), steps)
    rates = [schedule.lr(step) for step in range(steps + 1)]
    rises = [left < right for left, right in pairwise(rates)]
    assert rises == [step < schedule.warmup for step in range(steps)]
    assert max(rates) == peak


def test_there_is_no_step_before_the_first():
    """A negative step is refused, not given a negative rate."""
    for warmup in (0, 5):
        with pytest.raises(TrainingError, match="step: wanted at least 0, found -1"):
            WarmupCosine(1.0, warmup, 10).lr(-1)


def test_a_warm_up_to_the_end():
    """All steps may be warm-up; the floor comes right behind them."""
    schedule = WarmupCosine(1.0, 4, 4)
    assert [schedule.lr(step) for step in range(6)] == [0, 0.25, 0.5, 0.75, 0.1, 0.1]


def test_one_warning_past_the_end(caplog):
    """Steps past the end are told once for a schedule, however many there are; the end itself is no fault."""
    schedule = WarmupCosine(1.0, 2, 10)
    for step in range(100):
        schedule.lr(step)
    assert [record.getMessage() for record in caplog.records] == [
        "step 11 is past the schedule's 10: the learning rate stays at 0.1"
    ]
    WarmupCosine(1.0, 2, 10).lr(11)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("warmup", "steps", "found"), [(5, 100, 5), (0.1, 100, 10), (0.0, 10, 0), (1.0, 10, 10), (0, 3, 0)]
)
def test_a_fraction_of_the_steps(warmup, steps, found):
    """An int counts steps, a float is a fraction of them."""
    assert WarmupCosine.of(0.1, warmup, steps).warmup == found


def test_equal_schedules_are_equal():
    """A schedule is a value: what it has warned of does not count."""
    one, other = WarmupCosine(1.0, 2, 10), WarmupCosine(1.0, 2, 10)
    one.lr(11)
    assert one == other
    assert hash(one) == hash(other)


def test_all_faults_at_once():
    """Every field that is out of range is named, with what is allowed."""
    with pytest.raises(TrainingError) as caught:
        WarmupCosine(-1.0, 11, 0, math.nan)
    assert [problem.place for problem in caught.value.problems] == ["peak", "steps", "warmup", "floor"]
    with pytest.raises(TrainingError, match=r"floor: wanted in \[0, peak\], which is 1.0, found 2"):
        WarmupCosine(1.0, 0, 1, 2.0)
    for peak in (math.nan, math.inf, 0.0):
        with pytest.raises(TrainingError, match="peak"):
            WarmupCosine(peak, 0, 1)
    for warmup in (-0.1, 1.5, math.nan):
        with pytest.raises(TrainingError, match="fraction"):
            WarmupCosine.of(1.0, warmup, 10)
