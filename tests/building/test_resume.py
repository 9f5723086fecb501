"""The same command goes on from what an earlier run has finished; another command is refused, each difference named."""

import json
import os
import shutil
from pathlib import Path

import pytest

import headrace
from headrace.errors import BuildError, OutputExistsError, SourceError
from headrace.events import Event, Notice, ShardWritten

NAMES = ("a", "b", "c")


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Three sources."""
    for number, name in enumerate(NAMES):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [f"document {n} of {name}" for n in range(10 + number)])
    return tmp_path / "in"


class StopError(RuntimeError):
    """Ends a build from outside."""


def stop_after(shards: int):
    """A subscriber that ends the build once so many shards are written."""
    seen = [0]

    def subscriber(event: Event) -> None:
        seen[0] += isinstance(event, ShardWritten)
        if seen[0] == shards:
            raise StopError

    return subscriber


def begin(sources: Path, output: Path, shards: int = 2, **options: object) -> None:
    """Build until so many shards are written."""
    with pytest.raises(StopError):
        headrace.build(sources, output, workers=1, on_event=stop_after(shards), **options)
    assert not (output / "shards.json").exists()


def notices(sources: Path, output: Path, **options: object) -> list[str]:
    """Build to the end; what was told of earlier runs."""
    told: list[Event] = []
    headrace.build(sources, output, workers=1, on_event=told.append, **options)
    return [event.message for event in told if isinstance(event, Notice) and event.kind == "resumed"]


def inodes(output: Path) -> dict[str, int]:
    """Which file is which: a shard that was built again has another."""
    return {path.name: path.stat().st_ino for path in output.glob("*.h5")}


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_finished_shards_are_kept(sources, published, tmp_path, shards, compression):
    """They stay the files that they are, the rest is built, and all bytes are those of an undisturbed build."""
    headrace.build(sources, tmp_path / "whole", workers=1, compression=compression)
    output = tmp_path / "c"
    begin(sources, output, shards, compression=compression)
    before = inodes(output)
    assert len(before) == shards
    told = notices(sources, output, compression=compression)
    assert told == [f"{shards} of 3 source shards are finished already; their bytes were checked"]
    assert before.items() <= inodes(output).items()
    assert published(output) == published(tmp_path / "whole")
    headrace.open(output, verify="full").close()


def test_what_was_told_at_the_failure(sources, tmp_path):
    """A failed build says what it keeps; its report after going on counts everything, and what was there before."""
    told: list[Event] = []
    stop = stop_after(2)

    def subscriber(event: Event) -> None:
        told.append(event)
        stop(event)

    with pytest.raises(StopError):
        headrace.build(sources, tmp_path / "c", workers=1, on_event=subscriber)
    kept = [event.message for event in told if isinstance(event, Notice) and event.kind == "kept"]
    assert kept == [
        f"2 of 3 source shards are finished and stay in {tmp_path / 'c'}; the same command goes on from there"
    ]
    report = headrace.build(sources, tmp_path / "c", workers=1)
    assert (report.resumed, report.documents_in, report.documents, report.shards) == (2, 33, 33, 3)
    assert report.text_bytes == report.tokens - report.documents


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"text_field": "body"}, "text_field (--text-field): was 'text', is 'body'"),
        ({"chunk_tokens": 7}, "chunk_tokens (--chunk-tokens): was 65536, is 7"),
        ({"shard_tokens": 7}, "shard_tokens (--shard-tokens): was None, is 7"),
        ({"compression": "gzip:1"}, "compression (--compression): was 'none', is 'gzip:1'"),
        ({"max_document_tokens": 7}, "max_document_tokens (--max-document-tokens): was None, is 7"),
        ({"keep_empty": True}, "keep_empty (--keep-empty): was False, is True"),
        ({"boundary": "7"}, "boundary_token_id (--boundary): was 0, is 7"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_another_command_is_refused(sources, published, tmp_path, whole, options, named):
    """Other options over an unfinished or a finished corpus are an error that names them, and change nothing."""
    output = tmp_path / "c"
    if whole:
        headrace.build(sources, output, workers=1)
    else:
        begin(sources, output)
    (sources / "a.jsonl").write_text((sources / "a.jsonl").read_text().replace('"text"', '"body"'))
    os.utime(sources / "a.jsonl", ns=(0, 0))
    before = published(output)
    with pytest.raises(OutputExistsError) as caught:
        headrace.build(sources, output, workers=1, **options)
    assert named in [str(problem) for problem in caught.value.problems]
    assert isinstance(caught.value, FileExistsError)
    assert published(output) == before


def test_two_differences_are_named_at_once(sources, tmp_path, run_process):
    """The command says them all and exits with 1."""
    begin(sources, tmp_path / "c")
    (sources / "d.jsonl").write_text('{"text": "new"}\n')
    (sources / "a.jsonl").unlink()
    ran = run_process("build", sources, "-o", tmp_path / "c", "--chunk-tokens", 9)
    assert ran.code == 1
    assert ran.err.splitlines()[1:] == [
        "  chunk_tokens (--chunk-tokens): was 65536, is 9",
        "  a.jsonl: is not among the inputs any more",
        "  d.jsonl: is a new input",
    ]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("same_size", [False, True])
def test_a_changed_source_is_named(sources, tmp_path, whole, same_size):
    """Whether its size shows it or only its bytes do; one that was merely touched is hashed and trusted."""
    output = tmp_path / "c"
    if whole:
        headrace.build(sources, output, workers=1)
    else:
        begin(sources, output)
    os.utime(sources / "b.jsonl", ns=(0, 0))
    text = (sources / "a.jsonl").read_text()
    (sources / "a.jsonl").write_text(text.replace("document 0", "DOCUMENT 0") if same_size else text + text)
    with pytest.raises(OutputExistsError) as caught:
        headrace.build(sources, output, workers=1)
    (problem,) = caught.value.problems
    assert problem.place == "a.jsonl"
    assert problem.reason.startswith("has changed")
    (sources / "a.jsonl").write_text(text)
    assert notices(sources, output)
    assert headrace.open(output, verify="full").manifest.total_documents == 33


def test_a_source_that_failed_may_be_mended(sources, published, tmp_path):
    """After an error about a source, the command goes on with the mended file, and does not repeat the others."""
    good = (sources / "b.jsonl").read_text()
    (sources / "b.jsonl").write_text(good + "bad\n")
    with pytest.raises(SourceError, match="1 bad document"):
        headrace.build(sources, tmp_path / "c", workers=1)
    before = inodes(tmp_path / "c")
    assert list(before) == ["000000-0000-0000.h5"]
    (sources / "b.jsonl").write_text(good)
    assert notices(sources, tmp_path / "c") == ["1 of 3 source shards are finished already; their bytes were checked"]
    assert before.items() <= inodes(tmp_path / "c").items()
    headrace.build(sources, tmp_path / "whole", workers=1)
    assert published(tmp_path / "c") == published(tmp_path / "whole")


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_bad_input_may_be_let_pass_afterwards(sources, published, tmp_path, mode):
    """What was finished without a fault is the same under every way to treat faults."""
    with (sources / "c.jsonl").open("a") as file:
        file.write("bad\n")
    with pytest.raises(SourceError, match="--on-bad-input skip"):
        headrace.build(sources, tmp_path / "c", workers=1)
    told = notices(sources, tmp_path / "c", on_bad_input=mode)
    assert told == ["2 of 3 source shards are finished already; their bytes were checked"]
    headrace.build(sources, tmp_path / "whole", workers=1, on_bad_input=mode)
    assert published(tmp_path / "c") == published(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["token", "cut", "gone", "log"])
def test_a_finished_shard_that_is_damaged_is_built_again(sources, published, tmp_path, damage):
    """What the journal calls finished is believed only if every byte of it is."""
    with (sources / "a.jsonl").open("a") as file:
        file.write("bad\n")
    options = {"on_bad_input": "skip", "max_bad": 1}
    headrace.build(sources, tmp_path / "whole", workers=1, **options)
    output = tmp_path / "c"
    begin(sources, output, **options)
    shard = output / "000000-0000-0000.h5"
    data = bytearray(shard.read_bytes())
    if damage == "token":
        at = data.index(bytes(np_tokens(tmp_path / "whole")))
        data[at] ^= 1
        shard.write_bytes(data)
    elif damage == "cut":
        shard.write_bytes(data[: len(data) // 2])
    elif damage == "gone":
        shard.unlink()
    else:
        (output / ".headrace" / "dropped" / "000000-0000.jsonl").unlink()
    told = notices(sources, output, **options)
    assert told[0].startswith("source shard 0 is built again: ")
    assert told[1:] == ["1 of 3 source shards are finished already; their bytes were checked"]
    assert published(output) == published(tmp_path / "whole")


def np_tokens(corpus: Path) -> bytes:
    """The first tokens, as they lie on disk."""
    return headrace.open(corpus)[:20].tobytes()


def test_a_finished_corpus_needs_nothing(sources, published, tmp_path, run_process):
    """The same command over its own corpus checks it and succeeds, changing no byte; so does it from the command line."""
    report = headrace.build(sources, tmp_path / "c", workers=1)
    before, files = published(tmp_path / "c"), inodes(tmp_path / "c")
    assert notices(sources, tmp_path / "c") == ["the corpus of this command is there already; its bytes were checked"]
    again = headrace.build(sources, tmp_path / "c", workers=2)
    assert (again.fingerprint, again.tokens, again.text_bytes, again.resumed) == (
        report.fingerprint,
        report.tokens,
        report.text_bytes,
        3,
    )
    ran = run_process("build", sources, "-o", tmp_path / "c")
    assert (ran.code, report.fingerprint in ran.out) == (0, True)
    assert (published(tmp_path / "c"), inodes(tmp_path / "c")) == (before, files)


@pytest.mark.parametrize("journal", [True, False])
def test_a_finished_corpus_is_mended(sources, published, tmp_path, journal):
    """The same command over its own, damaged corpus makes it whole; only what is damaged is built, if the journal is there."""
    headrace.build(sources, tmp_path / "c", workers=1)
    before, files = published(tmp_path / "c"), inodes(tmp_path / "c")
    (tmp_path / "c" / "000001-0000-0000.h5").write_bytes(b"gone")
    if not journal:
        (tmp_path / "c" / ".headrace" / "journal.jsonl").unlink()
    built = 1 if journal else 3
    assert notices(sources, tmp_path / "c") == [
        f"the corpus is there, but not whole: {built} of 3 source shards are built again"
    ]
    assert published(tmp_path / "c") == before
    same = {name for name, inode in inodes(tmp_path / "c").items() if files[name] == inode}
    assert len(same) == 3 - built


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_journal(sources, published, tmp_path, cut):
    """A row that was not written to its end counts as not written."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    begin(sources, tmp_path / "c")
    journal = tmp_path / "c" / ".headrace" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert notices(sources, tmp_path / "c") == ["1 of 3 source shards are finished already; their bytes were checked"]
    assert published(tmp_path / "c") == published(tmp_path / "whole")


@pytest.mark.parametrize("junk", [b"", b"\0" * 100, b"[]\n", b'{"plan": 3}\n', b'{"plan": {"mode": "build"}}\n{}\n'])
def test_a_journal_that_makes_no_sense(sources, published, tmp_path, junk):
    """It is as good as none: everything is built."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    begin(sources, tmp_path / "c")
    (tmp_path / "c" / ".headrace" / "journal.jsonl").write_bytes(junk)
    assert notices(sources, tmp_path / "c") == []
    assert published(tmp_path / "c") == published(tmp_path / "whole")


def test_nothing_kept_leaves_nothing(tmp_path):
    """A build whose sources hold no document keeps no finished empty shards."""
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(BuildError, match="no documents were kept"):
        headrace.build(tmp_path / "a.jsonl", tmp_path / "c", workers=1)
    assert not (tmp_path / "c").exists()


def test_a_moved_output_goes_on(sources, published, tmp_path):
    """The folder may be renamed, and the sources too, between the two runs."""
    headrace.build(sources, tmp_path / "whole", workers=1)
    begin(sources, tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "d")
    shutil.copytree(sources, tmp_path / "copy")
    assert notices(tmp_path / "copy", tmp_path / "d")
    assert published(tmp_path / "d") == published(tmp_path / "whole")
    local = json.loads((tmp_path / "d" / ".headrace" / "local.json").read_bytes())
    assert local == {"root": str(tmp_path / "copy")}
