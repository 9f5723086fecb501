"""Windows, tails and targets, counted one by one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sampling import Plan
from headrace.sampling.windows import WindowGrid, targets_per_window


def brute(tokens: int, read: int, stride: int) -> tuple[list[int], Counter]:
    """Return the starts of all full windows, and how often each target position is served."""
    starts = [s for s in range(0, tokens, stride) if s + read <= tokens]
    return starts, Counter(s + t for s in starts for t in range(1, read))


@given(read=st.integers(1, 12), extra=st.integers(0, 60), stride=st.integers(1, 15))
def test_counts_equal_those_of_a_loop(read, extra, stride):
    """Windows, served, repeated, lost and tail targets are exact for every length, window and stride."""
    grid = WindowGrid(read + extra, read, stride)
    starts, served = brute(read + extra, read, stride)
    end = starts[-1] + read
    assert grid.windows == len(starts)
    assert grid.tail_tokens == read + extra - end
    assert grid.served_targets == len(served)
    assert grid.repeated_targets == sum(count - 1 for count in served.values())
    assert grid.lost_targets == sum(target not in served for target in range(1, end))
    assert grid.served_targets + grid.lost_targets + grid.tail_tokens == grid.token_count - 1


@given(targets=st.sampled_from(["next", "inside"]), window=st.integers(2, 20), extra=st.integers(0, 100))
def test_default_stride_serves_each_target_once(targets, window, extra):
    """Neither rule loses or repeats a target but the tail, which fits no full window."""
    tokens = targets_per_window(window, targets) + 1 + extra
    plan = Plan(order="blocks", token_count=tokens, window=window, batch_size=1, targets=targets)
    assert plan.lost_targets == plan.repeated_targets == 0
    assert plan.tail_tokens < plan.effective_stride
    expected = (tokens - 1) // window if targets == "next" else 1 + (tokens - window) // (window - 1)
    assert plan.windows == expected


def test_recipe_stride_loses_one_target_in_each_window():
    """Stride T with the labels inside, as in the Lance recipe, loses one target between two windows; it is reported."""
    plan = Plan(order="blocks", token_count=1024 * 10 + 3, window=1024, batch_size=1, targets="inside", stride=1024)
    assert (plan.windows, plan.lost_targets, plan.tail_tokens) == (10, 9, 3)
    assert plan.windows * 1023 + plan.lost_targets + plan.tail_tokens == plan.token_count - 1


@pytest.mark.parametrize("targets", ["next", "inside"])
def test_counts_are_exact_past_32_and_53_bits(targets):
    """Counts of an enormous line are Python integers, not rounded by a float."""
    tokens = 2**62 + 2**53 + 7
    plan = Plan(order="blocks", token_count=tokens, window=1000, batch_size=1, targets=targets)
    per_window = 1000 if targets == "next" else 999
    assert plan.windows == (tokens - 1) // per_window
    assert plan.tail_tokens == (tokens - 1) % per_window
