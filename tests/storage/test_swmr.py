"""SWMR mode begins once, in files that can have it, after all is created: anything else is refused, as h5py does not."""

import h5py
import numpy as np
import pytest

from headrace.errors import WriterError
from headrace.storage.compression import Compression
from headrace.storage.hdf5_layout import create_shard_file
from headrace.storage.swmr import SwmrFile


@pytest.fixture
def path(tmp_path):
    """Where the file goes."""
    return tmp_path / "file.h5"


@pytest.fixture
def started(path):
    """A file in SWMR mode that holds a data set `old` and a group `folder`."""
    with h5py.File(path, "x", libver="latest") as raw:
        file = SwmrFile(raw)
        dataset = file.create_dataset("old", (0,), "<u2", maxshape=(None,), chunks=(4,))
        file.create_attribute(dataset, "count", np.uint64(0))
        file.create_group("folder")
        assert not file.started
        file.start()
        assert file.started
        yield file, raw


def test_what_was_created_before_is_written_and_read(started, path):
    """The right way: created, started, then grown and changed; a SWMR reader sees each flush."""
    file, raw = started
    with h5py.File(path, "r", libver="latest", swmr=True) as reader:
        for count in (4, 8):
            raw["old"].resize((count,))
            raw["old"][count - 4 :] = count
            raw["old"].attrs.modify("count", np.uint64(count))
            file.flush()
            reader["old"].refresh()
            assert reader["old"][:].tolist() == [4] * 4 + [8] * (count - 4)
            assert reader["old"].attrs["count"] == count


@pytest.mark.parametrize(
    ("create", "what"),
    [
        (lambda file, _: file.create_dataset("new", (0,), "<u2", maxshape=(None,), chunks=(4,)), "data set 'new'"),
        (lambda file, _: file.create_dataset("folder/new", (3,), "<u2"), "data set 'folder/new'"),
        (lambda file, _: file.create_group("new"), "group 'new'"),
        (lambda file, raw: file.create_attribute(raw["old"], "new", 1), "attribute 'new' of /old"),
        (lambda file, raw: file.create_attribute(raw["folder"], "new", 1), "attribute 'new' of /folder"),
    ],
)
def test_created_after_swmr_mode_began(started, path, create, what):
    """A data set, a group or an attribute is refused by name once SWMR mode has begun, and the file does not get it."""
    file, raw = started
    with pytest.raises(WriterError, match=rf"file\.h5: {what} would be created after SWMR mode began.* before start"):
        create(file, raw)
    file.close()
    with h5py.File(path, "r") as closed:
        names = []
        closed.visit(names.append)
        assert sorted(names) == ["folder", "old"]
        assert list(closed["old"].attrs) == ["count"]
        assert not closed["folder"].attrs


def test_swmr_mode_that_began_behind_the_guard(path):
    """What h5py itself was told counts as well."""
    with h5py.File(path, "x", libver="latest") as raw:
        file = SwmrFile(raw)
        raw.swmr_mode = True
        with pytest.raises(WriterError, match="after SWMR mode began"):
            file.create_group("new")
        with pytest.raises(WriterError, match="is in SWMR mode already"):
            SwmrFile(raw)


def test_starting_twice(started):
    """SWMR mode begins once."""
    file, _ = started
    with pytest.raises(WriterError, match="has begun already"):
        file.start()


@pytest.mark.parametrize("libver", [None, "earliest", ("earliest", "latest"), ("v108", "latest")])
def test_without_libver(path, libver):
    """A file whose layout may be older than SWMR is refused, and the message says what to write."""
    with h5py.File(path, "x", libver=libver) as raw, pytest.raises(WriterError, match='libver="latest"'):
        SwmrFile(raw)


@pytest.mark.parametrize("libver", ["latest", ("latest", "latest"), ("v110", "v110"), ("v110", "latest")])
def test_with_libver(path, libver):
    """Any bound from 1.10 on has SWMR."""
    with h5py.File(path, "x", libver=libver) as raw:
        SwmrFile(raw).start()
        assert raw.swmr_mode


def test_a_file_that_was_created_without_libver(path):
    """Opened again with `libver="latest"` it is still of the older layout: HDF5 refuses, and the message says why."""
    h5py.File(path, "x").close()
    with h5py.File(path, "r+", libver="latest") as raw:
        file = SwmrFile(raw)
        with pytest.raises(WriterError, match=r"SWMR mode cannot begin: .*create the file anew with libver"):
            file.start()
        assert not file.started
        file.create_group("still new")


def test_a_file_that_is_read_only(path):
    """What is open to read is not written."""
    h5py.File(path, "x", libver="latest").close()
    with h5py.File(path, "r", libver="latest") as raw, pytest.raises(WriterError, match="read-only"):
        SwmrFile(raw)


def test_a_closed_file(path):
    """There is nothing to guard."""
    raw = h5py.File(path, "x", libver="latest")
    raw.close()
    with pytest.raises(WriterError, match="closed"):
        SwmrFile(raw)


def test_an_open_attribute(path):
    """HDF5 begins no SWMR mode while an attribute is open."""
    with h5py.File(path, "x", libver="latest") as raw:
        file = SwmrFile(raw)
        dataset = file.create_dataset("d", (0,), "<u2", maxshape=(None,), chunks=(4,))
        file.create_attribute(dataset, "a", 1)
        held = h5py.h5a.open(dataset.id, b"a")
        with pytest.raises(WriterError, match="close all attributes first"):
            file.start()
        del held
        file.start()


def test_our_own_shards_are_guarded(path):
    """The file of a shard under way takes no more objects, whoever asks."""
    shard = create_shard_file(
        path,
        chunk_size=4,
        dataset_name="tokens",
        dtype=np.dtype("<u2"),
        compression=Compression(),
        vocab_size=10,
        boundary_token_id=0,
        tokenizer_sha256="",
        source_files=(),
    )
    with pytest.raises(WriterError, match="after SWMR mode began"):
        shard.file.create_group("late")
    shard.file.close()
