"""Where a document of a split goes: pinned, exact at the edges, uniform, and independent from seed to seed."""

import hashlib
import json
import runpy
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from headrace.sampling.sides import Sides
from headrace.storage.incoming import HASH_BYTES

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((FOLDER / "sides.json").read_text(encoding="utf-8"))
MODEL = runpy.run_path(str(FOLDER / "make_sides.py"))
HASHES = np.frombuffer(bytes.fromhex("".join(GOLDEN["hashes"])), np.uint8).reshape(-1, HASH_BYTES)
FRACTIONS = st.lists(st.integers(1, 10**6), min_size=1, max_size=4).map(
    lambda parts: [Fraction(part, max(sum(parts), 10**6)) for part in parts]
)


def many(count: int, salt: int = 0) -> np.ndarray:
    """Hashes of so many documents."""
    digests = b"".join(hashlib.sha256(f"{salt}.{number}".encode()).digest()[:HASH_BYTES] for number in range(count))
    return np.frombuffer(digests, np.uint8).reshape(-1, HASH_BYTES)


def test_the_golden_file_is_what_its_maker_writes():
    """It was not edited by hand, and the model still agrees with it."""
    assert json.loads(json.dumps(MODEL["golden"]())) == GOLDEN


@pytest.mark.parametrize("case", GOLDEN["splits"], ids=lambda case: f"{case['seed']}-{case['fractions'][0][0]}")
def test_sides_are_pinned(case):
    """A document never changes sides, whatever version of Headrace or numpy tells them."""
    names = [name for name, _ in case["fractions"]] + ["train"]
    found = Sides(case["seed"], [Fraction(Decimal(text)) for _, text in case["fractions"]]).of(HASHES)
    assert [names[number] for number in found.tolist()] == case["sides"]


@pytest.mark.parametrize("case", GOLDEN["values"], ids=lambda case: str(case["seed"]))
def test_thresholds_are_exact(case):
    """A fraction of v / 2**64 leaves the document of value v out, and one of (v + 1) / 2**64 takes it in."""
    for number, value in enumerate(case["values"]):
        one = HASHES[number : number + 1]
        assert Sides(case["seed"], [Fraction(value, 2**64)]).of(one).tolist() == [1]
        assert Sides(case["seed"], [Fraction(value + 1, 2**64)]).of(one).tolist() == [0]


@given(seed=st.integers(0, 2**63 - 1), fractions=FRACTIONS, digests=st.lists(st.binary(min_size=16, max_size=16)))
def test_by_the_model(seed, fractions, digests):
    """Any hashes, seeds and fractions, those that are 1 in all among them, give what plain integers give."""
    bounds, total = [], Fraction(0)
    for fraction in fractions:
        total += fraction
        bounds.append(int(2**64 * total))
    hashes = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, HASH_BYTES)
    wanted = [sum(MODEL["value"](digest, seed) >= bound for bound in bounds) for digest in digests]
    assert Sides(seed, fractions).of(hashes).tolist() == wanted


def test_the_hashes_stay_as_they_are():
    """What is asked about is not changed."""
    hashes = many(100)
    before = hashes.copy()
    Sides(3, [Fraction(1, 2)]).of(hashes)
    np.testing.assert_array_equal(hashes, before)


@pytest.mark.parametrize("fraction", ["0.001", "0.01", "0.5", "0.9"])
def test_shares_are_binomial(fraction):
    """Of 20,000 documents, a share within 4.5 standard deviations of what was asked for, for each of twenty seeds."""
    hashes = many(20_000)
    share = float(fraction)
    counts = [np.count_nonzero(Sides(seed, [Fraction(fraction)]).of(hashes) == 0) for seed in range(20)]
    deviations = (np.array(counts) - 20_000 * share) / np.sqrt(20_000 * share * (1 - share))
    assert np.abs(deviations).max() < 4.5
    assert 0.4 < deviations.std() < 1.8  # not all the same, as by a counter


def test_seeds_are_independent():
    """How often neighbouring seeds agree on a document is what chance would have, for even and for small parts."""
    hashes = many(50_000)
    for fraction in (Fraction(1, 2), Fraction(1, 50)):
        sides = [Sides(seed, [fraction]).of(hashes) == 0 for seed in range(12)]
        both = float(fraction) ** 2
        for one, other in pairwise(sides):
            deviation = (np.count_nonzero(one & other) - 50_000 * both) / np.sqrt(50_000 * both * (1 - both))
            assert abs(deviation) < 4.5


def test_hashes_that_are_alike_spread():
    """Even hashes that differ in one bit only go to all sides, so that no weakness of a hash becomes one of the split."""
    for place in range(HASH_BYTES):
        hashes = np.zeros((256, HASH_BYTES), np.uint8)
        hashes[:, place] = np.arange(256)
        counts = np.bincount(Sides(0, [Fraction(1, 4)] * 3).of(hashes), minlength=4)
        assert (np.abs(counts - 64) < 4.5 * np.sqrt(256 * 0.25 * 0.75)).all()


def test_a_larger_part_keeps_what_a_smaller_one_had():
    """And parts behind it give, the rest last."""
    hashes = many(20_000)
    small, large = (Sides(5, [Fraction(text)]).of(hashes) == 0 for text in ("0.01", "0.1"))
    assert (large >= small).all()
    assert np.count_nonzero(large & ~small)
    added = Sides(5, [Fraction("0.01"), Fraction("0.2")]).of(hashes)
    np.testing.assert_array_equal(added == 0, small)
