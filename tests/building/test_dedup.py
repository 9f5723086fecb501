"""`dedup="exact"`: of equal documents the first is kept, whoever reads them, and the others are told with its place."""

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.building import build as build_module
from headrace.building import dedup, duplicates, text_hashes
from headrace.errors import BuildError, CorruptShardError, NoDocumentsError, OutputExistsError, SourceError
from headrace.events import Event, FirstPass, Notice
from headrace.verify import verify_path

BAD = object()
LINES = st.one_of(st.sampled_from(["", "a", "b", "c", "mill", "\u00e9" * 9]), st.just(BAD), st.text(max_size=3))
FILES = st.lists(st.lists(LINES, max_size=12), min_size=1, max_size=4)
Place = tuple[str, int]


@pytest.fixture
def small(monkeypatch) -> None:
    """Let files be cut, runs end and partitions be full after a few documents."""
    monkeypatch.setattr(build_module, "CUT_BYTES", 150)
    monkeypatch.setattr(text_hashes, "RUN_DOCUMENTS", 2)
    monkeypatch.setattr(dedup, "RUN_DOCUMENTS", 2)
    monkeypatch.setattr(duplicates, "PARTITION_TEXTS", 3)


def line(text: object) -> bytes:
    """As a line of JSON."""
    return b"no JSON\n" if text is BAD else json.dumps({"text": text}).encode() + b"\n"


def write(folder: Path, files: list[list[object]]) -> Path:
    """Files of JSON lines, the last one compressed."""
    folder.mkdir()
    for number, texts in enumerate(files):
        data = b"".join(map(line, texts))
        if number and number == len(files) - 1:
            (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{number}.jsonl").write_bytes(data)
    return folder


def places(folder: Path, files: list[list[object]]) -> Iterator[tuple[Place, object]]:
    """Each document, in the order of the sources."""
    for path, texts in zip(sorted(folder.iterdir()), files, strict=True):
        for number, text in enumerate(texts, 1):
            yield (path.name, number), text


def without_repeats(
    documents: Iterator[tuple[Place, object]], kept: dict[object, Place], *, keep_empty: bool, most: int | None = None
) -> dict[Place, tuple[str, Place | None]]:
    """The model: adds to what is kept by text; returns what is dropped, up to the last document that is kept."""
    dropped: dict[Place, tuple[str, Place | None]] = {}
    waiting: dict[Place, tuple[str, Place | None]] = {}
    before = len(kept)
    for place, text in documents:
        if most is not None and len(kept) - before == most:
            break
        if text is BAD:
            waiting[place] = "not JSON", None
        elif text == "" and not keep_empty:
            waiting[place] = "empty", None
        elif text in kept:
            waiting[place] = "duplicate", kept[text]
        else:
            kept[text] = place
            dropped |= waiting
            waiting = {}
    return dropped | (waiting if most is None or len(kept) - before < most else {})


def drops_of(folder: Path) -> dict[Place, tuple[str, Place | None]]:
    """What the lists of a corpus say."""
    logs = sorted((folder / ".headrace" / "dropped").glob("*.jsonl"))
    rows = [json.loads(row) for log in logs for row in log.read_text(encoding="utf-8").splitlines()]
    found = {
        (row["file"], row["line"]): (
            row["reason"],
            (row["kept"]["file"], row["kept"]["line"]) if "kept" in row else None,
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def require(folder: Path, kept: dict[object, Place]) -> None:
    """The corpus is whole and holds these documents in this order, with their places and hashes."""
    with headrace.open(folder, verify="full") as corpus:
        texts = [(document[:-1] - 1).astype(np.uint8).tobytes() for document in corpus.documents]
        assert texts == [str(text).encode() for text in kept]
        found = [corpus.locate(corpus.documents.bounds(number)[0]) for number in range(len(texts))]
        assert [(place.source, place.line) for place in found] == [*kept.values()]
        hashes = [corpus.documents.text_hashes(number).tobytes() for number in range(len(corpus.manifest.shards))]
        assert b"".join(hashes) == b"".join(hashlib.sha256(text).digest()[:16] for text in texts)
        assert corpus.manifest.options["dedup"] == "exact"
    assert not (folder / ".headrace" / "first-pass").exists()


OPTIONS = {"dedup": "exact", "on_bad_input": "skip", "max_bad": 1.0, "workers": 1}
MANY = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@MANY
@given(files=FILES, keep_empty=st.booleans(), most=st.none() | st.integers(1, 9), shard_tokens=st.none() | st.just(9))
@pytest.mark.usefixtures("small")
def test_it_is_the_model(tmp_path_factory, files, keep_empty, most, shard_tokens):
    """Documents, places, hashes and drops are those of a dictionary of texts, in cuts, runs and partitions of a few."""
    folder = tmp_path_factory.mktemp("case")
    files[0].append("one")
    sources = write(folder / "in", files)
    kept: dict[object, Place] = {}
    dropped = without_repeats(places(sources, files), kept, keep_empty=keep_empty, most=most)
    report = headrace.build(
        sources, folder / "c", keep_empty=keep_empty, max_documents=most, shard_tokens=shard_tokens, **OPTIONS
    )
    require(folder / "c", kept)
    assert drops_of(folder / "c") == dropped
    assert sum(report.dropped.values()) == len(dropped)
    assert report.dropped.get("duplicate", 0) == sum(reason == "duplicate" for reason, _ in dropped.values())


@MANY
@given(files=FILES, more=FILES, keep_empty=st.booleans())
@pytest.mark.usefixtures("small")
def test_append_leaves_out_what_is_there(tmp_path_factory, files, more, keep_empty):
    """The corpus' own documents come first; a text that it holds is told with its place there."""
    folder = tmp_path_factory.mktemp("case")
    files[0].append("one")
    more[0].append("another")
    kept: dict[object, Place] = {}
    headrace.build(write(folder / "in", files), folder / "c", keep_empty=keep_empty, **OPTIONS)
    without_repeats(places(folder / "in", files), kept, keep_empty=keep_empty)
    require(folder / "c", kept)
    before = drops_of(folder / "c")
    write(folder / "more", more)
    for path in (folder / "more").iterdir():
        path.rename(path.with_name(f"more-{path.name}"))
    dropped = without_repeats(places(folder / "more", more), kept, keep_empty=keep_empty)
    if "another" in {text for texts in files for text in texts}:
        return
    headrace.build(folder / "more", folder / "c", keep_empty=keep_empty, append=True, allow_duplicates=True, **OPTIONS)
    require(folder / "c", kept)
    assert drops_of(folder / "c") == before | dropped


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """Sources of every kind with the same documents in other orders, and text files."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()
    texts = [f"document {number % 700} " * (number % 5 + 1) for number in range(2000)]
    (folder / "a.jsonl").write_bytes(b"".join(map(line, texts)))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(map(line, [*texts[500:], "only here"]))))
    pa.parquet.write_table(pa.table({"text": [*texts[::-1], "in parquet"]}), folder / "c.parquet", row_group_size=300)
    (folder / "d.json").write_text(json.dumps([{"text": text} for text in [*texts[:9], "in an array"]]))
    for name, text in (("e", "a text"), ("f", "only here"), ("g", "a text"), ("h", "\ufeffa text")):
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.mark.parametrize(
    "more", [{}, {"max_documents": 699}, {"max_documents": 702}, {"keep_empty": True, "shard_tokens": 999}]
)
def test_workers_and_kinds_do_not_matter(sources, published, monkeypatch, tmp_path, more):
    """One worker and two give the same bytes; places are those of each kind of file, a BOM is no part of a text."""
    monkeypatch.setattr(build_module, "CUT_BYTES", 20_000)
    headrace.build(sources, tmp_path / "one", **OPTIONS, **more)
    headrace.build(sources, tmp_path / "two", **{**OPTIONS, "workers": 2}, **more)
    assert published(tmp_path / "two") == published(tmp_path / "one")
    with headrace.open(tmp_path / "one", verify="full") as corpus:
        counts = {source.path: source.documents for source in corpus.manifest.sources}
        assert counts["a.jsonl"] == min(700, more.get("max_documents", 700))
        assert len(corpus.documents) == min(704, more.get("max_documents", 704))
    if not more:
        assert [*counts.values()] == [700, 1, 1, 1, 1, 0, 0, 0]
        found = drops_of(tmp_path / "one")
        assert found["f.txt", None] == ("duplicate", ("b.jsonl.gz", 1501))
        assert found["g.txt", None] == found["h.txt", None] == ("duplicate", ("e.txt", 1))
        assert found["c.parquet", 1] == ("duplicate", ("a.jsonl", 600))
        assert found["d.json", 9] == ("duplicate", ("a.jsonl", 9))


def test_duplicates_are_no_faults(tmp_path):
    """They stop no build under `error`, count to no share of bad ones, and are told in a sentence, not one by one."""
    (tmp_path / "a.jsonl").write_bytes(line("again") * 3000)
    told: list[Event] = []
    report = headrace.build(
        tmp_path / "a.jsonl", tmp_path / "c", dedup="exact", max_bad=0.0, workers=1, on_event=told.append
    )
    assert (report.documents, report.dropped) == (1, {"duplicate": 2999})
    notices = [event.message for event in told if isinstance(event, Notice)]
    passes = [event for event in told if isinstance(event, FirstPass)]
    assert (passes[-1].documents, passes[-1].input_bytes, passes[-1].total_bytes) == (3000, 54_000, 54_000)
    assert len(notices) == 2
    assert notices[1].startswith("2,999 of 3,000 documents are duplicates")


@pytest.mark.parametrize("workers", [1, 2])
def test_faults_stop_the_first_pass(sources, tmp_path, workers):
    """A bad line ends the build before anything is encoded, with the places of all of them; nothing is left."""
    folder = tmp_path / "in"
    shutil.copytree(sources, folder)
    for name in ("a.jsonl", "z.jsonl"):
        with (folder / name).open("ab") as file:
            file.write(b"no JSON\n")
    told: list[Event] = []
    with pytest.raises(SourceError) as caught:
        headrace.build(folder, tmp_path / "c", dedup="exact", workers=workers, on_event=told.append)
    assert [problem.place for problem in caught.value.problems] == ["a.jsonl:2001", "z.jsonl:1"]
    assert {type(event) for event in told} <= {Notice, FirstPass}
    assert not (tmp_path / "c").exists()


def test_ids(tmp_path):
    """Lists of ids are compared as they are stored: without a BOS or boundary that the build itself adds."""
    lists = [[5, 6], [5, 6, 0], [5, 6, 0, 0], [7], [6, 5], [7, 0]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in lists))
    headrace.build(
        tmp_path / "a.jsonl", tmp_path / "c", ids_field="ids", vocab_size=10, boundary=0, dedup="exact", workers=1
    )
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert [document.tolist() for document in corpus.documents] == [[5, 6, 0], [5, 6, 0, 0], [7, 0], [6, 5, 0]]
        wanted = hashlib.sha256(np.array([5, 6], "<u2").tobytes()).digest()[:16]
        assert corpus.documents.text_hashes(0)[0].tobytes() == wanted


def test_what_is_refused(sources, tmp_path):
    """Documents of a program; a corpus that stores no hashes, or not everywhere; other words; without it no hashes."""
    with pytest.raises(BuildError, match="can be read once only: write them to a file"):
        headrace.build(iter(["a", "a"]), tmp_path / "c", dedup="exact")
    with pytest.raises(BuildError) as caught:
        headrace.build(sources, tmp_path / "c", dedup="fuzzy")
    assert str(caught.value.problems[0]) == "dedup: wanted none or exact, found 'fuzzy'"
    headrace.build(sources / "a.jsonl", tmp_path / "plain", workers=1)
    with headrace.open(tmp_path / "plain") as corpus, pytest.raises(NoDocumentsError, match="--dedup exact"):
        corpus.documents.text_hashes(0)
    (tmp_path / "b.jsonl").write_bytes(line("something"))
    with pytest.raises(OutputExistsError, match="does not store the hashes of all its texts") as refused:
        headrace.build(tmp_path / "b.jsonl", tmp_path / "plain", append=True, **OPTIONS)
    assert [str(problem) for problem in refused.value.problems] == ["the corpus: was built without --dedup exact"]
    with pytest.raises(OutputExistsError) as other:
        headrace.build(sources / "a.jsonl", tmp_path / "plain", **OPTIONS)
    assert "dedup (--dedup): was None, is 'exact'" in str(other.value)
    headrace.build(sources / "a.jsonl", tmp_path / "hashed", **OPTIONS)
    headrace.build(tmp_path / "b.jsonl", tmp_path / "hashed", append=True, workers=1)
    (tmp_path / "c.jsonl").write_bytes(line("something else"))
    with pytest.raises(OutputExistsError) as mixed:
        headrace.build(tmp_path / "c.jsonl", tmp_path / "hashed", append=True, **OPTIONS)
    assert [str(problem) for problem in mixed.value.problems] == ["an append to it: was built without --dedup exact"]


def test_damage_is_found(sources, tmp_path):
    """A changed byte of a hash is found by `verify`, by whoever asks for documents, and by an append."""
    headrace.build(sources / "a.jsonl", tmp_path / "c", **OPTIONS)
    (shard,) = (tmp_path / "c").glob("*.h5")
    (tmp_path / "b.jsonl").write_bytes(line("something"))
    for place in (0, 123, 699):
        with h5py.File(shard, "r+", locking=False) as file:
            before = file["documents/text_hash"][place]
            other = np.frombuffer(before.tobytes(), np.uint8) ^ np.uint8(1)
            file["documents/text_hash"][place] = np.frombuffer(other.tobytes(), "V16")[0]
        (report,) = verify_path(tmp_path / "c")
        assert report.status == "corrupt"
        assert any("text_hash" in str(problem) for problem in report.problems)
        with headrace.open(tmp_path / "c") as corpus, pytest.raises(CorruptShardError):
            corpus.documents.text_hashes(0)
        with pytest.raises(CorruptShardError, match="its hashes of texts are damaged"):
            headrace.build(tmp_path / "b.jsonl", tmp_path / "c", append=True, **OPTIONS)
        with h5py.File(shard, "r+", locking=False) as file:
            file["documents/text_hash"][place] = before
    with headrace.open(tmp_path / "c", verify="full"):
        pass


def test_a_source_that_changes_between_the_passes(sources, tmp_path):
    """What is read is compared with what was read before: the build ends and names the file, and goes on once it is whole."""
    folder = tmp_path / "in"
    shutil.copytree(sources, folder)
    before = (folder / "d.json").read_bytes()
    started: list[object] = []

    def change(event: Event) -> None:
        if type(event).__name__ == "BuildStarted" and not started:
            started.append(event)
            (folder / "d.json").write_bytes(before.replace(b"in an array", b"in an ARRAY"))

    with pytest.raises(SourceError, match=r"d\.json: has changed since duplicates were looked for; build again"):
        headrace.build(folder, tmp_path / "c", on_event=change, **OPTIONS)
    report = headrace.build(folder, tmp_path / "c", **OPTIONS)
    assert report.resumed > 0
    shutil.rmtree(tmp_path / "c" / ".headrace" / "dropped")
    headrace.build(folder, tmp_path / "whole", **OPTIONS)
    with headrace.open(tmp_path / "c", verify="full") as one, headrace.open(tmp_path / "whole") as other:
        assert one.fingerprint == other.fingerprint


def test_a_mended_source_decides_anew(tmp_path):
    """What was finished before a source was mended is built again if other documents are left out of it now."""
    folder = tmp_path / "in"
    folder.mkdir()
    whole = gzip.compress(b"".join(map(line, ["one", "two", "three"])))
    (folder / "a.jsonl.gz").write_bytes(whole)
    (folder / "b.jsonl").write_bytes(b"".join(map(line, ["two", "four", "x" * 9000])))
    (folder / "c.jsonl").write_bytes(b"".join(map(line, ["five", "x" * 9000, "y" * 4_000_000])))
    told: list[str] = []

    def cut(event: Event) -> None:
        told.append(getattr(event, "message", ""))
        if type(event).__name__ == "BuildStarted":
            (folder / "a.jsonl.gz").write_bytes(whole[:-12])

    # The largest are begun first: when `a` is, `b` is finished.
    with pytest.raises(SourceError, match=r"a\.jsonl\.gz"):
        headrace.build(folder, tmp_path / "c", on_event=cut, chunk_tokens=64, **{**OPTIONS, "workers": 2})
    assert any("of 3 source shards are finished and stay" in message for message in told)
    kept_before = (tmp_path / "c" / "000001-0000-0000.h5").read_bytes()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(map(line, ["one", "three", "four"]))))
    headrace.build(folder, tmp_path / "c", chunk_tokens=64, **OPTIONS)
    assert (tmp_path / "c" / "000001-0000-0000.h5").read_bytes() != kept_before
    kept = {"one": ("a.jsonl.gz", 1), "three": ("a.jsonl.gz", 2), "four": ("a.jsonl.gz", 3), "two": ("b.jsonl", 1)}
    kept |= {"x" * 9000: ("b.jsonl", 3), "five": ("c.jsonl", 1), "y" * 4_000_000: ("c.jsonl", 3)}
    require(tmp_path / "c", kept)
