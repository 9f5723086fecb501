"""`headrace split`: what it prints, its exit codes, and that its parts are corpora for the other commands."""

import json

import pytest

import headrace as library


def test_a_split(headrace, known, tmp_path):
    """Exit code 0; a report of each part, whose fingerprints the other commands know."""
    ran = headrace("split", known.path, "-o", tmp_path / "o", "--fraction", "val=0.3", "--seed", 5)
    assert ran.code == 0, ran.err
    rows = [line.split("  ", 1) for line in ran.out.splitlines()]
    assert [name.strip() for name, *_ in rows if name.strip()] == ["split of", "by", "val", "train", "time"]
    assert ran.err.startswith(f"splitting into {tmp_path / 'o'}: val, train; 5 shards, ")
    for name in ("val", "train"):
        with library.open(tmp_path / "o" / name) as corpus:
            assert f"fingerprint {corpus.fingerprint}" in ran.out
            assert f"{len(corpus.documents)} documents" in ran.out
        assert headrace("verify", tmp_path / "o" / name).code == 0
        info = json.loads(headrace("info", tmp_path / "o" / name, "--json").out)
        assert info["splits"][0]["fractions"] == [["val", "0.3"]]
    assert "part             val: 0.3 of " in headrace("info", tmp_path / "o" / "val").out
    assert "part             train: the rest of " in headrace("info", tmp_path / "o" / "train").out


def test_a_part_shows_where_its_text_came_from(headrace, known, tmp_path):
    """`show` prints text, source and line as the whole corpus would."""
    headrace("split", known.path, "-o", tmp_path / "o", "--fraction", "val=0.5")
    whole = [json.loads(headrace("show", known.path, "--document", n, "--json").out) for n in range(len(known.texts))]
    wanted = {(part["pieces"][0]["text"], *known.origins[n]) for n, part in enumerate(whole)}
    found = set()
    for name in ("val", "train"):
        with library.open(tmp_path / "o" / name) as corpus:
            count = len(corpus.documents)
        for number in range(count):
            piece = json.loads(headrace("show", tmp_path / "o" / name, "--document", number, "--json").out)["pieces"][0]
            found.add((piece["text"], piece["location"]["source"], piece["location"]["line"]))
    assert found == wanted


def test_events_as_json_lines(headrace, known, tmp_path):
    """With --json, stdout is one event a line, the report last; a notice of a small part is among them."""
    arguments = (known.path, "-o", tmp_path / "o", "--fraction", "val=0.000001", "--rest", "left", "--json")
    ran = headrace("split", *arguments)
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [event["event"] for event in events if event["event"] != "Progress"] == [
        "SplitStarted",
        "Notice",
        "SplitFinished",
    ]
    assert [(part["name"], part["fraction"]) for part in events[-1]["parts"]] == [("val", "0.000001"), ("left", "")]
    again = [json.loads(line) for line in headrace("split", *arguments).out.splitlines()]
    assert again[-1]["kept"] == 2
    assert again[-1]["parts"] == events[-1]["parts"]


def test_as_text_a_second_time(headrace, known, tmp_path):
    """The same command finds its parts, and says so."""
    for _ in range(2):
        ran = headrace("split", known.path, "-o", tmp_path / "o", "--fraction", "a=0.5", "--fraction", "b=0.5")
    assert ran.err == "resumed: the parts of this split are there already; their bytes were checked\n"
    assert "kept      2 parts of an earlier run" in ran.out


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("--fraction", "val"),
        ("--fraction", "val=2"),
        ("--fraction", "val=0.1", "--fraction", "val=0.2"),
        ("--fraction", "train=0.1"),
        ("--fraction", "val=0.1", "--seed", "-1"),
        ("--fraction", "val=0.1", "--by", "lines"),
    ],
)
def test_wrong_usage(headrace, known, tmp_path, wrong):
    """Exit code 2, a message, nothing made."""
    ran = headrace("split", known.path, "-o", tmp_path / "o", *wrong)
    assert ran.code == 2
    assert "Error" in ran.err
    assert not (tmp_path / "o").exists()


def test_a_fraction_without_a_name(headrace, known, tmp_path):
    """The message shows what a part is given as."""
    ran = headrace("split", known.path, "-o", tmp_path / "o", "--fraction", "0.1")
    assert ran.code == 2
    assert "wanted NAME=FRACTION, such as val=0.001, found '0.1'" in ran.err


def test_a_failure(headrace, known, tmp_path, data):
    """Exit code 1, one line and the places; no traceback."""
    ran = headrace("split", data / "formats" / "lesson_hdf5", "-o", tmp_path / "o", "--fraction", "val=0.1")
    assert (ran.code, ran.out) == (1, "")
    assert "is of version 1" in ran.err
    (tmp_path / "o" / "val").mkdir(parents=True)
    (tmp_path / "o" / "val" / "mine").write_text("")
    ran = headrace("split", known.path, "-o", tmp_path / "o", "--fraction", "val=0.1")
    assert ran.code == 1
    assert ran.err.splitlines()[1] == "  val: holds 'mine', and is no part of this split"
