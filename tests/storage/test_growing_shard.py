"""A shard while it is written, as others see it: through bare h5py, and through readers of finished shards."""

import hashlib
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, FormatError, UnreadableShardError
from headrace.storage.growing import GrowingShard
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.storage.hdf5_open import open_shard
from headrace.storage.hdf5_writer import HDF5ShardWriter

CHUNK = 100

FOLLOW = """
import sys, time
import h5py, numpy as np
from pathlib import Path

path, chunk = Path(sys.argv[1]), int(sys.argv[2])
deadline = time.monotonic() + 240

def look(file, seen):
    # What a reader may rely on: counts first, then a refresh, then what they count.
    tokens, ends, crcs = file["tokens"], file["documents/end"], file["chunks/crc32"]
    tokens.refresh()
    count, documents, digest = (tokens.attrs[name] for name in ("token_count", "document_count", "sha256"))
    for dataset in (tokens, ends, crcs):
        dataset.refresh()
    count, documents, final = int(count), int(documents), digest != b"0" * 64
    assert final or count % chunk == 0, count
    assert count <= len(tokens) and documents <= len(ends) and -(-count // chunk) <= len(crcs)
    served = tokens[:count]
    assert count >= len(seen) and np.array_equal(served[:len(seen)], seen), (len(seen), count)
    stops = ends[:documents].astype(int)
    assert (np.diff(stops, prepend=0) > 0).all() and (not documents or stops[-1] <= count)
    return final, served
"""

FOLLOW_ONE = (
    FOLLOW
    + """
while not path.exists():
    assert time.monotonic() < deadline
print("found", flush=True)
with h5py.File(path, "r", swmr=True) as file:
    seen, final = np.empty(0, int), False
    while not final and time.monotonic() < deadline:
        length, before = len(file["tokens"]), len(seen)
        final, seen = look(file, seen)
        assert final or length % chunk == 0
        if len(seen) > before:
            print(len(seen), flush=True)
assert final and np.array_equal(seen, np.arange(len(seen)) % 997)
"""
)

OPEN_AGAIN_AND_AGAIN = (
    FOLLOW
    + """
opened, name, seen = 0, None, np.empty(0, int)
growing, wanted, enough = 0, int(sys.argv[4]), Path(sys.argv[5])
while not Path(sys.argv[3]).exists():
    assert time.monotonic() < deadline
    found = [path] if path.suffix else list(path.glob(".*.partial"))
    if not found or found[0] != name:  # another shard
        seen = np.empty(0, int)
    try:
        name = found[0] if found else None
        with h5py.File(name or path / "no.h5", "r", swmr=True) as file:
            if len(sys.argv) > 6:  # each file of this name is another one
                seen = np.empty(0, int)
            final, seen = look(file, seen)
            growing += not final
            opened += 1
        if growing > wanted and opened > 5 * wanted:
            enough.touch()
    except OSError as error:
        # The name was not there, or went while HDF5 opened it: it looks the name up again once it has the file.
        gone = "can't retrieve stat info", "can't retrieve real path"
        assert isinstance(error, FileNotFoundError) or any(words in str(error) for words in gone), error
print(opened, growing, flush=True)
"""
)


@contextmanager
def follow(code, *arguments):
    """A process that reads along, with nothing but h5py as it comes."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(reader):
    """What it says at its end."""
    out, err = reader.communicate()
    assert reader.returncode == 0, err
    return [int(word) for word in out.split()]


def test_another_process_follows_the_growth(tmp_path):
    """A bare SWMR reader in another process sees only whole chunks of right tokens and whole documents, then the end."""
    path = tmp_path / "shard.h5"
    with follow(FOLLOW_ONE, path, CHUNK) as reader, HDF5ShardWriter(path, CHUNK, vocab_size=997) as writer:
        assert reader.stdout.readline() == "found\n"
        for start in range(0, 30_000, 30):
            writer.add_document(np.arange(start, start + 30) % 997)
            if start % 3000 == 2970:
                while int(reader.stdout.readline()) < start + 30:  # it sees all whole chunks before there are more
                    pass
        writer.add_document(np.arange(30_000, 30_045) % 997)
        writer.close()
        *_, tokens = told(reader)
    assert tokens == 30_045


def test_opening_at_any_moment(tmp_path):
    """However often others open the name while a writer appears there, grows and closes, they meet a file to read."""
    path, end, enough = tmp_path / "shard.h5", tmp_path / "end", tmp_path / "enough"
    with follow(OPEN_AGAIN_AND_AGAIN, path, CHUNK, end, 20, enough, "each anew") as reader:
        count = 0
        while count < 60 or not enough.exists():
            assert reader.poll() is None, reader.stderr.read()
            with HDF5ShardWriter(path, CHUNK, vocab_size=997) as writer:
                for start in range(0, 100 * (count % 30), 30):
                    writer.add_document(np.arange(start, start + 30) % 997)
            count += 1
        end.touch()
        opened, growing = told(reader)
    assert opened > 100
    assert growing > 20


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_shards_of_a_build(tmp_path, compression):
    """The same of the files that a build writes, under the names that they have until they are whole."""
    source, corpus, end, enough = (tmp_path / name for name in ("a.jsonl", "corpus", "end", "enough"))
    with source.open("w") as file:
        for number in range(20_000):
            file.write(f'{{"text": "{chr(97 + number % 26) * (number % 200)}"}}\n')
    corpus.mkdir()
    build = [sys.executable, "-P", "-m", "headrace", "build", source, "-o", corpus, "--chunk-tokens", "500"]
    options = ["--shard-tokens", "400000", "--workers", "1", "--compression", compression]
    with follow(OPEN_AGAIN_AND_AGAIN, corpus, 500, end, 5, enough) as reader:
        while True:
            done = subprocess.run([*build, *options], check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert reader.poll() is None, reader.stderr.read()
            if enough.exists():
                break
            for path in corpus.iterdir():  # it was over before anybody had looked: once more
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        end.touch()
        opened, growing = told(reader)
    assert len(headrace.open(corpus).entries) > 3
    assert growing > 5
    assert opened >= growing


def test_growth_is_by_whole_chunks(tmp_path):
    """After each call the file holds every full chunk, and never a part of one; counts cover what is there."""
    path = tmp_path / "shard.h5"
    writer = HDF5ShardWriter(path, CHUNK, vocab_size=997).__enter__()
    taken = 0
    for size in (1, 98, 1, 250, 49, 1):
        writer.add_document(np.arange(taken, taken + size) % 997)
        taken += size
        whole = taken // CHUNK * CHUNK
        with h5py.File(path, "r", libver="latest", swmr=True, locking=False) as file:
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
    with h5py.File(path, "r", libver="latest", swmr=True, locking=False) as file:
        assert file["tokens"][: file["tokens"].attrs["token_count"]].tolist() == [5] * 1200
    with HDF5ShardWriter(path, CHUNK) as writer:
        writer.add_document([1])
    assert headrace.open(path)[:].tolist() == [1]


@pytest.mark.parametrize(
    "block", [b"OHDR", b"EAHD", *(pytest.param(name, marks=pytest.mark.extended) for name in (b"EAIB", b"EADB"))]
)
def test_a_damaged_growing_file_ends_in_an_error(tmp_path, block):
    """Where what HDF5 keeps for itself is damaged, it alone would wait for the writer to make it whole, for ever."""
    path = tmp_path / "shard.h5"
    code = (
        "import os, sys, signal\nfrom headrace.storage.hdf5_writer import HDF5ShardWriter\n"
        "writer = HDF5ShardWriter(sys.argv[1], 8).__enter__()\n"
        "for _ in range(2000): writer.add_document([5] * 10); writer.add_boundary()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    whole = GrowingShard(path, "000000-0000-0000")
    tokens = whole.read(0, whole.token_count)
    data = path.read_bytes()
    places = [found.start() for found in re.finditer(block, data)]
    assert places
    for place in places[:: max(len(places) // 2, 1)]:
        damaged = tmp_path / f"{place}.h5"
        damaged.write_bytes(data[: place + 9] + bytes([data[place + 9] ^ 1]) + data[place + 10 :])
        begun = time.monotonic()
        try:
            shard = GrowingShard(damaged, "000000-0000-0000")
            assert np.array_equal(shard.read(0, shard.token_count), tokens)
            shard.documents(shard.document_count)
        except (CorruptShardError, UnreadableShardError) as error:
            assert str(damaged) in str(error)  # noqa: PT017  # it may also be whole as far as it is read
        assert time.monotonic() - begun < 120


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
