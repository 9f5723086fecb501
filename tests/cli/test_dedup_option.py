"""`headrace build --dedup exact`."""

import json


def test_how_far_the_first_pass_is(headrace, tmp_path, monkeypatch):
    """A line now and then, before the build begins; and events in JSON lines."""
    monkeypatch.setattr("headrace.cli.terminal._LINE_SECONDS", 0)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' * 9)
    command = ["build", str(tmp_path / "a.jsonl"), "--dedup", "exact", "--workers", "1"]
    ran = headrace(*command, "-o", str(tmp_path / "c"))
    assert "first pass: 100%  9 documents, about 0 s left\n" in ran.err.split("building ")[0]
    rows = [json.loads(line) for line in headrace(*command, "-o", str(tmp_path / "d"), "--json").out.splitlines()]
    assert [row["documents"] for row in rows if row["event"] == "FirstPass"][-1] == 9


def test_dedup(headrace, tmp_path):
    """It says what it does, counts duplicates in the report, and lists each with the one that is kept; 2 for other words."""
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": "one"}\n')
    ran = headrace("build", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "c"), "--dedup", "exact")
    assert ran.code == 0
    assert "dedup: all sources are read once first, to find documents that are there twice\n" in ran.err
    assert "dedup: 1 of 3 documents are duplicates (" in ran.err
    assert "3 in, 2 kept" in ran.out
    assert f"1 duplicate (listed in {tmp_path}/c/.headrace/dropped)" in ran.out
    (row,) = (tmp_path / "c" / ".headrace" / "dropped" / "000000-0000.jsonl").read_text().splitlines()
    assert json.loads(row) == {
        "file": "a.jsonl",
        "line": 3,
        "byte": 32,
        "reason": "duplicate",
        "kept": {"file": "a.jsonl", "line": 1},
    }
    assert headrace("verify", str(tmp_path / "c")).code == 0
    assert headrace("build", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "c"), "--dedup", "fuzzy").code == 2
