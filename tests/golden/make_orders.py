"""The orders of `headrace.sampling` in plain Python integers, and the maker of `orders.json`.

Written from the rules in the docstrings of `permutation`, `philox`, `local`, `phases` and `plan`, not from their code:
nothing here imports headrace. Run `python tests/golden/make_orders.py` to write the file again; see PROVENANCE.md before you do.
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
BLOCKS, RANDOM, PHASE, DOCUMENTS, LOCAL_TURN, LOCAL_PIECES, LOCAL_GROUPS = 1, 2, 3, 4, 5, 6, 7
BUILD = 9
ROUNDS = 12

PERMUTATION_LENGTHS = [1, 2, 3, 64, 1000, 2**32 + 15, 2**63 - 25, 2**63]
BUILDS = [(0, 0, 0, 0), (1337, 0, 0, 5), (0, 3, 2, 2**40 + 1), (2**70, 2**20, 2**31, 2**63)]
"""Seed, source, cut and number of documents that a build puts in a random order."""
KEYS = [
    (0, 0, BLOCKS),
    (0, 1, BLOCKS),
    (1, 0, BLOCKS),
    (2**64 + 3, 2**31, BLOCKS),
    (0, 0, RANDOM),
    (1337, 0, RANDOM),
    (1337, 0, BUILD),
]
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
    {"order": "blocks", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0, "phase": True},
    {
        "order": "blocks",
        "token_count": 2**40 + 1,
        "window": 1024,
        "batch_size": 6,
        "seed": 2**64,
        "targets": "inside",
        "phase": True,
    },
    {
        "order": "blocks",
        "token_count": 1000,
        "window": 4,
        "batch_size": 8,
        "seed": 3,
        "shuffle": "local",
        "piece_windows": 7,
        "pieces_at_once": 5,
    },
    {"order": "blocks", "token_count": 2**40 + 1, "window": 1024, "batch_size": 6, "seed": 4, "shuffle": "local"},
    {
        "order": "blocks",
        "token_count": 500,
        "window": 4,
        "batch_size": 8,
        "seed": 3,
        "shuffle": "local",
        "piece_windows": 1000,
        "pieces_at_once": 1,
        "phase": True,
    },
    {"order": "documents", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0, "documents": 77},
    {"order": "documents", "token_count": 2**62, "window": 16, "batch_size": 5, "seed": 9, "documents": 2**50 + 3},
    {
        "order": "documents",
        "token_count": 1000,
        "window": 16,
        "batch_size": 4,
        "seed": 0,
        "documents": 77,
        "shuffle": "local",
        "piece_windows": 4,
        "pieces_at_once": 3,
    },
    {"order": "documents", "token_count": 20, "window": 16, "batch_size": 4, "documents": 9, "shuffle": "none"},
    {"order": "random", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0, "skipped": [[3, 9], [12, 13]]},
    {"order": "blocks", "token_count": 1000, "window": 16, "batch_size": 4, "seed": 0, "skipped": [[0, 4], [70, 130]]},
    {"order": "sequential", "token_count": 100, "window": 8, "batch_size": 4, "skipped": [[2, 5]]},
    {"order": "random", "token_count": 1000, "window": 16, "batch_size": [[0, 4], [2, 6], [900, 3]], "seed": 0},
    {"order": "blocks", "token_count": 300, "window": 8, "batch_size": [[0, 4], [3, 9]], "seed": 1, "phase": True},
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
    fields = {
        "seed": 0,
        "targets": "next",
        "stride": None,
        "corpus": "",
        "shuffle": "global",
        "piece_windows": 1024,
        "pieces_at_once": 64,
        "phase": False,
        "documents": None,
        "skipped": [],
        **plan,
    }
    served = fields["window"] if fields["targets"] == "next" else fields["window"] - 1
    stride = 1 if fields["order"] in {"random", "documents"} else (fields["stride"] or served)
    moved = stride - 1 if fields["phase"] else 0
    windows = fields["documents"] or 1 + (fields["token_count"] - moved - (served + 1)) // stride
    finite = fields["order"] == "sequential" or fields["shuffle"] == "none"
    total = windows - sum(stop - first for first, stop in fields["skipped"]) if finite else None
    return {**fields, "served": served, "stride_used": stride, "windows": windows, "total": total}


def local(index: int, epoch: int, count: int, seed: int, piece: int, at_once: int) -> int:
    """Return the unit at an index of an epoch that is shuffled within a few pieces."""
    groups = max(1, count // (piece * at_once))
    group = min(index // (piece * at_once), groups - 1)
    first = group * piece * at_once
    size = piece * at_once if group < groups - 1 else count - first
    place = first + permute(index - first, size, key_words(seed, epoch * groups + group, LOCAL_GROUPS, ROUNDS))
    full = count // piece
    if place < full * piece:
        number = permute(place // piece, full, key_words(seed, epoch, LOCAL_PIECES, ROUNDS))
        place = number * piece + place % piece
    turn = key_words(seed, epoch, LOCAL_TURN, 1)[0] * count >> 64
    return (place + turn) % count


def order_sample(full: dict, sample: int) -> int:
    """Return which of the order's samples is served as number `sample`."""
    if full["total"] is not None:
        sample = min(sample, full["total"] - 1)
    for first, stop in full["skipped"]:
        if sample >= first:
            sample += stop - first
    return sample


def start(plan: dict, sample: int) -> int:
    """Return where the window of one sample begins, or its document's number."""
    full = complete(plan)
    sample = order_sample(full, sample)
    seed, windows = full["seed"], full["windows"]
    if full["order"] == "random":
        return random_word(sample, key_words(seed, 0, RANDOM, 2)) * windows >> 64
    if full["total"] is not None:
        return sample * full["stride_used"]
    epoch, index = divmod(sample, windows)
    if full["shuffle"] == "local":
        unit = local(index, epoch, windows, seed, full["piece_windows"], full["pieces_at_once"])
    else:
        stream = DOCUMENTS if full["order"] == "documents" else BLOCKS
        unit = permute(index, windows, key_words(seed, epoch, stream, ROUNDS))
    phase = key_words(seed, epoch, PHASE, 1)[0] * full["stride_used"] >> 64 if full["phase"] else 0
    return phase + unit * full["stride_used"]


def batch(plan: dict, step: int) -> range:
    """Return the samples of a step."""
    size = plan["batch_size"]
    if isinstance(size, int):
        return range(step * size, (step + 1) * size)
    first = 0
    for (begin, rows), later in zip(size, [*size[1:], None], strict=True):
        if later is None or step < later[0]:
            first += (step - begin) * rows
            return range(first, first + rows)
        first += (later[0] - begin) * rows
    raise AssertionError(size)


def starts(plan: dict, step: int) -> list[int]:
    """Return the starts of a whole batch."""
    return [start(plan, sample) for sample in batch(plan, step)]


def fingerprint(plan: dict) -> str:
    """Return the plan's fingerprint."""
    full = complete(plan)
    fields = {name: full[name] for name in ("corpus", "order", "targets", "token_count", "window")}
    fields |= {"scheme": 1, "seed": hex(full["seed"]), "stride": full["stride_used"]}
    if full["shuffle"] != "global":
        fields["shuffle"] = full["shuffle"]
    if full["shuffle"] == "local":
        fields |= {name: full[name] for name in ("piece_windows", "pieces_at_once")}
    fields |= {name: full[name] for name in ("phase", "documents", "skipped") if full[name]}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def pinned_steps(plan: dict) -> list[int]:
    """Return the first steps, those around the ends of early epochs, and one far away."""
    full = complete(plan)
    size = full["batch_size"] if isinstance(full["batch_size"], int) else max(rows for _, rows in full["batch_size"])
    if full["total"] is not None:
        return list(range(-(-full["total"] // size)))
    last = (2**63 - sum(stop - first for first, stop in full["skipped"])) // size - 1
    steps = {0, 1, 2, 10**9, last}
    if full["windows"] < 2**20:
        steps |= {full["windows"] // size, 2 * full["windows"] // size}
    return sorted(steps)


def document_key(seed: int, source: int, cut: int, number: int) -> int:
    """Return the key of a document in a build's random order."""
    return random_word(number + (cut << 64) + (source << 128), key_words(seed, 0, BUILD, 2))


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
        "builds": [{"document": list(document), "key": document_key(*document)} for document in BUILDS],
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
