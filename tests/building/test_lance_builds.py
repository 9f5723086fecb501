"""Builds of Lance corpora: the same content as those of HDF5, versions that are pinned, and damage that is located."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import BuildError, OutputExistsError
from headrace.shard_paths import load_index
from headrace.storage.lance_names import docs_path
from headrace.verify import verify_path, verify_shards

pytest.importorskip("lance")

ZERO_BYTE = f"{(1 << 64) - 1 - 2:020d}.manifest"
"""What version 2 of a data set is called."""


@pytest.fixture
def sources(tmp_path) -> Path:
    """Three files with ids, of which the second repeats texts of the first."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, words in enumerate((["one", "two", "three " * 30], ["two", "four"], ["five " * 9, "six"])):
        lines = [json.dumps({"text": word, "id": f"{number}-{word[:3]}"}) + "\n" for word in words]
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


def build(sources, output, **options):
    """A Lance corpus, by one process if nothing else is said."""
    return headrace.build(sources, output, **{"store": "lance", "workers": 1, "chunk_tokens": 8, **options})


def data_files(output: Path) -> list[str]:
    """Names of the data files of both data sets, which must be the same."""
    found = [
        sorted(path.name for path in (output / name / "data").iterdir()) for name in ("tokens.lance", "docs.lance")
    ]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_content_of_an_hdf5_corpus(sources, tmp_path, workers):
    """Tokens, documents, where they are from, their ids and hashes of texts are the same, whoever wrote them."""
    options = {"shard_tokens": 60, "id_field": "id", "dedup": "exact", "text_split": "none"}
    build(sources, tmp_path / "lance", workers=workers, **options)
    build(sources, tmp_path / "hdf5", store="hdf5", **options)
    ours, theirs = (headrace.open(tmp_path / name, verify="full") for name in ("lance", "hdf5"))
    assert ours.fingerprint == theirs.fingerprint
    assert [entry.sources_sha256 for entry in ours.entries] == [entry.sources_sha256 for entry in theirs.entries]
    assert np.array_equal(ours[:], theirs[:])
    for number in range(len(theirs.documents)):
        position = theirs.documents.bounds(number)[0]
        assert ours.locate(position) == theirs.locate(position)
        assert np.array_equal(ours.documents[number], theirs.documents[number])
    assert not [report.fault for report in verify_path(tmp_path / "lance") if not report.ok]


def test_what_is_not_stored_is_refused(sources, tmp_path):
    """Compression, before anything is made."""
    with pytest.raises(BuildError, match="compression"):
        build(sources, tmp_path / "out", compression="gzip")
    assert not (tmp_path / "out").exists()


def test_appends_are_versions(sources, tmp_path):
    """Each published corpus has a version and a tag of its own, under which the recipe and `open` find it."""
    import lance

    output = tmp_path / "out"
    first = build([sources / "0.jsonl"], output)
    second = build([sources / "2.jsonl"], output, append=True)
    tokens = lance.dataset(output / "tokens.lance")
    tags = {name: tag["version"] for name, tag in tokens.tags.list().items()}
    assert tags == {f"headrace-{report.fingerprint[:16]}": number for number, report in enumerate((first, second), 1)}
    old, new = headrace.open(output, version=first.fingerprint), headrace.open(output)
    assert (len(old), len(new)) == (lance.dataset(output / "tokens.lance", version=1).count_rows(), tokens.count_rows())
    assert not [report.fault for report in verify_path(output) if not report.ok]
    with pytest.raises(OutputExistsError, match="store"):
        build([sources / "1.jsonl"], output, append=True, store="hdf5")
    third = build([sources / "1.jsonl"], output, overwrite=True)
    assert [*lance.dataset(output / "tokens.lance").tags.list()] == [f"headrace-{third.fingerprint[:16]}"]
    assert len(data_files(output)) == 1
    build([sources / "1.jsonl"], output, overwrite=True, store="hdf5")
    assert not list(output.glob("*.lance"))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_version_without_bytes(sources, tmp_path, mode):
    """As a power failure leaves it: the corpus opens, by the version that it is; the next build removes it."""
    output = tmp_path / "out"
    build([sources / "0.jsonl"], output)
    for name in ("tokens.lance", "docs.lance"):
        (output / name / "_versions" / ZERO_BYTE).touch()
    headrace.open(output, verify="full").close()
    assert not [report.fault for report in verify_path(output) if not report.ok]
    build([sources / "1.jsonl"], output, **{mode: True})
    assert not [report.fault for report in verify_path(output) if not report.ok]
    assert json.loads((output / "shards.json").read_bytes())["lance"]["tokens"] == 2


@pytest.mark.parametrize("damage", ["no bytes", "a panic"])
def test_a_damaged_version_is_mended(sources, tmp_path, damage):
    """Of a version without bytes, or on which Lance panics, verify tells; the same command commits what is there anew."""
    output = tmp_path / "out"
    build(sources, output)
    names = data_files(output)
    (manifest,) = (output / "tokens.lance" / "_versions").glob("*.manifest")
    data = bytearray(manifest.read_bytes())
    data[int.from_bytes(data[-16:-8], "little") + 3] ^= 0x37  # of a length
    manifest.write_bytes(data if damage == "a panic" else b"")
    (fault,) = [report.problems for report in verify_path(output) if not report.ok]
    assert "version 1 cannot be opened" in str(fault[0])
    build(sources, output)
    assert not [report.fault for report in verify_path(output) if not report.ok]
    assert data_files(output) == names


WORDS = {
    "of a column": (b"input_ids", b"input^ids"),
    "of its type": (b"uint16", b"uint32"),
    "of a data file": (b"000001-0000-0000", b"000007-0000-0000"),
    "of the vocabulary": (b"257", b"256"),
    "of fields": (b"\x12\x01\x00\x1a\x01\x00", b"\x12\x01\x03\x1a\x01\x00"),
    "of columns in the file": (b"\x12\x01\x00\x1a\x01\x00", b"\x12\x01\x00\x1a\x01\x03"),
}
"""What a manifest says, and something else of the same length, with which Lance opens the version all the same."""


@pytest.mark.parametrize("words", WORDS)
def test_a_version_that_says_something_else(sources, tmp_path, words):
    """Verify tells of a version that can be opened, and is not the shards of the index; the same command mends it."""
    output = tmp_path / "out"
    build(sources, output)
    names = data_files(output)
    (manifest,) = (output / "tokens.lance" / "_versions").glob("*.manifest")
    data = manifest.read_bytes()
    at = data.rindex(WORDS[words][0])  # the version itself; before it lies the transaction that made it
    manifest.write_bytes(data[:at] + data[at:].replace(*WORDS[words]))
    (fault,) = [report for report in verify_path(output) if not report.ok]
    assert Path(fault.path).name == "tokens.lance"
    assert "version 1 " in str(fault.problems[0])
    build(sources, output)
    assert not [report.fault for report in verify_path(output) if not report.ok]
    assert data_files(output) == names


def test_versions_of_others_are_not_touched(sources, tmp_path):
    """Rows that somebody else has added are never removed: a build says so and ends."""
    import lance
    import pyarrow as pa

    output = tmp_path / "out"
    build([sources / "0.jsonl"], output)
    schema = lance.dataset(output / "tokens.lance").schema
    lance.write_dataset(
        pa.table([pa.array([1, 2], pa.uint16())], schema=schema), output / "tokens.lance", mode="append"
    )
    with pytest.raises(BuildError, match="no build has made"):
        build([sources / "1.jsonl"], output, append=True)
    assert lance.dataset(output / "tokens.lance").version == 2
    headrace.open(output, verify="full").close()


def test_damage_is_located(sources, tmp_path):
    """A flipped token: chunk, range, document and source line are named; any other flipped byte is found, too."""
    output = tmp_path / "out"
    build([sources / "0.jsonl"], output)
    manifest = headrace.open(output).manifest
    (entry,) = load_index(output)
    path = Path(entry.path)
    for file in (path, docs_path(path)):
        data = file.read_bytes()
        for at in range(0, len(data), 5):
            file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            (report,) = verify_shards([entry], manifest=manifest)
            assert not report.ok, at
            if file == path and at < 2 * entry.token_count:
                (problem,) = report.problems
                assert problem.place.endswith(f"chunk {at // 16}")
                assert "0.jsonl:" in problem.reason
        file.write_bytes(data[:-1])
        assert not verify_shards([entry], manifest=manifest)[0].ok
        file.write_bytes(data)
    assert verify_shards([entry], manifest=manifest)[0].ok
    for file in (docs_path(path), path):
        file.unlink()
        (report,) = verify_shards([replace(entry)], manifest=manifest)
        assert report.status == "missing"
        assert str(file) in str(report.fault)


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_corpus_is_put_into_a_data_set(sources, tmp_path, overwrite):
    """A folder that is a Lance data set opens as that one: a corpus in it would never be seen."""
    build(sources, tmp_path / "out")
    place = tmp_path / "out" / "tokens.lance"
    before = sorted(place.rglob("*"))
    with pytest.raises(OutputExistsError, match=r"tokens\.lance: is a Lance data set; wanted a folder"):
        build(sources, place, overwrite=overwrite)
    assert sorted(place.rglob("*")) == before
    headrace.open(tmp_path / "out", verify="full").close()


def test_what_is_finished_can_be_followed(sources, tmp_path):
    """Of a build that was stopped by a bad line, the finished source shards open live, and are kept."""
    output = tmp_path / "out"
    with (sources / "2.jsonl").open("a") as file:
        file.write("bad\n")
    with pytest.raises(headrace.HeadraceError):
        build(sources, output, live=True)
    with headrace.open(output, live=True) as corpus:
        assert len(corpus.documents) == 5
    (sources / "2.jsonl").write_text('{"text": "seven", "id": "x"}\n')
    assert build(sources, output).resumed == 2
    assert len(data_files(output)) == 3
    assert not (output / ".headrace" / "writing").exists()


@pytest.mark.extended
def test_what_is_on_disk_when(sources, tmp_path):
    """Every file of the data sets is waited for, and so is each folder that names one, before the index is."""
    strace = "/usr/bin/strace"
    if not Path(strace).exists():
        pytest.skip("strace is not installed")
    options = "store='lance', workers=1, prompt_field='id', response_field='text'"
    program = f"import headrace; headrace.build({str(sources)!r}, {str(tmp_path / 'out')!r}, {options})"
    log = tmp_path / "log"
    calls = "trace=fsync,rename,renameat,renameat2,link,linkat"
    command = [strace, "-f", "-y", "-s", "400", "-e", calls, "-o", log, sys.executable, "-P", "-c", program]
    subprocess.run(command, check=True, capture_output=True)
    lines = log.read_text().splitlines()
    published = next(number for number, line in enumerate(lines) if "shards.json" in line and "rename" in line)
    synced = [line for line in lines[:published] if " fsync(" in line]

    def when(*parts: str) -> int:
        found = [number for number, line in enumerate(synced) if all(part in line for part in parts)]
        assert found, parts
        return found[-1]

    names = ("docs.lance", "loss_mask.lance", "tokens.lance")
    for name in names:
        assert when(f"out/{name}/data>") < when(f"out/{name}/_versions/", ".manifest>") < when(f"out/{name}/_versions>")
        assert when(f"out/{name}/_transactions/") < when(f"out/{name}/_versions/", ".manifest>")
        assert when(f"out/{name}/_versions>") < when(f"out/{name}/_refs/tags>")
    committed = [when(f"out/{name}/_versions>") for name in names]
    assert committed == sorted(committed)
    written = [line for line in synced if "/.headrace/writing/" in line and ".lance>" in line]
    assert len(written) >= 3 * 3
