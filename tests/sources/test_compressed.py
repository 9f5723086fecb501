"""Compressed files: read whole, or an error that names the file."""

import bz2
import gzip
import hashlib
import lzma
import os
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from headrace.errors import SourceError
from headrace.sources.compressed import PIECE_BYTES, compression_of, open_stream
from headrace.sources.files import SourceFile

Maker = Callable[..., SourceFile]


def zstd_compress(data: bytes) -> bytes:
    """Compress with a checksum, as the `zstd` command does."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESS = {"gzip": gzip.compress, "zstd": zstd_compress, "bz2": bz2.compress, "xz": lzma.compress}
NAMES = list(COMPRESS)
CONTENT = b'{"text": "a word, a word, a word"}\n{"text": "another"}\n'


def read(file: SourceFile, count: int = 7) -> bytes:
    """Read a file to its end, and see that the bytes consumed are all of it."""
    with open_stream(file) as stream:
        data = b"".join(iter(lambda: stream.read(count), b""))
        assert stream.consumed == file.size
        assert stream.read(count) == b""
    return data


def zstd_frame(*blocks: bytes, descriptor: int = 0, header: bytes = b"\xa8") -> bytes:
    """A frame by hand (RFC 8878); without a descriptor, its window is 2 GiB."""
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + header + b"".join(blocks)


def zstd_block(content: bytes, size: int, *, kind: int = 0, last: bool = False) -> bytes:
    """A block by hand."""
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


@pytest.mark.parametrize("name", NAMES)
def test_all_members_are_read(make_file: Maker, name: str) -> None:
    """Members, frames and streams follow one another, empty ones among them; the seam may lie inside a line."""
    compress = COMPRESS[name]
    data = compress(CONTENT[:20]) + compress(b"") + compress(CONTENT[20:])
    assert compression_of(data) == name
    for count in (1, 10, 1 << 20):
        assert read(make_file(data, compression=name), count) == CONTENT


@pytest.mark.parametrize("name", NAMES)
def test_nothing_inside(make_file: Maker, name: str) -> None:
    """A file of no bytes, and a compressed stream of no bytes, are both empty and no error."""
    assert read(make_file(b"", compression=name)) == b""
    assert read(make_file(COMPRESS[name](b""), compression=name)) == b""


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_at_any_byte(make_file: Maker, name: str) -> None:
    """A file cut inside a stream is an error that says so and where; one cut between two streams cannot be told."""
    first, second = COMPRESS[name](CONTENT), COMPRESS[name](CONTENT[:10])
    for cut in range(1, len(first + second)):
        file = make_file((first + second)[:cut], compression=name)
        if cut == len(first):
            assert read(file) == CONTENT
        else:
            with pytest.raises(SourceError, match=rf"a.jsonl: the {name} stream ends early, at compressed byte {cut};"):
                read(file)


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit(make_file: Maker, name: str) -> None:
    """Any single flipped bit is an error, or does not change the content: never other text in silence."""
    data = COMPRESS[name](CONTENT)
    errors: list[str] = []
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            content = read(make_file(bytes(flipped), compression=name))
        except SourceError as error:
            errors.append(str(error))
        else:
            assert content == CONTENT
    assert len(errors) > 4 * len(data)
    assert all(error.startswith("a.jsonl: ") and name in error for error in errors)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", [b"x", b"\0x", b"garbage after the end", b"\x1f\x8b", b"\x28\xb5\x2f\xfe"])
def test_trailing_garbage(make_file: Maker, name: str, garbage: bytes) -> None:
    """What follows the last stream and is none is an error, not a silent end."""
    with pytest.raises(SourceError, match=rf"a.jsonl: .*{name}"):
        read(make_file(COMPRESS[name](CONTENT) + garbage, compression=name))


@pytest.mark.parametrize(
    ("name", "padding", "fine"),
    [
        ("gzip", 1, True),
        ("gzip", 300_000, True),
        ("xz", 4, True),
        ("xz", 3, False),
        ("bz2", 1, False),
        ("zstd", 4, False),
    ],
)
def test_zero_padding(make_file: Maker, name: str, padding: int, fine: bool) -> None:
    """Zero bytes after a stream are padding in gzip and, four at a time, in xz."""
    one = COMPRESS[name](CONTENT)
    for data, content in ((one + b"\0" * padding, CONTENT), (one + b"\0" * padding + one, CONTENT * 2)):
        if fine:
            assert read(make_file(data, compression=name)) == content
        else:
            with pytest.raises(SourceError, match=rf"a.jsonl: .*{name}"):
                read(make_file(data, compression=name))


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_bounded(make_file: Maker, name: str) -> None:
    """However well a file is compressed, little of it is in memory at a time."""
    size = 24 * 2**20
    file = make_file(COMPRESS[name](bytes(size)), compression=name)
    tracemalloc.start()
    with open_stream(file) as stream:
        sizes = list(map(len, iter(lambda: stream.read(1 << 30), b"")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == size
    assert max(sizes) <= PIECE_BYTES
    assert peak < size / 2  # xz looks back 8 MiB


@pytest.mark.parametrize("name", ["gzip", "xz"])
@pytest.mark.parametrize("number", [0, 1, 2, 15])
def test_skippable_frames(make_file: Maker, name: str, number: int) -> None:
    """Skippable frames of zstd may stand anywhere, hold anything, and be the whole file; none of it is content."""
    held = COMPRESS[name](CONTENT)
    skippable = bytes([0x50 + number]) + b"\x2a\x4d\x18" + struct.pack("<I", len(held)) + held
    frame = zstd_compress(CONTENT[:9])
    rest = zstd_compress(CONTENT[9:])
    for data, content in (
        (skippable, b""),
        (skippable + frame + rest, CONTENT),
        (frame + skippable + skippable + rest, CONTENT),
        (frame + rest + skippable, CONTENT),
    ):
        assert compression_of(data) == "zstd"
        assert read(make_file(data, compression="zstd"), 1000) == content
        for cut in (1, 3, 7):
            with pytest.raises(SourceError, match="zstd stream ends early"):
                read(make_file((data + skippable)[: len(data) + cut], compression="zstd"))


def test_gzip_headers(make_file: Maker) -> None:
    """A name, a comment, an extra field and a header checksum in a gzip header are passed over."""
    body = gzip.compress(CONTENT)[10:]
    extra = struct.pack("<H", 6) + b"BC\x02\x00ab"
    header = b"\x1f\x8b\x08\x1e" + bytes(6) + extra + b"name.jsonl\0" + b"a comment\0"
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    assert read(make_file((header + body) * 2, compression="gzip")) == CONTENT * 2


def test_zstd_of_all_sorts(make_file: Maker) -> None:
    """Frames without a content size, with windows up to 2 GiB, of raw and run-length blocks, and skippable frames."""
    skippable = b"\x5f\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
    streamed = zstandard.ZstdCompressor(level=19).compressobj()
    streamed = streamed.compress(CONTENT) + streamed.flush()
    by_hand = zstd_frame(zstd_block(b"raw", 3), zstd_block(b"r", 1000, kind=1), zstd_block(b"", 0, last=True))
    data = skippable + streamed + by_hand + skippable
    assert compression_of(data) == "zstd"
    assert read(make_file(data, compression="zstd"), 1000) == CONTENT + b"raw" + b"r" * 1000
    for cut in (1, 5, len(skippable) - 1):
        with pytest.raises(SourceError, match="zstd stream ends early"):
            read(make_file(data[:cut], compression="zstd"))


@pytest.mark.parametrize("window_log", [10, 20, 27, 28, 29, 30, 31])
@pytest.mark.parametrize("sized", [True, False])
def test_zstd_windows(make_file: Maker, window_log: int, sized: bool) -> None:
    """Every window that the format's own tool writes is read, also those that libraries refuse by default."""
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, write_content_size=sized, write_checksum=True
    )
    data = zstandard.ZstdCompressor(compression_params=parameters).compress(CONTENT * 50)
    assert read(make_file(data, compression="zstd"), 1 << 20) == CONTENT * 50


def test_zstd_matches_far_back(make_file: Maker) -> None:
    """A match 130 MiB back, beyond the window that libraries allow by default, is found again."""
    block = random.Random(1).randbytes(1 << 16)
    zeros = bytes(1 << 20)
    parameters = zstandard.ZstdCompressionParameters(
        window_log=28, enable_ldm=True, hash_log=10, chain_log=10, strategy=1
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    parts = [compressor.compress(piece) for piece in (block, *[zeros] * 130, block)]
    data = b"".join([*parts, compressor.flush()])
    assert len(data) < 1.5 * len(block)
    digest, wanted = hashlib.sha256(), hashlib.sha256(block + zeros * 130 + block)
    with open_stream(make_file(data, compression="zstd")) as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    assert digest.digest() == wanted.digest()


def test_zstd_that_cannot_be_read(make_file: Maker) -> None:
    """A window beyond 2 GiB, and a dictionary, are said as what they are, not as damage."""
    wide = b"\x28\xb5\x2f\xfd\x00\xb0" + zstd_block(b"", 0, last=True)
    with pytest.raises(SourceError, match=r"a.jsonl: looks back more than 2 GiB.*--long=31"):
        read(make_file(wide, compression="zstd"))
    samples = [b'{"text": "%d words of text, all alike"}\n' % number for number in range(2000)]
    dictionary = zstandard.train_dictionary(4096, samples)
    assert dictionary.dict_id()
    data = zstandard.ZstdCompressor(dict_data=dictionary).compress(CONTENT)
    with pytest.raises(SourceError, match=r"a.jsonl: compressed with a zstd dictionary"):
        read(make_file(data, compression="zstd"))


def test_zstd_block_of_no_kind(make_file: Maker) -> None:
    """A block of the reserved kind is damage."""
    data = zstd_frame(zstd_block(b"raw", 3, kind=3, last=True))
    with pytest.raises(SourceError, match=r"a.jsonl: damaged zstd data before compressed byte \d+"):
        read(make_file(data, compression="zstd"))


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "bz2", "xz"])
@pytest.mark.parametrize("change", [-3, 3, 300_000])
def test_a_file_that_changes(make_file: Maker, compression: str | None, change: int) -> None:
    """A file that is longer or shorter than when it was listed is an error that says so, whatever was read of it."""
    data = COMPRESS[compression](CONTENT) if compression else CONTENT
    file = make_file(data, compression=compression)
    file.path.write_bytes(data[:change] if change < 0 else data + data * change)
    with pytest.raises(SourceError, match=rf"a.jsonl: changed while it was read: {len(data)} bytes"):
        read(file, 1 << 20)


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "bz2", "xz"])
def test_the_bytes_on_disk_can_be_observed(make_file: Maker, compression: str | None) -> None:
    """Whoever observes a file sees each of its bytes once, in order, as they lie on disk."""
    data = COMPRESS[compression](CONTENT) * 2 if compression else CONTENT
    file = make_file(data, compression=compression)
    seen: list[tuple[SourceFile, bytes]] = []
    with open_stream(file, lambda *observed: seen.append(observed)) as stream:
        while stream.read(9):
            pass
    assert b"".join(piece for _, piece in seen) == data
    assert {observed for observed, _ in seen} == {file}


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "bz2", "xz"])
def test_a_file_that_is_rewritten(make_file: Maker, compression: str | None) -> None:
    """A file that is written to while it is read is an error, though its size stays the same."""
    data = COMPRESS[compression](CONTENT) if compression else CONTENT
    file = make_file(data, compression=compression)
    with open_stream(file) as stream:
        stream.read(1)
        file.path.write_bytes(data)
        os.utime(file.path, ns=(0, 12345))
        with pytest.raises(SourceError, match=r"a.jsonl: changed while it was read: something wrote to it"):
            list(iter(lambda: stream.read(1 << 20), b""))


def test_a_file_that_keeps_growing(make_file: Maker) -> None:
    """A file that has grown is found out as soon as too much of it was read, not at an end that may never come."""
    file = make_file(CONTENT)
    file.path.write_bytes(CONTENT * 100)
    with open_stream(file) as stream, pytest.raises(SourceError, match=r"a.jsonl: changed while it was read"):
        stream.read(len(CONTENT) + 1)


def test_a_file_whose_size_says_nothing() -> None:
    """Of a file of the system, which has no size but content, it is said what is odd, not that somebody wrote to it."""
    file = SourceFile(Path("/proc/self/status"), "status", 0, "text", None)
    with pytest.raises(SourceError, match=r"status: its size is 0 bytes, but \d+ came out of it; read a copy"):
        read(file)


def test_a_file_that_is_gone(make_file: Maker) -> None:
    """A file removed since it was listed is an error that names it."""
    file = make_file(CONTENT)
    file.path.unlink()
    with pytest.raises(SourceError, match=r"a.jsonl: cannot be opened"):
        read(file)
