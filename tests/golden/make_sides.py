"""The sides of a split in plain Python integers, and the maker of `sides.json`.

Written from the rules in `docs/format.md` and in the docstring of `headrace.sampling.sides`, not from their code: nothing
here imports headrace. Run `python tests/golden/make_sides.py` to write the file again; see PROVENANCE.md before you do.
"""

import hashlib
import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "sides.json"
MASK = 2**64 - 1
SIDES = 8
SEEDS = (0, 1, 7, 2**32, 2**63 - 1)
DOCUMENTS = ([], [1], [1, 2, 3], [65535], [2**32 - 1], list(range(1000)))
"""Token ids without their boundary."""
TEXTS = ("", "a", "mill", "wörd \U0001f600")
SPLITS = (
    (("val", "0.5"),),
    (("val", "0.001"), ("test", "0.25")),
    (("a", "0.3"), ("b", "0.3"), ("c", "0.4")),
    (("all", "1"),),
    (("least", "0.00000000000000000006"),),
)


def mix(word: int) -> int:
    """Return the finaliser of splitmix64."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def value(digest: bytes, seed: int) -> int:
    """Return where in [0, 2**64) a document lies, by the 16 bytes of its hash."""
    first, second = struct.unpack("<QQ", digest)
    key = [int(word) for word in np.random.SeedSequence((seed, 0, SIDES)).generate_state(2, np.uint64)]
    return mix(mix(first ^ key[0]) ^ second ^ key[1])


def side(digest: bytes, seed: int, fractions: Sequence[tuple[str, str]], rest: str = "train") -> str:
    """Return the name of the part in which a document lies."""
    total = Fraction(0)
    for name, fraction in fractions:
        total += Fraction(Decimal(fraction))
        if value(digest, seed) < int(2**64 * total):
            return name
    return rest


def of_tokens(tokens: Sequence[int]) -> bytes:
    """Return the hash of a document by its tokens, without their boundary."""
    return hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens)).digest()[:16]


def of_text(text: str) -> bytes:
    """Return the hash of a document by its text."""
    return hashlib.sha256(text.encode()).digest()[:16]


def golden() -> dict[str, Any]:
    """Return what the file holds."""
    hashes = [*map(of_tokens, DOCUMENTS), *map(of_text, TEXTS)]
    return {
        "hashes": [digest.hex() for digest in hashes],
        "values": [{"seed": seed, "values": [value(digest, seed) for digest in hashes]} for seed in SEEDS],
        "splits": [
            {"seed": seed, "fractions": split, "sides": [side(digest, seed, split) for digest in hashes]}
            for seed in SEEDS
            for split in SPLITS
        ],
    }


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden(), indent=1) + "\n", encoding="utf-8")
