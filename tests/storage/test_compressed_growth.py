"""A compressed shard while it is written, as bare h5py in another process sees it."""

import subprocess
import sys

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError
from headrace.storage.hdf5_writer import HDF5ShardWriter

CHUNK = 100

READER = """
import sys, time
import h5py, numpy as np
from pathlib import Path

path, plugin = Path(sys.argv[1]), sys.argv[2] == "zstd"
if plugin:
    import hdf5plugin
deadline = time.monotonic() + 240
while not path.exists():
    assert time.monotonic() < deadline
print("found", flush=True)
seen = 0
while time.monotonic() < deadline:
    # Opened anew each time: whenever a reader comes, the file opens.
    with h5py.File(path, "r", swmr=True) as file:
        tokens = file["tokens"]
        for _ in range(5):
            count, digest = int(tokens.attrs["token_count"]), tokens.attrs["sha256"]
            tokens.refresh()
            final = digest != b"0" * 64
            assert len(tokens) >= count and (len(tokens) % 100 == 0 or len(tokens) == 30_030), len(tokens)
            assert final or count % 100 == 0, count
            served = tokens[:count]
            assert np.array_equal(served, np.arange(count) % 997), count
            if count > seen or final:
                print(count, flush=True)
            seen = count
            if final:
                sys.exit()
"""


@pytest.fixture(params=["gzip", "zstd"])
def compression(request):
    """Each of them."""
    if request.param == "zstd":
        pytest.importorskip("hdf5plugin")
    return request.param


def test_another_process_follows_the_growth(tmp_path, compression):
    """A bare SWMR reader, whenever it opens, sees only whole chunks of final values, then the end."""
    path = tmp_path / "shard.h5"
    arguments = [sys.executable, "-c", READER, path, compression]
    reader = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    with reader, HDF5ShardWriter(path, CHUNK, vocab_size=997, compression=compression) as writer:
        assert reader.stdout.readline() == "found\n"
        for start in range(0, 30_030, 30):
            writer.add_document(np.arange(start, start + 30) % 997)
            if start % 3000 == 2970:
                while int(reader.stdout.readline()) < start + 30:  # it sees all whole chunks before there are more
                    pass
        writer.close()
        tokens = reader.stdout.read().split()[-1]
    assert reader.returncode == 0
    assert tokens == "30030"


def test_each_flush_shows_whole_chunks(tmp_path, compression):
    """After each call a SWMR reader finds every full chunk decoded right, and never a part of one."""
    path = tmp_path / "shard.h5"
    writer = HDF5ShardWriter(path, CHUNK, vocab_size=997, compression=compression).__enter__()
    taken = 0
    for size in (1, 98, 1, 250, 49, 1, 1000):
        writer.add_document(np.arange(taken, taken + size) % 997)
        taken += size
        whole = taken // CHUNK * CHUNK
        with h5py.File(path, "r", libver="latest", swmr=True, locking=False) as file:
            assert file["tokens"].shape == (whole,)
            assert file["tokens"].attrs["token_count"] == whole
            assert np.array_equal(file["tokens"][:], np.arange(whole) % 997)
    writer.close()
    assert np.array_equal(headrace.open(path)[:], np.arange(taken) % 997)


def test_a_killed_writer_leaves_what_was_flushed(tmp_path, compression):
    """After SIGKILL the shard is refused as unfinished; who asks for it as growing decodes the whole chunks."""
    path = tmp_path / "shard.h5"
    code = (
        "import os, sys, signal\nfrom headrace.storage.hdf5_writer import HDF5ShardWriter\n"
        "writer = HDF5ShardWriter(sys.argv[1], 100, compression=sys.argv[2]).__enter__()\n"
        "writer.add_document([5] * 1234)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, path, compression], check=False).returncode == -9
    with pytest.raises(CorruptShardError, match=r"shard\.h5: its writer never closed it"):
        headrace.open(path)
    with h5py.File(path, "r", libver="latest", swmr=True, locking=False) as file:
        assert file["tokens"][: file["tokens"].attrs["token_count"]].tolist() == [5] * 1200


def test_the_last_chunk_is_padded_with_zeros(tmp_path, compression):
    """What the last chunk holds beyond `token_count` is the same whatever was written before: zeros."""
    path = tmp_path / "shard.h5"
    with HDF5ShardWriter(path, CHUNK, vocab_size=997, compression=compression) as writer:
        writer.add_document(np.arange(1, 251))
    with h5py.File(path, "r+") as file:
        file["tokens"].resize((300,))
        assert file["tokens"][:].tolist() == [*range(1, 251), *[0] * 50]
    assert headrace.open(path)[:].tolist() == list(range(1, 251))
