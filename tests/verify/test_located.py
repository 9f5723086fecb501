"""Damage of a shard is located in the words of who has to find it: tokens, documents, lines of source files."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.manifest import ShardEntry, checksum_of
from headrace.shard_paths import load_index
from headrace.verify import ShardReport, verify_path, verify_shards

CHUNK = 32
LINES = [("" if row % 5 == 3 else f"line {row} " + "x" * (row * 7 % 23)) for row in range(40)]
TEXTS = ["first text", "second\ntext", "third"]


@dataclass(frozen=True)
class Built:
    """A corpus, and what is in it."""

    path: Path
    entries: list[ShardEntry]
    origins: list[str]
    """`file:line` of each document."""
    ends: list[int]
    """Position after each document's boundary."""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """Documents of one JSON lines file, every fifth line dropped, in shards of some 250 tokens; three texts in one more."""
    folder = tmp_path_factory.mktemp("located")
    (folder / "in").mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in LINES]
    (folder / "in" / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    for number, text in enumerate(TEXTS):
        (folder / "in" / f"t{number}.txt").write_text(text, encoding="utf-8")
    headrace.build(folder / "in", folder / "corpus", chunk_tokens=CHUNK, shard_tokens=250)
    return folder / "corpus"


@pytest.fixture
def built(original, tmp_path) -> Built:
    """A copy of it, to be damaged."""
    path = tmp_path / "corpus"
    shutil.copytree(original, path)
    kept = [(f"a.jsonl:{row}", text) for row, text in enumerate(LINES, 1) if text]
    kept += [(f"t{number}.txt:1", text) for number, text in enumerate(TEXTS)]
    ends = np.cumsum([len(text.encode()) + 1 for _, text in kept]).tolist()
    entries = load_index(path)
    assert len(entries) >= 3
    assert entries[-1].global_stop == ends[-1]
    return Built(path, entries, [origin for origin, _ in kept], ends)


def report_on(built: Built, number: int) -> ShardReport:
    """The verdict on one shard; all others are whole."""
    reports = verify_path(built.path)
    assert [report.shard_id for report in reports if not report.ok] == [built.entries[number].shard_id]
    return reports[number]


def shard(built: Built, number: int) -> h5py.File:
    """A shard, to be damaged."""
    return h5py.File(built.entries[number].path, "r+")


def documents_of(built: Built, number: int) -> list[int]:
    """Documents of a shard by their numbers in the corpus."""
    entry = built.entries[number]
    return [n for n, end in enumerate(built.ends) if entry.global_start < end <= entry.global_stop]


def touched(built: Built, start: int, stop: int) -> tuple[int, int]:
    """First and last document that hold any of tokens [start, stop) of the corpus."""
    starts = [0, *built.ends]
    found = [n for n, end in enumerate(built.ends) if starts[n] < stop and end > start]
    return found[0], found[-1]


def in_words(built: Built, first: int, last: int, *, base: int, lines: bool = True) -> str:
    """How documents are called, by their numbers in the corpus; `base` is that of their shard's first."""
    if first == last:
        text = f"document {first} of the corpus ({first - base} of the shard)"
        return text + f", from {built.origins[first]}" * lines
    text = f"documents {first} to {last} of the corpus ({first - base} to {last - base} of the shard)"
    files = len({origin.partition(":")[0] for origin in built.origins[first : last + 1]})
    among = f" ({files} files)" if files > 2 else ""
    return text + f", from {built.origins[first]} to {built.origins[last]}{among}" * lines


def test_every_chunk_is_located(built):
    """A changed token in any chunk of any shard: chunk, tokens in shard and corpus, documents, and their lines."""
    for number, entry in enumerate(built.entries):
        good = Path(entry.path).read_bytes()
        base = documents_of(built, number)[0]
        starts = range(0, entry.token_count, CHUNK)
        for chunk in {0, len(starts) // 2, len(starts) - 1}:
            start = starts[chunk]
            stop = min(start + CHUNK, entry.token_count)
            with shard(built, number) as file:
                file["tokens"][stop - 1] ^= 1
            (problem,) = report_on(built, number).problems
            place = f"tokens [{start}, {stop}) of the shard"
            corpus = entry.global_start + start, entry.global_start + stop
            words = in_words(built, *touched(built, *corpus), base=base)
            assert problem.place == f"{entry.path}: chunk {chunk}"
            assert problem.reason == f"{place} (corpus [{corpus[0]}, {corpus[1]})), {words}, are damaged"
            Path(entry.path).write_bytes(good)


def test_documents_are_numbered_as_they_are_asked_for(built):
    """The numbers are those that `documents` takes; its documents are those whose tokens changed."""
    with headrace.open(built.path) as corpus:
        before = [document.tolist() for document in corpus.documents]
    entry = built.entries[1]
    with shard(built, 1) as file:
        file["tokens"][40:90] ^= 1
    (problem,) = report_on(built, 1).problems
    first, last = map(int, re.search(r"documents (\d+) to (\d+) of the corpus", problem.reason).groups())
    with headrace.open(built.path, verify="off") as corpus:
        changed = [n for n, document in enumerate(corpus.documents) if document.tolist() != before[n]]
        assert first <= changed[0] <= changed[-1] <= last
        begin, end = corpus.documents.bounds(first)[0], corpus.documents.bounds(last)[1]
    assert begin <= entry.global_start + CHUNK < entry.global_start + 3 * CHUNK <= end
    assert "chunks 1 to 2: " in str(problem)


def test_the_base_of_rows_counts(built):
    """Lines are those of the source file: the manifest says at which of them the shard's cut begins."""
    index = built.path / "shards.json"
    body = json.loads(index.read_bytes())
    body["shards"][0]["row_base"] = 1000
    body["checksum"] = checksum_of(body)
    index.write_text(json.dumps(body), encoding="utf-8")
    with shard(built, 0) as file:
        file["tokens"][0] ^= 1
    _, last = touched(built, 0, CHUNK)
    line = int(built.origins[last].partition(":")[2])
    assert f", from a.jsonl:1001 to a.jsonl:{1000 + line}, " in report_on(built, 0).reason


@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_end_that_is_wrong_is_found(built, number):
    """Of a document index with one wrong end the document is named, for its last token is no boundary."""
    numbers = documents_of(built, number)
    good = Path(built.entries[number].path).read_bytes()
    for local, bit in ((0, 1), (1, 2), (len(numbers) // 2, 1 << 40), (-2, 1), (-1, 1 << 9)):
        with shard(built, number) as file:
            file["documents/end"][local % len(numbers)] ^= np.uint64(bit)
        (problem,) = report_on(built, number % len(built.entries)).problems
        assert problem.place.endswith(": /documents/end")
        assert "not documents_sha256" in problem.reason
        words = in_words(built, numbers[local], numbers[local], base=numbers[0])
        assert problem.reason.endswith(f"what cannot be right is the end of {words}")
        Path(built.entries[number].path).write_bytes(good)


def test_an_end_at_another_boundary_is_found(built):
    """An end moved to that of the document before it is out of order, though a boundary is there."""
    with shard(built, 0) as file:
        file["documents/end"][4] = file["documents/end"][3]
    words = in_words(built, 4, 4, base=0)
    assert report_on(built, 0).reason.endswith(f"the end of {words}")


def test_numbers_and_lines_are_named_only_where_they_are_sound(built):
    """With a damaged document index damaged tokens are located without documents; with damaged origins, without lines."""
    good = Path(built.entries[0].path).read_bytes()
    with shard(built, 0) as file:
        file["documents/end"][4] ^= np.uint64(1)
        file["tokens"][0] ^= 1
    chunk, ends = report_on(built, 0).problems
    assert chunk.reason == "tokens [0, 32) of the shard (corpus [0, 32)) are damaged"
    assert ends.reason == "the SHA-256 of the document ends is not documents_sha256"
    Path(built.entries[0].path).write_bytes(good)
    with shard(built, 0) as file:
        file["documents/source_row"][4] ^= np.uint64(1)
        file["tokens"][0] ^= 1
    origins, chunk = report_on(built, 0).problems
    words = in_words(built, *touched(built, 0, 32), base=0, lines=False)
    assert chunk.reason == f"tokens [0, 32) of the shard (corpus [0, 32)), {words}, are damaged"
    assert origins.place.endswith(": /documents/source_*")


@pytest.mark.parametrize("column", ["source_row", "source_byte", "source_file"])
def test_an_origin_out_of_order_is_found(built, column):
    """Origins run through each source in order; where one does not, it or the one before it is what is wrong."""
    good = Path(built.entries[1].path).read_bytes()
    numbers = documents_of(built, 1)
    for local in (0, 1, len(numbers) // 2, len(numbers) - 2):
        with shard(built, 1) as file:
            file["documents"][column][local] ^= np.uint64(1 << 20)
        text = "".join(map(str, report_on(built, 1).problems))
        first, last = re.search(
            column + r" is out of order at documents? (\d+)(?: to (\d+))? of the corpus", text
        ).groups()
        assert numbers[local] in {int(first), int(last or first)}
        Path(built.entries[1].path).write_bytes(good)


def test_the_last_origin_may_be_any(built):
    """What is out of no order is found by its hash all the same."""
    with shard(built, 1) as file:
        file["documents/source_row"][-1] += np.uint64(1 << 20)
    assert report_on(built, 1).reason.endswith("the SHA-256 of the documents' sources is not sources_sha256")


OBJECTS = [
    "/",
    "tokens",
    "documents",
    *(f"documents/{name}" for name in ("end", "source_row", "source_byte", "source_file", "files")),
    "chunks",
    "chunks/crc32",
]


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("quick", [True, False])
def test_damaged_metadata_is_named(built, name, quick):
    """A changed byte in an object's header is found by HDF5's own checksum, and the object is named, where it has one."""
    path = Path(built.entries[0].path)
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file[name].id).addr
    data = bytearray(path.read_bytes())
    assert data[at : at + 4] == b"OHDR"
    data[at + 20] ^= 0x10
    path.write_bytes(data)
    report = verify_path(built.path, quick=quick)[0]
    assert report.status == "corrupt"
    text = report.reason + "".join(map(str, report.problems))
    assert str(path) in text
    if name != "/":
        assert f"/{name}: " in text
    assert "checksum" in text
    assert {other.status for other in verify_path(built.path)[1:]} == {"ok"}


def test_a_selection_has_no_numbers_in_the_corpus(built):
    """Of shards that are not a whole corpus only the number in the shard is known."""
    with shard(built, 1) as file:
        file["tokens"][0] ^= 1
    (report,) = verify_shards(built.entries[1:2])
    assert re.search(r"\), documents 0 to \d+ of the shard, from a\.jsonl:\d+ to a", report.reason)
    with headrace.open(built.entries[1].path) as alone:
        (report,) = alone.verify()
    assert "documents 0 to " in report.reason


def test_very_much_damage_is_summed_up(built):
    """A shard of nothing but damage is one problem, however many chunks it has."""
    with shard(built, 0) as file:
        file["tokens"][:] = 7
    chunks = -(-built.entries[0].token_count // CHUNK)
    (problem,) = report_on(built, 0).problems
    assert problem.place.endswith(f": chunks 0 to {chunks - 1}")
