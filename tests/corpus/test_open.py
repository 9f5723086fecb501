"""Opening: what it accepts, what it refuses, and what it leaves alone."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.corpus import MmapTokenStore
from headrace.errors import CorruptShardError, FormatError, ManifestError, MissingShardError, TokenIdError
from headrace.shard_paths import load_index
from headrace.storage.hdf5_corpus import SIDECAR
from headrace.testing.corpora import line_of, random_documents, small_corpus

DATA = Path(__file__).parent.parent / "data"
SHARDS = random_documents(31, (20, 20))


@pytest.fixture
def folder(tmp_path):
    """A corpus of two shards."""
    return small_corpus(tmp_path / "corpus", SHARDS)


WATCHED = """
import os, sys
import numpy as np
import headrace, headrace.corpus, headrace.manifest_checks

seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, arguments)))
folder = sys.argv[1]
corpus = headrace.open(folder)
out = np.empty((4, 30), np.int64)
corpus.windows(np.array([[0, 5, 100, len(corpus) - 30]]), 30).gather_into(0, out)
corpus[:]
events = list(seen)

for event, arguments in events:
    assert event not in {"os.listdir", "os.scandir", "os.walk", "glob.glob", "os.mkdir", "os.rename", "os.remove"}, event
    if event == "open":
        path, mode, flags = arguments
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), path
opened = [os.path.basename(str(arguments[0])) for event, arguments in events if event == "open"]
opened = [name for name in opened if not name.endswith((".py", ".pyc", ".so"))]
print(*sorted(opened))
print(*sorted(name for name in sys.modules if name in {"h5py", "gigatoken", "tokenizers", "msgspec", "zstandard"}))
"""


def test_opening_a_built_corpus_touches_no_more_than_it_must(folder):
    """It lists no folder, writes nothing, opens index, sidecar and shards alone, and imports no HDF5 library."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = subprocess.run([sys.executable, "-c", WATCHED, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    opened, imported, *_ = [*done.stdout.split("\n"), ""]
    names = [f"{number:06d}-0000-0000.h5" for number in range(2)]
    assert opened.split() == sorted([*names, "extents.bin", "max_map_count", "shards.json"])
    assert imported == ""
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("sidecar", [True, False])
def test_nothing_is_written_into_a_corpus(folder, sidecar):
    """With or without a sidecar, reading leaves every file and folder as it was."""
    if not sidecar:
        (folder / SIDECAR).unlink()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (folder, *folder.rglob("*"))}
    corpus = headrace.open(folder)
    corpus[:], corpus.documents[3], corpus.locate(7), corpus.verify()
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (folder, *folder.rglob("*"))} == before


def test_a_read_only_folder(folder):
    """A corpus on which nobody may write is read like any other, without a sidecar too."""
    (folder / SIDECAR).unlink()
    for path in (*folder.rglob("*"), folder):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        np.testing.assert_array_equal(headrace.open(folder)[:], line_of(SHARDS)[0])
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode | 0o700)


def test_a_corpus_can_be_moved(folder, tmp_path):
    """Index and sidecar hold no absolute path."""
    fingerprint = headrace.open(folder).fingerprint
    moved = tmp_path / "elsewhere" / "corpus"
    moved.parent.mkdir()
    folder.rename(moved)
    corpus = headrace.open(moved)
    np.testing.assert_array_equal(corpus[:], line_of(SHARDS)[0])
    assert corpus.fingerprint == fingerprint
    assert str(tmp_path) not in (moved / "shards.json").read_text()


@pytest.mark.parametrize("form", ["folder", "index", "string", "bytes of the working directory"])
def test_what_is_a_corpus(folder, monkeypatch, form):
    """The folder, its index and a relative name are one corpus, which stays open when the working directory changes."""
    monkeypatch.chdir(folder.parent)
    path = {"folder": folder, "index": folder / "shards.json", "string": str(folder)}.get(form, Path(folder.name))
    corpus = headrace.open(path)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(corpus[:], line_of(SHARDS)[0])
    assert corpus.path == folder / "shards.json"
    assert repr(corpus) == f"<Corpus '{folder}/shards.json': {len(corpus)} tokens, 2 shards, uint16>"


def test_one_shard_of_ours_is_a_corpus(folder):
    """A shard opened by itself knows its documents, its vocabulary and a fingerprint of its content."""
    path = folder / "000001-0000-0000.h5"
    corpus = headrace.open(path)
    tokens, lengths = line_of(SHARDS[1:])
    np.testing.assert_array_equal(corpus[:], tokens)
    assert [len(document) for document in corpus.documents] == lengths
    assert (corpus.vocab_size, corpus.fingerprint.kind, corpus.entries[0].shard_id) == (257, "content", path.stem)


@pytest.mark.parametrize("name", ["no", "no.h5", "no/shards.json"])
def test_what_is_not_there(tmp_path, name):
    """A path that leads nowhere is a FileNotFoundError that names it."""
    with pytest.raises(MissingShardError, match="no such file"):
        headrace.open(tmp_path / name)


def test_a_folder_that_is_no_corpus(tmp_path):
    """A folder without an index, with shards in it or not."""
    (tmp_path / "shard.h5").write_bytes(b"")
    with pytest.raises(MissingShardError, match=r"shards\.json"):
        headrace.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_no_hdf5(tmp_path, content):
    """Other files are refused by what they begin with."""
    (tmp_path / "tokens.bin").write_bytes(content)
    with pytest.raises(FormatError, match=r"tokens\.bin: not an HDF5 file"):
        headrace.open(tmp_path / "tokens.bin")


def write_group(file):
    """A group where the data set should be."""
    file.create_group("tokens")


def write_floats(file):
    """Numbers that are no ids."""
    file["tokens"] = np.zeros(3)


def write_table(file):
    """Windows instead of a line."""
    file["tokens"] = np.zeros((3, 4), "u2")


def write_another_name(file):
    """Tokens under a name of their own."""
    file["input_ids"] = np.zeros(3, "u2")


def write_strange_count(file):
    """A token count that counts nothing."""
    file["tokens"] = np.zeros(3, "u2")
    file["tokens"].attrs.create("token_count", "three")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_group, "wanted a data set 'tokens', found 'tokens'"),
        (write_floats, "one-dimensional and of integers, not float64"),
        (write_table, r"of shape \(3, 4\)"),
        (write_another_name, "found 'input_ids'"),
        (write_strange_count, "attribute token_count should be a count"),
    ],
)
def test_hdf5_files_without_a_line_of_tokens(tmp_path, write, message):
    """What is wrong with the file is said, and its name."""
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        write(file)
    with pytest.raises((FormatError, CorruptShardError), match=message) as caught:
        headrace.open(tmp_path / "tokens.h5")
    assert str(tmp_path / "tokens.h5") in str(caught.value)


def test_foreign_attributes_are_no_obstacle(tmp_path):
    """A hash of another kind, and attributes of any type, do not keep a file from being read."""
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = np.arange(10)
        file["tokens"].attrs["sha256"] = "not hex"
        file["tokens"].attrs["other"] = h5py.Empty("f4")
        file["tokens"].attrs["more"] = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    corpus = headrace.open(tmp_path / "tokens.h5")
    assert corpus[:].tolist() == list(range(10))
    assert corpus.fingerprint.kind == "stat"


def test_a_stat_fingerprint_follows_the_file(tmp_path):
    """Files without a hash are told apart by size and sampled pages."""
    prints = []
    for number, tokens in enumerate((np.arange(5000), np.arange(5000), np.arange(5001), np.arange(5000)[::-1])):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["tokens"] = tokens
        prints.append(headrace.open(tmp_path / f"{number}.h5").fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert {found.kind for found in prints} == {"stat"}


def test_a_large_file_without_chunks_is_not_read_to_open_it(tmp_path):
    """Of a contiguous data set two pieces are read at opening, not its whole: here a hole of 2 TiB."""
    with h5py.File(tmp_path / "tokens.h5", "w", libver="latest") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((1 << 40,))
        h5py.h5d.create(file.id, b"tokens", h5py.h5t.STD_U16LE, space, properties)
    corpus = headrace.open(tmp_path / "tokens.h5")
    assert len(corpus) == 1 << 40
    assert corpus[-5:].tolist() == [0] * 5


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("dtype", "wrong", "vocab_size"),
    [
        ("<i4", -1, None),
        (">i4", -1, None),
        ("<i2", -7, None),
        ("<i8", 1 << 40, None),
        ("<u8", (1 << 64) - 5, None),
        ("<u2", 300, 300),
        (">u2", 300, 300),
        ("<i8", 300, 300),
    ],
)
def test_ids_that_are_none(tmp_path, dtype, wrong, vocab_size, io):
    """Negative ids, those of more than 32 bits, and those beyond a vocabulary that was told are named, never served."""
    tokens = np.arange(200).astype(dtype)
    tokens[150] = wrong
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = tokens
    corpus = headrace.open(tmp_path / "tokens.h5", vocab_size=vocab_size, io=io)
    np.testing.assert_array_equal(corpus[:150], tokens[:150])
    fault = r"tokens\.h5: token 150: wanted token ids from 0 to \d+, found"
    with pytest.raises(TokenIdError, match=fault):
        corpus.get_slice(100, 200)
    for buffer in (np.empty((2, 60), np.int64), np.empty((2, 60), corpus.dtype)):
        block = corpus.windows(np.array([[0, 50], [30, 120]]), 60)
        block.gather_into(0, buffer)
        np.testing.assert_array_equal(buffer[1], tokens[50:110])
        with pytest.raises(TokenIdError, match=fault):
            block.gather_into(1, buffer)


def write_version_1(folder, shards):
    """A corpus of version 1, of arrays of tokens of any dtype."""
    folder.mkdir()
    entries = []
    for number, tokens in enumerate(shards):
        name, counts = f"{number}.h5", {"token_count": tokens.size, "document_count": int((tokens == 0).sum())}
        counts["sha256"] = hashlib.sha256(tokens.tobytes()).hexdigest()
        with h5py.File(folder / name, "w", libver="latest") as file:
            file.create_dataset("tokens", data=tokens, maxshape=(None,), chunks=(64,)).attrs.update(counts)
        start = sum(before.size for before in shards[:number])
        entries.append({"shard_id": str(number), "path": name, "global_start": start, **counts})
    total = sum(tokens.size for tokens in shards)
    body = {"version": 1, "chunk_size": 64, "total_tokens": total, "shards": entries}
    (folder / "shards.json").write_text(json.dumps(body))


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "<i2", "<i4", "<u4", ">u4", "<i8"])
def test_a_version_1_corpus_has_the_dtype_of_its_files(tmp_path, dtype):
    """Its index does not say it: the files do, each time that it is opened, and in another process."""
    # Each shard with tokens ends with the boundary.
    shards = [(np.arange(size)[::-1] % 120).astype(dtype) for size in (300, 0, 63, 1)]
    write_version_1(tmp_path / "corpus", shards)
    tokens = np.concatenate(shards)
    for _ in range(2):
        corpus = headrace.open(tmp_path / "corpus", dtype=dtype, verify="full")
        for found in (corpus, pickle.loads(pickle.dumps(corpus))):  # noqa: S301  # our own bytes
            assert (found.dtype, found.vocab_size) == (np.dtype(dtype), min(np.iinfo(dtype).max + 1, 1 << 32))
            np.testing.assert_array_equal(found[:], tokens)
            np.testing.assert_array_equal(found.documents.ends, np.flatnonzero(tokens == 0) + 1)
            out = np.empty((3, 40), np.int64)
            found.windows(np.array([[0, 290, tokens.size - 40]]), 40).gather_into(0, out)
            np.testing.assert_array_equal(out[1], tokens[290:330])


def test_a_version_1_corpus_of_several_dtypes(tmp_path):
    """It is refused, with those that there are."""
    write_version_1(tmp_path / "corpus", [np.zeros(5, "<u2"), np.zeros(5, "<u4")])
    with pytest.raises(FormatError, match="the shards hold uint16, uint32, but a corpus has one dtype"):
        headrace.open(tmp_path / "corpus")


def test_ids_beyond_a_vocabulary_that_was_told(tmp_path):
    """Of a version 1 corpus, which does not say its vocabulary, other ids than it was told to have are named."""
    shutil.copytree(DATA / "formats" / "lesson_hdf5", tmp_path / "lesson_hdf5")
    whole = headrace.open(tmp_path / "lesson_hdf5", vocab_size=257)[:]
    corpus = headrace.open(tmp_path / "lesson_hdf5", vocab_size=int(whole.max()))
    with pytest.raises(TokenIdError, match=rf"shard-\d+\.h5: token \d+: wanted token ids from 0 to {whole.max() - 1}"):
        corpus.get_slice(0, len(corpus))


@pytest.mark.parametrize(
    ("dtype", "vocab_size"),
    [("u1", 256), ("i2", 1 << 15), ("u2", 1 << 16), ("i4", 1 << 31), ("u4", 1 << 32), ("i8", 1 << 32)],
)
def test_the_vocabulary_of_a_file_that_says_none(tmp_path, dtype, vocab_size):
    """It is all ids that the dtype holds, of at most 32 bits."""
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file["tokens"] = np.arange(10).astype(dtype)
    assert headrace.open(tmp_path / "tokens.h5").vocab_size == vocab_size
    with pytest.raises(FormatError, match="does not fit"):
        headrace.open(tmp_path / "tokens.h5", vocab_size=vocab_size + 1)


@pytest.mark.parametrize("dtype", ["uint16", np.uint16, "<u2"])
def test_a_dtype_that_agrees(folder, dtype):
    """The caller may say what the file says."""
    assert headrace.open(folder, dtype=dtype, vocab_size=257).dtype == np.uint16


@pytest.mark.parametrize("options", [{"dtype": "uint32"}, {"dtype": "int16"}, {"vocab_size": 50_257}])
def test_a_flag_that_contradicts_the_file(folder, options):
    """It is an error that names both, never a reinterpretation."""
    with pytest.raises(FormatError, match=next(iter(options.values())).__str__()):
        headrace.open(folder, **options)
    with pytest.raises(FormatError):
        headrace.open(folder / "000000-0000-0000.h5", **options)


@pytest.mark.parametrize("options", [{"io": "fast"}, {"verify": "never"}, {"verify": True}])
def test_options_that_do_not_exist(folder, options):
    """An option's name is checked before anything is read."""
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        headrace.open(folder, **options)


def test_an_index_of_another_dtype_than_its_shards(tmp_path):
    """The dtype of the index must be that of the files."""
    folder = small_corpus(tmp_path, [[[1, 2]]], vocab_size=70_000, sidecar=False)
    body = json.loads((folder / "shards.json").read_text()) | {"vocab_size": 300, "dtype": "uint16"}
    (folder / "shards.json").write_text(json.dumps(body))
    with pytest.raises(FormatError, match="the shards hold uint32, but the corpus is of uint16"):
        headrace.open(folder)


def test_faults_of_several_shards_are_all_named(tmp_path):
    """Deriving the extents of four shards of which three are damaged reports three."""
    folder = small_corpus(tmp_path, random_documents(1, (2, 2, 2, 2)), sidecar=False)
    for number in (0, 1, 3):
        (folder / f"{number:06d}-0000-0000.h5").write_bytes(b"damaged")
    with pytest.raises(CorruptShardError, match="3 shards are not as it says") as caught:
        headrace.open(folder)
    assert [Path(problem.place).name[:6] for problem in caught.value.problems] == ["000000", "000001", "000003"]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("h5_cut/tokens.h5", CorruptShardError, r"tokens\.h5: is truncated"),
        ("h5_killed_swmr_writer/tokens.h5", CorruptShardError, r"tokens\.h5: its writer never closed it"),
        ("h5_token_count_past_end/tokens.h5", CorruptShardError, "token_count 9999 against a dataset of 5691"),
        ("lesson_shard_missing", MissingShardError, r"shard-0001\.h5"),
        ("lesson_index_cut", ManifestError, r"shards\.json: line \d+ column \d+"),
    ],
)
def test_broken_corpora(name, error, message):
    """Each kind of damage found in the field gets the error that names it."""
    with pytest.raises(error, match=message):
        headrace.open(DATA / "formats_broken" / name)[:]


# -- stores over entries -------------------------------------------------------------------------------------------------


def test_a_store_of_a_selection(folder):
    """A store is the entries it is given, in the order given, whatever their places in the index were."""
    entries = load_index(folder)
    with MmapTokenStore(entries[::-1]) as store:
        tokens, lengths = line_of(SHARDS[::-1])
        np.testing.assert_array_equal(store.get_slice(0, store.total_tokens), tokens)
        assert [len(document) for document in store.documents] == lengths
        assert store.locate(0).shard_id == entries[1].shard_id
        with pytest.raises(ValueError, match="found"):
            store.get_slice(0, store.total_tokens + 1)
    assert MmapTokenStore(entries).fingerprint != store.fingerprint


def test_a_store_of_version_1_and_2_together(tmp_path):
    """Each shard's documents come from what it stores: an index where there is one, zeros only where there is none."""
    folder = small_corpus(tmp_path, [[[5, 0, 5]]], boundary_token_id=9)
    lesson = load_index(DATA / "formats" / "lesson_hdf5")[1]
    store = MmapTokenStore([*load_index(folder), lesson])
    assert store.documents[0].tolist() == [5, 0, 5, 9]
    assert len(store.documents[1]) == lesson.token_count


def test_stores_that_cannot_be(tmp_path, folder):
    """No entries, a missing file, two dtypes, an entry that contradicts its file."""
    with pytest.raises(ValueError, match="at least one shard"):
        MmapTokenStore([])
    entries = load_index(folder)
    wide = load_index(small_corpus(tmp_path / "wide", [[[1]]], vocab_size=70_000))
    with pytest.raises(FormatError, match="one dtype"):
        MmapTokenStore([*entries, *wide])
    shutil.copy(entries[0].path, entries[1].path)
    with pytest.raises(CorruptShardError, match=Path(entries[1].path).name):
        MmapTokenStore(entries)
    Path(entries[0].path).unlink()
    with pytest.raises(MissingShardError, match=Path(entries[0].path).name):
        MmapTokenStore(entries)


def test_full_verification_when_opening(folder):
    """`verify="full"` reads all, for corpora and stores; a pickled copy does not do so again."""
    entries = load_index(folder)
    with h5py.File(entries[0].path, "r") as file:
        at = file["tokens"].id.get_chunk_info(3).byte_offset
    with Path(entries[0].path).open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\x01")
    assert headrace.open(folder)[0] == SHARDS[0][0][0]
    assert MmapTokenStore(entries)[0] == SHARDS[0][0][0]
    for ask in (lambda: headrace.open(folder, verify="full"), lambda: MmapTokenStore(entries, verify="full")):
        with pytest.raises(CorruptShardError, match=r"1 of . shards are not ok"):
            ask()


def test_costs_of_importing():
    """`import headrace` alone loads no library but the standard one."""
    code = "import sys, headrace; print(*{name.partition('.')[0] for name in sys.modules} & {'numpy', 'h5py', 'json'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert os.path.isabs(headrace.__file__)  # noqa: PTH117


@pytest.mark.parametrize("live", [False, True])
def test_an_empty_path(tmp_path, monkeypatch, live):
    """An empty path, as of a variable that is not set, is not the corpus in the working directory."""
    headrace.build(headrace.Documents(["a"], name="a"), tmp_path / "c", tokenizer="bytes")
    monkeypatch.chdir(tmp_path / "c")
    with pytest.raises(MissingShardError, match="the path is empty"):
        headrace.open("", live=live)
    assert len(headrace.open(".")) == 2


def test_a_store_of_what_are_no_entries(tmp_path):
    """Where a path is given in place of entries, or in their place in a list, the error says what gives entries."""
    for given in (str(tmp_path), tmp_path, [tmp_path]):
        with pytest.raises(TypeError, match=r"wanted shard entries, as headrace\.load_index\(path\) returns them"):
            MmapTokenStore(given)
