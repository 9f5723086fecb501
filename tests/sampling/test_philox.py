"""Random words are Philox4x64-10 by sample number, and become starts by exact integer arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sampling.philox import multiply_high, random_words

WORD = st.integers(0, 2**64 - 1)
VECTORS = [
    ((0, 0, 0, 0), (0, 0), "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
    ((2**64 - 1,) * 4, (2**64 - 1,) * 2, "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0"),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
    ),
]
"""Known answers of Random123 for philox4x64, 10 rounds: counter, key, block."""


@pytest.mark.parametrize(("counter", "key", "block"), VECTORS)
def test_known_answers(model, counter, key, block):
    """Word s is word s % 4 of the block with counter s // 4, in the model and in numpy, by the published vectors."""
    number = sum(word << 64 * i for i, word in enumerate(counter))
    expected = [int(word, 16) for word in block.split()]
    assert model.philox(number, key) == expected
    words = random_words(np.array(key, np.uint64), 4 * number, runs=1, count=4, stride=4)
    assert words.tolist() == [expected]


@given(
    key=st.tuples(WORD, WORD),
    first=st.one_of(st.integers(0, 50), st.integers(0, 2**70)),
    runs=st.integers(1, 6),
    count=st.integers(1, 11),
    gap=st.integers(0, 11),
)
def test_runs_equal_the_word_of_each_sample(model, key, first, runs, count, gap):
    """However the samples are cut into runs, each gets the word that its number alone decides."""
    words = random_words(np.array(key, np.uint64), first, runs=runs, count=count, stride=count + gap)
    expected = [[model.random_word(first + i * (count + gap) + j, key) for j in range(count)] for i in range(runs)]
    assert words.tolist() == expected


@given(
    words=st.lists(st.one_of(WORD, st.sampled_from([0, 2**32 - 1, 2**32, 2**64 - 1]))), bound=st.integers(1, 2**64 - 1)
)
def test_multiply_high_is_exact(words, bound):
    """The high word of a 128-bit product equals Python's, for every word and bound."""
    assert multiply_high(np.array(words, np.uint64), bound).tolist() == [word * bound >> 64 for word in words]


@pytest.mark.parametrize("bound", [2**32 - 1, 2**32, 2**32 + 1, 2**63 - 25, 2**63, 2**64 - 1])
def test_multiply_high_reaches_both_ends(bound):
    """The smallest word gives 0 and the largest bound - 1, so starts are uniform over the whole inclusive range."""
    assert multiply_high(np.array([0, 2**64 - 1], np.uint64), bound).tolist() == [0, bound - 1]
