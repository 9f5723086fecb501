"""No serial correlation in shuffled blocks; what is not shuffled fails the same test.

Two statistics over an order p of n windows, n prime, both through the Rayleigh statistic of circular data (Mardia &
Jupp, "Directional statistics", 2000): `n * |mean(exp(2 pi i h x / n))|**2`, which for x independent and uniform over
[0, n) is close to an exponential variable of mean 1. The bound is 30: chance passes it once in 10**13.

- Circular serial correlation: x = p(i + k) - p(i), for lags k = 1 to 32 and harmonics h = 1 to 4. The identity and an
  LCG in the index (a * i + c) have constant differences: the statistic is n.
- The LCG determinant: x = d(i + 2) * d(i) - d(i + 1)**2 with d = p(i + 1) - p(i), harmonics h = 1 to 4. It is 0 mod n
  for every LCG, also one iterated on its own output (a * p(i) + c), whose differences are uniform.

Of a local shuffle within g pieces at a time, neighbours share a piece once in g, so that its correlation is about n / g**2
above chance: what it gives up is measured by the same statistic. `bench/orders.py` prints the two side by side.
"""

import numpy as np
import pytest

from headrace.sampling import Plan

N = 65_537
"""A prime number of windows: all differences and products mod N are uniform for a random order."""
BOUND = 30.0


def rayleigh(x: np.ndarray, harmonic: int) -> float:
    """Return the Rayleigh statistic of x mod N."""
    return float(x.size * np.abs(np.exp(2j * np.pi * (harmonic * x % N) / N).mean()) ** 2)


def correlation(order: np.ndarray) -> float:
    """Return the largest circular serial correlation."""
    return max(rayleigh((order[k:] - order[:-k]) % N, h) for k in range(1, 33) for h in range(1, 5))


def determinant(order: np.ndarray) -> float:
    """Return the largest statistic of the LCG determinant."""
    d = np.diff(order) % N
    return max(rayleigh((d[2:] * d[:-2] - d[1:-1] ** 2) % N, h) for h in range(1, 5))


def shuffled(seed: int, epoch: int) -> np.ndarray:
    """Return the windows of one epoch in the order of a plan whose step is an epoch."""
    return Plan(order="blocks", token_count=N + 1, window=1, batch_size=N, seed=seed).starts(epoch)


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (1, 0), (2**64, 12_345)])
def test_shuffled_blocks_pass(seed, epoch):
    """Neighbours in a shuffled epoch have nothing to do with each other."""
    order = shuffled(seed, epoch)
    assert correlation(order) < BOUND
    assert determinant(order) < BOUND


def test_shuffled_documents_pass():
    """Documents, shuffled under keys of their own, are as unrelated, and in another order than as many windows."""
    plan = Plan(order="documents", token_count=N + 1, window=1, batch_size=N, documents=N)
    order = plan.documents_many(0, 1)[0]
    assert correlation(order) < BOUND
    assert determinant(order) < BOUND
    assert max(rayleigh((order - shuffled(0, 0)) % N, h) for h in range(1, 33)) < BOUND


@pytest.mark.parametrize("at_once", [4, 16, 64, 256])
def test_local_shuffles_are_as_good_as_their_pieces_are_many(at_once):
    """Neighbours within g pieces are related by n / g**2 and no more: from 256 pieces on as little as in a global shuffle."""
    plan = Plan(
        order="blocks",
        token_count=N + 1,
        window=1,
        batch_size=N,
        seed=5,
        shuffle="local",
        piece_windows=16,
        pieces_at_once=at_once,
    )
    order = plan.starts(1)
    related = N / at_once**2
    assert correlation(order) < BOUND + 3 * related
    assert related < BOUND or correlation(order) > related / 3
    assert determinant(order) < BOUND + related


def test_numpy_permutations_pass():
    """The bound is not too tight: an ordinary shuffle stays under it."""
    order = np.random.default_rng(0).permutation(N)
    assert correlation(order) < BOUND
    assert determinant(order) < BOUND


@pytest.mark.parametrize("multiplier", [1, 2, 40_503, 48_271, N - 1])
def test_lcg_in_the_index_fails_both(multiplier):
    """The identity (multiplier 1) and every affine order of the index are caught by either statistic."""
    order = (multiplier * np.arange(N) + 17) % N
    assert np.unique(order).size == N
    assert correlation(order) > 1000 * BOUND
    assert determinant(order) > 1000 * BOUND


@pytest.mark.parametrize("multiplier", [3, 28_657, 40_503])
def test_iterated_lcg_fails_the_determinant(multiplier):
    """An LCG run on its own output is caught as well, though its differences may be uniform."""
    order = np.empty(N - 1, np.int64)
    value = 1
    for i in range(N - 1):
        order[i] = value
        value = multiplier * value % N
    assert determinant(order) > 1000 * BOUND


@pytest.mark.parametrize(("one", "other"), [((0, 0), (0, 1)), ((0, 1), (1, 0)), ((0, 0), (1, 0)), ((5, 7), (5, 8))])
def test_epochs_and_seeds_are_unrelated(one, other):
    """Neither the next epoch, nor the next seed, nor equal seed + epoch gives a related order."""
    difference = (shuffled(*one) - shuffled(*other)) % N
    assert max(rayleigh(difference, h) for h in range(1, 33)) < BOUND


def test_every_part_of_an_epoch_is_a_fair_sample():
    """The windows of each sixteenth of an epoch come from all sixteenths of the corpus: chi-square within 6 sigma."""
    order = shuffled(3, 2)
    table, _, _ = np.histogram2d(np.arange(N), order, bins=16)
    expected = N / 256
    chi_square = ((table - expected) ** 2 / expected).sum()
    assert chi_square < 225 + 6 * (2 * 225) ** 0.5
