"""The option, the filters that a file has, damage, and what is kept decoded."""

import json
import os
import subprocess
import sys
import threading
import zlib
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import zstandard

import headrace
from headrace.errors import CorruptShardError, FormatError, UnreadableShardError, WriterError
from headrace.storage import decoded
from headrace.storage.compression import Compression, parse_compression
from headrace.storage.extents import NOT_FLAT
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.storage.hdf5_reader import LibraryReader
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import line_of, random_documents, small_corpus

TOKENS = np.random.default_rng(4).integers(0, 50, 1000).astype("<u2")


@pytest.fixture
def path(tmp_path):
    """Where the shard goes."""
    return tmp_path / "shard.h5"


@pytest.fixture(params=["gzip:4", "zstd:3"])
def compression(request):
    """Each of those that we write."""
    if request.param.startswith("zstd"):
        pytest.importorskip("hdf5plugin")
    return request.param


def shard(path, compression, *, chunk_size=100):
    """A shard of `TOKENS`."""
    with HDF5ShardWriter(path, chunk_size, vocab_size=50, compression=compression) as writer:
        writer.add_document(TOKENS)
    return path


# -- the option -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("none", "none"),
        ("gzip", "gzip:4"),
        ("gzip:0", "gzip:0"),
        ("gzip:9", "gzip:9"),
        ("zstd", "zstd:3"),
        ("zstd:1", "zstd:1"),
        ("zstd:22", "zstd:22"),
    ],
)
def test_names(path, text, name):
    """Each form of the option has one name, which is a form of its own, and the file says the same."""
    if text.startswith("zstd"):
        pytest.importorskip("hdf5plugin")
    assert str(parse_compression(text)) == name
    assert parse_compression(name) == parse_compression(text)
    assert inspect_shard(shard(path, text)).compression == name


def test_none_is_the_default(path):
    """Without the option nothing is compressed."""
    assert Compression() == parse_compression("none")
    with HDF5ShardWriter(path, 100) as writer:
        writer.add_document([1])
    assert inspect_shard(path).compression == "none"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gzip:",
        "gzip:10",
        "gzip:-1",
        "gzip:04",
        "gzip:4 ",
        "GZIP",
        "zstd:0",
        "zstd:23",
        "zstd:٣",
        "none:0",
        "lzf",
        ":4",
    ],
)
def test_no_compression(path, text):
    """Anything else is refused with the list of what there is, and no file is left."""
    with pytest.raises(WriterError, match=r"wanted none, gzip, gzip:0 to gzip:9, zstd, or zstd:1 to zstd:22"):
        HDF5ShardWriter(path, 100, compression=text)
    assert list(path.parent.iterdir()) == []


def test_filters_of_others(path):
    """Filters that we do not write are named, in the order of writing, and their tokens are served."""
    for number, (options, name) in enumerate(
        [
            ({"compression": "lzf"}, "lzf"),
            ({"compression": "gzip", "shuffle": True}, "shuffle+gzip:4"),
            ({"compression": "gzip", "compression_opts": 1, "fletcher32": True}, "gzip:1+fletcher32"),
            ({"scaleoffset": 0}, "scaleoffset"),
        ]
    ):
        file = path.with_name(f"{number}.h5")
        with h5py.File(file, "w") as foreign:
            foreign.create_dataset("tokens", data=TOKENS, chunks=(300,), **options)
        layout = inspect_shard(file)
        assert layout.compression == name
        assert len(layout.first) == 0
        np.testing.assert_array_equal(headrace.open(file)[:], TOKENS)


def test_a_filter_that_nobody_has(path):
    """The message names the filter, and what can be done."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((100,))
    properties.set_filter(32_999, h5py.h5z.FLAG_OPTIONAL, ())
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((100,))
        h5py.h5d.create(file.id, b"tokens", h5py.h5t.NATIVE_UINT16, space, properties)
    pytest.importorskip("hdf5plugin")
    with pytest.raises(FormatError, match=r"shard\.h5: .*HDF5 filter 32999.* neither HDF5 nor hdf5plugin"):
        headrace.open(path)


def test_a_compressed_corpus_is_smaller_and_has_the_same_fingerprint(tmp_path, compression):
    """Compression changes the files and nothing else: counts, hashes and fingerprint are those of the plain corpus."""
    shards = [[np.arange(3000) % 40] * 3, [], [np.ones(500, int)]]
    plain = small_corpus(tmp_path / "plain", shards, chunk_size=1000)
    small = small_corpus(tmp_path / "small", shards, chunk_size=1000, compression=compression)
    corpora = [headrace.open(folder) for folder in (plain, small)]
    assert corpora[0].fingerprint == corpora[1].fingerprint
    sizes = [Path(corpus.entries[0].path).stat().st_size for corpus in corpora]
    assert sizes[1] < sizes[0] - 10_000
    assert all(report.ok for report in corpora[1].verify())
    assert (
        json.loads((plain / "shards.json").read_text())["shards"]
        == (json.loads((small / "shards.json").read_text())["shards"])
    )
    assert corpora[1]._line.table.offset.tolist() == [int(NOT_FLAT)] * 2


# -- damage ---------------------------------------------------------------------------------------------------------------


def chunks_of(path):
    """Byte offset and size of each chunk."""
    found = []
    with h5py.File(path, "r") as file:
        file["tokens"].id.chunk_iter(lambda chunk: found.append((chunk.byte_offset, chunk.size)))
    return found


def test_each_flipped_byte_of_a_chunk(path, compression):
    """A flipped byte is an error that names file, chunk and tokens, or at least one for `verify`, and never a crash."""
    offset, size = chunks_of(shard(path, compression))[3]
    whole = path.read_bytes()
    named = 0
    for at in range(offset, offset + size):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        corpus = headrace.open(path)
        np.testing.assert_array_equal(corpus[:300], TOKENS[:300])
        try:
            corpus[350:360]
        except CorruptShardError as error:
            assert f"{path}: chunk 3, tokens [300, 400) of the shard, cannot be decoded" in str(error)  # noqa: PT017
            named += 1
        if compression.startswith("zstd") and at % 5 == 0:
            assert not corpus.verify()[0].ok
    # gzip has a checksum; zstd, as HDF5's filter writes it, has none.
    assert named == size if compression.startswith("gzip") else named > 3


@pytest.mark.parametrize("which", ["cut", "short", "long", "empty", "claims"])
def test_chunks_that_decode_to_something_else(path, compression, which):
    """A chunk that ends early, holds too few or too many tokens, or claims petabytes, is named, in little memory."""
    encode = zlib.compress if compression.startswith("gzip") else zstandard.compress
    data = {
        "cut": encode(TOKENS[:100].tobytes())[:-3],
        "short": encode(TOKENS[:99].tobytes()),
        "long": encode(bytes(30_000_000)),
        "empty": b"",
        "claims": b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + b"\1\0\0",
    }[which]
    shard(path, compression)
    with h5py.File(path, "r+") as file:
        file["tokens"].id.write_direct_chunk((500,), data or b"\0")
    corpus = headrace.open(path)
    with pytest.raises(CorruptShardError, match=r"shard\.h5: chunk 5, tokens \[500, 600\) of the shard"):
        corpus[599:610]
    np.testing.assert_array_equal(corpus[600:], TOKENS[600:])


def test_damage_that_only_hdf5_meets(path):
    """Where a filter of others finds it, the error names the file and the tokens that were asked for."""
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", data=TOKENS, chunks=(100,), shuffle=True, compression="gzip")
    corpus = headrace.open(path, verify="off")
    with path.open("r+b") as raw:
        raw.seek(chunks_of(path)[5][0] + 20)
        raw.write(b"damaged")
    with pytest.raises(CorruptShardError, match=r"shard\.h5: tokens \[540, 560\) of the shard: is damaged: HDF5 says"):
        corpus[540:560]


def test_a_file_that_is_cut_while_in_use(path, compression):
    """A read past the new end is an error that names the file."""
    reader = LibraryReader(shard(path, compression))
    reader.read(0, 10)
    os.truncate(path, chunks_of(path)[5][0] + 3)
    with pytest.raises(UnreadableShardError, match=r"shard\.h5: ends before byte"):
        reader.read(590, 610)
    reader.close()
    with pytest.raises(CorruptShardError, match=r"shard\.h5: is truncated"):
        reader.read(0, 10)


# -- what is kept -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """How often each chunk was decoded, by the number of its reader and its own."""
    counts = Counter()
    original = decoded.DecodedChunks._decoded

    def spy(self, number):
        counts[number] += 1
        return original(self, number)

    monkeypatch.setattr(decoded.DecodedChunks, "_decoded", spy)
    return counts


def test_windows_of_one_chunk_decode_it_once(path, compression, counted):
    """Many windows in two chunks decode each of them once, in whatever order and through whatever call."""
    corpus = headrace.open(shard(path, compression))
    corpus[0]  # the check at the first touch
    counted.clear()
    starts = np.random.default_rng(1).integers(300, 460, (10, 20))
    block, out = corpus.windows(starts, 30), np.empty((20, 30), np.int64)
    for row in range(10):
        block.gather_into(row, out)
        np.testing.assert_array_equal(out, TOKENS[starts[row][:, None] + np.arange(30)])
        corpus[310:490]
    assert counted == {3: 1, 4: 1}


def test_a_long_read_pushes_nothing_out(path, compression, counted, monkeypatch):
    """What windows use stays decoded while others read the whole line; the chunks of a long read are not kept."""
    monkeypatch.setattr(decoded._cache, "most", 800)  # four chunks
    corpus = headrace.open(shard(path, compression), verify="off")
    corpus[250:260]
    for _ in range(3):
        np.testing.assert_array_equal(corpus[:], TOKENS)
    corpus[250:260]
    assert counted[2] == 1
    assert counted[7] == 3


def test_what_is_kept_is_bounded(path, compression, counted, monkeypatch):
    """The chunk that was not used longest goes first."""
    monkeypatch.setattr(decoded._cache, "most", 1000)  # five chunks
    corpus = headrace.open(shard(path, compression), verify="off")
    for chunk in (0, 1, 2, 3, 4, 0, 5, 0, 1):
        corpus[chunk * 100]
    assert counted == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}
    assert sum(chunk.nbytes for chunk in decoded._cache._found.values()) <= 1000


def test_a_file_that_another_has_replaced(path, compression):
    """What was kept of the old file is not served for the new one."""
    reader = LibraryReader(shard(path, compression))
    assert reader.read(0, 3).tolist() == TOKENS[:3].tolist()
    with HDF5ShardWriter(path, 100, compression=compression) as writer:
        writer.add_document([7] * 1000)
    assert reader.read(0, 3).tolist() == TOKENS[:3].tolist()
    reader.close()
    assert reader.read(0, 3).tolist() == [7, 7, 7]


def test_descriptors_are_closed(path, compression):
    """A reader holds one descriptor, until it is closed or dropped."""
    shard(path, compression)

    def held():
        return [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()].count(str(path))

    readers = [LibraryReader(path) for _ in range(3)]
    for reader in readers:
        reader.read(0, 10)
    assert held() == 3
    readers[0].close()
    del reader, readers[1:]
    assert held() == 0


# -- processes ------------------------------------------------------------------------------------------------------------

PROCESSES = """
import multiprocessing, sys, threading
import numpy as np
import headrace

def read(corpus, wanted, seed, answers):
    random = np.random.default_rng(seed)
    starts = random.integers(0, len(wanted) - 50, (20, 8))
    block, out = corpus.windows(starts, 50), np.empty((8, 50), np.int64)
    for row in range(20):
        block.gather_into(row, out)
        assert np.array_equal(out, wanted[starts[row][:, None] + np.arange(50)])
    assert np.array_equal(corpus[:], wanted)
    if answers is not None:
        answers.put(seed)

if __name__ == "__main__":
    method, folder, workers = sys.argv[1], sys.argv[2], int(sys.argv[4])
    wanted = np.load(sys.argv[3])
    corpus = headrace.open(folder)
    read(corpus, wanted, 0, None)
    stop = threading.Event()
    def keep_reading():
        while not stop.is_set():
            read(corpus, wanted, 1, None)
    thread = threading.Thread(target=keep_reading)
    thread.start()
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=read, args=(corpus, wanted, seed, answers)) for seed in range(2, 2 + workers)]
    for child in children:
        child.start()
    seeds = sorted(answers.get(timeout=240) for _ in children)
    for child in children:
        child.join()
    stop.set()
    thread.join()
    read(corpus, wanted, 0, None)
    print(seeds, [child.exitcode for child in children])
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes(tmp_path, compression, method, workers):
    """Started in any way while the parent has read and still reads, workers serve what it serves, and nothing hangs."""
    shards = random_documents(6, (9, 4, 12))
    folder = small_corpus(tmp_path / "corpus", shards, chunk_size=64, compression=compression)
    np.save(tmp_path / "wanted.npy", line_of(shards)[0])
    (tmp_path / "main.py").write_text(PROCESSES)
    arguments = [sys.executable, tmp_path / "main.py", method, folder, tmp_path / "wanted.npy", str(workers)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=500)
    assert done.stdout == f"{list(range(2, 2 + workers))} {[0] * workers}\n", done.stderr


def test_threads_share_one_reader(path, compression):
    """Threads that read through one object, more chunks than are kept, all read right."""
    reader = LibraryReader(shard(path, compression, chunk_size=7))
    wrong = []

    def read(seed):
        random = np.random.default_rng(seed)
        for _ in range(300):
            start, stop = sorted(random.integers(0, 1001, 2).tolist())
            if reader.read(start, stop).tolist() != TOKENS[start:stop].tolist():
                wrong.append((start, stop))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- without hdf5plugin ---------------------------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["hdf5plugin"] = None  # as if it were not installed
from pathlib import Path
import headrace
from headrace.errors import MissingExtraError
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.storage.hdf5_writer import HDF5ShardWriter

folder = Path(sys.argv[1])
with HDF5ShardWriter(folder / "gzip.h5", 100, compression="gzip") as writer:
    writer.add_document(range(1000))
print(headrace.open(folder / "gzip.h5")[:].tolist() == list(range(1000)))
for call in (
    lambda: HDF5ShardWriter(folder / "new.h5", 100, compression="zstd:5"),
    lambda: print(headrace.open(folder / "zstd.h5")[:].tolist() == list(range(1000))),
    lambda: print(inspect_shard(folder / "shuffled.h5").compression),
    lambda: headrace.open(folder / "shuffled.h5")[:],
):
    try:
        call()
    except MissingExtraError as error:
        print(isinstance(error, ImportError), error)
print(sorted(path.name for path in folder.iterdir()))
"""


def test_without_hdf5plugin(tmp_path):
    """Without the extra, gzip works; zstd needs it to write, not to read; where HDF5 itself must decode, the error says so."""
    hdf5plugin = pytest.importorskip("hdf5plugin")
    with HDF5ShardWriter(tmp_path / "zstd.h5", 100, compression="zstd") as writer:
        writer.add_document(range(1000))
    with h5py.File(tmp_path / "shuffled.h5", "w") as file:
        data = np.arange(1000, dtype="<u2")
        tokens = file.create_dataset("tokens", data=data, chunks=(100,), shuffle=True, **hdf5plugin.Zstd(clevel=3))
        file["chunks/crc32"] = np.zeros(10, "<u4")
        tokens.attrs["token_count"] = 1000
    done = subprocess.run([sys.executable, "-c", WITHOUT, tmp_path], capture_output=True, text=True, check=True)
    extra = "needs hdf5plugin: pip install 'headrace[zstd]'"
    assert done.stdout.splitlines() == [
        "True",
        f"True compression 'zstd:5' is zstd, which {extra}",
        "True",
        "shuffle+zstd:3",
        f"True {tmp_path}/shuffled.h5: its tokens are compressed with zstd (HDF5 filter 32015), which {extra}",
        "['gzip.h5', 'shuffled.h5', 'zstd.h5']",
    ]
