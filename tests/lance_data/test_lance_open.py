"""Opening Lance data sets: versions, columns, and everything that is wrong with one."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import headrace
from headrace.cli.main import app
from headrace.errors import (
    CorruptShardError,
    FormatError,
    ManifestError,
    MissingShardError,
    OutOfRangeError,
    TokenIdError,
    UnreadableShardError,
)
from headrace.inspection import verify_all
from headrace.loading import Loader
from headrace.sampling import Plan
from headrace.testing.lance import write_lists, write_recipe

DATA = Path(__file__).parent.parent / "data" / "formats"


@pytest.fixture
def path(tmp_path):
    """Of a data set of 3,000 tokens of a GPT-2 vocabulary in three files of format 2.2."""
    write_recipe(tmp_path / "a.lance", [model(3000)], storage_version="2.2", max_rows_per_file=1000)
    return tmp_path / "a.lance"


def model(count, seed=0):
    """Tokens of a GPT-2 vocabulary."""
    return np.random.default_rng(seed).integers(0, 50_257, count)


def files(path):
    """The data files, in order."""
    return [Path(entry.path) for entry in headrace.open(path).entries]


def manifest_of(path, version):
    """The manifest of a version."""
    (found,) = (one for one in (path / "_versions").iterdir() if one.name.startswith(str(2**64 - 1 - version)))
    return found


def test_another_data_set_in_its_place(tmp_path):
    """One that is written again under the same path is read as it is now; what was opened before never gives its rows."""
    path = tmp_path / "a.lance"
    opened = []
    for value in (1, 2, 3):
        shutil.rmtree(path, ignore_errors=True)
        write_recipe(path, [np.full(2000, value)], storage_version="0.1", max_rows_per_file=1000)
        for corpus in opened:
            with pytest.raises(MissingShardError):
                corpus[:1500]
        opened.append(headrace.open(path))
        np.testing.assert_array_equal(opened[-1][:], np.full(2000, value))


@pytest.mark.parametrize("storage_version", ["0.1", "2.0", "2.2"])
def test_a_shallow_clone(storage_version, tmp_path):
    """Its data files are those of another data set, until something is appended; they are found, and named if they go."""
    path, clone = tmp_path / "a.lance", tmp_path / "b.lance"
    write_recipe(path, [model(3000)], storage_version=storage_version, max_rows_per_file=1000)
    lance.dataset(str(path)).shallow_clone(str(clone), 1)
    np.testing.assert_array_equal(headrace.open(clone)[:], model(3000))
    write_recipe(clone, [model(50, 1)], storage_version=storage_version, mode="append")
    lance.dataset(str(clone)).delete(f"input_ids = {model(3000)[1500]}")
    left = np.append(model(3000), model(50, 1))
    np.testing.assert_array_equal(headrace.open(clone)[:], left[left != model(3000)[1500]])
    files(path)[0].unlink()
    with pytest.raises(MissingShardError, match=r"a\.lance/data/"):
        headrace.open(clone)


def test_versions(path):
    """A path names a version by number or tag; an open corpus and its pickles stay at theirs, whatever is appended."""
    lance.dataset(str(path)).tags.create("release", 1)
    opened = headrace.open(path)
    write_recipe(path, [model(500, 1)], storage_version="2.2", mode="append")
    assert len(headrace.open(path)) == 3500
    for first in (opened, headrace.open(f"{path}@v1"), headrace.open(f"{path}@release")):
        for corpus in (first, pickle.loads(pickle.dumps(first))):  # noqa: S301  # our own bytes
            np.testing.assert_array_equal(corpus[:], model(3000))
            assert corpus.lance_version == 1
            assert corpus.fingerprint == opened.fingerprint
    assert headrace.open(path).fingerprint != opened.fingerprint
    assert headrace.open(f"{path}@v1", version=opened.fingerprint).fingerprint.kind == "stat"
    with pytest.raises(MissingShardError, match="was replaced"):
        headrace.open(path, version=opened.fingerprint)
    for wanted in ("v9", "nothing"):
        with pytest.raises(MissingShardError, match=rf"has no version or tag {wanted}.*v1, v2, release"):
            headrace.open(f"{path}@{wanted}")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "delete", "compact"]), st.integers(1, 2500), st.integers(0, 2**30)),
        max_size=5,
    )
)
def test_life_of_a_data_set(tmp_path_factory, steps):
    """After any appends, deletions and compactions, every version serves what it held, and so does who has it open."""
    path = tmp_path_factory.mktemp("life") / "a.lance"
    write_recipe(path, [model(700)], storage_version="2.2")
    held = model(700)
    versions = {1: (held, headrace.open(path))}
    for what, count, seed in steps:
        if what == "append":
            version = ("2.0", "2.1", "2.2")[seed % 3]
            write_recipe(path, [model(count, seed)], storage_version=version, mode="append")
            held = np.concatenate([held, model(count, seed)])
        elif what == "delete":
            low = seed % 50_257
            lance.dataset(str(path)).delete(f"input_ids >= {low} AND input_ids < {low + count}")
            held = held[(held < low) | (held >= low + count)]
        else:
            lance.dataset(str(path)).optimize.compact_files()
        versions[int(lance.dataset(str(path)).version)] = held, headrace.open(path)
    for version, (wanted, opened) in versions.items():
        for corpus in (opened, headrace.open(f"{path}@v{version}")):
            np.testing.assert_array_equal(corpus[:], wanted)


def test_a_newest_manifest_of_no_bytes(path):
    """After a power loss the newest manifest may be empty: that is said, and the version before it opens."""
    write_recipe(path, [model(10)], storage_version="2.2", mode="append")
    manifest_of(path, 2).write_bytes(b"")
    with pytest.raises(UnreadableShardError, match="open the version before it"):
        headrace.open(path)
    assert len(headrace.open(f"{path}@v1")) == 3000


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"a": [1], "b": [2]}, r"columns are a \(int64\), b \(int64\)"),
        ({"input_ids": [1.5]}, r"columns are input_ids \(double\)"),
        ({"text": ["a"]}, r"columns are text \(string\)"),
        ({"input_ids": [[1.5]]}, r"columns are input_ids \(list<item: double>\)"),
    ],
)
def test_no_column_of_tokens(columns, fault, tmp_path):
    """What there is instead is named."""
    lance.write_dataset(pa.table(columns), tmp_path / "a.lance")
    with pytest.raises(FormatError, match=fault):
        headrace.open(tmp_path / "a.lance")


def test_the_only_column(tmp_path):
    """Under another name the only column of integers will do, and before those the only one of lists."""
    lance.write_dataset(pa.table({"text": ["a", "b"], "ids": [7, 8]}), tmp_path / "a.lance")
    assert headrace.open(tmp_path / "a.lance")[:].tolist() == [7, 8]
    lance.write_dataset(pa.table({"row": [1, 2], "ids": [[7, 8], [9]]}), tmp_path / "b.lance")
    assert headrace.open(tmp_path / "b.lance")[:].tolist() == [7, 8, 9]


@pytest.mark.parametrize("storage_version", ["2.0", "2.1", "2.2"])  # 0.1 stores a 0 in place of a null
@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize("rows", [[1, None, 3], [[1, 2], None], [[1, None], [3, 4]]])
def test_nulls(rows, width, storage_version, tmp_path):
    """A null is no token: it is refused when the data set is opened, or where it is read, and the file named."""
    kind = pa.list_(pa.int64(), width) if width and isinstance(rows[0], list) else None
    lance.write_dataset(
        pa.table({"input_ids": pa.array(rows, kind)}), tmp_path / "a.lance", data_storage_version=storage_version
    )
    with pytest.raises(FormatError, match=r"a\.lance.*nulls"):
        headrace.open(tmp_path / "a.lance").get_slice(0, 2)


@pytest.mark.parametrize("storage_version", ["0.1", "2.0", "2.2"])
@pytest.mark.parametrize(("dtype", "wrong"), [("int64", -1), ("int64", 1 << 32), ("int32", -7), ("uint64", 1 << 63)])
def test_ids_that_are_none(dtype, wrong, storage_version, tmp_path):
    """Negative ids, and those of more than 32 bits, are never served: reading them names file and token."""
    tokens = model(3000).astype(dtype)
    tokens[2500] = wrong
    write_recipe(tmp_path / "a.lance", [tokens], storage_version=storage_version, dtype=dtype)
    corpus = headrace.open(tmp_path / "a.lance")
    np.testing.assert_array_equal(corpus.get_slice(0, 2500), tokens[:2500])
    fault = rf"\.lance: token 2500 of the data set: wanted token ids from 0 to \d+, found -?{abs(wrong)}|found -922"
    with pytest.raises(TokenIdError, match=fault):
        corpus.get_slice(2400, 2600)
    with pytest.raises(TokenIdError, match="token 2500"):
        corpus.windows(np.array([[2000, 2400]]), 200).gather_into(0, np.empty((2, 200), np.int64))


def test_a_vocabulary(path):
    """With a vocabulary given, larger ids are refused; one that the dtype cannot hold is."""
    assert headrace.open(path, vocab_size=50_257).vocab_size == 50_257
    with pytest.raises(TokenIdError, match="from 0 to 999"):
        headrace.open(path, vocab_size=1000)[:]
    with pytest.raises(FormatError, match="does not fit"):
        headrace.open(path, vocab_size=1 << 33)
    with pytest.raises(FormatError, match="holds int64, not uint16"):
        headrace.open(path, dtype="uint16")


def test_the_vocabulary_of_a_data_set_of_our_own(tmp_path):
    """`tokens.lance` of a corpus, opened by itself, has the corpus' vocabulary and boundary; another one is refused."""
    documents = [{"ids": [1, 2, 3]}, {"ids": [299]}]
    headrace.build(documents, tmp_path / "c", ids_field="ids", vocab_size=300, boundary=7, store="lance")
    with headrace.open(tmp_path / "c" / "tokens.lance") as corpus:
        assert (corpus.vocab_size, corpus.manifest.boundary_token_id) == (300, 7)
        assert corpus[:].tolist() == [1, 2, 3, 7, 299, 7]
    assert headrace.open(tmp_path / "c" / "tokens.lance", vocab_size=300).vocab_size == 300
    with pytest.raises(FormatError, match="was written for a vocabulary of 300 ids, not 400"):
        headrace.open(tmp_path / "c" / "tokens.lance", vocab_size=400)


def test_missing_files(path):
    """All of them are named."""
    first, second, _ = files(path)
    first.unlink()
    with pytest.raises(MissingShardError, match=f"{first}: no such file"):
        headrace.open(path)
    second.unlink()
    with pytest.raises(MissingShardError) as caught:
        headrace.open(path)
    assert [problem.place for problem in caught.value.problems] == [str(first), str(second)]


def test_a_cut_file(path):
    """It is named, with both sizes; cut after the data set was opened, it is never mapped."""
    opened = headrace.open(path)
    last = files(path)[-1]
    size = last.stat().st_size
    os.truncate(last, size - 100)
    with pytest.raises(CorruptShardError, match=f"{last}: wanted {size} bytes, found {size - 100}"):
        headrace.open(path)
    with pytest.raises(CorruptShardError, match=f"{last}: wanted {size} bytes"):
        opened.get_slice(2500, 2600)
    np.testing.assert_array_equal(opened.get_slice(0, 2000), model(3000)[:2000])


def test_flipped_bytes(path):
    """Damage to what says how tokens are packed is found; that to tokens is not: Lance stores no checksums."""
    data = bytearray(files(path)[0].read_bytes())
    data[64 + 8] = 77  # bits of a value of the first chunk
    opened = headrace.open(path)
    files(path)[0].write_bytes(data)
    with pytest.raises(CorruptShardError, match="its values have 77 bits"):
        opened.get_slice(0, 10)


@pytest.mark.parametrize("storage_version", ["0.1", "2.1", "2.2"])
def test_fewer_lists_than_there_were(storage_version, tmp_path):
    """A file that has other rows than its data set says is named when that is opened."""
    path, other = tmp_path / "a.lance", tmp_path / "b.lance"
    write_lists(path, [range(6)] * 80, storage_version=storage_version, max_rows_per_file=40)
    write_lists(other, [range(6)] * 30, storage_version=storage_version)
    file = files(path)[1]
    file.write_bytes(files(other)[0].read_bytes())
    with pytest.raises(CorruptShardError, match=file.name):
        headrace.open(path)


@pytest.mark.parametrize("storage_version", ["0.1", "2.1", "2.2"])
def test_lists_that_are_not_as_they_were(storage_version, tmp_path):
    """A list that came to be shorter, as by damage to where it ends, is refused by the name of its file, not served so."""
    path, other = tmp_path / "a.lance", tmp_path / "b.lance"
    documents = [model(10), model(50)] * 20
    write_lists(path, documents, storage_version=storage_version)
    write_lists(other, documents[::-1], storage_version=storage_version)
    corpus = headrace.open(path)
    (file,), (reversed_,) = files(path), files(other)
    file.write_bytes(reversed_.read_bytes())
    fault = rf"{file.name}: its lists are not as long as they were"
    with pytest.raises(CorruptShardError, match=fault):
        corpus.get_slice(10, 60)
    with pytest.raises(CorruptShardError, match=fault):
        corpus.windows(np.array([[15, 75]]), 40).gather_into(0, np.empty((2, 40), np.int64))


@pytest.mark.parametrize("wanted", ["", "@v1", "@nothing"])
def test_a_manifest_at_which_lance_panics(path, wanted):
    """A manifest of which a length is wrong, on which Lance's Rust panics, is an error like others."""
    manifest = manifest_of(path, 1)
    data = bytearray(manifest.read_bytes())
    data[int.from_bytes(data[-16:-8], "little") + 3] ^= 0x37
    manifest.write_bytes(data)
    with pytest.raises(UnreadableShardError, match=rf"{path}: Lance cannot open it"):
        headrace.open(f"{path}{wanted}")


def test_a_data_file_of_no_name(path):
    """A manifest that names a file as none can be is an error that tells the name."""
    manifest = manifest_of(path, 1)
    name = files(path)[1].name.encode()
    manifest.write_bytes(manifest.read_bytes().replace(name, b"\0" + name[1:]))
    with pytest.raises(CorruptShardError, match=rf"{path}.*\\x00{name[1:].decode()}.*cannot be looked at"):
        headrace.open(path)


def test_a_folder_in_the_place_of_a_data_file(tmp_path):
    """What cannot be read for a fingerprint is named."""
    path = tmp_path / "a.lance"
    write_recipe(path, [model(2000)], storage_version="0.1", max_rows_per_file=1000)
    file = files(path)[0]
    file.unlink()
    file.mkdir()
    with pytest.raises(UnreadableShardError, match=f"{file}: cannot be read"):
        headrace.open(path)


@pytest.mark.parametrize("what", ["all", "footer"])
def test_noise(what, path):
    """A file of the right size that is none of Lance's is named."""
    first = files(path)[0]
    data = bytearray(first.read_bytes())
    begin = 0 if what == "all" else len(data) - 40
    data[begin:] = np.random.default_rng(0).bytes(len(data) - begin)
    first.write_bytes(data)
    with pytest.raises(CorruptShardError, match=str(first)):
        headrace.open(path)[:]


def test_verify(path):
    """What can be told is told; that nothing vouches for the tokens is said, too."""
    corpus = headrace.open(path)
    for quick in (False, True):
        with pytest.raises(FormatError, match="stores no checksums"):
            corpus.verify(quick=quick)
    files(path)[1].unlink()
    corpus.close()
    assert [report.status for report in corpus.verify()] == ["ok", "missing", "ok"]
    with pytest.raises(FormatError, match="stores no checksums"):
        headrace.open(DATA / "lance_recipe_int64" / "wikitext_like.lance", verify="full")


def test_loader(path):
    """Plans and loaders work on it as on any corpus."""
    corpus = headrace.open(path)
    plan = Plan(
        order="blocks", token_count=len(corpus), window=64, batch_size=4, seed=3, corpus=str(corpus.fingerprint)
    )
    loader = Loader(corpus, plan)
    batch = loader.batch(5)
    starts = plan.starts(5)
    np.testing.assert_array_equal(batch.input_ids, model(3000)[starts[:, None] + np.arange(64)])
    assert "'corpus_kind': 'stat'" in str(loader.state_dict())


def test_commands(tmp_path):
    """`info`, `show` and `verify` take a data set, and one version of it."""
    path = tmp_path / "a.lance"
    write_lists(path, [[72, 105], [33, 34, 35]], storage_version="2.2")
    run = CliRunner().invoke
    for name in (str(path), f"{path}@v1"):
        found = run(app, ["info", name])
        assert found.exit_code == 0, found.output
        assert "5 (uint32" in found.output
        assert "stat" in found.output
        found = run(app, ["show", name, "--document", "1"])
        assert "document 1 [2, 5)" in found.output, found.output
        assert "33 34 35" in found.output
        found = run(app, ["show", name, "--window", "0", "--length", "2", "--tokenizer", "bytes"])
        assert found.exit_code == 0, found.output
    found = run(app, ["verify", str(path)])
    assert isinstance(found.exception, FormatError)
    assert "stores no checksums" in str(found.exception)
    with pytest.raises(ManifestError, match="wanted the corpus with fingerprint 00000000"):
        verify_all(path, expect="00000000")
    (file,) = files(path)
    data = bytearray(file.read_bytes())
    data[:200] = bytes(200)
    file.write_bytes(data)
    found = run(app, ["verify", str(path)])
    assert isinstance(found.exception, CorruptShardError)


def test_small_data_of_other_people():
    """Two data sets that were written once, token for token."""
    corpus = headrace.open(DATA / "lance_recipe_int64" / "wikitext_like.lance")
    assert (len(corpus), corpus.dtype, corpus[0], corpus[-1]) == (5578, np.int64, 464, 11709)
    corpus = headrace.open(DATA / "lance_list_uint32" / "docs.lance")
    assert (len(corpus), len(corpus.documents), corpus.dtype) == (5116, 113, np.uint32)
    with pytest.raises(OutOfRangeError):
        corpus.documents[113]


INTERRUPTED = """
import os, signal, sys
import headrace
signal.signal(signal.SIGINT, lambda *_: None)
corpus = headrace.open(sys.argv[1])
wanted = corpus[:8].tolist()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for _ in range(2):
    assert corpus[:8].tolist() == wanted
    os.killpg(0, signal.SIGINT)
os._exit(0)  # as workers end: nothing of Lance may run in the child of a fork
"""


def test_an_interrupt_is_for_who_reads(tmp_path):
    """Ctrl-C goes to all processes of a terminal: a forked one that does not end of it goes on reading through Lance."""
    write_recipe(tmp_path / "a.lance", [model(100)], storage_version="0.1")
    program = [sys.executable, "-P", "-W", "ignore", "-c", INTERRUPTED, str(tmp_path / "a.lance")]
    ran = subprocess.run(program, capture_output=True, text=True, start_new_session=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_import_is_light():
    """Neither `import headrace`, nor opening a corpus of HDF5, loads Lance."""
    code = (
        "import headrace, sys, headrace.corpus; print([name for name in ('lance', 'pyarrow') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-P", "-c", code]).strip() == b"[]"
