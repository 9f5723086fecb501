"""Builds of files that are cut: what they hold, where it comes from, and that nothing else decides their bytes."""

import bz2
import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings

import headrace
from headrace.building import build as build_module
from headrace.building.announce import Announcer
from headrace.errors import OutputExistsError, SourceError
from headrace.events import Event, Notice, ShardWritten
from headrace.in_progress import OpenShard
from headrace.manifest import Manifest, read_manifest

Cutting = Callable[[int], None]


@pytest.fixture
def cut_every(monkeypatch) -> Cutting:
    """Let builds cut files after so many bytes."""

    def cut(count: int) -> None:
        monkeypatch.setattr(build_module, "CUT_BYTES", count)

    return cut


LINES = st.one_of(
    st.text(max_size=30).map(lambda text: json.dumps({"text": text})),
    st.sampled_from(["", " ", "\r", '{"text": ""}', "no JSON", '{"text": "a"}\r', '{"text": "' + "b" * 200 + '"}']),
)


def traced(folder: Path) -> list[tuple[list[int], str, int, int]]:
    """Of each document of a corpus: tokens, file, line, byte."""
    with headrace.open(folder) as corpus:
        found = []
        for number in range(len(corpus.documents)):
            place = corpus.locate(corpus.documents.bounds(number)[0])
            found.append((corpus.documents[number].tolist(), place.source, place.line, place.byte))
        return found


def dropped(folder: Path) -> list[dict[str, object]]:
    """Rows of the lists of documents that were not kept."""
    logs = sorted((folder / ".headrace" / "dropped").glob("*"))
    assert all(log.name.count(".") == 1 for log in logs)
    return [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]


def require_hashes(manifest: Manifest, path: Path) -> None:
    """The only source's cuts cover its file, and have the hashes of its bytes."""
    (source,) = manifest.sources
    data = path.read_bytes()
    if not source.cuts:
        assert source.sha256 == hashlib.sha256(data).hexdigest()
        return
    assert source.sha256 == ""
    assert [cut.start for cut in source.cuts] + [len(data)] == [0] + [cut.stop for cut in source.cuts]
    assert all(hashlib.sha256(data[cut.start : cut.stop]).hexdigest() == cut.sha256 for cut in source.cuts)


OPTIONS = {"on_bad_input": "skip", "max_bad": 1.0, "workers": 1}


MOST = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
BUILDS = given(
    lines=st.lists(LINES, min_size=1, max_size=10).map(lambda lines: [*lines, '{"text": "one"}']),
    mark=st.sampled_from(["", "\ufeff"]),
    end=st.sampled_from(["", "\n", "\r\n"]),
    cut_bytes=st.one_of(st.integers(30, 120), st.integers(1, 30)),
    shard_tokens=st.sampled_from([None, 20]),
)


@MOST
@BUILDS
def test_cuts_change_only_the_shards(tmp_path_factory, lines, mark, end, cut_bytes, shard_tokens):
    """Documents, their lines and bytes, drops and counts are those of a build without cuts; compressed, the shards are equal."""
    compare(tmp_path_factory.mktemp("cuts"), lines, mark, end, cut_bytes, shard_tokens)


@pytest.mark.extended
@settings(MOST, max_examples=200)
@BUILDS
def test_cuts_change_only_the_shards_at_length(tmp_path_factory, lines, mark, end, cut_bytes, shard_tokens):
    """The same, for many more files."""
    compare(tmp_path_factory.mktemp("cuts"), lines, mark, end, cut_bytes, shard_tokens)


def compare(folder: Path, lines: list[str], mark: str, end: str, cut_bytes: int, shard_tokens: int | None) -> None:
    """Build a file whole, in cuts, and compressed in cuts."""
    path, packed = folder / "a.jsonl", folder / "a.jsonl.gz"
    path.write_text(mark + "\n".join(lines) + end, encoding="utf-8", newline="")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    headrace.build(path, folder / "whole", **OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "CUT_BYTES", cut_bytes)
        headrace.build(path, folder / "cut", **OPTIONS, shard_tokens=shard_tokens, validate=True)
        headrace.build(packed, folder / "packed", **OPTIONS, shard_tokens=shard_tokens)
    assert traced(folder / "cut") == traced(folder / "whole")
    assert dropped(folder / "cut") == dropped(folder / "whole")
    whole, cut, gz = (read_manifest(folder / name) for name in ("whole", "cut", "packed"))
    assert (cut.sources[0].documents, cut.sources[0].dropped) == (whole.sources[0].documents, whole.sources[0].dropped)
    require_hashes(cut, path)
    require_hashes(gz, packed)
    assert [(s.shard_id, s.sha256, s.documents_sha256, s.row_base) for s in cut.shards] == [
        (s.shard_id, s.sha256, s.documents_sha256, s.row_base) for s in gz.shards
    ]
    assert traced(folder / "packed") == [(tokens, "a.jsonl.gz", *place) for tokens, _, *place in traced(folder / "cut")]
    with headrace.open(folder / "cut") as corpus:
        for shard in corpus.entries:
            byte = corpus.locate(shard.global_start).byte
            assert (0 if byte == 3 and mark else byte) // cut_bytes == int(shard.shard_id.split("-")[1])


@pytest.fixture
def many(tmp_path) -> Path:
    """A folder with JSON lines with faults, plain and compressed, a Parquet file of many row groups, and other kinds."""
    folder = tmp_path / "in"
    folder.mkdir()
    texts = [f"document {number} {'word ' * (number * 7 % 40)}" for number in range(400)]
    lines = [json.dumps({"text": text}) for text in texts]
    lines[37] = lines[205] = lines[206] = "no JSON"
    lines[300] = ""
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.jsonl.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    (folder / "c.json").write_text("[" + ",\n".join(json.dumps({"text": text}) for text in texts) + "]")
    (folder / "e.txt").write_text("\n\n".join(texts))
    table = pa.table({"id": range(400), "text": [None if number == 333 else text for number, text in enumerate(texts)]})
    pyarrow.parquet.write_table(table, folder / "d.parquet", row_group_size=23)
    with pa.ipc.new_file(folder / "f.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=31)
    return folder


MANY = {"on_bad_input": "skip", "max_bad": 1.0, "text_split": "blank-lines"}


def test_workers_do_not_matter(many, published, tmp_path, cut_every):
    """Cuts of all kinds of files: one, two and three workers give the same files; what they hold is what uncut builds hold."""
    headrace.build(many, tmp_path / "whole", workers=1, **MANY)
    cut_every(7000)
    headrace.build(many, tmp_path / "one", workers=1, **MANY)
    for workers in (2, 3):
        headrace.build(many, tmp_path / str(workers), workers=workers, **MANY)
        assert published(tmp_path / str(workers)) == published(tmp_path / "one")
    assert traced(tmp_path / "one") == traced(tmp_path / "whole")
    assert dropped(tmp_path / "one") == dropped(tmp_path / "whole")
    manifest = read_manifest(tmp_path / "one")
    cuts = {
        name: {shard.shard_id[7:11] for shard in manifest.shards if shard.source == n}
        for n, name in enumerate("abcdef")
    }
    assert all(len(numbers) > 3 for numbers in cuts.values()), cuts
    assert {source.path for source in manifest.sources if source.cuts} == {"a.jsonl", "d.parquet"}
    told: list[Event] = []
    headrace.build(many, tmp_path / "one", workers=2, on_event=told.append, **MANY)
    assert "the corpus of this command is there already" in str(told)
    assert all(report.ok for report in headrace.verify.verify_path(tmp_path / "one"))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(pytest.param("a.jsonl", count, marks=pytest.mark.extended) for count in (1, 396)),
        ("a.jsonl", 150),
        ("d.parquet", 200),
    ],
)
def test_the_first_documents(many, published, tmp_path, cut_every, name, count):
    """They are the same with cuts and without, for one worker and two; what was not read has no hash."""
    options = {**MANY, "max_documents": count}
    headrace.build(many / name, tmp_path / "whole", workers=1, **options)
    cut_every(3000)
    headrace.build(many / name, tmp_path / "one", workers=1, **options)
    headrace.build(many / name, tmp_path / "two", workers=2, **options)
    assert published(tmp_path / "one") == published(tmp_path / "two")
    assert traced(tmp_path / "one") == traced(tmp_path / "whole")
    assert dropped(tmp_path / "one") == dropped(tmp_path / "whole")
    (source,) = read_manifest(tmp_path / "one").sources
    assert source.documents == count
    data = (many / name).read_bytes()
    assert all(hashlib.sha256(data[cut.start : cut.stop]).hexdigest() == cut.sha256 for cut in source.cuts)
    assert not source.whole
    headrace.build(many / name, tmp_path / "one", workers=1, **options)
    os.utime(many / name)
    (tmp_path / "one" / ".headrace" / "journal.jsonl").unlink()
    with pytest.raises(OutputExistsError, match=r"was modified since it was read in part"):
        headrace.build(many / name, tmp_path / "one", workers=1, **options)


def test_parquet_cuts_lie_on_row_groups(many, tmp_path, cut_every):
    """A cut is the row groups up to the one with which it has so many bytes; its shards' rows count from its first."""
    cut_every(5000)
    headrace.build(many / "d.parquet", tmp_path / "c", workers=1, **MANY)
    metadata = pyarrow.parquet.read_metadata(many / "d.parquet")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    bases, size, row = [0], 0, 0
    for group in groups:
        if size >= 5000:
            bases.append(row)
            size = 0
        size += group.total_byte_size
        row += group.num_rows
    manifest = read_manifest(tmp_path / "c")
    assert [shard.row_base for shard in manifest.shards] == bases
    assert [shard.shard_id for shard in manifest.shards] == [f"000000-{n:04d}-0000" for n in range(len(bases))]
    require_hashes(manifest, many / "d.parquet")


class StopError(RuntimeError):
    """Ends a build from outside."""


def stop_after(shards: int) -> Callable[[Event], None]:
    """A subscriber that ends the build once so many shards are written."""
    seen = [0]

    def subscriber(event: Event) -> None:
        seen[0] += isinstance(event, ShardWritten)
        if seen[0] == shards:
            raise StopError

    return subscriber


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.extended), 3, 8])
def test_finished_cuts_are_kept(many, published, tmp_path, cut_every, shards):
    """A build that ended between cuts goes on behind them, lists of dropped documents included."""
    cut_every(3000)
    headrace.build(many / "a.jsonl", tmp_path / "whole", workers=1, **MANY)
    with pytest.raises(StopError):
        headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, on_event=stop_after(shards), **MANY)
    before = {path.name: path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}
    assert len(before) == shards
    os.utime(many / "a.jsonl")  # so that its bytes are compared
    headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, **MANY)
    assert before.items() <= {path.name: path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}.items()
    assert published(tmp_path / "c") == published(tmp_path / "whole")


def test_a_cut_that_changed(many, tmp_path, cut_every):
    """A byte that was changed in what is finished is found by its cut's hash; one behind it belongs to this build anyway."""
    cut_every(3000)
    path = many / "a.jsonl"
    data = path.read_bytes()
    with pytest.raises(StopError):
        headrace.build(path, tmp_path / "c", workers=1, on_event=stop_after(3), **MANY)
    path.write_bytes(data.replace(b"document 1 ", b"document X "))
    with pytest.raises(OutputExistsError, match=r"a\.jsonl: has changed since it was read"):
        headrace.build(path, tmp_path / "c", workers=1, **MANY)
    path.write_bytes(data.replace(b"document 399", b"document 3XX"))
    headrace.build(path, tmp_path / "c", workers=1, **MANY)
    headrace.build(path, tmp_path / "whole", workers=1, **MANY)
    assert (tmp_path / "c" / "shards.json").read_bytes() == (tmp_path / "whole" / "shards.json").read_bytes()


def test_a_damaged_shard_costs_its_cut(many, published, tmp_path, cut_every):
    """The same command builds the one cut again whose shard is damaged; another cut size is another command."""
    cut_every(3000)
    headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, **MANY)
    whole = published(tmp_path / "c")
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}
    (tmp_path / "c" / "000000-0004-0000.h5").write_bytes(b"gone")
    headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, **MANY)
    assert published(tmp_path / "c") == whole
    now = {path.name: path.stat().st_ino for path in (tmp_path / "c").glob("*.h5")}
    assert [name for name in now if now[name] != inodes[name]] == ["000000-0004-0000.h5"]
    cut_every(4000)
    with pytest.raises(OutputExistsError, match=r"cut_bytes .*was 3000, is 4000"):
        headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, **MANY)


def test_append(many, published, tmp_path, cut_every):
    """What is appended to a cut corpus has names of its own; a file that is in it by its cuts is refused; twice is once."""
    cut_every(3000)
    corpus = tmp_path / "c"
    headrace.build(many / "a.jsonl", corpus, workers=1, **MANY)
    before = traced(corpus)
    (tmp_path / "other.jsonl").write_bytes((many / "a.jsonl").read_bytes())
    with pytest.raises(OutputExistsError, match=r"other\.jsonl: is in the corpus already, as a\.jsonl"):
        headrace.build(tmp_path / "other.jsonl", corpus, append=True, workers=1, **MANY)
    headrace.build(many / "d.parquet", corpus, append=True, workers=2, **MANY)
    after = published(corpus)
    headrace.build(many / "d.parquet", corpus, append=True, workers=2, **MANY)
    assert published(corpus) == after
    headrace.build(many / "d.parquet", tmp_path / "d", workers=1, **MANY)
    assert traced(corpus) == before + traced(tmp_path / "d")
    assert [shard.shard_id for shard in read_manifest(corpus).shards if shard.source == 1] == [
        shard.shard_id.replace("000000-", "000001-", 1) for shard in read_manifest(tmp_path / "d").shards
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_lines_are_named_by_the_file(many, tmp_path, cut_every, workers):
    """Bad documents stop a build with their lines in the file, whichever cut met them; mended, the build goes on."""
    path = many / "a.jsonl"
    cut_every(path.stat().st_size // 4)
    with pytest.raises(SourceError) as caught:
        headrace.build(path, tmp_path / "c", workers=workers)
    assert [problem.place for problem in caught.value.problems] == ["a.jsonl:38", "a.jsonl:206", "a.jsonl:207"]
    told: list[Event] = []
    headrace.build(path, tmp_path / "s", workers=workers, on_event=told.append, on_bad_input="skip")
    messages = [event.message for event in told if isinstance(event, Notice) and event.kind == "dropped"]
    assert [message.split(": ")[0] for message in messages] == ["a.jsonl:38", "a.jsonl:206", "a.jsonl:207"]
    path.write_text(path.read_text().replace("no JSON", '{"text": "mended"}'))
    headrace.build(path, tmp_path / "c", workers=workers)
    assert [place[2] for place in traced(tmp_path / "c")] == [*range(1, 301), *range(302, 401)]


def test_too_many_bad_lines_are_named_by_the_file(tmp_path, cut_every):
    """The share of bad documents is judged cut by cut, and told with the lines of the file."""
    lines = [f'{{"text": "document {number}"}}' for number in range(4000)]
    lines[3000:3200] = ["no JSON"] * 200
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    cut_every(40_000)
    with pytest.raises(SourceError, match=r"bad") as caught:
        headrace.build(tmp_path / "a.jsonl", tmp_path / "c", workers=1, on_bad_input="skip")
    assert caught.value.problems[0].place == "a.jsonl:3001"


def test_verify_names_lines_of_the_file(many, tmp_path, cut_every):
    """Damage in a shard of a later cut is located to the lines of the file."""
    cut_every(3000)
    headrace.build(many / "a.jsonl", tmp_path / "c", workers=1, **MANY)
    manifest = read_manifest(tmp_path / "c")
    entry = manifest.shards[-1]
    path = tmp_path / "c" / entry.path
    data = bytearray(path.read_bytes())
    text = "document 399".encode("latin-1")
    at = bytes(data).index(b"".join((byte + 1).to_bytes(2, "little") for byte in text))
    data[at] ^= 1
    path.write_bytes(data)
    (report,) = [report for report in headrace.verify.verify_path(tmp_path / "c") if not report.ok]
    lines = [place[2] for place in traced_shard(tmp_path / "c", entry.shard_id)]
    assert f"from a.jsonl:{lines[0]} to a.jsonl:400" in str(report.problems)


def traced_shard(folder: Path, shard_id: str) -> list[tuple[int, str, int]]:
    """Position, file and line of each document of one shard."""
    with headrace.open(folder, verify="off") as corpus:
        places = [corpus.locate(corpus.documents.bounds(n)[0]) for n in range(len(corpus.documents))]
    return [(place.position, str(place.source), place.line or 0) for place in places if place.shard_id == shard_id]


def test_promises_of_cut_files(many, tmp_path, cut_every):
    """What a list of fetched files says of a cut file's SHA-256 is compared, though no worker reads all of it."""
    path = many / "a.jsonl"
    row = {"url": "https://example.org/a.jsonl", "bytes": path.stat().st_size, "documents": 399}
    listing = many / "manifest.json"
    cut_every(3000)
    listing.write_text(json.dumps([{**row, "sha256": "0" * 64}]))
    with pytest.raises(SourceError, match=r"a\.jsonl: its SHA-256 is [0-9a-f]{64}, but the list"):
        headrace.build(listing, tmp_path / "c", workers=2, **MANY)
    assert not (tmp_path / "c" / "shards.json").exists()
    listing.write_text(json.dumps([{**row, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}]))
    told: list[Event] = []
    headrace.build(listing, tmp_path / "c", workers=2, on_event=told.append, **MANY)
    assert not [event for event in told if isinstance(event, Notice) and event.kind == "documents"]


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.bz2", "d.parquet"])
def test_live_readers_see_lines_of_the_file(many, tmp_path, cut_every, monkeypatch, name):
    """Of a build at work, what is whole is traced to the file, whether its cuts are read side by side or in sequence."""
    cut_every(10_000)
    options = {**MANY, "workers": 1, "chunk_tokens": 64, "shard_tokens": 4000}
    headrace.build(many / name, tmp_path / "whole", **options)
    whole = traced(tmp_path / "whole")
    seen: list[int] = []

    def follow() -> None:
        with headrace.open(tmp_path / "c", live=True) as corpus:
            seen.append(len(corpus.documents))
            for number in {*range(0, seen[-1], 50), *range(max(seen[-1] - 3, 0), seen[-1])}:
                place = corpus.locate(corpus.documents.bounds(number)[0])
                tokens = corpus.documents[number].tolist()
                assert (tokens, place.source, place.line, place.byte) == whole[number]

    def opened(announcer: Announcer, shard: OpenShard) -> None:
        tell(announcer, shard)
        follow()

    tell = Announcer.opened
    monkeypatch.setattr(Announcer, "opened", opened)
    headrace.build(many / name, tmp_path / "c", **options)
    follow()
    assert seen == sorted(seen)
    assert len(set(seen)) > 8
    assert seen[-1] == len(whole)


@pytest.mark.extended
def test_files_of_more_than_a_gibibyte(tmp_path):
    """As they are found in the wild: cut at 1 GiB, plain or compressed, each line where it is."""
    blank = b" " * (2**20 - 1) + b"\n"
    path, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    over = b'{"text": "' + b"over the edge " * 10_000 + b'"}\n'
    with path.open("wb") as plain, gzip.open(packed, "wb", compresslevel=1) as small:
        for file in (plain, small):
            file.write(b'{"text": "first"}\n')
            file.writelines([blank] * 1023)
            file.write(b" " * (2**20 - 18 - 100) + b"\n" + over + b'{"text": "second cut"}\n')
            file.writelines([blank] * 60)
            file.write(b'{"text": "last"}')
    size = path.stat().st_size
    assert 2**30 < size < 2 * 2**30
    for name in ("a.jsonl", "a.jsonl.gz"):
        headrace.build(tmp_path / name, tmp_path / name.replace(".", "-"), workers=2)
        manifest = read_manifest(tmp_path / name.replace(".", "-"))
        assert [(shard.shard_id, shard.row_base) for shard in manifest.shards] == [
            ("000000-0000-0000", 0),
            ("000000-0001-0000", 1026),
        ]
        places = [(line, byte) for _, _, line, byte in traced(tmp_path / name.replace(".", "-"))]
        edge = 2**30 - 99
        assert places == [(1, 0), (1026, edge), (1027, edge + len(over)), (1088, size - 16)]
