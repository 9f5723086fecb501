"""A local shuffle mixes as it says: within a few large pieces, and from epoch to epoch differently."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sampling import Plan
from headrace.sampling.local import LocalShuffle


@settings(max_examples=60)
@given(
    count=st.integers(1, 200),
    piece=st.integers(1, 40),
    at_once=st.integers(1, 9),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 2**70),
)
def test_it_stays_within_a_few_pieces(count, piece, at_once, epoch, seed):
    """Each group of samples takes whole pieces, as many as it may, the last one those that are left; and all comes once."""
    shuffle = LocalShuffle(count, seed, piece, at_once)
    units = shuffle.units(np.arange(epoch * count, (epoch + 1) * count, dtype=np.uint64)).astype(np.int64)
    np.testing.assert_array_equal(np.sort(units), np.arange(count))
    np.testing.assert_array_equal(
        shuffle.samples(units.astype(np.uint64), epoch), np.arange(epoch * count, (epoch + 1) * count)
    )
    group, groups = piece * at_once, max(1, count // (piece * at_once))
    stops = [*((i + 1) * group for i in range(groups - 1)), count]
    for begin, stop in zip([0, *stops], stops, strict=False):
        inside = np.isin(np.arange(count), units[begin:stop])
        # Runs of neighbours on the circle of units: every edge of a piece may begin one.
        runs = int((inside & ~np.roll(inside, 1)).sum())
        assert runs <= -(-(stop - begin) // piece)
    assert sum(b - a for a, b in zip([0, *stops], stops, strict=False)) == count


@pytest.mark.parametrize(
    "options",
    [
        {"order": "blocks"},
        {"order": "blocks", "phase": True},
        {"order": "blocks", "shuffle": "local"},
        {"order": "blocks", "shuffle": "local", "piece_windows": 4, "pieces_at_once": 2},
        {"order": "documents", "documents": 64},
        {"order": "documents", "documents": 64, "shuffle": "local", "piece_windows": 3, "pieces_at_once": 4},
    ],
    ids=str,
)
def test_no_two_epochs_are_alike(options):
    """For 64 windows or more, over 50 seeds, no two of the first epochs have the same order, nor do two seeds; law 10."""
    orders = set()
    for seed in range(50):
        plan = Plan(token_count=65 * 8, window=8, batch_size=64, seed=seed, **options)
        assert plan.windows == 64 or plan.phase
        numbers = plan.documents_many if plan.order == "documents" else plan.starts_many
        orders |= {row.tobytes() for row in numbers(0, 4)}
    assert len(orders) == 200


def test_neighbours_in_the_corpus_are_read_together():
    """What a thousand steps read spans a hundredth of the corpus; a global shuffle reads all over it."""
    plan = {"order": "blocks", "token_count": 2**40, "window": 1024, "batch_size": 64, "seed": 1}
    touched = {
        shuffle: len(set((Plan(**plan, shuffle=shuffle).starts_many(0, 1000) // 2**20).reshape(-1).tolist()))
        for shuffle in ("local", "global")
    }
    assert touched["local"] < 200
    assert touched["global"] > 50_000
