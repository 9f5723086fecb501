"""gigatoken keeps every word it met: the cache is dropped before it takes the machine's memory."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
from headrace.tokenizers.tokenizer_json import JsonTokenizer

def resident():
    pages = [int(field) for field in open("/proc/self/statm").read().split()[:3]]
    return (pages[1] - pages[2]) * 4096

tokenizer = JsonTokenizer(sys.argv[1], max_cache_bytes=int(sys.argv[2]))
random = np.random.default_rng(0)
first = tokenizer.encode("hello world, hello")
before, peak, drops = resident(), 0, 0
for _ in range(40):
    words = random.integers(97, 123, (100_000, 10), dtype=np.uint8)
    words[:, -1] = 32
    tokenizer.encode_documents([words.tobytes()])
    peak = max(peak, resident())
    drops += tokenizer._gigatoken.loaded is None
assert tokenizer.encode("hello world, hello") == first
print(peak - before, drops)
"""


def growth(path, max_cache_bytes: int) -> tuple[int, int]:
    """Bytes that 40 MB of words never seen before add to a fresh process, and how often the cache was dropped."""
    command = [sys.executable, "-c", SCRIPT, str(path), str(max_cache_bytes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, drops = done.stdout.split()
    return int(grown), int(drops)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_the_cache_is_bounded(byte_level, write_json):
    """With a bound of 32 MB the process grows by less than half of what it does without, and the ids stay the same."""
    path = write_json(byte_level({"ab": 256}, [["a", "b"]]))
    unbounded, never = growth(path, 1 << 40)
    bounded, drops = growth(path, 32 << 20)
    assert never == 0
    assert drops > 1
    assert bounded < unbounded / 2
