"""What a corpus' folder holds besides the files that its index names changes nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.inspection import describe, verify_all

WATCHED = """
import os, sys
from headrace.inspection import verify_all

seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, *map(str, arguments[:1]))))
report = verify_all(sys.argv[1])
assert all(one.ok for one in report.reports)
kinds = {"os.listdir", "os.scandir", "os.walk", "glob.glob", "os.mkdir", "os.rename", "os.remove"}
print([event for event in list(seen) if event[0] in kinds and event[1].startswith(sys.argv[1])])
"""


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A corpus of two shards."""
    for name in ("a.jsonl", "b.jsonl"):
        lines = [json.dumps({"text": f"line {row} of {name}"}) + "\n" for row in range(20)]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    headrace.build([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "corpus", chunk_tokens=64)
    return tmp_path / "corpus"


def read(corpus: Path) -> tuple:
    """All that is read of a corpus."""
    with headrace.open(corpus) as opened:
        found = opened[:].tolist(), [opened.locate(opened.documents.bounds(n)[0]) for n in range(len(opened.documents))]
        return *found, describe(opened), opened.fingerprint


def test_stray_and_half_written_files(corpus):
    """Other shards, whole, half written or hidden, indexes that never got their name, folders: nobody minds them."""
    before = read(corpus)
    whole = (corpus / "000000-0000-0000.h5").read_bytes()
    for name, content in (
        ("000002-0000-0000.h5", whole),
        ("000001-0000-0001.h5", whole[: len(whole) // 2]),
        (".000002-0000-0000.h5.77.0a1b2c3d.partial", whole[:100]),
        (".shards.json.77.0a1b2c3d", b'{"version": 2'),
        ("shards.json.bak", b"{}"),
        ("shards (1).json", (corpus / "shards.json").read_bytes()[:50]),
        (".headrace/.extents.bin.77.0a1b2c3d", b"half"),
        (".headrace/more.bin", b""),
        ("tokenizer/more.json", b"{}"),
        ("notes.txt", b"mine"),
    ):
        assert not (corpus / name).exists()
        (corpus / name).write_bytes(content)
    (corpus / "folder.h5").mkdir()
    (corpus / "link.h5").symlink_to(corpus / "nowhere")
    shutil.copytree(corpus, corpus / "copy", symlinks=True)
    assert read(corpus) == before
    reports = verify_all(corpus).reports
    assert [(report.shard_id, report.status) for report in reports] == [
        ("000000-0000-0000", "ok"),
        ("000001-0000-0000", "ok"),
    ]


def test_verification_lists_no_folder_and_changes_nothing(corpus):
    """It looks for the files that the index names, and for its own; what else there is it does not ask."""
    before = {path: path.stat().st_mtime_ns for path in (corpus, *corpus.rglob("*"))}
    done = subprocess.run([sys.executable, "-P", "-c", WATCHED, corpus], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert {path: path.stat().st_mtime_ns for path in (corpus, *corpus.rglob("*"))} == before
