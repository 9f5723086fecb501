"""What a report of bad documents says: places, what may be wrong, the texts only on request; and how soon it comes."""

import gzip
import json
import os
import pickle
import resource
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import headrace
from headrace.building.faults import (
    JUDGED_FROM,
    BadDocumentsError,
    DropLog,
    FaultyInputError,
    TooManyBadError,
    judge,
    show_texts,
    with_more,
)
from headrace.building.hints import fields_hint
from headrace.errors import BuildError, HeadraceError, SourceError
from headrace.sources import Drop, SourceShard, discover, read_shard
from headrace.sources.rawfile import DamagedFileError

GOOD, BAD, MOJIBAKE = b'{"text": "good"}\n', b"no JSON\n", b'{"text": "caf\xe9"}\n'


def failure(inputs: object, output: Path, **options) -> FaultyInputError:
    """The error of a build that publishes nothing."""
    with pytest.raises(FaultyInputError) as caught:
        headrace.build(inputs, output, **options)
    assert not (output / "shards.json").exists()
    return caught.value


# --- what may be wrong


def hint(tmp_path: Path, data: bytes, text_field: str = "text") -> str:
    """The fields that are named for a file."""
    (tmp_path / "a.jsonl").write_bytes(data)
    (shard,) = discover([tmp_path / "a.jsonl"]).shards
    drops = [drop for batch in read_shard(shard, text_field=text_field) for drop in batch.drops]
    return fields_hint(shard, drops)


@pytest.mark.parametrize(
    ("data", "text_field", "names"),
    [
        (b'{"content": "x", "id": 1}\n{"body": 1, "id": 2}\n', "text", "'content', 'id', 'body'"),
        (b'\xef\xbb\xbf{"content": 1}', "text", "'content'"),
        (b'{"data": {"content": "x", "id": 1}}\n', "data.text", "'data.content', 'data.id'"),
        (b'{"a": {"b": {"c": 1}}}\n', "a.b.text", "'a.b.c'"),
        (b'{"data": "x", "id": 1}\n', "data.text", "'data', 'id'"),
        (b'{"a\\n\\u001b[31m": 1}\n', "text", r"'a\n\x1b[31m'"),
        (b'{"%s": 1}\n' % (b"x" * 1000), "text", f"'{'x' * 60}...'"),
        (b"{%s}\n" % b",".join(b'"k%d":1' % n for n in range(30)), "text", ", ".join(f"'k{n}'" for n in range(20))),
        (b'{"x": %s}\n{"y": 1}\n' % (b"[" * 100_000 + b"]" * 100_000), "text", "'y'"),
        (b'{"text": "one"}\n{"other": "two"}\n', "text", "'text', 'other'"),
    ],
)
def test_the_fields_that_there_are(tmp_path, data, text_field, names):
    """The names of the first lines, each once, in order; of the innermost object that there is where they are nested."""
    assert hint(tmp_path, data, text_field) == f"; the lines have the fields {names}"


def test_no_fields_to_tell(tmp_path):
    """Where no field is missing, no line is an object, or the file is gone, nothing is said of fields."""
    assert hint(tmp_path, b"no JSON\n") == ""
    assert hint(tmp_path, b'{"text": 1}\n') == ""
    assert hint(tmp_path, b"{}\n") == ""
    (shard,) = discover([tmp_path / "a.jsonl"]).shards
    (tmp_path / "a.jsonl").unlink()
    assert fields_hint(shard, [Drop("a.jsonl", 0, 0, "no field text")]) == ""


def test_many_distinct_fields_are_no_work(tmp_path):
    """A line with a hundred thousand fields costs a moment, not hours."""
    data = b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}\n"
    assert hint(tmp_path, data).startswith("; the lines have the fields '0', '1', ")


@pytest.mark.parametrize("data", [{"a.b": "x"}, {"x": {"a.b": "y"}}])
def test_a_name_with_a_dot_in_it(tmp_path, data):
    """It would be said to be missing beside a list in which it stands."""
    name = "a.b" if "a.b" in data else "x.a.b"
    assert hint(tmp_path, json.dumps(data).encode(), name) == (
        f"; a dot leads into an object: the field named {name!r} cannot be given, rename it"
    )


def test_another_encoding_is_named(tmp_path):
    """A file that is all in another encoding is said to be likely so, and how to go on; a stray byte is only named."""
    (tmp_path / "a.jsonl").write_bytes(MOJIBAKE * 50)
    error = failure(tmp_path / "a.jsonl", tmp_path / "c")
    assert "or replace to put U+FFFD" in error.summary
    assert "another encoding than UTF-8" in error.summary
    (tmp_path / "a.jsonl").write_bytes(GOOD * 50 + MOJIBAKE)
    error = failure(tmp_path / "a.jsonl", tmp_path / "c")
    assert "or replace to put U+FFFD" in error.summary
    assert "another encoding" not in error.summary
    (tmp_path / "a.txt").write_bytes("text".encode("utf-16"))
    error = failure(tmp_path / "a.txt", tmp_path / "c")
    assert "iconv -f ENCODING" in error.summary
    assert "U+FFFD" not in error.summary
    (tmp_path / "a.jsonl").write_bytes(BAD)
    assert "U+FFFD" not in failure(tmp_path / "a.jsonl", tmp_path / "c").summary


# --- too many


def counted(data: bytes, tmp_path: Path, mode: str, text_field: str = "text") -> tuple[SourceShard, dict, list[Drop]]:
    """A source, and what a build has counted in it."""
    (tmp_path / "a.jsonl").write_bytes(data)
    (shard,) = discover([tmp_path / "a.jsonl"]).shards
    batches = list(read_shard(shard, text_field=text_field, on_bad_input=mode))
    drops = [drop for batch in batches for drop in batch.drops if drop.reason != "empty"]
    counts = {
        "seen": sum(len(batch.texts) + len(batch.drops) for batch in batches),
        "faults": len(drops),
        "replaced": sum(batch.replaced for batch in batches),
    }
    return shard, counts, drops


def test_too_many_replaced(tmp_path):
    """A source that is mostly in another encoding stops under `replace` too: its texts would be noise."""
    shard, counts, drops = counted(GOOD * 985 + MOJIBAKE * 10 + BAD * 5, tmp_path, "replace")
    assert counts == {"seen": 1000, "faults": 5, "replaced": 10}
    judge(shard, "text", drops, **counts, limit=0.015)
    with pytest.raises(TooManyBadError) as caught:
        judge(shard, "text", drops, **counts, limit=0.0149)
    error = caught.value
    assert error.summary == (
        "a.jsonl: 15 of the first 1000 documents are bad (10 hold bytes that are no UTF-8 and became U+FFFD), more than "
        "the 1.49% that --max-bad allows"
    )
    assert [problem.place for problem in error.problems] == [f"a.jsonl:{line}" for line in range(986, 1001)]
    assert {problem.reason.partition(" (")[0] for problem in error.problems[:10]} == {"invalid UTF-8"}
    shard, counts, drops = counted(MOJIBAKE * 1000, tmp_path, "replace")
    with pytest.raises(TooManyBadError, match="another encoding than UTF-8, convert it first"):
        judge(shard, "text", drops, **counts, limit=0.5)


def test_too_many_left_out(tmp_path):
    """Where a field is missing from many lines, the report says which ones there are; few documents are not judged."""
    shard, counts, drops = counted((b'{"body": "x"}\n' * 3 + GOOD * 2) * 200, tmp_path, "skip")
    with pytest.raises(TooManyBadError, match=r"600 of the first 1000 documents are bad, .* fields 'body', 'text'\n"):
        judge(shard, "text", drops, **counts, limit=0.599)
    judge(shard, "text", drops, **counts, limit=0.6)
    judge(shard, "text", drops, **counts | {"seen": JUDGED_FROM - 1}, limit=0.0)
    judge(shard, "text", [], seen=JUDGED_FROM, faults=0, replaced=0, limit=0.0)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["jsonl", "txt"])
def test_a_source_in_another_encoding_stops_replacing(tmp_path, kind, workers):
    """With replace, a source that is mostly in another encoding stops the build, unless the user has allowed for it."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "z.jsonl").write_bytes(GOOD)
    if kind == "jsonl":
        (folder / "a.jsonl").write_bytes(MOJIBAKE * 3000)
    else:
        for number in range(1200):
            (folder / f"{number:04d}.txt").write_bytes(b"caf\xe9 %d" % number)
    error = failure(folder, tmp_path / "c", on_bad_input="replace", workers=workers)
    assert isinstance(error, TooManyBadError)
    assert "hold bytes that are no UTF-8 and became U+FFFD" in error.summary
    assert "another encoding than UTF-8, convert it first" in error.summary
    assert error.problems[0].place == ("a.jsonl:1" if kind == "jsonl" else "0000.txt: byte 3")
    report = headrace.build(folder, tmp_path / "c", on_bad_input="replace", max_bad=1, workers=workers)
    assert report.replaced == (3000 if kind == "jsonl" else 1200)
    assert report.documents == report.replaced + 1


def test_the_errors_travel():
    """The error of a worker process arrives as it was raised, whichever it is."""
    drops = [
        Drop("a", 1, 2, "not JSON"),
        Drop("b", -1, -1, "the gzip stream ends early"),
        Drop("c", -1, 3, "invalid UTF-8"),
    ]
    for error in (
        BadDocumentsError(drops, 70, complete=False, hint="; a hint"),
        BadDocumentsError(drops, 2, complete=True),
        TooManyBadError("too many", drops, 99),
    ):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
        assert type(again) is type(error)
        assert (str(again), again.problems, again.drops, again.count) == (
            *(str(error), error.problems),
            *(error.drops, error.count),
        )
        assert [str(problem) for problem in error.problems] == [
            *("a:2: not JSON (byte 2)", "b: the gzip stream ends early", "c: byte 3: invalid UTF-8"),
        ]


def test_an_error_holds_no_more_than_it_needs():
    """However many bad documents there were, an error holds a thousand, and counts the others."""
    error = BadDocumentsError([Drop("a", row, 0, "not JSON") for row in range(5000)], 5000, complete=True)
    assert (len(error.drops), len(error.problems), error.count) == (1000, 1000, 5000)
    assert str(error).endswith("... and 4980 more")
    assert len(pickle.dumps(error)) < 100_000


# --- damage among bad documents


@pytest.mark.parametrize("workers", [1, 3])
def test_bad_lines_before_the_end_of_a_cut_file(tmp_path, workers):
    """Bad lines before a cut, the cut, and what is bad in other files are in one report, each at its place."""
    folder = tmp_path / "in"
    folder.mkdir()
    data = GOOD + BAD + GOOD * 200_000 + os.urandom(100_000).hex().encode()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(data)[:-20])
    (folder / "b.txt").write_bytes(b"fine")
    (folder / "c.txt.gz").write_bytes(gzip.compress(os.urandom(20_000).hex().encode())[:-20])
    (folder / "d.txt").write_bytes(b"not fine: \xff")
    (folder / "e.jsonl").write_bytes(BAD)
    error = failure(folder, tmp_path / "c", workers=workers)
    found = [str(problem) for problem in error.problems]
    assert found[0] == "a.jsonl.gz:2: not JSON (byte 17)"
    assert found[1].startswith("a.jsonl.gz: the gzip stream ends early, at compressed byte ")
    assert found[2].startswith("c.txt.gz: the gzip stream ends early, at compressed byte ")
    assert found[3:] == ["d.txt: byte 10: invalid UTF-8", "e.jsonl:1: not JSON (byte 0)"]
    assert " and 2 damaged files; nothing was published." in error.summary
    first = DamagedFileError("c.txt.gz", error.problems[2].reason)
    shards = discover([folder]).shards
    order = {name: number for number, name in enumerate(sorted(path.name for path in folder.iterdir()))}
    again = with_more(first, shards, order, "text")
    assert again.problems == error.problems
    assert again.summary.startswith("3 bad documents and 2 damaged files; nothing was published.")
    both = with_more(BadDocumentsError([Drop("e.jsonl", 0, 0, "not JSON")], 1, complete=True), shards, order, "text")
    assert both.problems == error.problems
    assert with_more(first, shards[1:2], order, "text").problems[-1].place == "d.txt: byte 10"
    assert with_more(first, [], order, "text") is first
    other = SourceError("another")
    assert with_more(other, shards, order, "text") is other


# --- texts on request


def test_texts_are_shown_on_request(tmp_path):
    """Each problem with a part of its line, whatever the file is compressed with; damage has no text to show."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(GOOD + b'{"text": "secret \xff\x07"}\n' + b"some " * 100 + b"\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(GOOD * 9 + b'{"text": null, "id": 7}\r\n'))
    (folder / "c.txt").write_bytes(b"one\ntwo \xe9 three\nfour")
    found = discover([folder])
    error = failure(folder, tmp_path / "c", workers=1)
    assert [str(problem) for problem in show_texts(error, found.files)] == [
        r'a.jsonl:2: invalid UTF-8 (byte 34): {"text": "secret \xff\x07"}',
        "a.jsonl:3: not JSON (byte 39): " + ("some " * 100)[:160] + "...",
        'b.jsonl.gz:10: text is null (byte 153): {"text": null, "id": 7}',
        r"c.txt: byte 8: invalid UTF-8: two \xe9 three",
    ]
    assert [problem.place for problem in error.problems] == [
        problem.place for problem in show_texts(error, found.files)
    ]
    (folder / "a.jsonl").unlink()
    assert show_texts(error, found.files)[:2] == list(error.problems[:2])
    damaged = BadDocumentsError([Drop("c.txt", -1, -1, "cut")], 1, complete=False)
    assert show_texts(damaged, found.files) == list(damaged.problems)
    assert show_texts(error, []) == list(error.problems)


SECRET = "xyzzy"  # noqa: S105  # a word of a document
LINES = st.sampled_from(
    [
        f'{{"text": "{SECRET}"}}'.encode(),
        f'{{"text": "{SECRET} \ud800"}}'.encode(errors="replace"),
        f'{{"text": "{SECRET}", "n": NaN}}'.encode(),
        f'{{"text": "{SECRET}\\ud800"}}'.encode(),
        f'{{"text": "{SECRET}"'.encode(),
        f'{{"text": "{SECRET}", }}'.encode(),
        f'{{"text": ["{SECRET}"]}}'.encode(),
        f'{{"body": "{SECRET}"}}'.encode(),
        f'{{"text": "{SECRET}"}} {SECRET}'.encode(),
        f'{{"text": "{SECRET}'.encode() + b'\xff"}',
        f'{{"text": "{SECRET}\x01"}}'.encode(),
        f'{{"text": "\\{SECRET}"}}'.encode(),
        f'["{SECRET}"]'.encode(),
        f'"{SECRET}"'.encode(),
        SECRET.encode(),
        SECRET.encode("utf-16-le"),
        b"[" * 3000 + SECRET.encode(),
    ]
)


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lines=st.lists(LINES, min_size=1, max_size=6), mode=st.sampled_from(["error", "skip", "replace"]))
def test_reports_hold_no_text_of_documents(tmp_path_factory, lines, mode):
    """Neither events, errors with all that led to them, nor the list of dropped documents hold a word of a document."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "a.jsonl").write_bytes(b'{"text": "ok"}\n' + b"\n".join(lines))
    told: list[object] = []
    try:
        headrace.build(folder / "a.jsonl", folder / "c", on_bad_input=mode, max_bad=1, workers=1, on_event=told.append)
    except HeadraceError as error:
        seen: BaseException | None = error
        while seen is not None and seen not in told:
            told.append(seen)
            told += [
                str(seen),
                repr(seen),
                vars(seen),
                seen.args,
                getattr(seen, "doc", ""),
                getattr(seen, "object", ""),
            ]
            seen = seen.__cause__ or seen.__context__
    told += [path.read_text() for path in (folder / "c").rglob("*.json*")]
    assert SECRET not in repr(told)
    assert SECRET.encode("utf-16-le").decode() not in repr(told)


@pytest.mark.parametrize(("options", "listed"), [((), 20), (("--max-reported", 3), 3), (("--max-reported", 500), 100)])
def test_the_command_shows_places_only(headrace, tmp_path, options, listed):
    """A one-line summary, then at most twenty places, or as many as asked for; no text of a document on either stream."""
    (tmp_path / "a.jsonl").write_bytes(GOOD + f'{{"text": "{SECRET}"\n'.encode() + BAD * 99)
    ran = headrace("build", tmp_path / "a.jsonl", "-o", tmp_path / "c", *options)
    assert (ran.code, ran.out) == (1, "")
    lines = ran.err.splitlines()
    (summary,) = [number for number, line in enumerate(lines) if line.startswith("headrace: 100 bad documents;")]
    assert lines[summary + 1] == "  a.jsonl:2: not JSON, ends early (byte 33)"
    for row, line in enumerate(lines[summary + 2 : summary + 1 + listed]):
        assert line == f"  a.jsonl:{row + 3}: not JSON (byte {34 + 8 * row})"
    assert lines[summary + 1 + listed :] == ([f"  ... and {100 - listed} more"] if listed < 100 else [])
    assert SECRET not in ran.err


def test_the_command_shows_texts_on_request(headrace, tmp_path):
    """With --show-text, and then only, the places come with a part of each line, made harmless for a terminal."""
    (tmp_path / "a.jsonl").write_bytes(GOOD + b'{"text": "\x1b[2J' + SECRET.encode() + b'", }\n')
    ran = headrace("build", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--show-text")
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == rf'  a.jsonl:2: not JSON (byte 27): {{"text": "\x1b[2J{SECRET}", }}'
    assert SECRET not in headrace("build", tmp_path / "a.jsonl", "-o", tmp_path / "c").err


# --- how soon


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """A file of 64 MB whose texts are in the field `body`."""
    path = tmp_path_factory.mktemp("large") / "a.jsonl"
    line = json.dumps({"id": 123456, "body": "word " * 25}).encode() + b"\n"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(line * (1_000_000 // len(line)))
    return path


def bytes_read() -> int:
    """Bytes that this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def build_and_count(source: Path, output: Path, **options) -> tuple[SourceError, int]:
    """The error of a build, and how much it has read."""
    before = bytes_read()
    with pytest.raises(SourceError) as caught:
        headrace.build(source, output, workers=1, **options)
    return caught.value, bytes_read() - before


@pytest.mark.parametrize("mode", ["error", "skip", "replace"])
def test_a_wrong_field_stops_at_once(large, tmp_path, mode):
    """A field that is in no line, or in few, stops a build within the first per cent of a file, and names those there are."""
    first, rest = large.read_bytes()[:2_000_000], tmp_path / "b.jsonl"
    (tmp_path / "small.jsonl").write_bytes(first[: first.rindex(b"\n") + 1])
    build_and_count(tmp_path / "small.jsonl", tmp_path / "c", on_bad_input=mode)  # imports what it needs
    error, read = build_and_count(large, tmp_path / "c", on_bad_input=mode)
    assert read < large.stat().st_size / 100
    assert "the lines have the fields 'id', 'body'" in error.summary
    assert error.problems[0].reason == "no field text (byte 0)"
    seldom = json.dumps({"id": 7, "text": "here"}).encode() + b"\n"
    lines = large.read_bytes().splitlines(keepends=True)
    rest.write_bytes(b"".join(seldom * (number % 50 == 0) + line for number, line in enumerate(lines)))
    error, read = build_and_count(rest, tmp_path / "c", on_bad_input=mode)
    assert read < rest.stat().st_size / 100
    assert "the lines have the fields 'id', 'text', 'body'" in error.summary
    assert error.problems[0].place == "b.jsonl:2"


# --- the list of dropped documents


def test_a_list_that_cannot_be_written(tmp_path):
    """A full disk, or a file in the way of the folder, is an error that names the list, not a bare one."""
    drops = [Drop("a", row, 0, "not JSON") for row in range(1000)]
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "log.jsonl").mkdir(parents=True)
    for place in ("file", "folder"):
        with pytest.raises(BuildError, match=r"log.jsonl: cannot be written"):
            DropLog(tmp_path / place / "log.jsonl").__enter__()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def written(count: int) -> None:
        with DropLog(tmp_path / "log.jsonl") as log:
            log.add(drops[:count])

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for count in (1000, 30):  # while it is written, and when it is closed
            with pytest.raises(BuildError, match=r"log.jsonl: cannot be written: File too large"):
                written(count)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_list_holds_few_in_memory(tmp_path):
    """All drops are on disk, in order; a few stay in memory for the report, empty ones not among them."""
    with DropLog(tmp_path / "list" / "log.jsonl") as log:
        for start in range(0, 20_000, 1000):
            log.add([Drop("a", row, 0, "not JSON" if row % 2 else "empty") for row in range(start, start + 1000)])
        assert [drop.row for drop in log.first] == list(range(1, 2000, 2))
    assert [drop.row for drop in log.first] == list(range(1, 43, 2))
    rows = [json.loads(line) for line in (tmp_path / "list" / "log.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(1, 20_001))
