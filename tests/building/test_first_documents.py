"""`max_documents`: the first documents in the order of the sources, whoever reads them and however often it was begun."""

import gzip
import json
import os
from pathlib import Path

import pytest

import headrace
from headrace.errors import BuildError, OutputExistsError, SourceError
from headrace.events import Event, Notice, ShardWritten

OPTIONS = {"on_bad_input": "replace", "shard_tokens": 2000, "max_bad": 1.0}
COUNTS = [
    *(1, 300, 301, 317, 2318, 10_000),
    *(pytest.param(count, marks=pytest.mark.extended) for count in (302, 315, 316, 318, 2317, 2519)),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """Sources of several kinds, 2519 documents: some dropped, some with invalid bytes."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()

    def lines(name: str, count: int) -> list[bytes]:
        return [json.dumps({"text": f"{name} {row} " + "word " * (row % 9)}).encode() + b"\n" for row in range(count)]

    bad = [b"no JSON\n", b'{"text": "\xff is no UTF-8"}\n', b'{"text": ""}\n']
    a = lines("a", 300)
    (folder / "a.jsonl").write_bytes(b"".join([*a[:3], *bad[1:], *a[3:299], *bad[:1], *a[299:]]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join([*bad, *lines("b", 13)])))
    (folder / "c.txt").write_bytes(b"a text \xff\n")
    (folder / "d.txt").write_bytes(b"another text\n")
    (folder / "e.json").write_bytes(b"[" + b",".join(line.strip() for line in lines("e", 2000)) + b"]")
    (folder / "f.jsonl").write_bytes(b"".join([*lines("f", 202), b"cut {\n"]))
    return folder


@pytest.fixture(scope="module")
def whole(sources, tmp_path_factory) -> headrace.Corpus:
    """The corpus of all documents."""
    output = tmp_path_factory.mktemp("whole") / "c"
    headrace.build(sources, output, workers=1, **OPTIONS)
    return headrace.open(output)


def limited(sources: Path, output: Path, count: int, **options: object) -> headrace.Corpus:
    """The corpus of the first so many."""
    headrace.build(sources, output, max_documents=count, **{"workers": 1, **OPTIONS, **options})
    return headrace.open(output, verify="full")


@pytest.mark.parametrize("count", COUNTS)
def test_they_are_the_first(sources, whole, published, tmp_path, count):
    """As many as there are, in order, with tokens and origins of the whole corpus; the same bytes of one worker and of two."""
    wanted = min(count, len(whole.documents))
    assert len(whole.documents) == 2519
    with limited(sources, tmp_path / "one", count) as corpus:
        assert len(corpus.documents) == wanted
        assert (corpus[:] == whole[: len(corpus)]).all()
        for number in {0, wanted // 2, wanted - 1}:
            here, there = (c.locate(c.documents.bounds(number)[0]) for c in (corpus, whole))
            assert (here.source, here.line, here.byte) == (there.source, there.line, there.byte)
        assert [source.path for source in corpus.manifest.sources] == [s.path for s in whole.manifest.sources]
        assert sum(source.documents for source in corpus.manifest.sources) == wanted
        assert corpus.manifest.options["max_documents"] == count
    limited(sources, tmp_path / "two", count, workers=2).close()
    assert published(tmp_path / "two") == published(tmp_path / "one")


def test_what_lies_behind_is_neither_read_nor_counted(sources, whole, tmp_path):
    """Drops behind the last document count nowhere; a hash is given exactly of what was read to its end; it is said."""
    told: list[Event] = []
    with limited(sources, tmp_path / "c", 310, on_event=told.append) as corpus:
        found = {source.path: source for source in corpus.manifest.sources}
    hashes = {source.path: source.sha256 for source in whole.manifest.sources}
    assert {name for name, source in found.items() if source.sha256} == {"a.jsonl", "b.jsonl.gz"}
    assert all(source.sha256 in {"", hashes[name]} for name, source in found.items())
    assert dict(found["a.jsonl"].dropped) == {"empty": 1, "not JSON": 1}
    assert dict(found["b.jsonl.gz"].dropped) == {"empty": 1, "not JSON": 1}
    assert not any(source.dropped or source.documents for source in list(found.values())[2:])
    said = [event.message for event in told if isinstance(event, Notice) and event.kind == "unread"]
    size = sum((sources / name).stat().st_size for name in ("c.txt", "d.txt", "e.json", "f.jsonl"))
    assert said == [f"4 source files of {size:,} bytes were not read to their ends, 4 not at all"]


@pytest.mark.parametrize(("count", "replaced"), [(3, 0), (4, 1), (301, 1), (302, 2), (315, 2), (316, 3), (9999, 3)])
def test_replaced_documents_are_counted_to_the_last(sources, tmp_path, count, replaced):
    """Of a batch that is cut, only what was kept counts as replaced."""
    report = headrace.build(sources, tmp_path / "c", workers=1, max_documents=count, **OPTIONS)
    assert (report.documents, report.replaced) == (min(count, 2519), replaced)


@pytest.mark.parametrize("workers", [1, 2])
def test_faults_behind_the_last_document_stop_nothing(sources, tmp_path, workers):
    """Under `error` a fault before the last document stops the build, one behind it does not, for any workers."""
    assert headrace.build(sources, tmp_path / "c", max_documents=3, workers=workers).documents == 3
    with pytest.raises(SourceError, match="1 bad document"):
        headrace.build(sources, tmp_path / "d", max_documents=4, workers=workers)


class StopError(RuntimeError):
    """Ends a build from outside."""


@pytest.mark.parametrize("shards", [1, 5, 12])
def test_it_goes_on(sources, published, tmp_path, shards):
    """After an end at any shard the same command gives the bytes of an undisturbed build; another number is refused."""
    limited(sources, tmp_path / "whole", 700).close()
    seen = []

    def stop(event: Event) -> None:
        seen.extend([event] if isinstance(event, ShardWritten) else [])
        if len(seen) >= shards:
            raise StopError

    with pytest.raises(StopError):
        limited(sources, tmp_path / "c", 700, on_event=stop)
    with pytest.raises(OutputExistsError, match=r"max_documents \(--max-documents\): was 700, is 701"):
        limited(sources, tmp_path / "c", 701)
    limited(sources, tmp_path / "c", 700, workers=2).close()
    assert published(tmp_path / "c") == published(tmp_path / "whole")
    told: list[Event] = []
    limited(sources, tmp_path / "c", 700, on_event=told.append).close()
    assert any(isinstance(event, Notice) and "there already" in event.message for event in told)


def test_a_mended_source_gives_more(tmp_path, write_jsonl, published):
    """What was finished beside a source that has more documents now is done again, where it would keep too many."""
    write_jsonl(tmp_path / "in" / "a.jsonl", ["one", "two"])
    for name in ("b", "c", "d"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", [f"{name} {number}" for number in range(3)])
    with (tmp_path / "in" / "a.jsonl").open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(SourceError, match="1 bad document"):
        headrace.build(tmp_path / "in", tmp_path / "c", max_documents=6, workers=4)
    write_jsonl(tmp_path / "in" / "a.jsonl", ["one", "two", "three", "four"])
    for output in ("c", "new"):
        headrace.build(tmp_path / "in", tmp_path / output, max_documents=6, workers=1)
    assert published(tmp_path / "c") == published(tmp_path / "new")


def test_a_source_that_was_read_in_part_and_modified(sources, tmp_path):
    """Its hash is not known, so the same command is refused, and the file named."""
    file = tmp_path / "f.jsonl"
    file.write_bytes((sources / "f.jsonl").read_bytes() * 100)  # more than is read at once
    headrace.build(file, tmp_path / "c", max_documents=5)
    headrace.build(file, tmp_path / "c", max_documents=5)
    os.utime(file, (1, 1))
    with pytest.raises(OutputExistsError, match=r"f\.jsonl: was modified since it was read in part"):
        headrace.build(file, tmp_path / "c", max_documents=5)


def test_each_append_has_its_own(sources, tmp_path):
    """An append adds as many as it says; the same one is not made twice."""
    limited(sources / "a.jsonl", tmp_path / "c", 5).close()
    for _ in range(2):
        with limited(sources / "f.jsonl", tmp_path / "c", 7, append=True) as corpus:
            assert [entry.document_count for entry in corpus.entries] == [5, 7]
            assert corpus.manifest.appends[0].options["max_documents"] == 7


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_number_that_is_none(sources, tmp_path, count):
    """It is refused before anything is read."""
    with pytest.raises(BuildError, match="max_documents: wanted an integer from 1"):
        headrace.build(sources, tmp_path / "c", max_documents=count)
