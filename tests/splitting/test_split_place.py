"""What may lie in the output of a split, what is refused by name, and what is said of requests that make no sense."""

import os
import shutil
from pathlib import Path

import h5py
import pytest

import headrace
from headrace.building.output import OutputFolder
from headrace.errors import (
    BuildError,
    CorruptShardError,
    FormatError,
    NoDocumentsError,
    OutputExistsError,
    SplitError,
    TokenizerError,
    WriterError,
)
from headrace.events import Notice
from headrace.manifest import read_manifest
from headrace.splitting import making
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing.corpora import small_corpus

HALVES = {"val": 0.5}


def problems(error: headrace.HeadraceError) -> dict[str, str]:
    """Place and reason of each fault."""
    return {problem.place: problem.reason for problem in error.problems}


@pytest.mark.parametrize(
    ("fractions", "options", "place", "reason"),
    [
        ({}, {}, "fractions", "at least one part"),
        ({"val": 0}, {}, "val", "from 2**-64 to 1, such as 0.001, found 0"),
        ({"val": "-0.1"}, {}, "val", "found '-0.1'"),
        ({"val": "1e-30"}, {}, "val", "from 2**-64"),
        ({"val": "1e999999999"}, {}, "val", "to 1"),
        ({"val": "nan"}, {}, "val", "found 'nan'"),
        ({"val": "one"}, {}, "val", "found 'one'"),
        ({"val": "1/2"}, {}, "val", "a decimal"),
        (
            {"a": "0.6", "b": "0.4000000000000000001"},
            {},
            "fractions",
            "more than 1 in all: 0.6 + 0.4000000000000000001",
        ),
        ([("val", 0.1), ("val", 0.2)], {}, "val", "is given twice"),
        ({"val": 0.1, "VAL": 0.2}, {}, "VAL", "is given twice"),
        ({"train": 0.9}, {}, "train", "is the name of the rest, too"),
        ({"val": 1}, {"rest": "train"}, "rest", "nothing is left for 'train'"),
        ({"val": 0.5}, {"rest": ""}, "rest", "wanted a name"),
        ({"a/b": 0.1}, {}, "'a/b'", "plain folder name"),
        ({".a": 0.1}, {}, "'.a'", "plain folder name"),
        ({"": 0.1}, {}, "''", "plain folder name"),
        ({"val": 0.1}, {"rest": ".."}, "'..'", "plain folder name"),
        ({"val": 0.1}, {"seed": -1}, "seed", "at least 0"),
        ({"val": 0.1}, {"seed": 2**63}, "seed", "below"),
        ({"val": 0.1}, {"seed": 0.5}, "seed", "an integer"),
    ],
)
def test_no_split(tmp_path, fractions, options, place, reason):
    """What makes no split is said before the corpus is looked at."""
    with pytest.raises(SplitError) as error:
        headrace.split(tmp_path / "nothing", tmp_path / "o", fractions, **options)
    assert reason in problems(error.value)[place]
    assert isinstance(error.value, ValueError)


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    """Of several faults, each."""
    with pytest.raises(SplitError) as error:
        headrace.split(tmp_path, tmp_path / "o", {"a/b": 2, "c": 0.7, "d": 0.7}, seed=-3)
    assert len(error.value.problems) == 4


def test_fractions_are_the_decimals_that_they_are_written_as(small, tmp_path):
    """Ten tenths are one, as floats too; trailing zeros and other spellings make no other split."""
    report = headrace.split(small, tmp_path / "o", {f"p{number}": 0.1 for number in range(10)})
    assert [part.name for part in report.parts] == [f"p{number}" for number in range(10)]
    headrace.split(small, tmp_path / "p", [("val", "0.250")])
    report = headrace.split(small, tmp_path / "p", [("val", "25e-2")])
    assert (report.kept, report.parts[0].fraction) == (2, "0.25")


def test_what_cannot_be_split(tmp_path, small, data):
    """A corpus without a document index, one file, and what is no corpus are refused, and nothing is made."""
    with pytest.raises(NoDocumentsError, match="is of version 1, which stores no document index"):
        headrace.split(data / "formats" / "lesson_hdf5", tmp_path / "o", HALVES)
    with pytest.raises(FormatError, match="is one HDF5 file; wanted a corpus"):
        headrace.split(next(small.glob("*.h5")), tmp_path / "o", HALVES)
    with pytest.raises(FormatError, match="is a Lance data set; wanted a corpus"):
        headrace.split(data / "formats" / "lance_recipe_int64" / "wikitext_like.lance", tmp_path / "o", HALVES)
    with pytest.raises(FileNotFoundError, match="no such file"):
        headrace.split(tmp_path, tmp_path / "o", HALVES)
    with pytest.raises(SplitError, match="stores no hashes of texts"):
        headrace.split(small, tmp_path / "o", HALVES, by="text")
    with pytest.raises(SplitError, match="by is 'auto', 'text' or 'tokens', not 'lines'"):
        headrace.split(small, tmp_path / "o", HALVES, by="lines")
    with pytest.raises(WriterError, match="compression 'lz4'"):
        headrace.split(small, tmp_path / "o", HALVES, compression="lz4")
    with pytest.raises(BuildError, match="empty path"):
        headrace.split(small, "", HALVES)
    assert not (tmp_path / "o").exists()


def test_parts_go_into_no_corpus(small, tmp_path, files):
    """Neither into the one that is split, nor into another, nor in its place."""
    before = files(small)
    with pytest.raises(OutputExistsError, match=r"c: holds a corpus \(shards.json\)"):
        headrace.split(small, small, HALVES)
    with pytest.raises(OutputExistsError) as error:
        headrace.split(small, tmp_path, HALVES, rest="c")
    assert problems(error.value) == {"c": "is the corpus that is to be split"}
    assert files(small) == before
    assert not (tmp_path / ".headrace").exists()
    assert not (tmp_path / "val").exists()


def test_what_is_there_is_refused_by_name(small, tmp_path, files):
    """Files, links, folders with something in them, other corpora, parts of other splits: all named, none touched."""
    output = tmp_path / "o"
    headrace.split(small, output, {"seed": 0.5, "other": 0.1}, seed=1, rest="left")
    (output / "file").write_text("mine")
    (output / "link").symlink_to("nowhere")
    (output / "full").mkdir()
    (output / "full" / "notes.txt").write_text("mine")
    shutil.copytree(small, output / "corpus")
    shutil.copytree(output / "left", output / "renamed")
    shutil.copytree(output / "other", output / "broken")
    (output / "broken" / "shards.json").write_text("{}")
    (output / "empty").mkdir()
    before = files(output)
    names = ("seed", "file", "link", "full", "corpus", "renamed", "broken", "empty")
    with pytest.raises(OutputExistsError) as error:
        headrace.split(small, output, dict.fromkeys(names, "0.1"), seed=2)
    found = problems(error.value)
    assert set(found) == {*names} - {"empty"}
    assert (
        "is of another split: seed was 1, is 2; fractions was seed=0.5, other=0.1, is seed=0.1, file=0.1"
        in found["seed"]
    )
    assert found["file"] == found["link"] == "is no folder"
    assert found["full"] == "holds 'notes.txt', and is no part of this split"
    assert found["corpus"] == found["renamed"] == "holds another corpus"
    assert "cannot be used" in found["broken"]
    assert files(output) == before


def test_the_same_command_again(small, tmp_path, files):
    """It checks the parts, and makes those again that are gone or damaged; other files in the folder stay."""
    output = tmp_path / "o"
    output.mkdir()
    (output / "notes.txt").write_text("mine")
    headrace.split(small, output, {"val": 0.5, "test": 0.25})
    before = files(output)
    events = []
    assert headrace.split(small, output, {"val": 0.5, "test": 0.25}, on_event=events.append).kept == 3
    assert [event.kind for event in events if isinstance(event, Notice)] == ["resumed"]
    shutil.rmtree(output / "test")
    shard = next((output / "val").glob("*.h5"))
    shard.write_bytes(shard.read_bytes()[:-1])
    (output / "val" / "shards.json").touch()
    assert headrace.split(small, output, {"val": 0.5, "test": 0.25}, on_event=events.append).kept == 1
    assert any("val is there, but not whole" in event.message for event in events if isinstance(event, Notice))
    assert files(output) == before


def test_a_lance_part_that_is_not_whole(tmp_path, documents):
    """It is made again, in files of other names and a version of its own; nothing is left of what was damaged."""
    pytest.importorskip("lance")
    headrace.build(
        headrace.Documents([f"text {number}" for number in range(40)]), tmp_path / "c", store="lance", workers=1
    )
    wanted = {
        part.name: part.fingerprint for part in headrace.split(tmp_path / "c", tmp_path / "o", {"val": 0.3}).parts
    }
    (shard,) = (tmp_path / "o" / "val" / "tokens.lance" / "data").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    report = headrace.split(tmp_path / "c", tmp_path / "o", {"val": 0.3})
    assert {part.name: part.fingerprint for part in report.parts} == wanted
    assert len(documents(tmp_path / "o" / "val")) == report.parts[0].documents
    (mended,) = (tmp_path / "o" / "val" / "tokens.lance" / "data").iterdir()
    assert mended.name != shard.name
    for data_set in ("tokens.lance", "docs.lance"):
        assert len(list((tmp_path / "o" / "val" / data_set / "_versions").glob("*.manifest"))) == 1
    with pytest.raises(SplitError, match="not compressed"):
        headrace.split(tmp_path / "c", tmp_path / "p", {"val": 0.3}, compression="gzip")
    assert not (tmp_path / "p").exists()


def test_other_options_are_another_split(small, tmp_path):
    """Seed, fractions, the name of the rest, compression, kind of hash and corpus: each difference is told."""
    headrace.split(small, tmp_path / "o", HALVES)
    for options, told in (
        ({"seed": 1}, "seed was 0, is 1"),
        ({"compression": "gzip"}, "compression was none, is gzip:4"),
    ):
        with pytest.raises(OutputExistsError) as error:
            headrace.split(small, tmp_path / "o", HALVES, **options)
        assert problems(error.value) == dict.fromkeys(("val", "train"), f"is of another split: {told}")
    with pytest.raises(OutputExistsError) as error:
        headrace.split(small, tmp_path / "o", HALVES, rest="left")
    assert problems(error.value) == {"val": "is of another split: rest was train, is left"}
    headrace.build(tmp_path / "in" / "a.jsonl", small, append=True, workers=1, allow_duplicates=True, chunk_tokens=32)
    with pytest.raises(OutputExistsError, match="base was"):
        headrace.split(small, tmp_path / "o", HALVES)


def test_builds_into_a_part(small, tmp_path, documents):
    """The command that built the corpus does not take a part for its own; more can be appended to a part, which it stays."""
    headrace.split(small, tmp_path / "o", HALVES)
    part = tmp_path / "o" / "val"
    options = {"chunk_tokens": 32, "shard_tokens": 500, "on_bad_input": "skip", "max_bad": 1, "workers": 1}
    with pytest.raises(OutputExistsError) as error:
        headrace.build(tmp_path / "in", part, **options)
    assert problems(error.value) == {"splits": "it is the part 'val' of a split"}
    with pytest.raises(OutputExistsError, match="would be in the corpus twice"):
        headrace.build(tmp_path / "in" / "a.jsonl", part, append=True, **options)
    (tmp_path / "more.jsonl").write_text('{"text": "more"}\n')
    found = documents(part)
    headrace.build(tmp_path / "more.jsonl", part, append=True, **options)
    assert documents(part) == [*found, [*(byte + 1 for byte in b"more"), 0]]
    assert read_manifest(part).splits[-1].part == "val"
    with pytest.raises(OutputExistsError) as error:
        headrace.split(small, tmp_path / "o", HALVES)
    assert problems(error.value) == {"val": "was appended to since, 1 times"}


def test_one_split_at_a_time(small, tmp_path):
    """While another holds the folder, a split is refused."""
    with (
        OutputFolder(tmp_path / "o", of="split"),
        pytest.raises(OutputExistsError, match="another split is at work there"),
    ):
        headrace.split(small, tmp_path / "o", HALVES)


def test_parts_on_other_disks(small, tmp_path, documents):
    """A part's folder may be a link to an empty folder elsewhere."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "val").symlink_to(tmp_path / "disk")
    headrace.split(small, tmp_path / "o", HALVES)
    assert documents(tmp_path / "disk")
    assert headrace.split(small, tmp_path / "o", HALVES).kept == 2


@pytest.mark.parametrize(
    ("where", "workers", "error", "told"),
    [
        ("tokens", 1, CorruptShardError, "the SHA-256 of its tokens is"),
        ("tokens", 2, CorruptShardError, "the SHA-256 of its tokens is"),
        ("end", 1, CorruptShardError, "the SHA-256 of its document ends is"),
        ("source_row", 1, CorruptShardError, "the SHA-256 of its sources is"),
        ("source_file", 1, CorruptShardError, "it names source file 1 of 1"),
        ("attribute", 1, CorruptShardError, "documents_sha256 is 0000"),
        ("cut", 1, CorruptShardError, "is truncated"),
        ("gone", 1, FileNotFoundError, "no such file"),
        ("tokenizer", 1, TokenizerError, "is not the tokenizer that it says"),
    ],
)
def test_damage_is_not_copied(small, tmp_path, where, workers, error, told):
    """One wrong byte of what is read stops the split, naming the file; nothing is left."""
    shards = sorted(small.glob("*.h5"))
    path = shards[1]
    if where == "tokens":
        layout = inspect_shard(path)
        with path.open(
            "r+b"
        ) as file:  # in the second chunk: those at the ends have checksums that are looked at anyway
            file.seek(int(layout.offset[0]) + 2 * 40)
            file.write(b"\x05")
    elif where == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif where == "gone":
        path.unlink()
    elif where == "tokenizer":
        path = small / "tokenizer"
        text = (path / "headrace.json").read_text()
        (path / "headrace.json").write_text(text.replace("257", "258"))
    else:
        with h5py.File(path, "r+") as file:
            if where == "attribute":
                file["tokens"].attrs.modify("documents_sha256", b"0" * 64)
            else:
                file[f"documents/{where}"][3] += 1
    with pytest.raises(error, match=told) as raised:
        headrace.split(small, tmp_path / "o", HALVES, workers=workers)
    assert str(path) in str(raised.value)
    assert not (tmp_path / "o").exists()


def test_a_damaged_loss_mask_is_not_copied(tmp_path):
    """One wrong bit of a mask is damage like any other."""
    shards = [[[1, 2, 3]] * 20]
    masks = [[[0, 1, 1, 1]] * 20]
    small_corpus(tmp_path / "c", shards, chunk_size=16, masks=masks)
    with h5py.File(tmp_path / "c" / "000000-0000-0000.h5", "r+") as file:
        file["loss_mask"][33] = 0
    with pytest.raises(CorruptShardError, match="the SHA-256 of its loss mask is"):
        headrace.split(tmp_path / "c", tmp_path / "o", HALVES)
    assert not (tmp_path / "o").exists()


def test_a_full_disk(small, tmp_path, monkeypatch):
    """Too little free space is an error that says how much is there and needed; nothing is left."""

    class Full:
        f_bavail, f_frsize = 10, 40

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    with pytest.raises(BuildError, match="the disk will not hold the parts: they need"):
        headrace.split(small, tmp_path / "o", HALVES, workers=1)
    with pytest.raises(BuildError, match="the disk is full: 400 bytes are free"):
        headrace.split(small, tmp_path / "o", HALVES, compression="gzip", workers=1)
    assert not (tmp_path / "o").exists()


def test_the_output_cannot_be_written(small, tmp_path):
    """A file in its place, or a place where no folder can be made, is an error before any work."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputExistsError, match="file: is a file; wanted a folder"):
        headrace.split(small, tmp_path / "file", HALVES)
    place = Path("/proc/headrace") if os.geteuid() == 0 else tmp_path / "closed" / "o"
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(BuildError, match="cannot be written"):
        headrace.split(small, place, HALVES)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_failure_while_publishing(small, tmp_path, monkeypatch, step):
    """Where a part cannot be published, none stays published, and the reason names the file."""
    publish, calls = making.publish_corpus, []

    def fail(folder, *rest):
        calls.append(folder)
        if len(calls) > step:
            raise OSError(5, "Input/output error", str(folder / "shards.json"))
        publish(folder, *rest)

    monkeypatch.setattr(making, "publish_corpus", fail)
    with pytest.raises(BuildError, match=r"shards\.json: cannot be written: Input/output error; nothing was published"):
        headrace.split(small, tmp_path / "o", {"val": 0.3, "test": 0.3})
    assert not (tmp_path / "o").exists()


def test_a_corpus_without_provenance(tmp_path, documents):
    """Of documents whose sources are not recorded the parts record none."""
    small_corpus(tmp_path / "c", [[[1, 2], [3], [4, 5]] * 9], chunk_size=4)
    headrace.split(tmp_path / "c", tmp_path / "o", HALVES)
    assert len(documents(tmp_path / "o" / "val")) + len(documents(tmp_path / "o" / "train")) == 27
    with headrace.open(tmp_path / "o" / "train") as corpus:
        assert corpus.locate(0).source is None
