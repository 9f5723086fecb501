"""A keyed bijection of `[0, length)` that stores no index: any element, or its inverse, in constant time.

A generalised Feistel network with cycle walking. Sources: Luby & Rackoff, "How to construct pseudorandom permutations
from pseudorandom functions" (1988), for the network; Black & Rogaway, "Ciphers with arbitrary finite domains" (2002),
for halves that are no powers of two and for cycle walking.

The rules, in integers (a golden test pins them):

- `a` is the least even integer with `a * a >= length`, `b = ceil(length / a)`. The domain `a * b` exceeds `length` by
  at most `a - 1`, so that about one index in `sqrt(length)` needs a second walk. (Were both odd, every round would be
  an even permutation, and half of all orders out of reach.)
- `index` splits into `left = index // b` (below a) and `right = index % b`.
- Round j of 12: `left = (left + f(right, key[j], a)) % a` where j is even, `right = (right + f(left, key[j], b)) % b`
  where it is odd.
- `f(half, k, modulus)`: `z = (half ^ k) * 0xBF58476D1CE4E5B9 mod 2**64`; `z ^= z >> 32`;
  `z = z * 0x94D049BB133111EB mod 2**64`; `f = ((z >> 32) * modulus) >> 32`. The constants are those of splitmix64
  (Steele, Lea & Flood 2014, after Stafford); halves are below 2**32, so that no product but the two meant to wraps.
- The result is `left * b + right`; while it is `>= length` it goes through the rounds again.

Everything is uint64: numpy would otherwise promote int64 with uint64 to float64 and lose the bijection.
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int

__all__ = ["ROUNDS", "invert", "permute"]

ROUNDS = 12
"""Rounds of the network, and words of a key. Four make a strong permutation of large halves; with eight, the orders of
five windows are still uneven over the keys."""

BLOCK = 16_384
"""Indices worked on at once: the scratch arrays stay in the second-level cache."""

MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
HALF_WORD = np.uint64(32)

Words = NDArray[np.uint64]
Integers = NDArray[np.uint64] | NDArray[np.int64]


def permute(index: Integers, *, length: int, key: Words) -> Words:
    """Map each index to its place in the order that `key` stands for.

    Args:
        index: integers in `[0, length)`, any shape.
        length: size of the domain, `1 <= length <= 2**63`.
        key: uint64 `(ROUNDS,)` for all indices, or `(ROUNDS, index.size)` for one key an index, in C order.

    Returns:
        uint64, the shape of `index`: a bijection of `[0, length)` for a fixed key.

    Raises:
        PlanError: `length` is outside its range, an index is, or `key` has another shape.
    """
    return _walk(index, length, key, backward=False)


def invert(place: Integers, *, length: int, key: Words) -> Words:
    """Map each place back to its index: `invert(permute(i)) == i`. Arguments and errors as for `permute`."""
    return _walk(place, length, key, backward=True)


def _walk(index: Integers, length: int, key: Words, *, backward: bool) -> Words:
    length = checked_int("length", length, least=1, below=POSITION_LIMIT + 1)
    given = _checked_index(index, length)
    flat = given.reshape(-1)
    shared = key.shape == (ROUNDS,)
    if key.dtype != np.uint64 or not (shared or key.shape == (ROUNDS, flat.size)):
        raise PlanError(
            f"a key is uint64 of shape ({ROUNDS},) or ({ROUNDS}, {flat.size}), found {key.dtype} of {key.shape}"
        )
    keys = key.reshape(ROUNDS, -1)
    a, b = _halves(length)
    out = np.empty_like(flat)
    for start in range(0, flat.size, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = _rounds(flat[part], a, b, keys if shared else keys[:, part], backward=backward)
    # A bijection of the larger domain leaves the surplus again after at most as many steps as the surplus has places.
    outside = np.flatnonzero(out >= np.uint64(length))
    while outside.size:
        again = _rounds(out[outside], a, b, keys if shared else keys[:, outside], backward=backward)
        out[outside] = again
        outside = outside[again >= np.uint64(length)]
    return out.reshape(given.shape)


def _halves(length: int) -> tuple[np.uint64, np.uint64]:
    a = isqrt(length - 1) + 1
    a += a % 2
    return np.uint64(a), np.uint64(-(-length // a))


def _rounds(index: Words, a: np.uint64, b: np.uint64, keys: Words, *, backward: bool) -> Words:
    """Send one block through all rounds; `keys` is `(ROUNDS, 1)` or `(ROUNDS, index.size)`."""
    left = index // b
    right = index - left * b
    work, spare = np.empty_like(left), np.empty_like(left)
    for j in reversed(range(ROUNDS)) if backward else range(ROUNDS):
        half, other, modulus = (left, right, a) if j % 2 == 0 else (right, left, b)
        np.bitwise_xor(other, keys[j], out=work)
        np.multiply(work, MULTIPLY_1, out=work)
        np.right_shift(work, HALF_WORD, out=spare)
        np.bitwise_xor(work, spare, out=work)
        np.multiply(work, MULTIPLY_2, out=work)
        np.right_shift(work, HALF_WORD, out=work)
        np.multiply(work, modulus, out=work)
        np.right_shift(work, HALF_WORD, out=work)
        # Of x and x -+ modulus the one in range is the smaller: the other has wrapped around 2**64, or is too large.
        if backward:
            np.subtract(half, work, out=half)
            np.add(half, modulus, out=work)
        else:
            np.add(half, work, out=half)
            np.subtract(half, modulus, out=work)
        np.minimum(half, work, out=half)
    np.multiply(left, b, out=left)
    return np.add(left, right, out=left)


def _checked_index(index: Integers, length: int) -> Words:
    if index.dtype.kind not in "ui":
        raise PlanError(f"indices must be integers, found {index.dtype}")
    if index.size:
        least, most = int(index.min()), int(index.max())
        if least < 0 or most >= length:
            raise PlanError(f"indices must lie in [0, {length}), found {least} to {most}")
    return index.astype(np.uint64)
