"""The orders of `headrace.sampling` in plain Python integers, and the maker of `orders.json`.

Written from the rules in the docstrings of `permutation`, `philox` and `plan`, not from their code: nothing here
imports headrace. Run `python tests/golden/make_orders.py` to write the file again; see PROVENANCE.md before you do.
"""

import hashlib
import json
from collections.abc import Sequence
from itertools import starmap
from math import isqrt
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "orders.json"
MASK = 2**64 - 1
BLOCKS, RANDOM = 1, 2
ROUNDS = 12

PERMUTATION_LENGTHS = [1, 2, 3, 64, 1000, 2**32 + 15, 2**63 - 25, 2**63]
KEYS = [(0, 0, BLOCKS), (0, 1, BLOCKS), (1, 0, BLOCKS), (2**64 + 3, 2**31, BLOCKS), (0, 0, RANDOM), (1337, 0, RANDOM)]
PLANS = [
    {"order": "random", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0},
    {"order": "random", "token_count": 16, "window": 16, "batch_size": 4, "seed": 7, "targets": "inside"},
    {"order": "random", "token_count": 2**40 + 1, "window": 1024, "batch_size": 6, "seed": 2**70},
    {"order": "random", "token_count": 2**63 - 1, "window": 8, "batch_size": 5, "seed": 1, "targets": "inside"},
    {"order": "blocks", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0},
    {"order": "blocks", "token_count": 100, "window": 16, "batch_size": 4, "seed": 3, "targets": "inside"},
    {
        "order": "blocks",
        "token_count": 100,
        "window": 16,
        "batch_size": 4,
        "seed": 3,
        "targets": "inside",
        "stride": 16,
    },
    {"order": "blocks", "token_count": 2**40 + 1, "window": 1024, "batch_size": 6, "seed": 2**64, "corpus": "00ff"},
    {"order": "blocks", "token_count": 2**63 - 1, "window": 1, "batch_size": 3, "seed": 5},
    {"order": "sequential", "token_count": 100, "window": 16, "batch_size": 4},
    {"order": "sequential", "token_count": 100, "window": 16, "batch_size": 4, "targets": "inside", "stride": 5},
]
"""Orders that are pinned, over 1-token windows, tiny and enormous corpora."""


def key_words(seed: int, epoch: int, stream: int, count: int) -> list[int]:
    """Return the key words of a stream; numpy promises that `SeedSequence` stays as it is."""
    return [int(word) for word in np.random.SeedSequence((seed, epoch, stream)).generate_state(count, np.uint64)]


def halves(length: int) -> tuple[int, int]:
    """Return the moduli of the two halves."""
    a = isqrt(length)
    a += a * a < length
    a += a % 2
    return a, -(-length // a)


def round_value(half: int, key: int, modulus: int) -> int:
    """Return the round function."""
    z = (half ^ key) * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 32
    z = z * 0x94D049BB133111EB & MASK
    return (z >> 32) * modulus >> 32


def permute(index: int, length: int, key: Sequence[int]) -> int:
    """Return the place of `index` in the order of `key`."""
    a, b = halves(length)
    while True:
        left, right = divmod(index, b)
        for j in range(ROUNDS):
            if j % 2 == 0:
                left = (left + round_value(right, key[j], a)) % a
            else:
                right = (right + round_value(left, key[j], b)) % b
        index = left * b + right
        if index < length:
            return index


def philox(counter: int, key: Sequence[int]) -> list[int]:
    """Return the four words of one block of Philox4x64-10."""
    c = [counter >> 64 * i & MASK for i in range(4)]
    k = list(key)
    for _ in range(10):
        first, third = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [third >> 64 ^ c[1] ^ k[0], third & MASK, first >> 64 ^ c[3] ^ k[1], first & MASK]
        k = [k[0] + 0x9E3779B97F4A7C15 & MASK, k[1] + 0xBB67AE8584CAA73B & MASK]
    return c


def random_word(sample: int, key: Sequence[int]) -> int:
    """Return the word that belongs to a sample."""
    return philox(sample // 4, key)[sample % 4]


def complete(plan: dict) -> dict:
    """Return the plan's fields with the defaults, and what follows from them: served, read, stride_used, windows."""
    fields = {"seed": 0, "targets": "next", "stride": None, "corpus": "", **plan}
    served = fields["window"] if fields["targets"] == "next" else fields["window"] - 1
    stride = 1 if fields["order"] == "random" else (fields["stride"] or served)
    windows = 1 + (fields["token_count"] - (served + 1)) // stride
    return {**fields, "served": served, "stride_used": stride, "windows": windows}


def start(plan: dict, sample: int) -> int:
    """Return where the window of one sample begins."""
    full = complete(plan)
    if full["order"] == "random":
        return random_word(sample, key_words(full["seed"], 0, RANDOM, 2)) * full["windows"] >> 64
    if full["order"] == "sequential":
        return min(sample, full["windows"] - 1) * full["stride_used"]
    epoch, index = divmod(sample, full["windows"])
    return permute(index, full["windows"], key_words(full["seed"], epoch, BLOCKS, ROUNDS)) * full["stride_used"]


def starts(plan: dict, step: int) -> list[int]:
    """Return the starts of a whole batch."""
    return [start(plan, step * plan["batch_size"] + row) for row in range(plan["batch_size"])]


def fingerprint(plan: dict) -> str:
    """Return the plan's fingerprint."""
    full = complete(plan)
    fields = {name: full[name] for name in ("corpus", "order", "targets", "token_count", "window")}
    fields |= {"scheme": 1, "seed": hex(full["seed"]), "stride": full["stride_used"]}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def pinned_steps(plan: dict) -> list[int]:
    """Return the first steps, those around the ends of early epochs, and one far away."""
    full = complete(plan)
    if full["order"] == "sequential":
        return list(range(-(-full["windows"] // full["batch_size"])))
    steps = {0, 1, 2, 10**9, 2**63 // full["batch_size"] - 1}
    if full["windows"] < 2**20:
        steps |= {full["windows"] // full["batch_size"], 2 * full["windows"] // full["batch_size"]}
    return sorted(steps)


def golden() -> dict:
    """Return all pinned values."""
    permutations = [
        {
            "length": length,
            "key_of": [0, 0, BLOCKS],
            "indices": (
                indices := sorted({i for i in (0, 1, 2, length // 2, length - 2, length - 1) if 0 <= i < length})
            ),
            "places": [permute(i, length, key_words(0, 0, BLOCKS, ROUNDS)) for i in indices],
        }
        for length in PERMUTATION_LENGTHS
    ]
    return {
        "keys": [{"of": list(of), "words": words} for of, words in zip(KEYS, starmap(_round_keys, KEYS), strict=True)],
        "permutations": permutations,
        "plans": [
            {
                "plan": plan,
                "fingerprint": fingerprint(plan),
                "starts": {str(step): starts(plan, step) for step in pinned_steps(plan)},
            }
            for plan in PLANS
        ],
    }


def _round_keys(seed: int, epoch: int, stream: int) -> list[int]:
    return key_words(seed, epoch, stream, ROUNDS)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden(), indent=1) + "\n", encoding="utf-8")
