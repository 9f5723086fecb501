"""`append`: sources are added to a corpus; what was there stays as it is, and stays open to whoever began on it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import OutputExistsError, SourceError

SCRIPT = Path(__file__).with_name("killed_at_every_step.py")


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Two sources."""
    for name in ("a", "b"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [f"old {n} of {name}" for n in range(20)])
    return tmp_path / "in"


@pytest.fixture
def more(tmp_path, write_jsonl) -> Path:
    """Two others, one of which has the name of an old one."""
    for name in ("b", "c"):
        write_jsonl(tmp_path / "more" / f"{name}.jsonl", [f"new {n} of {name}" for n in range(30)])
    return tmp_path / "more"


def add(sources: Path, output: Path, **options: object) -> headrace.Manifest:
    """Append, and check every byte of the whole corpus."""
    headrace.build(sources, output, workers=1, append=True, **options)
    with headrace.open(output, verify="full") as corpus:
        return corpus.manifest


def test_sources_are_added(sources, more, published, tmp_path):
    """The old shards keep their bytes and their places, the new ones follow; documents know where they are from."""
    headrace.build(sources, tmp_path / "c", workers=1)
    with headrace.open(tmp_path / "c") as corpus:
        old, fingerprint = corpus[:], corpus.fingerprint.hex
    before = published(tmp_path / "c")
    manifest = add(more, tmp_path / "c", on_bad_input="skip")
    after = published(tmp_path / "c")
    assert {name: after[name] for name in before if name.endswith(".h5")} == {
        name: digest for name, digest in before.items() if name.endswith(".h5")
    }
    headrace.build(more, tmp_path / "alone", workers=1)
    alone = headrace.open(tmp_path / "alone")
    with headrace.open(tmp_path / "c") as corpus:
        assert np.array_equal(corpus[:], np.concatenate([old, alone[:]]))
        assert [entry.global_start for entry in corpus.entries] == [
            0,
            *np.cumsum([entry.token_count for entry in corpus.entries])[:-1],
        ]
        found = corpus.locate(len(old))
        assert (found.source, found.line, found.document) == ("b.jsonl", 1, 40)
        assert corpus.locate(len(corpus) - 1).source == "c.jsonl"
        assert [corpus.manifest.sources[entry.source].path for entry in corpus.entries] == [
            "a.jsonl",
            "b.jsonl",
            "b.jsonl",
            "c.jsonl",
        ]
    (append,) = manifest.appends
    assert (append.base, append.sources, append.shards) == (fingerprint, 2, 2)
    assert append.options["on_bad_input"] == "skip"
    assert manifest.options["on_bad_input"] == "error"


def test_the_old_version_stays_open(sources, more, write_jsonl, tmp_path):
    """Under its fingerprint each earlier version opens and is whole, after one append and after the next."""
    headrace.build(sources, tmp_path / "c", workers=1)
    versions = []
    for number in range(3):
        with headrace.open(tmp_path / "c") as corpus:
            versions.append((corpus.fingerprint.hex, corpus[:]))
        write_jsonl(tmp_path / "more" / "d.jsonl", [f"later {number}"])
        headrace.build(more if number == 0 else tmp_path / "more" / "d.jsonl", tmp_path / "c", workers=1, append=True)
    for fingerprint, tokens in versions:
        with headrace.open(tmp_path / "c", version=fingerprint, verify="full") as corpus:
            assert np.array_equal(corpus[:], tokens)
            assert corpus.fingerprint.hex == fingerprint
    kept = tmp_path / "c" / ".headrace" / "versions"
    assert {path.name for path in kept.iterdir()} == {
        f"{fingerprint}.{kind}" for fingerprint, _ in versions for kind in ("json", "extents.bin")
    }


def test_the_report_is_of_what_was_added(sources, more, tmp_path):
    """Counts are those of the new documents; the fingerprint and the total are those of the whole."""
    first = headrace.build(sources, tmp_path / "c", workers=1)
    alone = headrace.build(more, tmp_path / "alone", workers=1)
    report = headrace.build(more, tmp_path / "c", workers=2, append=True)
    assert (report.documents, report.tokens, report.shards) == (alone.documents, alone.tokens, alone.shards)
    assert report.total_tokens == first.tokens + alone.tokens
    assert report.fingerprint == headrace.open(tmp_path / "c").fingerprint.hex


def test_equal_content_has_the_fingerprint_of_one_build(sources, more, tmp_path):
    """Two builds, or one of all sources: equal shards in equal order are one corpus."""
    headrace.build(sources, tmp_path / "c", workers=1)
    add(more, tmp_path / "c")
    headrace.build([*sorted(sources.iterdir()), *sorted(more.iterdir())], tmp_path / "once", workers=1)
    assert headrace.open(tmp_path / "c").fingerprint == headrace.open(tmp_path / "once").fingerprint


def test_the_same_append_twice(sources, more, published, tmp_path):
    """It is done once: the second command checks and succeeds, unless duplicates are asked for."""
    headrace.build(sources, tmp_path / "c", workers=1)
    add(more, tmp_path / "c")
    before = published(tmp_path / "c")
    add(more, tmp_path / "c")
    assert published(tmp_path / "c") == before
    manifest = add(more, tmp_path / "c", allow_duplicates=True)
    assert len(manifest.appends) == 2
    assert manifest.total_documents == 40 + 60 + 60


def test_files_that_are_there_already_are_refused(sources, more, published, tmp_path):
    """Equal bytes under whatever name are named, with the name that the corpus has for them."""
    headrace.build(sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    (more / "copy.jsonl").write_bytes((sources / "a.jsonl").read_bytes())
    with pytest.raises(OutputExistsError, match="1 of 3 inputs would be in the corpus twice") as caught:
        headrace.build(more, tmp_path / "c", workers=1, append=True)
    assert [str(problem) for problem in caught.value.problems] == ["copy.jsonl: is in the corpus already, as a.jsonl"]
    assert published(tmp_path / "c") == before
    assert add(more, tmp_path / "c", allow_duplicates=True).total_documents == 40 + 60 + 20


def test_what_a_corpus_cannot_mix(sources, more, published, tmp_path, gpt2_folder):
    """Another tokenizer, boundary or chunk size is refused, each named; a text field may differ."""
    headrace.build(sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    with pytest.raises(OutputExistsError, match="cannot be appended to") as caught:
        headrace.build(more, tmp_path / "c", workers=1, append=True, tokenizer=gpt2_folder, chunk_tokens=8)
    names = [problem.place for problem in caught.value.problems]
    assert names == ["boundary_token_id (--boundary)", "chunk_tokens (--chunk-tokens)", "tokenizer (--tokenizer)"]
    assert published(tmp_path / "c") == before
    for path in more.iterdir():
        path.write_text(path.read_text().replace('"text"', '"body"'))
    assert add(more, tmp_path / "c", text_field="body", compression="gzip").total_documents == 100


@pytest.mark.parametrize("index", [None, b"{}"])
def test_nothing_to_append_to(sources, tmp_path, index):
    """Without a corpus, or with one that cannot be read, it is an error that leaves the folder as it was."""
    if index is not None:
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "shards.json").write_bytes(index)
    with pytest.raises(OutputExistsError, match=r"no corpus to append to|shards\.json cannot be used"):
        headrace.build(sources, tmp_path / "c", append=True)
    left = [path.name for path in (tmp_path / "c").iterdir()] if index is not None else []
    assert left == ([] if index is None else ["shards.json"])


def test_a_corpus_of_a_pipeline_can_be_appended_to(sources, tmp_path):
    """Its shards have names of their own."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path / "c")
    pipeline.write_corpus({"train-0": ["one", "two"], "000007-0000-0000": ["three"]})
    manifest = add(sources, tmp_path / "c")
    assert [entry.shard_id for entry in manifest.shards[2:]] == ["000008-0000-0000", "000009-0000-0000"]
    assert manifest.total_documents == 43


def test_a_failed_append(sources, more, published, tmp_path):
    """Nothing finished: every file is as before. Something finished: the old corpus serves, and the command goes on."""
    headrace.build(sources, tmp_path / "c", workers=1)
    before = published(tmp_path / "c")
    journal = (tmp_path / "c" / ".headrace" / "journal.jsonl").read_bytes()
    good = (more / "c.jsonl").read_bytes()
    (more / "c.jsonl").write_bytes(b"bad\n")
    with pytest.raises(SourceError):
        headrace.build(more / "c.jsonl", tmp_path / "c", workers=1, append=True)
    assert published(tmp_path / "c") == before
    assert (tmp_path / "c" / ".headrace" / "journal.jsonl").read_bytes() == journal
    with pytest.raises(SourceError):
        headrace.build(more, tmp_path / "c", workers=1, append=True)
    assert {name: published(tmp_path / "c")[name] for name in before} == before
    with pytest.raises(OutputExistsError, match="unfinished append of another command"):
        headrace.build(more / "b.jsonl", tmp_path / "c", workers=1, append=True)
    (more / "c.jsonl").write_bytes(good)
    report = headrace.build(more, tmp_path / "c", workers=1, append=True)
    assert (report.resumed, report.documents) == (1, 60)
    headrace.open(tmp_path / "c", verify="full").close()


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_killed_at_every_step(sources, more, published, tmp_path, step):
    """Killed before every rename, link, fsync, mkdir and unlink, or some: the old corpus opens whole, or the appended one.

    The same command then ends with the bytes of an undisturbed append; the old version opens all the same.
    """
    old = headrace.build(sources, tmp_path / "there", workers=1).fingerprint
    shutil.copytree(tmp_path / "there", tmp_path / "whole")
    options = {"workers": 1, "on_bad_input": "skip", "max_bad": 1, "append": True}
    new = headrace.build(more, tmp_path / "whole", **options).fingerprint
    wanted = published(tmp_path / "whole")
    (tmp_path / "killed").mkdir()
    arguments = [more, tmp_path / "killed", str(step), tmp_path / "there", "append"]
    subprocess.run([sys.executable, "-P", SCRIPT, *arguments], check=True)
    outputs = sorted((tmp_path / "killed").iterdir(), key=lambda path: int(path.name))
    seen = []
    for output in outputs:
        with headrace.open(output, verify="full") as corpus:
            seen.append(corpus.fingerprint.hex)
        headrace.build(more, output, **options)
        assert published(output) == wanted, output.name
        headrace.open(output, version=old, verify="full").close()
    assert set(seen) == {old, new}
    assert seen == sorted(seen, key=lambda fingerprint: fingerprint == new)
    assert len(outputs) > 30 // step


def test_the_journal_tells_of_both(sources, more, tmp_path):
    """It keeps the plan of each build, each followed by its source shards in order."""
    headrace.build(sources, tmp_path / "c", workers=2)
    headrace.build(more, tmp_path / "c", workers=2, append=True)
    rows = [json.loads(line) for line in (tmp_path / "c" / ".headrace" / "journal.jsonl").read_bytes().splitlines()]
    kinds = [next(iter(row)) for row in rows]
    assert kinds == ["plan", "finished", "finished"] * 2
    assert [row["finished"]["index"] for row in rows if "finished" in row] == [0, 1, 2, 3]
