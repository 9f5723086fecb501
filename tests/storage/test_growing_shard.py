"""A shard while it is written, as others see it: through bare h5py, and through readers of finished shards."""

import hashlib
import subprocess
import sys
import time
from itertools import pairwise

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, FormatError, UnreadableShardError
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.storage.hdf5_open import open_file, open_shard
from headrace.storage.hdf5_writer import HDF5ShardWriter

CHUNK = 100

READER = """
import sys, time
import h5py, numpy as np
from pathlib import Path

path = Path(sys.argv[1])
deadline = time.monotonic() + 60
while not path.exists():
    assert time.monotonic() < deadline
print("found", flush=True)
with h5py.File(path, "r", libver="latest", swmr=True) as file:
    tokens, ends, crcs = file["tokens"], file["documents/end"], file["chunks/crc32"]
    seen = set()
    while time.monotonic() < deadline:
        count, documents, digest = (tokens.attrs[name] for name in ("token_count", "document_count", "sha256"))
        for dataset in (tokens, ends, crcs):
            dataset.refresh()
        count, documents = int(count), int(documents)
        final = digest != b"0" * 64
        assert final or count % 100 == 0, count
        assert len(tokens) >= count and len(ends) >= documents and len(crcs) >= -(-count // 100)
        served = tokens[:count]
        assert np.array_equal(served, np.arange(count) % 997), count
        stops = ends[:documents]
        assert (np.diff(stops.astype(int), prepend=0) == 30).all() and (not documents or stops[-1] <= count)
        seen.add(count)
        if final:
            break
    print(count, documents, len(seen), flush=True)
"""


def test_another_process_follows_the_growth(tmp_path):
    """A bare SWMR reader in another process sees only whole chunks of right tokens and whole documents, then the end."""
    path = tmp_path / "shard.h5"
    reader = subprocess.Popen([sys.executable, "-c", READER, path], stdout=subprocess.PIPE, text=True)
    with reader, HDF5ShardWriter(path, CHUNK, vocab_size=997) as writer:
        assert reader.stdout.readline() == "found\n"
        for start in range(0, 30_000, 30):
            writer.add_document(np.arange(start, start + 30) % 997)
            time.sleep(0.001)
        writer.close()
        tokens, documents, seen = map(int, reader.stdout.read().split())
    assert reader.returncode == 0
    assert (tokens, documents) == (30_000, 1000)
    assert seen > 2


def test_growth_is_by_whole_chunks(tmp_path):
    """After each call the file holds every full chunk, and never a part of one; counts cover what is there."""
    path = tmp_path / "shard.h5"
    writer = HDF5ShardWriter(path, CHUNK, vocab_size=997).__enter__()
    taken = 0
    for size in (1, 98, 1, 250, 49, 1):
        writer.add_document(np.arange(taken, taken + size) % 997)
        taken += size
        whole = taken // CHUNK * CHUNK
        with open_file(path, growing=True) as file:
            tokens = file["tokens"]
            assert tokens.shape == (whole,)
            assert tokens.attrs["token_count"] == whole
            assert tokens.attrs["sha256"] == b"0" * 64
            assert np.array_equal(tokens[:], np.arange(whole) % 997)
            ends = file["documents/end"][:]
            assert len(ends) == tokens.attrs["document_count"]
            assert not len(ends) or ends[-1] < whole
        assert writer.token_count == taken
    writer.close()
    with open_shard(path) as file:
        assert file["tokens"].shape == (400,)


def test_a_growing_shard_is_refused(tmp_path):
    """To readers of finished shards a growing one is no corpus, in the writer's own process and in another."""
    path = tmp_path / "shard.h5"
    code = "import sys, headrace\ntry: headrace.open(sys.argv[1])\nexcept headrace.errors.CorruptShardError as error: print(error)"
    with HDF5ShardWriter(path, CHUNK) as writer:
        writer.add_document(np.ones(250, int))
        with pytest.raises((CorruptShardError, UnreadableShardError), match=r"shard\.h5"):
            headrace.open(path)
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
        assert f"{path}: its writer never closed it" in done.stdout
    assert len(headrace.open(path)) == 250


def test_a_killed_writer_leaves_what_was_flushed(tmp_path):
    """After SIGKILL the shard is refused as unfinished; who asks for it as growing gets the whole chunks."""
    path = tmp_path / "shard.h5"
    code = (
        "import os, sys, signal\nfrom headrace.storage.hdf5_writer import HDF5ShardWriter\n"
        "writer = HDF5ShardWriter(sys.argv[1], 100).__enter__()\nwriter.add_document([5] * 1234)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    with pytest.raises(CorruptShardError, match=r"shard\.h5: its writer never closed it"):
        headrace.open(path)
    with open_shard(path, growing=True) as file:
        assert file["tokens"][: file["tokens"].attrs["token_count"]].tolist() == [5] * 1200
    with HDF5ShardWriter(path, CHUNK) as writer:
        writer.add_document([1])
    assert headrace.open(path)[:].tolist() == [1]


@pytest.mark.parametrize(
    "flags", [{}, {"swmr": True}, {"locking": True}, {"locking": "best-effort"}, {"libver": "latest"}]
)
def test_a_file_that_this_process_holds_open_already(tmp_path, flags):
    """Handles of one process must agree on their flags, so ours take those of the handle that is there."""
    path = tmp_path / "shard.h5"
    with HDF5ShardWriter(path, CHUNK) as writer:
        writer.add_document(np.arange(250))
    with h5py.File(path, "r", **flags):
        corpus = headrace.open(path)
        assert corpus[:].tolist() == list(range(250))
        assert len(corpus.documents) == 1


def test_bytes_do_not_depend_on_where_and_when(tmp_path):
    """Neither the clock, the folder, the file's name nor the process decides a byte of a shard."""
    code = (
        "import sys, time\nfrom headrace.storage.hdf5_writer import HDF5ShardWriter\n"
        "with HDF5ShardWriter(sys.argv[1], 100) as writer:\n"
        "    for size in range(1, 60):\n        writer.add_document([7] * size); time.sleep(float(sys.argv[2]))"
    )
    paths = [tmp_path / "a.h5", tmp_path / "folder" / "of a longer name.partial"]
    paths[1].parent.mkdir()
    for path, pause in zip(paths, ("0", "0.02"), strict=True):
        subprocess.run([sys.executable, "-c", code, path, pause], check=True)
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    assert first == second


def test_token_count_is_the_truth(tmp_path):
    """What lies beyond `token_count` is padding: not served, not hashed, not in the extents."""
    path = tmp_path / "shard.h5"
    with HDF5ShardWriter(path, CHUNK, vocab_size=997) as writer:
        writer.add_document(np.arange(1, 251))
    with h5py.File(path, "r+") as file:
        file["tokens"].resize((1000,))
        file["tokens"][250:] = 996
    corpus = headrace.open(path)
    assert corpus[:].tolist() == list(range(1, 251))
    assert corpus.verify()[0].ok
    layout = inspect_shard(path)
    assert all(after > before for before, after in pairwise([*layout.first.tolist(), 250]))


def test_a_later_format_version_is_refused(tmp_path):
    """A shard of a version to come is not guessed at."""
    path = tmp_path / "shard.h5"
    with HDF5ShardWriter(path, CHUNK) as writer:
        writer.add_document([1])
    with h5py.File(path, "r+") as file:
        file["tokens"].attrs.modify("format_version", np.uint64(3))
    with pytest.raises(FormatError, match="format version 3"):
        headrace.open(path)
