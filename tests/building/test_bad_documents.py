"""Reports of bad documents: exact counts, many at once, in source order, and a stop where there are too many."""

import gzip
import json
import pickle
import random
from pathlib import Path

import pytest

import headrace
from headrace.building import faults
from headrace.building.faults import BadDocumentsError
from headrace.errors import SourceError
from headrace.events import BuildFinished, Notice
from headrace.sources import Drop


def write(path: Path, *parts: str) -> Path:
    """Write a file, its folder included."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(parts))
    return path


GOOD, BAD, EMPTY = '{"text": "x"}\n', "no JSON\n", '{"text": ""}\n'


def failure(inputs: object, tmp_path: Path, **options) -> SourceError:
    """The error of a build that publishes nothing."""
    with pytest.raises(SourceError) as caught:
        headrace.build(inputs, tmp_path / "c", **options)
    assert not (tmp_path / "c" / "shards.json").exists()
    return caught.value


def test_a_bad_document_behind_many_empty_ones(tmp_path):
    """Empty documents are no fault: they do not take the place of a bad one in the report."""
    error = failure(write(tmp_path / "a.jsonl", EMPTY * 30, BAD, EMPTY * 30), tmp_path)
    assert error.summary.startswith("1 bad document;")
    assert [problem.place for problem in error.problems] == ["a.jsonl:31"]


@pytest.mark.parametrize("count", [1, 2, 20, 21, 22, 500, 1500])
def test_all_bad_documents_are_counted(tmp_path, count):
    """The number is that of the file; the first of them are told, and how many more there are."""
    error = failure(write(tmp_path / "a.jsonl", GOOD, BAD * count, GOOD), tmp_path)
    assert error.summary.startswith(f"{count} bad document{'s' * (count > 1)};")
    assert [problem.place for problem in error.problems] == [f"a.jsonl:{2 + row}" for row in range(min(count, 1000))]
    lines = str(error).splitlines()
    assert lines[1:21] == [f"  {problem}" for problem in error.problems[:20]]
    assert lines[21:] == ([f"  ... and {count - 20} more"] if count > 20 else [])


@pytest.mark.parametrize("workers", [1, 3])
def test_bad_documents_of_all_sources(tmp_path, workers):
    """One run reports the faults of every source, in source order, whichever was met first; good ones do not matter."""
    write(tmp_path / "in" / "a.jsonl", GOOD * 9)
    write(tmp_path / "in" / "b.jsonl", GOOD, BAD)
    write(tmp_path / "in" / "c.jsonl", GOOD * 9, BAD, GOOD * 3000, BAD)
    (tmp_path / "in" / "d.txt").write_bytes(b"good")
    (tmp_path / "in" / "e.txt").write_bytes(b"b\xe4d")
    error = failure(tmp_path / "in", tmp_path, workers=workers)
    assert error.summary.startswith("4 bad documents;")
    assert [problem.place for problem in error.problems] == ["b.jsonl:2", "c.jsonl:10", "c.jsonl:3011", "e.txt: byte 1"]


def test_a_damaged_file_among_bad_documents(tmp_path):
    """A damaged file behind bad documents is in the same report, in its own words."""
    write(tmp_path / "in" / "a.jsonl", BAD)
    whole = gzip.compress(random.Random(1).randbytes(20_000).hex().encode())
    (tmp_path / "in" / "b.txt.gz").write_bytes(whole[:15_000])
    error = failure(tmp_path / "in", tmp_path, workers=1)
    assert [problem.place for problem in error.problems] == ["a.jsonl:1", "b.txt.gz"]
    assert error.problems[1].reason.startswith("the gzip stream ends early, at compressed byte 15000")


def test_too_much_to_read_for_a_report(tmp_path, monkeypatch):
    """Where reading on stopped, the report says `at least`: it claims no more than was seen."""
    write(tmp_path / "in" / "a.jsonl", GOOD, BAD)
    write(tmp_path / "in" / "b.jsonl", GOOD * 9, BAD)
    write(tmp_path / "in" / "c.jsonl", GOOD, BAD)
    monkeypatch.setattr(faults.check_sources, "__defaults__", (20,))
    error = failure(tmp_path / "in", tmp_path, workers=1)
    assert error.summary.startswith("at least 2 bad documents;")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_fields_that_there_are(tmp_path, workers):
    """Where the text field is missing, the report says which fields the lines do have."""
    write(tmp_path / "in" / "a.jsonl", '{"content": "x", "id": 1}\n')
    write(tmp_path / "in" / "b.jsonl", '{"content": "x", "id": 1}\n')
    error = failure(tmp_path / "in", tmp_path, workers=workers)
    assert "the lines have the fields 'content', 'id'" in error.summary
    assert error.problems[0].reason == "no field text (byte 0)"


def test_the_error_travels():
    """The error of a worker process arrives as it was raised."""
    drop = Drop("a", 1, 2, "not JSON")
    error = BadDocumentsError([drop], 7, complete=False, hint="; a hint")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (type(again), str(again), again.problems) == (BadDocumentsError, str(error), error.problems)
    assert (again.drops, again.documents, again.complete, again.hint) == ((drop,), 7, False, "; a hint")


def test_many_bad_documents_stop_skipping(tmp_path):
    """Above the share that max_bad allows, a large source stops the build and shows the first of them."""
    source = write(tmp_path / "a.jsonl", GOOD * 970 + BAD * 30)
    error = failure(source, tmp_path, on_bad_input="skip")
    assert "30 of the first 1000 documents are bad, more than the 1.00% that --max-bad allows" in error.summary
    assert [problem.place for problem in error.problems][:2] == ["a.jsonl:971", "a.jsonl:972"]
    report = headrace.build(source, tmp_path / "c", on_bad_input="skip", max_bad=0.03)
    assert (report.documents, report.dropped) == (970, {"not JSON": 30})


def test_small_sources_are_not_judged(tmp_path):
    """In fewer than a thousand documents a share means little: half of them may be bad. Empty ones are never bad."""
    report = headrace.build(write(tmp_path / "a.jsonl", (GOOD + BAD) * 400), tmp_path / "c", on_bad_input="skip")
    assert report.dropped == {"not JSON": 400}
    report = headrace.build(write(tmp_path / "b.jsonl", GOOD + EMPTY * 2000), tmp_path / "d", on_bad_input="skip")
    assert report.dropped == {"empty": 2000}


def test_every_drop_is_written_down(tmp_path):
    """Each document that was not kept has a line with file, line, byte and reason; without any there is no log."""
    write(tmp_path / "in" / "a.jsonl", GOOD, EMPTY, BAD, GOOD)
    write(tmp_path / "in" / "b.jsonl", GOOD)
    (tmp_path / "in" / "c.txt").write_bytes(b"x\xff")
    told = []
    headrace.build(tmp_path / "in", tmp_path / "c", on_bad_input="skip", on_event=told.append)
    logs = sorted((tmp_path / "c" / ".headrace" / "dropped").iterdir())
    assert [log.name for log in logs] == ["000000-0000.jsonl", "000002-0000.jsonl"]
    assert [json.loads(line) for log in logs for line in log.read_text().splitlines()] == [
        {"file": "a.jsonl", "line": 2, "byte": 14, "reason": "empty"},
        {"file": "a.jsonl", "line": 3, "byte": 27, "reason": "not JSON"},
        {"file": "c.txt", "line": None, "byte": 1, "reason": "invalid UTF-8"},
    ]
    notices = [event.message for event in told if isinstance(event, Notice)]
    assert notices == ["a.jsonl:3: not JSON (byte 27)", "c.txt: byte 1: invalid UTF-8"]
    assert isinstance(told[-1], BuildFinished)
    assert told[-1].dropped == {"empty": 1, "invalid UTF-8": 1, "not JSON": 1}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"workers": 0}, ["workers"]),
        ({"chunk_tokens": 0, "shard_tokens": -1, "max_document_tokens": 1.5}, 3 * ["wanted an integer from 1"]),
        ({"max_bad": 1.01}, ["max_bad: wanted a fraction from 0 to 1, found 1.01"]),
        ({"max_bad": float("nan")}, ["max_bad"]),
        ({"on_bad_input": "ignore"}, ["on_bad_input: wanted error, skip or replace, found 'ignore'"]),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, names):
    """They are told all at once, before any input is looked for."""
    with pytest.raises(headrace.errors.BuildError, match="options make no sense") as caught:
        headrace.build(tmp_path / "absent", tmp_path / "c", **options)
    assert len(caught.value.problems) == len(names)
    for problem, name in zip(caught.value.problems, names, strict=True):
        assert name in str(problem)
