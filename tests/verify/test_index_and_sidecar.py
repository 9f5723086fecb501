"""What lies beside the shards is verified, too: `shards.json` against them, the extents, and which corpus it is."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import headrace
from headrace.errors import FormatError, ManifestError
from headrace.manifest import Append, checksum_of, read_manifest
from headrace.storage.extents import ExtentTable
from headrace.storage.hdf5_corpus import SIDECAR
from headrace.storage.versions import VERSIONS
from headrace.testing.corpora import random_documents, small_corpus
from headrace.verify import ShardReport, check_expectation, validate_corpus, verify_corpus, verify_path

FORMATS = Path(__file__).parent.parent / "data" / "formats"
Keys = tuple[str | int, ...]


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Two JSON lines files, the first in several shards, and two texts in one."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "in").mkdir()
    for name, count in (("a.jsonl", 30), ("b.jsonl", 3)):
        lines = [json.dumps({"text": "" if row == 2 else f"line {row} of {name}"}) + "\n" for row in range(count)]
        (folder / "in" / name).write_text("".join(lines), encoding="utf-8")
    for name in ("c.txt", "d.txt"):
        (folder / "in" / name).write_text(f"this is {name}", encoding="utf-8")
    headrace.build(folder / "in", folder / "corpus", chunk_tokens=64, shard_tokens=200)
    return folder / "corpus"


@pytest.fixture
def corpus(original, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "corpus"))


def others(corpus: Path) -> list[ShardReport]:
    """The verdicts on the files beside the shards, which are whole."""
    report = verify_corpus(corpus)
    assert {shard.status for shard in report.shards} == {"ok"}
    assert verify_path(corpus) == [*report.shards, *report.others]
    return list(report.others)


def change(corpus: Path, keys: Keys, *values: object) -> None:
    """Change one value of `shards.json`; without a value the key goes."""
    index = corpus / "shards.json"
    body = json.loads(index.read_bytes())
    inner = body
    for key in keys[:-1]:
        inner = inner[key]
    if values:
        (inner[keys[-1]],) = values
    else:
        del inner[keys[-1]]
    index.write_text(json.dumps(body), encoding="utf-8")


def test_a_whole_corpus(corpus):
    """There is nothing to say, and rewriting the JSON in another form changes nothing."""
    assert others(corpus) == []
    change(corpus, ("version",), 2)
    assert others(corpus) == []
    assert validate_corpus(corpus) == []


@pytest.mark.parametrize(
    ("keys", "value", "place"),
    [
        (("sources", 0, "path"), "A.jsonl", "sources[0].path"),
        (("sources", 3, "path"), "c.txt", "sources[3].path"),
        (("sources", 0, "documents"), 28, "sources[0].documents"),
        (("sources", 1, "documents"), 3, "sources[1].documents"),
        (("sources", 2, "documents"), 0, "sources[2].documents"),
        (("shards", 1, "source"), 1, "sources[1].path"),
        (("shards", -1, "source"), 3, "sources[3].path"),
    ],
)
def test_sources_that_are_not_those_of_the_shards(corpus, keys, value, place):
    """The names of the sources, and how many documents of each were kept, are those that the shards hold."""
    change(corpus, keys, value)
    (report,) = others(corpus)
    assert (report.shard_id, report.status) == ("shards.json", "corrupt")
    assert report.path == str(corpus / "shards.json")
    assert f"{corpus}/shards.json: {place}" in {problem.place for problem in report.problems}
    assert validate_corpus(corpus) == ["shards.json"]


@pytest.mark.parametrize(
    "keys",
    [
        ("options",),
        ("sources", 1, "dropped"),
        ("shards", 0, "source"),
        ("shards", 2, "row_base"),
        ("shards", 2, "sources_sha256"),
    ],
)
def test_a_key_that_is_gone(corpus, keys):
    """A key for which readers have a default, lost or misspelt, is named."""
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
    change(corpus, keys)
    (report,) = others(corpus)
    assert [problem.place for problem in report.problems] == [f"{corpus}/shards.json: {place}"]


def test_keys_of_a_later_version_are_no_fault(corpus):
    """What this version does not know is not judged."""
    change(corpus, ("more",), {"and": "more"})
    (report,) = others(corpus)
    assert "checksum: is not that of the rest" in str(report.problems[0])
    body = json.loads((corpus / "shards.json").read_bytes())
    change(corpus, ("checksum",), checksum_of(body))
    assert others(corpus) == []


@pytest.mark.parametrize("key", ["options", "sources"])
def test_what_nothing_else_says_is_covered_by_the_checksum(corpus, key):
    """A value that no shard repeats cannot be changed unseen."""
    data = (corpus / "shards.json").read_bytes()
    old, new = {"options": (b'"text_field": "text"', b'"text_field": "tent"'), "sources": (b'"size": ', b'"size": 1')}[
        key
    ]
    assert old in data
    (corpus / "shards.json").write_bytes(data.replace(old, new, 1))
    (report,) = others(corpus)
    assert "checksum: is not that of the rest" in str(report.problems[0])


def test_an_append_that_followed_another_corpus(corpus):
    """The fingerprint that an append names is that of the shards before it."""
    manifest = read_manifest(corpus)
    first = dataclasses.replace(manifest, shards=manifest.shards[:2])
    for base, faults in ((first.fingerprint.hex, 0), ("ab" * 32, 1)):
        append = Append(base=base, sources=1, shards=2, options={})
        (corpus / "shards.json").write_bytes(dataclasses.replace(manifest, appends=(append,)).to_json())
        assert len(others(corpus)) == faults
    assert "appends[0].base: says abab" in str(others(corpus)[0].problems[0])


@pytest.fixture
def appended(tmp_path) -> Path:
    """A corpus to which something was appended twice."""
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": f"of {name}"}) + "\n", encoding="utf-8")
        headrace.build(tmp_path / name, tmp_path / "appended", append=name != "a.jsonl")
    return tmp_path / "appended"


def test_earlier_indexes_are_verified(appended):
    """A changed byte of an index or of extents that were kept is found and the file named, or it changes nothing."""
    assert others(appended) == []
    manifest = read_manifest(appended)
    versions = appended / VERSIONS
    for append in manifest.appends:
        for path in (versions / f"{append.base}.json", versions / f"{append.base}.extents.bin"):
            good = path.read_bytes()
            for at in range(3, len(good), len(good) // 12):
                bad = bytearray(good)
                bad[at] ^= 1
                path.write_bytes(bad)
                found = others(appended)
                if not found:  # between two tokens of JSON any blank will do
                    assert json.loads(bad) == json.loads(good)
                else:
                    assert [report.path for report in found] == [str(path)]
                    assert found[0].shard_id == str(path.relative_to(appended))
            path.write_bytes(good)
    assert others(appended) == []


def test_earlier_indexes_need_not_be_there(appended):
    """A corpus that was copied without them is whole."""
    shutil.rmtree(appended / VERSIONS)
    assert others(appended) == []


def test_no_sums_where_shards_do_not_say(corpus):
    """With a shard missing, or its index damaged, the sums of the sources cannot be judged and are not."""
    Path(corpus / "000000-0000-0000.h5").unlink()
    report = verify_corpus(corpus)
    assert [shard.status for shard in report.shards].count("missing") == 1
    assert report.others == ()


def test_a_changed_byte_of_the_extents(corpus):
    """Any changed byte of the sidecar is found and the file named; the shards are whole, and opening goes without it."""
    sidecar = corpus / SIDECAR
    good = sidecar.read_bytes()
    for at in {*range(0, len(good), 29), len(good) - 1}:
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        sidecar.write_bytes(bad)
        (report,) = others(corpus)
        assert (report.shard_id, report.status) == (str(SIDECAR), "corrupt")
        assert "is damaged" in report.reason
    with headrace.open(corpus) as opened:
        assert len(opened[:]) == len(opened)


@pytest.mark.parametrize("content", [b"", b"x", b"cut"])
def test_extents_that_were_cut(corpus, content):
    """A sidecar without its end is damaged."""
    sidecar = corpus / SIDECAR
    sidecar.write_bytes(sidecar.read_bytes()[:-5] if content == b"cut" else content)
    assert [report.shard_id for report in others(corpus)] == [str(SIDECAR)]


def test_no_extents_or_those_of_another_corpus(corpus, tmp_path):
    """They can be derived: that there are none is no damage, nor are those that a killed build left."""
    foreign = small_corpus(tmp_path / "other", random_documents(5, (10, 10)))
    shutil.copy(foreign / SIDECAR, corpus / SIDECAR)
    assert others(corpus) == []
    (corpus / SIDECAR).unlink()
    assert others(corpus) == []


@pytest.mark.parametrize("field", ["first_crc", "file_size", "digest_offset"])
def test_extents_that_are_not_those_of_the_shards(corpus, field):
    """A sidecar that is whole and wrong is found by what the shards say, and which shard it is wrong about."""
    manifest = read_manifest(corpus)
    fingerprint = manifest.fingerprint.hex
    table = ExtentTable.from_bytes(memoryview((corpus / SIDECAR).read_bytes()), fingerprint)
    parts = table.parts()
    parts[1] = dataclasses.replace(parts[1], **{field: getattr(parts[1], field) + 1})
    (corpus / SIDECAR).write_bytes(ExtentTable.build(parts).to_bytes(fingerprint))
    (report,) = others(corpus)
    assert report.shard_id == str(SIDECAR)
    assert f"shard {manifest.shards[1].shard_id} lies on disk" in report.reason


def test_events_tell_of_files_too(corpus):
    """Subscribers hear of each shard, and of each other file that is not as it should be."""
    change(corpus, ("options",))
    events = []
    reports = verify_path(corpus, on_event=events.append)
    assert [(event.shard_id, event.status) for event in events] == [(one.shard_id, one.status) for one in reports]
    assert events[-1].shard_id == "shards.json"


# -- which corpus it is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [64, 63, 12, 8])
def test_the_corpus_that_is_expected(corpus, digits):
    """The fingerprint or the first eight digits of it or more, in any case of letters, pin a corpus."""
    fingerprint = str(headrace.open(corpus).fingerprint)
    for expect in (fingerprint[:digits], fingerprint[:digits].upper(), f"{fingerprint[:digits]}\n"):
        assert verify_corpus(corpus, expect=expect).fingerprint.hex == fingerprint
        assert {report.status for report in verify_path(corpus / "shards.json", expect=expect)} == {"ok"}


def test_another_corpus_than_expected(corpus):
    """Another corpus is refused with both fingerprints before any shard is looked at."""
    fingerprint = str(headrace.open(corpus).fingerprint)
    for path in corpus.glob("*.h5"):
        path.unlink()
    other = fingerprint[:-1] + "0123456789abcdef"[int(fingerprint[-1], 16) - 1]
    with pytest.raises(
        ManifestError, match=f"{corpus}/shards.json: wanted .* {other}, found {fingerprint}: it is another"
    ):
        verify_path(corpus, expect=other)


def test_the_corpus_before_it_was_appended_to(corpus):
    """That an append changed the fingerprint is said."""
    manifest = read_manifest(corpus)
    base = dataclasses.replace(manifest, shards=manifest.shards[:2]).fingerprint.hex
    append = Append(base=base, sources=1, shards=2, options={})
    (corpus / "shards.json").write_bytes(dataclasses.replace(manifest, appends=(append,)).to_json())
    with pytest.raises(ManifestError, match="before something was appended"):
        verify_path(corpus, expect=base[:10])


@pytest.mark.parametrize("text", ["", "abcdef1", "0" * 65, "0x12345678", "main", "g" * 64])
def test_what_is_no_fingerprint(corpus, text):
    """It is a ValueError that says what is wanted."""
    with pytest.raises(ValueError, match="8 to 64 of 0-9 and a-f"):
        verify_path(corpus, expect=text)
    with pytest.raises(ValueError, match="8 to 64"):
        check_expectation(text)


def test_one_file_can_be_expected(corpus):
    """One shard has a fingerprint of its own, that which opening it gives."""
    path = corpus / "000000-0000-0001.h5"
    fingerprint = str(headrace.open(path).fingerprint)
    assert verify_corpus(path, expect=fingerprint).fingerprint.hex == fingerprint
    with pytest.raises(ManifestError, match=f"found {fingerprint}"):
        verify_path(path, expect=str(headrace.open(corpus).fingerprint))


def test_version_1_can_be_expected():
    """The corpora of others have a fingerprint, too, and nothing but their shards is judged."""
    folder = FORMATS / "lesson_hdf5"
    fingerprint = str(headrace.open(folder).fingerprint)
    report = verify_corpus(folder, expect=fingerprint[:8])
    assert (report.fingerprint.hex, report.others) == (fingerprint, ())


def test_a_file_whose_documents_have_no_hash(tmp_path):
    """Where the index of its documents is not hashed as it says, there is nothing to verify it against."""
    import h5py

    folder = small_corpus(tmp_path, random_documents(3, (3,)))
    path = folder / "000000-0000-0000.h5"
    with h5py.File(path, "r+") as file:
        file["tokens"].attrs.modify("documents_sha256", b"x" * 64)
    with pytest.raises(FormatError, match="no documents_sha256"):
        verify_path(path)
