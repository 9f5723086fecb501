"""Earlier versions of a corpus that was appended to: each opens as it was, and whoever began on one stays on it."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import headrace
from headrace import Loader, Plan
from headrace.errors import FormatError, ManifestError, MissingShardError
from headrace.manifest import INDEX_NAME, read_manifest
from headrace.storage.atomic import write_bytes
from headrace.storage.extents import ExtentTable
from headrace.storage.hdf5_corpus import SIDECAR, checked_layout, extents_of
from headrace.storage.versions import VERSIONS, extents_name
from headrace.testing.corpora import line_of, random_documents, small_corpus

SHARDS = random_documents(51, (20, 15, 10))


def table_of(folder, manifest):
    """The sidecar of the first shards of a corpus."""
    layouts = [checked_layout(folder / entry.path, entry) for entry in manifest.shards]
    return ExtentTable.build([extents_of(layout) for layout in layouts]).to_bytes(manifest.fingerprint.hex)


def keep(folder, count):
    """Keep the corpus of the first `count` shards as an earlier version, as an append does; returns its fingerprint."""
    manifest = read_manifest(folder)
    manifest = replace(manifest, shards=manifest.shards[:count])
    name = manifest.fingerprint.hex
    (folder / VERSIONS).mkdir(parents=True, exist_ok=True)
    write_bytes(folder / extents_name(name), table_of(folder, manifest))
    write_bytes(folder / VERSIONS / f"{name}.json", manifest.to_json())
    return name


def publish(folder, name, *, sidecar=True):
    """Make a version the newest, as the last step of an append does."""
    if sidecar:
        (folder / extents_name(name)).replace(folder / SIDECAR)
    (folder / VERSIONS / f"{name}.json").replace(folder / INDEX_NAME)


@pytest.fixture
def folder(tmp_path):
    """A corpus of three shards, the last of which was appended, and the one before it likewise."""
    folder = small_corpus(tmp_path / "corpus", SHARDS)
    keep(folder, 1), keep(folder, 2)
    return folder


@pytest.fixture
def names(folder):
    """The fingerprints of its three versions."""
    manifest = read_manifest(folder)
    return [replace(manifest, shards=manifest.shards[:count]).fingerprint.hex for count in (1, 2, 3)]


def same_as(corpus, shards):
    """Check everything that a corpus says against its model."""
    tokens, lengths = line_of(shards)
    np.testing.assert_array_equal(corpus[:], tokens)
    assert [len(document) for document in corpus.documents] == lengths
    assert corpus.locate(len(tokens) - 1).document == len(lengths) - 1
    assert [report.status for report in corpus.verify()] == ["ok"] * len(shards)
    return True


@pytest.mark.parametrize("digits", [8, 13, 63, 64])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_version_opens_as_it_was(folder, names, count, digits):
    """By its fingerprint or the first digits of it: tokens, documents, places and verdicts are those of its shards."""
    corpus = headrace.open(folder, version=names[count - 1][:digits])
    assert same_as(corpus, SHARDS[:count])
    assert corpus.fingerprint.hex == names[count - 1]
    assert corpus.path == folder / INDEX_NAME
    assert headrace.open(folder / INDEX_NAME, version=corpus.fingerprint).fingerprint == corpus.fingerprint
    assert headrace.open(folder).fingerprint.hex == names[2]


WATCHED = """
import os, sys
import headrace, headrace.corpus, headrace.manifest_checks
seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, arguments)))
corpus = headrace.open(sys.argv[1], version=sys.argv[2])
corpus[:]
events = list(seen)
assert not {event for event, _ in events} & {"os.listdir", "os.scandir", "os.walk", "glob.glob"}
opened = [os.path.basename(str(arguments[0])) for event, arguments in events if event == "open"]
print(*sorted(name for name in opened if not name.endswith((".py", ".pyc", ".so"))))
print(*sorted(name for name in sys.modules if name in {"h5py", "gigatoken", "msgspec"}))
"""


def test_a_whole_fingerprint_lists_no_folder(folder, names):
    """An earlier version costs two more files to open, lists nothing, and imports no HDF5 library."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, folder, names[1]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    opened, imported = done.stdout.split("\n")[:2]
    shards = ["000000-0000-0000.h5", "000001-0000-0000.h5"]
    kept = [f"{names[1]}.extents.bin", f"{names[1]}.json"]
    assert opened.split() == sorted([*shards, *kept, "extents.bin", "max_map_count", "shards.json"])
    assert imported == ""


@pytest.mark.parametrize("damage", ["none there", "cut", "of another version"])
def test_extents_of_a_version_are_rebuilt(folder, names, damage):
    """Without a usable sidecar the extents are derived from the shards, and nothing is written into the corpus."""
    sidecar = folder / extents_name(names[1])
    if damage == "none there":
        sidecar.unlink()
    elif damage == "cut":
        sidecar.write_bytes(sidecar.read_bytes()[:-1])
    else:
        sidecar.write_bytes((folder / extents_name(names[0])).read_bytes())
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}
    assert same_as(headrace.open(folder, version=names[1]), SHARDS[:2])
    assert {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))} == before


@pytest.mark.parametrize("version", ["0" * 64, "00000000", "f" * 63])
def test_an_unknown_version(folder, names, version):
    """The error names the versions that there are, the newest as such."""
    with pytest.raises(MissingShardError, match=f"holds no version {version}") as caught:
        headrace.open(folder, version=version)
    assert {problem.place: problem.reason for problem in caught.value.problems} == {
        names[0]: "kept",
        names[1]: "kept",
        names[2]: "the current one",
    }


@pytest.mark.parametrize("version", ["", "abc", "0" * 7, "0" * 65, "F" * 64, "../../x", "latest--"])
def test_what_is_no_version(folder, version):
    """Anything but 8 to 64 lower-case hex digits is refused before a file is looked for."""
    with pytest.raises(ValueError, match="8 to 64 lower-case hex digits"):
        headrace.open(folder, version=version)


def test_a_prefix_of_several_versions(folder, names):
    """It is refused, and each that it fits is named; the whole fingerprint still opens."""
    other = names[0][:12] + "0" * 52
    (folder / VERSIONS / f"{other}.json").write_bytes(b"{}")
    with pytest.raises(FormatError, match="2 versions begin with") as caught:
        headrace.open(folder, version=names[0][:12])
    assert {problem.place for problem in caught.value.problems} == {names[0], other}
    assert same_as(headrace.open(folder, version=names[0]), SHARDS[:1])


def test_a_kept_index_that_is_not_what_its_name_says(folder, names):
    """Damage is an error that names the file, never another corpus under that name."""
    kept = folder / VERSIONS / f"{names[0]}.json"
    kept.write_bytes((folder / VERSIONS / f"{names[1]}.json").read_bytes())
    with pytest.raises(ManifestError, match=rf"{names[0]}\.json: holds the corpus {names[1]}"):
        headrace.open(folder, version=names[0])
    kept.write_bytes(kept.read_bytes()[:200])
    with pytest.raises(ManifestError, match=rf"{names[0]}\.json: line"):
        headrace.open(folder, version=names[0][:8])


def test_stray_files_among_the_versions(folder, names):
    """What has no fingerprint for a name is no version."""
    for name in (f"{names[0][:8]}.json", f".{names[0]}.json.1.tmp", f"{names[0]}.json.bak", "notes.txt"):
        (folder / VERSIONS / name).write_bytes(b"no index")
    assert same_as(headrace.open(folder, version=names[0][:8]), SHARDS[:1])


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_versions_need_no_newest(folder, names, damage):
    """An index that is damaged or gone takes only its own version with it."""
    index = folder / INDEX_NAME
    cut = index.read_bytes()[:100]
    index.unlink()
    if damage == "cut":
        index.write_bytes(cut)
    assert same_as(headrace.open(folder, version=names[1]), SHARDS[:2])
    with pytest.raises(MissingShardError, match="holds no version"):
        headrace.open(folder, version=names[2])
    for kept in (folder / VERSIONS).iterdir():
        kept.unlink()
    with pytest.raises((MissingShardError, ManifestError), match=r"shards\.json"):
        headrace.open(folder, version=names[1])


def test_a_run_that_began_before_an_append_stays_on_its_version(folder, names):
    """One that is open, one that is opened from a pickle, and one that another process opens from it."""
    keep(folder, 3)
    publish(folder, names[1])
    corpus = headrace.open(folder)
    corpus[0]
    sent = pickle.dumps(corpus)
    keep(folder, 2)
    publish(folder, names[2])
    assert headrace.open(folder).fingerprint.hex == names[2]
    assert same_as(corpus, SHARDS[:2])
    assert same_as(pickle.loads(sent), SHARDS[:2])  # noqa: S301  # our own bytes
    assert same_as(pickle.loads(pickle.dumps(pickle.loads(sent))), SHARDS[:2])  # noqa: S301
    code = "import pickle, sys; corpus = pickle.load(sys.stdin.buffer); print(corpus.fingerprint, len(corpus))"
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert done.stdout.decode().split() == [names[1], str(len(corpus))]


def test_between_the_sidecar_and_the_index_of_an_append(folder, names):
    """Where the newest index is still the old one, but its sidecar is the new one already, the kept one serves."""
    keep(folder, 3)
    publish(folder, names[1], sidecar=False)
    (folder / extents_name(names[2])).replace(folder / SIDECAR)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.replace(", version=sys.argv[2]", ""), folder],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[1] == ""
    assert same_as(headrace.open(folder), SHARDS[:2])


def test_a_corpus_that_was_replaced_is_not_taken_for_the_old_one(folder, names):
    """A pickle of a corpus that is gone says so, and what there is."""
    sent = pickle.dumps(headrace.open(folder))
    small_corpus(folder, SHARDS[::-1])
    with pytest.raises(MissingShardError, match=f"holds no version {names[2]}"):
        pickle.loads(sent)  # noqa: S301  # our own bytes


def test_a_plan_made_for_a_version(folder, names):
    """Plan and corpus are compared by fingerprint: the version fits, the newest does not."""
    corpus = headrace.open(folder, version=names[1])
    plan = Plan(order="blocks", token_count=len(corpus), window=16, batch_size=4, seed=1, corpus=names[1])
    batch = Loader(corpus, plan).batch(3)
    np.testing.assert_array_equal(batch.input_ids[0], corpus[batch.starts[0] : batch.starts[0] + 16])
    with pytest.raises(ValueError, match="token_count"):
        Loader(headrace.open(folder), plan)


def test_a_file_has_one_version(folder):
    """A single shard is opened at the fingerprint it has, and refused at any other; pickles notice a replaced file."""
    path = folder / "000001-0000-0000.h5"
    corpus = headrace.open(path)
    assert headrace.open(path, version=corpus.fingerprint.hex[:9]).fingerprint == corpus.fingerprint
    sent = pickle.dumps(corpus)
    (folder / "000000-0000-0000.h5").replace(path)
    for ask in (lambda: headrace.open(path, version=corpus.fingerprint), lambda: pickle.loads(sent)):  # noqa: S301
        with pytest.raises(MissingShardError, match=f"not version {corpus.fingerprint}"):
            ask()
