"""The extents sidecar: used where it is right, ignored where it is not, and never a way to wrong tokens."""

import os
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import CorruptShardError, HeadraceError
from headrace.manifest import read_manifest
from headrace.storage import hdf5_corpus
from headrace.storage.extents import NOT_FLAT, ExtentTable, ShardExtents
from headrace.storage.hdf5_corpus import SIDECAR, load_table
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing.corpora import line_of, random_documents, small_corpus

SHARDS = random_documents(3, (30, 30, 30))
TOKENS = line_of(SHARDS)[0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus of three shards in many chunks, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return small_corpus(tmp_path / "corpus", SHARDS, chunk_size=16)


@pytest.fixture
def derivations(monkeypatch):
    """The paths of the shards whose layout was read from the file itself."""
    paths = []

    def spy(path, entry):
        paths.append(path)
        return original(path, entry)

    original = hdf5_corpus.checked_layout
    monkeypatch.setattr(hdf5_corpus, "checked_layout", spy)
    return paths


def serves_right(folder, **options):
    """Whether the corpus opens and every token of it is right."""
    corpus = headrace.open(folder, **options)
    np.testing.assert_array_equal(corpus[:], TOKENS)
    return True


def test_a_sidecar_makes_derivation_unnecessary(folder, derivations):
    """With the sidecar a build leaves, no shard is inspected."""
    assert serves_right(folder)
    assert derivations == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:0],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"\0",
        lambda data: b"x" + data[1:],
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: data[:200] + bytes([data[200] ^ 128]) + data[201:],
        lambda data: bytes(len(data)),
        lambda data: data[:64] + (1 << 60).to_bytes(8, "little") + data[72:],
    ],
)
def test_a_damaged_sidecar_is_ignored(folder, derivations, damage):
    """Empty, cut, longer, flipped or zeroed: the extents are derived again, and kept in the user's cache."""
    sidecar = folder / SIDECAR
    sidecar.write_bytes(damage(sidecar.read_bytes()))
    before = sidecar.read_bytes()
    assert serves_right(folder)
    assert len(derivations) == 3
    assert sidecar.read_bytes() == before
    assert serves_right(folder)
    assert len(derivations) == 3


def test_the_sidecar_of_another_corpus_is_ignored(folder, tmp_path, derivations):
    """A sidecar is bound to the fingerprint."""
    other = small_corpus(tmp_path / "other", random_documents(4, (30, 30, 30)), chunk_size=16)
    shutil.copy(other / SIDECAR, folder / SIDECAR)
    assert serves_right(folder)
    assert len(derivations) == 3


def test_a_stale_sidecar_does_not_hide_the_cache(folder, derivations):
    """Shards rewritten with another layout are derived once, not at every opening."""
    table = load_table(folder / SIDECAR, read_manifest(folder).fingerprint.hex)
    rows = table.shards.copy()
    rows["file_size"] += 1
    stale = ExtentTable(
        shards=rows, first=table.first, offset=table.offset, shard=table.shard, token_count=table.token_count
    )
    (folder / SIDECAR).write_bytes(stale.to_bytes(read_manifest(folder).fingerprint.hex))
    assert serves_right(folder)
    assert serves_right(folder)
    assert len(derivations) == 3


@pytest.mark.parametrize("cache", ["", "relative/cache", "/proc/no/such/cache"])
def test_without_a_cache_folder(folder, monkeypatch, cache):
    """No home, a relative cache folder, one that cannot be written: the corpus opens, and nothing appears beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", "")
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / ".headrace")
    names = sorted(folder.iterdir())
    assert serves_right(folder)
    assert sorted(folder.iterdir()) == names


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_swapped_shards_are_refused(tmp_path, io):
    """Two shards of equal size that changed their names are found at the first touch."""
    shards = [[[1] * 99], [[2] * 99], [[3] * 99]]
    folder = small_corpus(tmp_path, shards, chunk_size=16)
    first, second, _ = sorted(folder.glob("*.h5"))
    first.rename(folder / "swap")
    second.rename(first)
    (folder / "swap").rename(second)
    corpus = headrace.open(folder, io=io)
    assert corpus[200:300].tolist() == line_of(shards)[0][200:300].tolist()
    for place, path in ((0, first), (150, second)):
        with pytest.raises(CorruptShardError, match=path.name):
            corpus[place]
        with pytest.raises(CorruptShardError, match=path.name):
            corpus.windows(np.array([[place]]), 5).gather_into(0, np.empty((1, 5), np.int64))
    assert [report.status for report in corpus.verify()] == ["corrupt", "corrupt", "ok"]


def test_a_shard_replaced_by_one_of_equal_size(tmp_path):
    """Other tokens, same size, same place of the digest: refused by name, with the sidecar and without."""
    folder = small_corpus(tmp_path / "a", [[[1] * 99], [[2] * 99]], chunk_size=16)
    other = small_corpus(tmp_path / "b", [[[9] * 99], [[2] * 99]], chunk_size=16)
    name = "000000-0000-0000.h5"
    assert (folder / name).stat().st_size == (other / name).stat().st_size
    shutil.copy(other / name, folder / name)
    with pytest.raises(CorruptShardError, match=name):
        headrace.open(folder)[:50]
    (folder / SIDECAR).unlink()
    with pytest.raises(CorruptShardError, match=name):
        headrace.open(folder)


def test_a_shard_replaced_while_it_is_not_open(folder):
    """A file that takes the name of a shard whose map was dropped is checked like a new one."""
    corpus = headrace.open(folder)
    serves_right(folder)
    assert corpus[:10].tolist() == TOKENS[:10].tolist()
    corpus.close()
    path = Path(corpus.entries[0].path)
    data = bytearray(path.read_bytes())
    data[inspect_shard(path).offset[0]] ^= 1
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").replace(path)
    with pytest.raises(CorruptShardError, match=path.name):
        corpus[:10]


def test_an_equal_rewrite_with_another_layout_is_not_garbage(tmp_path):
    """The same documents written with another chunk size have the same fingerprint, but not the same extents."""
    folder = small_corpus(tmp_path / "a", SHARDS, chunk_size=16)
    other = small_corpus(tmp_path / "b", SHARDS, chunk_size=17)
    for path in other.glob("*.h5"):
        shutil.copy(path, folder / path.name)
    assert serves_right(folder)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("place", ["first", "last", "digest"])
def test_a_flipped_byte_where_the_first_touch_looks(folder, place, io):
    """A bit of the first chunk, of the last, or of the stored digest: the first read of the shard names the file."""
    path = sorted(folder.glob("*.h5"))[1]
    layout = inspect_shard(path)
    last = int(layout.offset[-1]) + (layout.token_count - 1 - int(layout.first[-1])) * 2
    at = {"first": int(layout.offset[0]), "last": last, "digest": layout.digest_offset}[place]
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    corpus = headrace.open(folder, io=io)
    start = corpus.entries[1].global_start
    assert corpus[start - 1] == TOKENS[start - 1]
    with pytest.raises(CorruptShardError, match=path.name):
        corpus[start + 40]


@pytest.mark.parametrize(
    "change", [lambda size: size - 1, lambda size: size + 1, lambda size: size // 2, lambda size: 0 * size]
)
def test_a_shard_of_another_size(folder, change):
    """A cut shard is refused, never mapped; one with bytes behind its end serves what it holds."""
    path = sorted(folder.glob("*.h5"))[1]
    size = path.stat().st_size
    os.truncate(path, change(size))
    if change(size) > size:
        assert serves_right(folder)
        return
    with pytest.raises(HeadraceError, match=path.name):
        headrace.open(folder)


def test_a_shard_cut_after_opening(folder):
    """A shard that is cut between opening and first touch is refused by size."""
    corpus = headrace.open(folder)
    path = Path(corpus.entries[2].path)
    os.truncate(path, path.stat().st_size - 4096)
    with pytest.raises(CorruptShardError, match=rf"{path.name}: wanted \d+ bytes, found \d+"):
        corpus[len(corpus) - 1]
    assert corpus[0] == TOKENS[0]


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_damage_of_the_sidecar_is_seen(folder, data):
    """Whatever bytes are changed, the sidecar reads as none, or as the same table."""
    fingerprint = read_manifest(folder).fingerprint.hex
    good = (folder / SIDECAR).read_bytes()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    table = ExtentTable.from_bytes(memoryview(bytes(bad)), fingerprint)
    assert table is None or table.to_bytes(fingerprint) == good


EXTENTS = st.lists(
    st.tuples(st.integers(1, 1 << 40), st.integers(0, (1 << 63) - 1)),
    max_size=5,
)


@settings(max_examples=100, deadline=None)
@given(shards=st.lists(st.tuples(st.booleans(), EXTENTS), max_size=6))
def test_a_table_survives_its_bytes(shards):
    """Any mixture of flat, empty and library-read shards comes back as it was, all positions 64-bit and increasing."""
    given_shards = []
    for number, (flat, extents) in enumerate(shards):
        counts = np.array([count for count, _ in extents], dtype=np.uint64)
        count = int(counts.sum())
        first = np.cumsum(counts) - counts if flat else np.empty(0, np.uint64)
        offset = np.array([at for _, at in extents] if flat else [], dtype=np.uint64)
        given_shards.append(
            ShardExtents(
                token_count=count,
                file_size=number,
                digest_offset=7,
                chunk_size=3,
                first_crc=zlib.crc32(b"a"),
                last_crc=5,
                first=first.astype(np.uint64),
                offset=offset,
            )
        )
    table = ExtentTable.build(given_shards)
    fingerprint = "ab" * 32
    again = ExtentTable.from_bytes(memoryview(table.to_bytes(fingerprint)), fingerprint)
    for name in ("shards", "first", "offset", "shard", "token_count"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    assert table.token_count == sum(shard.token_count for shard in given_shards)
    assert bool((table.first[1:] > table.first[:-1]).all())
    unflat = [shard for shard in given_shards if shard.token_count and not len(shard.first)]
    assert int((table.offset == NOT_FLAT).sum()) == len(unflat)
    assert ExtentTable.from_bytes(memoryview(table.to_bytes(fingerprint)), "cd" * 32) is None
