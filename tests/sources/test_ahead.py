"""What a thread makes ahead is what would be made without it, in order, and no more than a little of it."""

import gzip
import threading
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.ahead import made_ahead
from headrace.sources.compressed import PIECE_BYTES, open_stream
from headrace.sources.files import SourceFile


@given(
    items=st.lists(st.integers() | st.none()), fails=st.booleans(), taken=st.integers(0, 20), depth=st.integers(1, 5)
)
def test_the_same_items(items, fails, taken, depth):
    """All items come in order, then what making the next one raised; wherever one stops, the thread ends."""

    def make():
        yield from items
        if fails:
            raise ValueError("no more")

    before = threading.active_count()
    with made_ahead(make(), depth) as coming:
        assert list(islice(coming, min(taken, len(items)))) == items[:taken]
        if taken > len(items) and fails:
            with pytest.raises(ValueError, match="no more"):
                next(coming)
        elif taken > len(items):
            assert list(coming) == []
    assert threading.active_count() == before


def test_only_a_few_are_made():
    """Nothing beyond the next few is made while none is taken."""
    made = []

    def make():
        for number in range(100):
            made.append(number)
            yield number

    with made_ahead(make(), 3) as coming:
        assert next(coming) == 0
    assert len(made) <= 5


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_what_is_seen_goes_by_what_is_taken(tmp_path, pieces):
    """Of a compressed file, those bytes are observed that were read for what was taken, however far ahead the thread is."""
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 4096 * 30, compresslevel=0))
    file = SourceFile(path, "a.txt.gz", path.stat().st_size, "text", "gzip")
    found = set()
    for _ in range(5):
        seen = []
        with open_stream(file, lambda _, data, seen=seen: seen.append(data)) as stream:
            for _ in range(pieces):
                stream.read(PIECE_BYTES)
            assert sum(map(len, seen)) == stream.consumed
            found.add(stream.consumed)
    assert len(found) == 1
    assert all(consumed < file.size for consumed in found)
