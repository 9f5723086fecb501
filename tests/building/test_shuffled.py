"""`sample_seed`: all documents in a random order that a plain sort by their keys gives, however the work is divided."""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.building import build as build_module
from headrace.building import room, shuffle_jobs, spill
from headrace.building.processes import Worker
from headrace.errors import BuildError, OutputExistsError, SourceError
from headrace.events import Event, Notice, Progress, ShardWritten
from headrace.manifest import read_manifest
from headrace.sampling.document_keys import document_keys

MOST = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
BUILD_STREAM = 9
CUT, PART = 2000, 3000
SHARD_TOKENS = 3000


def key(seed: int, source: int, cut: int, number: int) -> int:
    """The key of a document, by the rule alone."""
    words = np.random.SeedSequence((seed, 0, BUILD_STREAM)).generate_state(2, np.uint64)
    word = number + (cut << 64) + (source << 128)
    counter = (word // 4 - 1) % 2**256
    return int(np.random.Philox(key=words, counter=counter).random_raw(4)[word % 4])


def ordered(seed: int, files: dict[str, list[str]], cut_bytes: int) -> list[tuple[int, str, str, int]]:
    """Text, label and line of all documents that are kept, with their keys, in the order of these."""
    found = []
    for source, (name, texts) in enumerate(files.items()):
        byte, numbers = 0, dict[int, int]()
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        cuts = sum(map(len, lines)) > cut_bytes
        for row, (text, line) in enumerate(zip(texts, lines, strict=True)):
            cut = byte // cut_bytes if cuts else 0
            byte += len(line)
            if text:
                number = numbers[cut] = numbers.get(cut, -1) + 1
                found.append((key(seed, source, cut, number), source, cut, number, text, name, row + 1))
    return [(one[0], *one[4:]) for one in sorted(found)]


def contents(output: Path) -> list[tuple[str, str, int]]:
    """Text, label and line of all documents of a corpus, in order."""
    with headrace.open(output, verify="full") as corpus:
        found = []
        for number in range(len(corpus.documents)):
            where = corpus.locate(corpus.documents.bounds(number)[0])
            text = bytes((corpus.documents[number][:-1] - 1).astype(np.uint8)).decode()
            found.append((text, where.source, where.line))
        return found


TEXTS = st.lists(st.text("ab\u00e9", max_size=60), max_size=30)


@MOST
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4),
    seed=st.integers(0, 2**70),
    cut_bytes=st.integers(40, 700),
    part_bytes=st.integers(200, 3000),
    run_cost=st.integers(1, 1500),
    most=st.one_of(st.none(), st.integers(1, 40)),
)
def test_any_corpus_is_its_model(tmp_path_factory, texts, seed, cut_bytes, part_bytes, run_cost, most):
    """Documents, lines, parts and counts of each source are what sorting by keys gives, whatever is spilled at once."""
    folder = tmp_path_factory.mktemp("any")
    files = {f"{number}.jsonl": some for number, some in enumerate(texts)}
    (folder / "in").mkdir()
    for name, some in files.items():
        (folder / "in" / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    wanted = ordered(seed, files, cut_bytes)
    if not wanted:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "CUT_BYTES", cut_bytes)
        patch.setattr(build_module, "PART_BYTES", part_bytes)
        patch.setattr(spill, "_RUN_COST", run_cost)
        headrace.build(folder / "in", folder / "c", sample_seed=seed, max_documents=most, workers=1)
    kept = wanted[:most]
    assert contents(folder / "c") == [one[1:] for one in kept]
    manifest = read_manifest(folder / "c")
    parts = -(-sum(len(text.encode()) + 64 for _, text, *_ in wanted) // part_bytes)
    counts: dict[str, int] = {}
    for one, *_ in kept:
        name = f"{one * parts >> 64:06d}-0000-0000"
        counts[name] = counts.get(name, 0) + 1
    assert {entry.shard_id: entry.document_count for entry in manifest.shards} == counts
    for source in manifest.sources:
        good = sum(name == source.path for *_, name, _ in wanted)
        assert source.documents == sum(name == source.path for *_, name, _ in kept)
        left = {"not sampled": good - source.documents} if good > source.documents else {}
        empty = files[source.path].count("")
        assert dict(source.dropped) == {**({"empty": empty} if empty else {}), **left}


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """Sources of several kinds, some cut, with ids, empty documents, invalid bytes, and texts that are there twice."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()

    def lines(name: str, count: int) -> bytes:
        rows = [
            {"text": f"{name if row % 5 else 'all'} {row} " + "w" * (row * 7 % 90), "id": row} for row in range(count)
        ]
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    bad = b'{"text": "\xff is no UTF-8", "id": "x"}\n{"text": "", "id": 0}\n{"text": 1, "id": 0}\n'
    (folder / "a.jsonl").write_bytes(lines("a", 60) + bad + lines("more", 20))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines("b", 70)))
    (folder / "e.json").write_bytes(b"[" + b",".join(lines("e", 30).splitlines()) + b"]")
    return folder


OPTIONS: dict[str, Any] = {"on_bad_input": "replace", "max_bad": 1.0, "id_field": "id", "sample_seed": 5}


@pytest.fixture
def small(monkeypatch) -> None:
    """Cuts and parts of few documents."""
    monkeypatch.setattr(build_module, "CUT_BYTES", CUT)
    monkeypatch.setattr(build_module, "PART_BYTES", PART)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "options",
    [
        {"shard_tokens": SHARD_TOKENS},
        {"max_documents": 70, "dedup": "exact", "compression": "gzip"},
    ],
    ids=["all", "sample"],
)
def test_workers_do_not_matter(sources, published, tmp_path, options):
    """Two workers give every file that one process gives; and nothing of the spill stays."""
    for workers in (1, 2):
        output = tmp_path / str(workers)
        headrace.build(sources, output, workers=workers, **OPTIONS, **options, validate=True)
        assert {path.name for path in (output / ".headrace").iterdir()} <= {
            "lock", "local.json", "journal.jsonl", "extents.bin", "ends.bin", "dropped"
        }  # fmt: skip
    assert published(tmp_path / "1") == published(tmp_path / "2")
    assert len(read_manifest(tmp_path / "1").shards) > 1


def located(output: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """What each document is and where it comes from, by file and line."""
    with headrace.open(output) as corpus:
        found = {}
        for number in range(len(corpus.documents)):
            where = corpus.locate(corpus.documents.bounds(number)[0])
            found[where.source, where.line] = where.byte, where.id, corpus.documents[number].tolist()
        assert len(found) == len(corpus.documents)
        return found


@pytest.mark.usefixtures("small")
def test_documents_are_those_of_a_build_in_order(sources, tmp_path):
    """Tokens, byte, line and id of every document, drops, and the report; without duplicates, too, and of a sample."""
    lists: dict[str, dict[str, bytes]] = {}
    for dedup in ("none", "exact"):
        options = {**OPTIONS, "dedup": dedup, "workers": 1}
        mixed = headrace.build(sources, tmp_path / f"{dedup}-mixed", **options)
        plain = headrace.build(sources, tmp_path / f"{dedup}-plain", **{**options, "sample_seed": None})
        assert located(tmp_path / f"{dedup}-mixed") == located(tmp_path / f"{dedup}-plain")
        for name in ("documents_in", "documents", "dropped", "replaced", "tokens", "text_bytes"):
            assert getattr(mixed, name) == getattr(plain, name), name
        for kind in ("mixed", "plain"):
            folder = tmp_path / f"{dedup}-{kind}" / ".headrace" / "dropped"
            lists[kind] = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert lists["mixed"] == lists["plain"]
        before, after = (read_manifest(tmp_path / f"{dedup}-{kind}").sources for kind in ("plain", "mixed"))
        assert before == after
        some = headrace.build(sources, tmp_path / f"{dedup}-some", **options, max_documents=50)
        assert some.documents == 50
        assert some.documents_in == plain.documents_in
        assert some.dropped == {**plain.dropped, "not sampled": plain.documents - 50}
        found = located(tmp_path / f"{dedup}-some")
        assert found.items() <= located(tmp_path / f"{dedup}-plain").items()
        with headrace.open(tmp_path / f"{dedup}-some") as first, headrace.open(tmp_path / f"{dedup}-mixed") as whole:
            assert (first[:] == whole[: len(first)]).all()


def test_seeds_differ_and_nothing_else_does(sources, tmp_path):
    """Another seed is another order of the same documents, recorded in the index; a build without one records none."""
    orders = []
    for seed in (0, 1):
        headrace.build(sources, tmp_path / str(seed), **{**OPTIONS, "sample_seed": seed})
        orders.append(list(located(tmp_path / str(seed))))
        assert read_manifest(tmp_path / str(seed)).options["sample_seed"] == seed
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    headrace.build(sources, tmp_path / "plain", **{**OPTIONS, "sample_seed": None})
    assert "sample_seed" not in read_manifest(tmp_path / "plain").options
    with pytest.raises(OutputExistsError, match=r"sample_seed \(--sample-seed\): was 0, is 1"):
        headrace.build(sources, tmp_path / "0", **{**OPTIONS, "sample_seed": 1})


def test_samples_are_uniform():
    """Over 4,000 seeds each of 24 documents of three sources is among the 6 first equally often, and so is each pair."""
    seeds, documents, most = 4000, 24, 6
    counts = np.zeros(documents)
    pairs = np.zeros((documents, documents))
    for seed in range(seeds):
        keys = np.concatenate([document_keys(seed, source, 0, 0, documents // 3) for source in range(3)])
        chosen = np.argsort(keys)[:most]
        counts[chosen] += 1
        pairs[np.ix_(chosen, chosen)] += 1
    share = most / documents
    spread = np.sqrt(seeds * share * (1 - share))
    assert np.abs(counts - seeds * share).max() < 4.5 * spread
    together = share * (most - 1) / (documents - 1)
    both = pairs[~np.eye(documents, dtype=bool)]
    assert np.abs(both - seeds * together).max() < 5 * np.sqrt(seeds * together * (1 - together))


@pytest.mark.parametrize("run_cost", [1, 300, 10**6])
def test_a_small_sample_spills_little(sources, tmp_path, monkeypatch, run_cost):
    """Where few documents are wanted, not all are written; which they are does not depend on it."""
    monkeypatch.setattr(spill, "_RUN_COST", run_cost)
    written: list[int] = []
    run = shuffle_jobs.ReadJob.run

    def counted(*args: Any) -> Any:  # as the method
        read = run(*args)
        written.append(sum(count for _, count in read.runs))
        return read

    monkeypatch.setattr(shuffle_jobs.ReadJob, "run", counted)
    headrace.build(sources, tmp_path / "c", max_documents=5, workers=1, **OPTIONS)
    assert len(located(tmp_path / "c")) == 5
    if run_cost == 10**6:
        assert written == [5, 5, 5]
    headrace.build(sources, tmp_path / "whole", workers=1, **OPTIONS)
    assert located(tmp_path / "c").items() <= located(tmp_path / "whole").items()


class StopError(RuntimeError):
    """Ends a build from outside."""


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("workers", [1, 2])
def test_it_goes_on(sources, published, tmp_path, workers):
    """What is finished stays, as it is said; the same command ends in the bytes of an undisturbed build."""
    headrace.build(sources, tmp_path / "whole", workers=1, **OPTIONS)
    told: list[Event] = []

    def stop(event: Event) -> None:
        told.append(event)
        if isinstance(event, ShardWritten):
            raise StopError

    with pytest.raises(StopError):
        headrace.build(sources, tmp_path / "c", workers=workers, on_event=stop, **OPTIONS)
    kept = [event.message for event in told if isinstance(event, Notice) and event.kind == "kept"]
    assert len(kept) == 1
    assert kept[0].startswith("1 of ")
    assert " parts of the shuffled documents are finished" in kept[0]
    assert not (tmp_path / "c" / ".headrace" / "first-pass").exists()
    stayed = [path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")]
    assert len(stayed) == 1
    assert headrace.build(sources, tmp_path / "c", workers=workers, **OPTIONS).resumed == 1
    assert stayed[0] in {path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}
    assert published(tmp_path / "c") == published(tmp_path / "whole")
    # A shard and a list of drops that are lost are made again, and nothing else is.
    (tmp_path / "c" / "000000-0000-0000.h5").unlink()
    next((tmp_path / "c" / ".headrace" / "dropped").iterdir()).unlink()
    headrace.build(sources, tmp_path / "c", workers=workers, **OPTIONS)
    assert published(tmp_path / "c") == published(tmp_path / "whole")
    assert headrace.build(sources, tmp_path / "c", workers=workers, **OPTIONS).seconds == 0


@pytest.mark.usefixtures("small")
def test_a_worker_that_dies(sources, published, tmp_path, monkeypatch):
    """While it reads, and while it writes: its job is begun once more, and the bytes are the same."""
    headrace.build(sources, tmp_path / "whole", workers=1, **OPTIONS)
    killed: list[str] = []
    start = Worker.start

    def start_and_kill(worker: Worker, job: Any) -> None:
        start(worker, job)
        if type(job).__name__ not in killed:
            killed.append(type(job).__name__)
            worker.process.kill()

    monkeypatch.setattr(Worker, "start", start_and_kill)
    told: list[Event] = []
    headrace.build(sources, tmp_path / "c", workers=2, on_event=told.append, **OPTIONS)
    assert killed == ["ReadJob", "PartJob"]
    assert sum(isinstance(event, Notice) and event.kind == "retried" for event in told) == 2
    assert published(tmp_path / "c") == published(tmp_path / "whole")


@pytest.mark.usefixtures("small")
def test_a_source_that_changed(tmp_path, write_jsonl):
    """Beside parts that are finished it is refused and named, whether or not its size has changed."""
    texts = [f"text {number}" for number in range(200)]
    path = write_jsonl(tmp_path / "in" / "a.jsonl", texts)

    def stop(event: Event) -> None:
        if isinstance(event, ShardWritten):
            raise StopError

    with pytest.raises(StopError):
        headrace.build(path, tmp_path / "c", sample_seed=1, workers=1, on_event=stop)
    for other in ([*texts[:-1], "text xyz"], [*texts, "more"]):
        write_jsonl(path, other)
        with pytest.raises(OutputExistsError, match=r"a\.jsonl: has changed"):
            headrace.build(path, tmp_path / "c", sample_seed=1, workers=1)


@pytest.mark.usefixtures("small")
def test_begun_with_a_seed_and_built_without(sources, published, tmp_path):
    """Nothing is left of what was begun: not a shard, and not a row of the journal."""
    plain = {**OPTIONS, "sample_seed": None, "workers": 1}

    def stop(event: Event) -> None:
        if isinstance(event, ShardWritten):
            raise StopError

    with pytest.raises(StopError):
        headrace.build(sources, tmp_path / "c", workers=1, on_event=stop, **OPTIONS)
    headrace.build(sources, tmp_path / "c", overwrite=True, **plain)
    headrace.build(sources, tmp_path / "plain", **plain)
    assert published(tmp_path / "c") == published(tmp_path / "plain")
    journals = [(tmp_path / name / ".headrace" / "journal.jsonl").read_bytes() for name in ("c", "plain")]
    assert journals[0] == journals[1]


@pytest.mark.usefixtures("small")
def test_append_and_overwrite(sources, published, tmp_path, write_jsonl):
    """What is appended is in the order that it has alone; an overwrite gives the corpus that a build gives."""
    old = write_jsonl(tmp_path / "old.jsonl", [f"old {number}" for number in range(100)])
    plain = {**OPTIONS, "id_field": None, "workers": 1}
    headrace.build(sources, tmp_path / "alone", **plain)
    headrace.build(old, tmp_path / "c", sample_seed=5)
    count = len(contents(tmp_path / "c"))
    headrace.build(sources, tmp_path / "c", **plain, append=True)
    assert contents(tmp_path / "c")[count:] == contents(tmp_path / "alone")
    headrace.build(sources, tmp_path / "c", **plain, append=True)  # the same command: nothing to do
    headrace.build(sources, tmp_path / "c", **plain, overwrite=True)
    assert published(tmp_path / "c") == published(tmp_path / "alone")


@pytest.mark.usefixtures("small")
def test_documents_of_a_program(tmp_path):
    """They are read once, and shuffled like those of a file of one source."""
    texts = [f"text {number}" for number in range(300)]
    headrace.build((text for text in texts), tmp_path / "c", sample_seed=3, max_documents=200, workers=2)
    wanted = sorted((key(3, 0, 0, number), text) for number, text in enumerate(texts))[:200]
    assert [text for text, *_ in contents(tmp_path / "c")] == [text for _, text in wanted]
    assert len(read_manifest(tmp_path / "c").shards) > 2


def test_ids(tmp_path):
    """Documents that are lists of ids are shuffled like others."""
    rows = [{"ids": [number, 1, 2]} for number in range(3, 200)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", ids_field="ids", vocab_size=300, boundary=0, sample_seed=0)
    with headrace.open(tmp_path / "c") as corpus:
        first = [int(corpus.documents[number][0]) for number in range(len(corpus.documents))]
    assert first == [number + 3 for _, number in sorted((key(0, 0, 0, number), number) for number in range(197))]


def test_prompts_and_responses(tmp_path):
    """Which tokens count in the loss goes with them."""
    rows = [{"p": "ask" * (number % 3), "r": f"answer {number}", "id": number} for number in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = []
    for seed in (None, 4):
        output = tmp_path / str(seed)
        headrace.build(tmp_path / "a.jsonl", output, prompt_field="p", response_field="r", sample_seed=seed)
        with headrace.open(output, verify="full") as corpus:
            bounds = [corpus.documents.bounds(number) for number in range(len(corpus.documents))]
            found.append([(corpus[a:b].tolist(), corpus.loss_mask(a, b).tolist()) for a, b in bounds])
    assert sorted(found[0]) == sorted(found[1])
    assert found[0] != found[1]


def test_faults_stop_it_as_ever(sources, tmp_path, write_jsonl):
    """Bad documents end it before anything is written, all of them told; without documents there is no corpus."""
    with pytest.raises(SourceError, match="2 bad documents"):
        headrace.build(sources, tmp_path / "c", sample_seed=1, workers=2)
    assert not (tmp_path / "c").exists()
    with pytest.raises(BuildError, match="no documents were kept"):
        headrace.build(write_jsonl(tmp_path / "e.jsonl", [""]), tmp_path / "c", sample_seed=1)
    for wrong in (-1, 1.5, True):
        with pytest.raises(BuildError, match="wanted an integer from 0"):
            headrace.build(sources, tmp_path / "c", sample_seed=wrong)


def test_room_for_the_spill(tmp_path, write_jsonl, monkeypatch):
    """The disk is judged while documents are read: it has to hold them once more, and the corpus."""
    write_jsonl(tmp_path / "in" / "a.jsonl", ["x" * 989] * 400)
    write_jsonl(tmp_path / "in" / "b.jsonl", ["y" * 989] * 400)
    monkeypatch.setattr(room, "_AFTER_BYTES", 100_000)
    told: list[Event] = []
    free = 1_500_000

    class Disk:
        @property
        def f_bavail(self) -> int:
            return free

        f_frsize = 1

    with monkeypatch.context() as patch:
        patch.setattr("headrace.building.room.os.statvfs", lambda _: Disk())
        with pytest.raises(BuildError, match="will not hold the corpus"):
            headrace.build(tmp_path / "in", tmp_path / "c", sample_seed=1, workers=1, on_event=told.append)
        assert not (tmp_path / "c").exists()
        free = 4_000_000
        headrace.build(tmp_path / "in", tmp_path / "c", sample_seed=1, workers=1, on_event=told.append)
    shares = [event.input_bytes for event in told if isinstance(event, Progress)]
    assert shares[-1] == sum(path.stat().st_size for path in (tmp_path / "in").iterdir())


def test_the_order_is_pinned(tmp_path):
    """Golden: what a seed gave once, it gives for ever; `struct` alone reads the tokens."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": letter}) + "\n" for letter in "abcdefghij"))
    (tmp_path / "b.txt").write_text("k")
    headrace.build(tmp_path, tmp_path / "c", sample_seed=1337, include=["*.jsonl", "*.txt"])
    with headrace.open(tmp_path / "c") as corpus:
        tokens = struct.unpack(f"<{len(corpus)}H", corpus[:].tobytes())
    assert "".join(chr(token - 1) for token in tokens[::2]) == "ibcdhekafjg"
