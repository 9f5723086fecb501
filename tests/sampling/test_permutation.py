"""The keyed permutation: exact, a bijection, invertible, fair and fast."""

import time
from itertools import permutations
from math import factorial, isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import BLOCK, ROUNDS, _halves, invert, permute

LENGTHS = st.one_of(
    st.integers(1, 100),
    st.integers(1, 2**63),
    st.integers(2**63 - 1000, 2**63),
    st.builds(lambda root, off: max(1, root * root + off), st.integers(1, 3_037_000_499), st.integers(-1, 1)),
)
KEYS = st.lists(st.integers(0, 2**64 - 1), min_size=ROUNDS, max_size=ROUNDS)


@given(length=LENGTHS, key=KEYS, data=st.data())
def test_equals_plain_integers_and_inverts(model, length, key, data):
    """Any index of any domain up to 2**63 goes where exact integer arithmetic sends it, and comes back."""
    index = data.draw(st.lists(st.one_of(st.integers(0, length - 1), st.just(length - 1)), min_size=1, max_size=20))
    words = np.array(key, np.uint64)
    places = permute(np.array(index, np.uint64), length=length, key=words)
    assert places.dtype == np.uint64
    assert places.tolist() == [model.permute(i, length, key) for i in index]
    assert invert(places, length=length, key=words).tolist() == index


@pytest.mark.parametrize("length", [*range(1, 70), 255, 256, 257, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_visits_every_place_once(length):
    """A whole domain maps onto itself, across the edges of the blocks that are worked on at once."""
    key = key_words(9, 4, Stream.BLOCKS, ROUNDS)
    places = permute(np.arange(length), length=length, key=key)
    np.testing.assert_array_equal(np.sort(places), np.arange(length))
    np.testing.assert_array_equal(invert(places, length=length, key=key), np.arange(length))


@given(length=LENGTHS)
def test_cycle_walking_is_bounded(length):
    """The network's domain exceeds the length by its square root at most, so walks are few and short."""
    a, b = map(int, _halves(length))
    assert length <= a * b <= length + isqrt(length - 1) + 1
    assert a % 2 == 0
    assert max(a, b) <= 2**32


@given(length=st.integers(1, 10_000), count=st.integers(0, 50), seed=st.integers(0, 1000))
def test_one_key_an_index_equals_one_call_a_key(length, count, seed):
    """Indices under keys of their own, as where epochs meet, go where each key alone sends them."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, length, count)
    keys = rng.integers(0, 2**64, (ROUNDS, count), dtype=np.uint64)
    together = permute(index, length=length, key=keys)
    alone = [int(permute(index[i : i + 1], length=length, key=keys[:, i])[0]) for i in range(count)]
    assert together.tolist() == alone
    np.testing.assert_array_equal(invert(together, length=length, key=keys), index)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_small_domains_reach_all_orders_equally_often(length):
    """Over 6,000 seeds each order of up to six windows comes up alike: chi-square within 6 standard deviations."""
    orders = dict.fromkeys(permutations(range(length)), 0)
    keys = np.stack([key_words(seed, 0, Stream.BLOCKS, ROUNDS) for seed in range(6000)], axis=1)
    places = [permute(np.full(6000, i), length=length, key=keys).tolist() for i in range(length)]
    for order in zip(*places, strict=True):
        orders[order] += 1
    expected = 6000 / factorial(length)
    chi_square = sum((count - expected) ** 2 / expected for count in orders.values())
    freedom = factorial(length) - 1
    assert chi_square < freedom + 6 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_index_dtype_does_not_matter(dtype):
    """Narrow and signed indices are widened before any product, and shapes are kept."""
    key = key_words(0, 0, Stream.BLOCKS, ROUNDS)
    index = np.arange(120).reshape(2, 3, 20)
    np.testing.assert_array_equal(
        permute(index.astype(dtype), length=2**61, key=key), permute(index, length=2**61, key=key)
    )


@pytest.mark.parametrize(
    ("index", "length", "message"),
    [
        ([5], 5, r"\[0, 5\), found 5 to 5"),
        ([0, -1], 5, "found -1 to 0"),
        ([0.0], 5, "must be integers, found float64"),
        ([0], 0, "length must be at least 1, found 0"),
        ([0], 2**63 + 1, "length must be below"),
        ([0], True, "found the bool True"),
        ([0], 2.5, r"found 2.5 \(float\)"),
    ],
)
def test_refuses_what_is_outside(index, length, message):
    """An index or length outside the domain is an error that says what was found, never a wrapped result."""
    with pytest.raises(PlanError, match=message):
        permute(np.array(index), length=length, key=key_words(0, 0, Stream.BLOCKS, ROUNDS))


@pytest.mark.parametrize("key", [np.zeros(ROUNDS, np.int64), np.zeros(4, np.uint64), np.zeros((ROUNDS, 3), np.uint64)])
def test_refuses_a_key_of_another_shape(key):
    """A key that does not fit would be broadcast in silence; it is refused."""
    with pytest.raises(PlanError, match="a key is uint64 of shape"):
        permute(np.arange(2), length=2, key=key)


def test_a_million_indices_in_150_milliseconds_of_one_core():
    """Shuffling costs under 0.15 microseconds a window, so no index need be stored."""
    index = np.arange(10**6)
    key = key_words(0, 0, Stream.BLOCKS, ROUNDS)
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        permute(index, length=10**9, key=key)
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.15
