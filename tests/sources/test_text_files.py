"""Text files: one document each."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from headrace.errors import SourceError
from headrace.sources import SourceFile, SourceShard, read_shard
from headrace.sources.text import read_text
from headrace.sources.utf8 import first_invalid_utf8

Maker = Callable[..., SourceFile]


def test_bytes_as_they_are(make_file: Maker) -> None:
    """Nothing but a byte order mark is taken off: not line ends, NULs, nor white space; its 3 bytes count."""
    contents = [b"a\r\nb\r", b"\0\0", b" \n", b"\xef\xbb\xbfx\xef\xbb\xbf", "日本\n".encode()]
    files = [make_file(content, f"{n}.txt", "text") for n, content in enumerate(contents)]
    (batch,) = read_text(files)
    assert batch.texts == [*contents[:3], b"x\xef\xbb\xbf", contents[4]]
    assert batch.files.tolist() == [0, 1, 2, 3, 4]
    assert batch.offsets.tolist() == [0, 0, 0, 3, 0]
    assert batch.rows.tolist() == [0] * 5
    assert batch.consumed == sum(file.size for file in files)


def test_faults(make_file: Maker) -> None:
    """Each file that gives no document is one report; the others are not touched by it."""
    contents = {
        "bad.txt": b"\xef\xbb\xbfab\xffc",
        "cut.txt": "日".encode()[:2],
        "wide.txt": "a".encode("utf-16"),
        "mark.txt": b"\xef\xbb\xbf",
        "good.txt": b"good",
    }
    files = [make_file(content, name, "text") for name, content in contents.items()]
    (batch,) = read_text(files, on_bad_input="skip")
    assert (batch.texts, batch.files.tolist()) == ([b"good"], [4])
    assert [str(drop) for drop in batch.drops] == [
        "bad.txt: byte 5: invalid UTF-8",
        "cut.txt: byte 0: invalid UTF-8",
        "wide.txt: byte 0: invalid UTF-8 (the file is UTF-16)",
        "mark.txt: byte 0: empty",
    ]
    (batch,) = read_text(files, on_bad_input="replace", keep_empty=True)
    assert (batch.texts, batch.replaced) == (["ab\ufffdc".encode(), "\ufffd".encode(), b"", b"good"], 2)
    assert [drop.path for drop in batch.drops] == ["wide.txt"]


def test_batches(make_file: Maker) -> None:
    """Small files share a batch, in order; a full one is delivered; the bytes read add up to the shard's size."""
    files = [make_file(b"x" * 100, f"{n}.txt", "text") for n in range(25)]
    batches = list(read_text(files, batch_bytes=1000))
    assert [batch.files.tolist() for batch in batches] == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert sum(batch.consumed for batch in read_shard(SourceShard(0, tuple(files)))) == 2500


def test_many_faults(make_file: Maker) -> None:
    """Thousands of files without a text are delivered a thousand at a time."""
    files = [make_file(b"", "empty.txt", "text")] * 2500
    assert [len(batch.drops) for batch in read_text(files)] == [1000, 1000, 500]


def test_compressed_text(make_file: Maker) -> None:
    """Damage in one file of a shard is an error that names that file."""
    import gzip

    good, cut = gzip.compress(b"a text"), gzip.compress(b"a text")[:-1]
    files = [make_file(good, "good.txt.gz", "text", "gzip"), make_file(cut, "cut.txt.gz", "text", "gzip")]
    assert [batch.texts for batch in read_text(files[:1])] == [[b"a text"]]
    with pytest.raises(SourceError, match=r"cut.txt.gz: the gzip stream ends early"):
        list(read_text(files))


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.binary(max_size=40) | st.text(max_size=30).map(lambda text: text.encode(errors="replace")),
    extra=st.binary(max_size=3),
    piece=st.integers(4, 20),
)
def test_first_invalid_byte(data: bytes, extra: bytes, piece: int) -> None:
    """The first byte that is not UTF-8 is the one that Python finds in the whole, wherever the pieces are cut."""
    try:
        (data + extra).decode()
        wanted = -1
    except UnicodeDecodeError as error:
        wanted = error.start
    assert first_invalid_utf8(data + extra, piece) == wanted
