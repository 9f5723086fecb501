"""`headrace verify`: every kind of damage is found, named with its place, and exit code 1."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as library
from headrace.tokenizers.base import REF_NAME


@pytest.fixture
def corpus(known, tmp_path) -> Path:
    """A copy of the known corpus, to be damaged."""
    shutil.copytree(known.path, tmp_path / "c")
    return tmp_path / "c"


def flip(corpus: Path, shard_id: str, token: int) -> int:
    """Change one byte of a token of a shard; returns the chunk of 64 tokens that it lies in."""
    path = corpus / f"{shard_id}.h5"
    with library.open(path) as shard:
        chunk = token // 64
        stored = shard[chunk * 64 : chunk * 64 + 64].tobytes()
    data = bytearray(path.read_bytes())
    assert data.count(stored) == 1
    data[data.index(stored) + token % 64 * 2] ^= 1
    path.write_bytes(data)
    return chunk


@pytest.mark.parametrize("quick", [False, True])
def test_a_whole_corpus(headrace, known, quick):
    """Of a whole corpus every shard is ok, exit code 0; quick says so; the fingerprint is there; JSON has a line a shard."""
    flags = ["--quick"] if quick else []
    ran = headrace("verify", known.path, *flags)
    ids = sorted(path.stem for path in known.path.glob("*.h5"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:-1] == [f"{name}  ok" for name in ids]
    assert ran.out.splitlines()[-1].startswith(f"{len(ids)} ok; ")
    assert ("(quick)" in ran.out) is quick
    with library.open(known.path) as opened:
        assert ran.out.endswith(f"; fingerprint {opened.fingerprint}\n")
    ran = headrace("verify", known.path, "--json", "--workers", 1, *flags)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["event"], row["shard_id"], row["status"], row["reason"]) for row in rows] == [
        ("ShardVerified", name, "ok", "") for name in ids
    ]


def test_quick_reads_less(headrace, known):
    """Quick reads the ends of a shard, whole verification all of it."""

    def read(*flags: str) -> int:
        ran = headrace("verify", known.path, "--json", *flags)
        return sum(json.loads(line)["bytes_read"] for line in ran.out.splitlines())

    assert read() >= known.starts[-1] * 2
    assert read("--quick") < read()


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_bit(headrace, known, corpus, place):
    """One bit is found by every command that reads it: verify names shard, chunk, tokens, documents and lines."""
    with library.open(corpus) as opened:
        entry = opened.entries[1]
    token = {"first": 0, "middle": 128, "last": entry.token_count - 1}[place]
    chunk = flip(corpus, entry.shard_id, token)
    ran = headrace("verify", corpus)
    assert ran.code == 1
    assert f"{entry.shard_id}  corrupt" in ran.out
    assert "4 ok, 1 corrupt" in ran.out
    assert "headrace: 1 of 5 shards are not ok" in ran.err
    start, stop = chunk * 64, min(chunk * 64 + 64, entry.token_count)
    assert f"{entry.shard_id}.h5: chunk {chunk}: tokens [{start}, {stop}) of the shard " in ran.err
    assert f"(corpus [{entry.global_start + start}, {entry.global_start + stop}))" in ran.err
    first = int(re.search(r"documents? (\d+) .*of the corpus", ran.err)[1])
    name, line = known.origins[first]
    assert f", from {name}:{line}" in ran.err
    quick = headrace("verify", corpus, "--quick")
    assert quick.code == (0 if place == "middle" else 1)
    shown = headrace("show", corpus, "--window", entry.global_start)
    if place != "middle":  # the ends of a shard are checked when it is first read
        assert shown.code == 1
        assert entry.shard_id in shown.err


def test_damage_in_every_shard(headrace, corpus):
    """All damaged shards are judged in one run; the list is as long as asked for, JSON tells all."""
    with library.open(corpus) as opened:
        entries = opened.entries
    for entry in entries:
        flip(corpus, entry.shard_id, 0)
    ran = headrace("verify", corpus, "--max-reported", 2)
    assert ran.code == 1
    assert ran.out.splitlines() == [f"{e.shard_id}  corrupt" for e in entries[:2]] + [
        "... and 3 more",
        ran.out.splitlines()[-1],
    ]
    assert len([line for line in ran.err.splitlines() if line.startswith("  ")]) == 3
    assert ran.err.splitlines()[-1] == "  ... and 3 more"
    ran = headrace("verify", corpus, "--json")
    assert [json.loads(line)["status"] for line in ran.out.splitlines()] == ["corrupt"] * 5


def test_of_many_shards_those_that_are_not_ok_are_listed(headrace, corpus):
    """With more shards than are listed, whole ones are only counted; a list of one shows the damaged one."""
    with library.open(corpus) as opened:
        entry = opened.entries[3]
    ran = headrace("verify", corpus, "--max-reported", 1)
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    flip(corpus, entry.shard_id, 0)
    ran = headrace("verify", corpus, "--max-reported", 1)
    assert ran.out.splitlines()[0] == f"{entry.shard_id}  corrupt"
    assert ran.out.splitlines()[1].startswith("4 ok, 1 corrupt; ")


@pytest.mark.parametrize("flags", [[], ["--quick"], ["--json"]])
def test_the_expected_corpus(headrace, known, flags):
    """`--expect` with the fingerprint or the first digits of it is exit code 0; with another, 1, both said, nothing read."""
    with library.open(known.path) as opened:
        fingerprint = str(opened.fingerprint)
    for expect in (fingerprint, fingerprint[:8]):
        assert headrace("verify", known.path, "--expect", expect, *flags).code == 0
    other = "0" * 12 if not fingerprint.startswith("0") else "f" * 12
    ran = headrace("verify", known.path, "--expect", other, *flags)
    assert (ran.code, ran.out) == (1, "")
    assert f"{known.path}/shards.json: wanted the corpus with fingerprint {other}, found {fingerprint}: " in ran.err


@pytest.mark.parametrize("expect", ["", "abcdef1", "latest", "0" * 65])
def test_what_is_no_fingerprint(headrace, known, expect):
    """It is wrong usage: exit code 2, before anything is opened."""
    ran = headrace("verify", known.path, "--expect", expect)
    assert (ran.code, ran.out) == (2, "")
    assert "8 to 64 of 0-9 and a-f" in ran.err.replace("\n", " ")


def test_the_copy_of_the_tokenizer(headrace, corpus):
    """A changed byte of what the copy in the corpus says of itself is found, and named; none is no fault."""
    copy = corpus / "tokenizer" / REF_NAME
    good = copy.read_bytes()
    places = [at for at, byte in enumerate(good) if chr(byte).isalnum()]
    for at in places[::9]:
        bad = bytearray(good)
        bad[at] ^= 1
        copy.write_bytes(bad)
        ran = headrace("verify", corpus, "--quick")
        assert ran.code == 1, bad
        assert ran.err.startswith("headrace: tokenizer is not ok\n")
        assert f"{corpus}/tokenizer" in ran.err
        assert "tokenizer  corrupt" in ran.out
        assert "5 ok, 1 corrupt" in ran.out
    copy.unlink()
    assert headrace("verify", corpus).code == 1
    (corpus / "tokenizer").rmdir()
    assert headrace("verify", corpus).code == 0


def test_a_tokenizer_that_is_not_that_of_the_index(headrace, corpus):
    """The index and the copy of the tokenizer must name the same one; with --json it is an event like a shard's."""
    index = corpus / "shards.json"
    index.write_text(index.read_text().replace('"name": "bytes"', '"name": "bites"'))
    ran = headrace("verify", corpus, "--json")
    assert ran.code == 1
    assert json.loads(ran.out.splitlines()[-1])["shard_id"] == "tokenizer"
    assert "says bytes 'bites' of 257 ids" in ran.err


def test_shards_and_index_together(headrace, corpus):
    """The summary names all that is not ok."""
    index = corpus / "shards.json"
    index.write_text(index.read_text().replace('"options"', '"optoins"'))
    (corpus / "000001-0000-0000.h5").unlink()
    ran = headrace("verify", corpus)
    assert ran.err.startswith("headrace: 1 of 5 shards and shards.json are not ok\n")
    assert "shards.json: options: is not there" in ran.err


def remove(path: Path) -> None:
    """Gone."""
    path.unlink()


def cut(path: Path) -> None:
    """Half of it."""
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    """Nothing of it."""
    path.write_bytes(b"")


def other(path: Path) -> None:
    """Something else."""
    path.write_bytes(b"no HDF5" * 1000)


def folder(path: Path) -> None:
    """A folder in its place."""
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    """A link to itself."""
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("damage", "statuses"),
    [
        (remove, {"missing"}),
        (cut, {"corrupt"}),
        (empty, {"corrupt"}),
        (other, {"corrupt"}),
        (folder, {"missing", "unreadable"}),
        (loop, {"missing", "unreadable"}),
    ],
)
def test_a_shard_that_is_not_there_as_it_was(headrace, corpus, damage: Callable[[Path], None], statuses):
    """A shard that is gone, cut, replaced, or no file is named with what is wrong; info and show say so, too."""
    path = corpus / "000001-0000-0000.h5"
    damage(path)
    for flags in ([], ["--quick"]):
        ran = headrace("verify", corpus, *flags)
        assert ran.code == 1
        assert ran.out.split("000001-0000-0000  ")[1].split()[0] in statuses
        assert "4 ok, 1 " in ran.out
        assert ran.err.count(path.name) == 1
    for arguments in (["info"], ["show", "--document", 20]):
        ran = headrace(*arguments, corpus)
        assert (ran.code, ran.out) == (1, "")
        assert path.name in ran.err


def test_a_path_that_leads_nowhere(headrace, tmp_path):
    """It is said what could be there; as `info` says it."""
    ran = headrace("verify", tmp_path / "corpuss")
    assert (ran.code, ran.out) == (1, "")
    assert "corpuss: no such file; wanted a corpus folder" in ran.err
    assert headrace("info", tmp_path / "corpuss").err == ran.err


def test_a_shard_that_may_not_be_read(headrace, corpus, bound_by_modes):
    """A shard without permission is unreadable: it was not judged."""
    (corpus / "000001-0000-0000.h5").chmod(0)
    with bound_by_modes():
        ran = headrace("verify", corpus)
    assert ran.code == 1
    assert "000001-0000-0000  unreadable" in ran.out


def test_swapped_shards(headrace, corpus):
    """Two whole shards under each other's names are both found."""
    with library.open(corpus) as opened:
        a, b = (Path(entry.path) for entry in opened.entries[:2])
    a.rename(corpus / "x")
    b.rename(a)
    (corpus / "x").rename(b)
    ran = headrace("verify", corpus)
    assert ran.code == 1
    assert ran.out.count("corrupt") == 3
    assert "3 ok, 2 corrupt" in ran.out or "2 corrupt, 3 ok" in ran.out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 2', '"version": 3', "version: wanted 1 or 2, found 3"),
        ('"token_count"', '"tokens"', "token_count"),
        ("{", "", "line 2 column"),
        ('"000001-0000-0000.h5"', '"../000001-0000-0000.h5"', "leaves the index's folder"),
    ],
)
def test_a_damaged_index(headrace, corpus, old, new, message):
    """A damaged `shards.json` is exit code 1 under every command, with the place in it."""
    index = corpus / "shards.json"
    index.write_text(index.read_text().replace(old, new, 1))
    for arguments in (["verify"], ["info"], ["show", "--at", 0]):
        ran = headrace(*arguments, corpus)
        assert (ran.code, ran.out) == (1, "")
        assert "shards.json" in ran.err
        assert message in ran.err


def test_one_file(headrace, known):
    """One shard is verified against what it says of itself."""
    ran = headrace("verify", known.path / "000000-0000-0000.h5")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "000000-0000-0000  ok")


def test_by_folder_and_by_index(headrace, known, monkeypatch):
    """A corpus is named by its folder or its index, relative or absolute, from anywhere."""
    outs = [headrace("verify", path).out for path in (known.path, known.path / "shards.json")]
    monkeypatch.chdir(known.path)
    outs += [headrace("verify", path).out for path in (".", "shards.json", "../corpus/")]
    assert len(set(outs)) == 1
