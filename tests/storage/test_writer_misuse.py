"""Calls that would lose, wrap or blur something are refused, and leave no file that passes for a whole one."""

import resource
import subprocess
import sys

import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, HeadraceError, TokenIdError, WriterError
from headrace.storage.hdf5_writer import HDF5ShardWriter


@pytest.fixture
def path(tmp_path):
    """Where the shard goes."""
    return tmp_path / "shard.h5"


@pytest.mark.parametrize("vocab_size", [257, 65_540])
@pytest.mark.parametrize(
    "ids",
    [[1, 65_540], [-1], [0, 1 << 40], [1 << 70], [1.0], [True], ["1"], [[1, 2]], 7, np.array([70_000], np.uint64)],
)
def test_ids_outside_the_vocabulary(path, ids, vocab_size):
    """An id that is no integer of the vocabulary is an error, and nothing of its document is written."""
    with HDF5ShardWriter(path, 4, vocab_size=vocab_size) as writer:
        writer.add_document([1, 2])
        with pytest.raises(TokenIdError):
            writer.add_document(ids)
        with pytest.raises(TokenIdError):
            writer.add_documents(ids, [1])
        writer.add_document([3])
    assert headrace.open(path)[:].tolist() == [1, 2, 3]
    assert [document.tolist() for document in headrace.open(path).documents] == [[1, 2], [3]]


@pytest.mark.parametrize("highest", [(65_536, 65_536), (65_537, 65_537), (50_257, 65_535)])
def test_nothing_wraps_at_the_edge_of_the_dtype(path, highest):
    """The first id beyond the vocabulary is refused although the dtype could hold it, and though it could not."""
    vocab_size, bad = highest
    with HDF5ShardWriter(path, 4, vocab_size=vocab_size) as writer:
        with pytest.raises(TokenIdError, match=str(bad)):
            writer.add_document([0, bad])
        writer.add_document([vocab_size - 1])
    assert headrace.open(path)[:].tolist() == [vocab_size - 1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"chunk_size": 0}, WriterError),
        ({"chunk_size": -4}, WriterError),
        ({"chunk_size": 2.5}, WriterError),
        ({"chunk_size": 1 << 31}, WriterError),
        ({"flush_chunks": 0}, WriterError),
        ({"dataset_name": ""}, WriterError),
        ({"dataset_name": "."}, WriterError),
        ({"dataset_name": "documents"}, WriterError),
        ({"dataset_name": "a/b"}, WriterError),
        ({"vocab_size": 0}, ValueError),
        ({"vocab_size": (1 << 32) + 1}, ValueError),
        ({"boundary_token_id": 65_536}, TokenIdError),
        ({"boundary_token_id": -1}, TokenIdError),
        ({"tokenizer_sha256": "abc"}, WriterError),
        ({"tokenizer_sha256": "A" * 64}, WriterError),
        ({"source_files": [""]}, WriterError),
        ({"source_files": ["a\0b"]}, WriterError),
    ],
)
def test_arguments(path, arguments, error):
    """Arguments that no shard can have are refused, and no file is left."""
    with pytest.raises(error), HDF5ShardWriter(path, **({"chunk_size": 4} | arguments)):
        pass
    assert list(path.parent.iterdir()) == []


def test_numpy_integers_are_integers(path):
    """Counts may come out of numpy."""
    with HDF5ShardWriter(path, np.int32(4), vocab_size=np.uint32(300), boundary_token_id=np.int8(5)) as writer:
        writer.add_document([1])
        writer.add_boundary()
    assert headrace.open(path)[:].tolist() == [1, 5]


def test_boundaries(path):
    """A boundary ends a document: without one, or a second time, it is an error."""
    with HDF5ShardWriter(path, 4) as writer:
        with pytest.raises(WriterError, match="none is open"):
            writer.add_boundary()
        writer.add_document([1])
        writer.add_boundary()
        with pytest.raises(WriterError, match="none is open"):
            writer.add_boundary()
        writer.add_document([])
        writer.add_boundary()
        writer.add_documents([2, 3], [1, 2])
        with pytest.raises(WriterError, match="none is open"):
            writer.add_boundary()
    assert [document.tolist() for document in headrace.open(path).documents] == [[1, 0], [0], [2], [3]]


def test_a_document_without_tokens(path):
    """A document of nothing, not even a boundary, cannot be stored, whatever comes next."""
    writer = HDF5ShardWriter(path, 4).__enter__()
    writer.add_document([])
    for call in (lambda: writer.add_document([1]), lambda: writer.add_documents([1], [1]), writer.close):
        with pytest.raises(WriterError, match="document 0 has no tokens"):
            call()
    with pytest.raises(CorruptShardError, match="never closed"):
        headrace.open(path)


@pytest.mark.parametrize("ends", [[], [0, 3], [2], [4], [1, 1, 3], [3, 2], [-1, 3], [1.5, 3], [[3]], [1 << 63, 3]])
def test_ends_that_are_no_documents(path, ends):
    """Ends that do not increase from above 0 to the number of tokens are refused, and nothing is written."""
    with HDF5ShardWriter(path, 4) as writer:
        with pytest.raises(WriterError):
            writer.add_documents([1, 2, 3], ends)
        writer.add_documents([], [])
        assert (writer.token_count, writer.document_count) == (0, 0)
    assert len(headrace.open(path)) == 0


@pytest.mark.parametrize(
    "origins",
    [
        {},
        {"rows": [0]},
        {"rows": [0], "offsets": [0], "files": [1]},
        {"rows": [0, 1], "offsets": [0], "files": [0]},
        {"rows": [-1], "offsets": [0], "files": [0]},
        {"rows": [0], "offsets": [0.5], "files": [0]},
        {"rows": [0], "offsets": [0], "files": [1 << 32]},
    ],
)
def test_origins_that_do_not_fit(path, origins):
    """With source files every document needs its own row, byte and an existing file."""
    with HDF5ShardWriter(path, 4, source_files=["a"]) as writer:
        with pytest.raises(WriterError):
            writer.add_documents([1, 2], [2], **origins)
        with pytest.raises(WriterError, match="add_documents"):
            writer.add_document([1])
    assert len(headrace.open(path)) == 0


def test_origins_without_files(path):
    """Origins that refer to nothing are not dropped in silence."""
    with HDF5ShardWriter(path, 4) as writer, pytest.raises(WriterError, match="source_files"):
        writer.add_documents([1, 2], [2], rows=[0], offsets=[0], files=[0])


def test_order_of_life(path):
    """Before it is entered and after it is closed a writer takes nothing; it is entered once; close is idempotent."""
    writer = HDF5ShardWriter(path, 4)
    for call in (lambda: writer.add_document([1]), lambda: writer.add_documents([1], [1]), writer.close):
        with pytest.raises(WriterError, match="is not open"):
            call()
    with writer:
        writer.add_document([1])
        with pytest.raises(WriterError, match="once the writer is closed"):
            writer.result("s")
        with pytest.raises(WriterError, match="entered once"):
            writer.__enter__()
    writer.close()
    for call in (lambda: writer.add_document([1]), lambda: writer.add_documents([1], [1]), writer.add_boundary):
        with pytest.raises(WriterError, match="is closed"):
            call()
    with pytest.raises(WriterError, match="entered once"):
        writer.__enter__()
    assert (writer.result("s").token_count, writer.result("s").document_count) == (1, 1)


@pytest.mark.parametrize("tokens", [0, 4, 5])
def test_an_exception_leaves_a_growing_shard(path, tokens):
    """A shard that was left by an exception is refused by readers, has no result, and can be written anew."""
    writer = HDF5ShardWriter(path, 4)

    def fail_inside():
        with writer:
            if tokens:
                writer.add_document([1] * tokens)
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(CorruptShardError, match="never closed"):
        headrace.open(path)
    with pytest.raises(WriterError, match="without an error"):
        writer.result("s")
    with pytest.raises(WriterError, match="left by an error"):
        writer.add_document([1])
    with HDF5ShardWriter(path, 4) as writer:
        writer.add_document([2])
    assert headrace.open(path)[:].tolist() == [2]


def test_an_existing_file_is_replaced_not_truncated(path):
    """Whoever reads the old shard goes on reading it; the name then leads to the new one."""
    with HDF5ShardWriter(path, 4) as writer:
        writer.add_document([1, 2, 3])
    old = headrace.open(path)
    assert old[:].tolist() == [1, 2, 3]
    with HDF5ShardWriter(path, 4) as writer:
        writer.add_document([9] * 100)
        assert old[:].tolist() == [1, 2, 3]
    assert old[:].tolist() == [1, 2, 3]
    assert headrace.open(path)[:].tolist() == [9] * 100
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_name_that_cannot_be_taken(path):
    """Where a folder has the shard's name, the error comes at once and no hidden file stays behind."""
    path.mkdir()
    with pytest.raises(OSError, match=r"shard\.h5"), HDF5ShardWriter(path, 4):
        pass
    assert [file.name for file in path.parent.iterdir()] == [path.name]


FULL_DISK = """
import resource, sys
import numpy as np
from headrace.errors import WriterError
from headrace.storage.hdf5_writer import HDF5ShardWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
writer = HDF5ShardWriter(sys.argv[1], 1000)
try:
    with writer:
        try:
            for _ in range(400):
                writer.add_document(np.ones(1000, int))
        except OSError:
            try:
                writer.add_document([1])
            except WriterError:
                print("refused")
            raise
except OSError as error:
    print(error.strerror, error.filename == sys.argv[1])
"""


def test_a_full_disk(path):
    """A write that fails is raised, the writer takes no more, and the file passes for no shard."""
    assert resource.RLIM_INFINITY in resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == ["refused", "File too large True"], done.stderr
    with pytest.raises(HeadraceError, match=r"shard\.h5"):
        headrace.open(path)


def test_a_folder_that_is_not_there(tmp_path):
    """The error names the shard, not the hidden file that it would have grown from."""
    path = tmp_path / "missing" / "x.h5"
    with pytest.raises(FileNotFoundError) as caught, HDF5ShardWriter(path, 8):
        pass
    assert caught.value.filename == str(path)
    assert "No such file or directory" in str(caught.value)
