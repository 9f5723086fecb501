"""A downloader's list of files as a source: sizes and hashes are compared, counts are told."""

import gzip
import hashlib
import json

import pytest

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources import discover


def entry(path, /, **changes) -> dict:
    """What a downloader writes about a file."""
    data = path.read_bytes()
    return {
        "url": f"https://example.org/set/{path.name}?download=true",
        "bytes": len(data),
        "documents": 2,
        "sha256": hashlib.sha256(data).hexdigest(),
        **changes,
    }


@pytest.fixture
def files(tmp_path):
    """Two fetched files, in another order than that of their names."""
    for name, text in (("b.jsonl", "b"), ("a.jsonl.gz", "a")):
        data = f'{{"text": "{text}1"}}\n{{"text": "{text}2"}}\n'.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return [tmp_path / "b.jsonl", tmp_path / "a.jsonl.gz"]


def write(path, entries) -> None:
    """Write the list."""
    path.write_text(json.dumps(entries, indent=2))


def test_a_list(headrace, tmp_path, files):
    """The files beside the list are read in its order, and no others; a right list is silent."""
    write(tmp_path / "manifest.json", [entry(file) for file in files])
    (tmp_path / "c.jsonl").write_text('{"text": "c"}\n')
    found = discover([tmp_path / "manifest.json"])
    assert [file.label for file in found.files] == ["b.jsonl", "a.jsonl.gz"]
    ran = headrace("build", tmp_path / "manifest.json", "-o", tmp_path / "out")
    assert (ran.code, "documents:" in ran.err) == (0, False)


def test_a_list_within_an_object(tmp_path, files):
    """Whatever key it stands under, with what else a downloader says."""
    write(tmp_path / "manifest.json", {"version": 1, "tags": [], "shards": [entry(file) for file in files]})
    assert [file.label for file in discover([tmp_path / "manifest.json"]).files] == ["b.jsonl", "a.jsonl.gz"]


def test_files_under_other_names(tmp_path, files):
    """The entry's own path is taken first; what a URL escapes may be decoded, or not, on disk."""
    (tmp_path / "sub").mkdir()
    moved = [files[0].rename(tmp_path / "sub" / "x.jsonl"), files[1].rename(tmp_path / "a b.jsonl.gz")]
    escaped = tmp_path / "c%20d.jsonl"
    escaped.write_bytes(moved[0].read_bytes())
    write(
        tmp_path / "manifest.json",
        [
            entry(moved[0], path="sub/x.jsonl"),
            entry(moved[1], url="https://example.org/a%20b.jsonl.gz"),
            entry(escaped),
        ],
    )
    labels = [file.label for file in discover([tmp_path / "manifest.json"]).files]
    assert labels == ["sub/x.jsonl", "a b.jsonl.gz", "c%20d.jsonl"]


def test_a_wrong_count(headrace, tmp_path, files):
    """A count that differs is told; the build stands, for the bytes are right."""
    write(tmp_path / "manifest.json", [entry(files[0], documents=3), entry(files[1])])
    ran = headrace("build", tmp_path / "manifest.json", "-o", tmp_path / "out")
    assert ran.code == 0
    assert "documents: b.jsonl: 2 documents, but the list of fetched files says 3" in ran.err


@pytest.mark.parametrize(("number", "told"), [(1, False), (3, True)])
def test_a_count_of_what_is_not_wanted(headrace, tmp_path, files, number, told):
    """What `--max-documents` leaves of a file is no other count than that of the list, however it is read."""
    entries = [entry(files[0], documents=3 if told else 2), entry(files[1])]
    write(tmp_path / "manifest.json", entries)
    ran = headrace("build", tmp_path / "manifest.json", "-o", tmp_path / "out", "--max-documents", number)
    assert ran.code == 0
    assert ("list of fetched files says" in ran.err) == told


def test_a_wrong_hash(headrace, tmp_path, files):
    """A hash that differs is an error that names the file, and nothing is published."""
    write(tmp_path / "manifest.json", [entry(files[1]), entry(files[0], sha256="0" * 64)])
    ran = headrace("build", tmp_path / "manifest.json", "-o", tmp_path / "out", "--workers", 1)
    assert ran.code == 1
    assert f"b.jsonl: its SHA-256 is {entry(files[0])['sha256']}, but the list of fetched files says 000" in ran.err
    assert not (tmp_path / "out" / "shards.json").exists()


def test_wrong_sizes_and_missing_files(tmp_path, files):
    """Each is told before any reading."""
    write(tmp_path / "manifest.json", [entry(files[0], bytes=7), entry(files[1])])
    files[1].unlink()
    with pytest.raises(SourceError) as caught:
        discover([tmp_path / "manifest.json"])
    assert [(problem.place, problem.reason) for problem in caught.value.problems] == [
        (f"{tmp_path}/b.jsonl", "30 bytes, but the list of fetched files says 7; fetch it again"),
        (f"{tmp_path}/a.jsonl.gz", "does not exist"),
    ]
    assert not isinstance(caught.value, SourceNotFoundError)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sha256": "xyz"}, "entry 2 has no url, bytes and sha256"),
        ({"bytes": "5"}, "entry 2 has no url, bytes and sha256 .* it has bytes '5', sha256 '"),
        ({"bytes": -5}, "entry 2 has no url, bytes and sha256"),
        ({"path": "../b.jsonl"}, "entry 2: its path leads out of the folder"),
        ({"path": "/etc/passwd"}, "entry 2: its path leads out of the folder"),
        ({"file": ""}, "entry 2: its path leads out of the folder"),
        ({"url": "https://example.org/"}, "entry 2: .*its URL ends in no name"),
        ({"url": "https://example.org/other/b.jsonl"}, "or in that of an earlier entry"),
        ({"url": "https://example.org/.."}, "entry 2: .*its URL ends in no name"),
    ],
)
def test_lists_that_are_wrong(tmp_path, files, changes, reason):
    """An entry that cannot be followed is an error that names it."""
    write(tmp_path / "manifest.json", [entry(files[0]), entry(files[1], **changes)])
    with pytest.raises(SourceError, match=reason):
        discover([tmp_path / "manifest.json"])
    write(tmp_path / "manifest.json", [entry(files[1], **changes), entry(files[0])])
    with pytest.raises(SourceError, match=r"entry [12]"):
        discover([tmp_path / "manifest.json"])


def test_documents_with_urls_are_no_list(tmp_path):
    """Documents that have a URL and a hash, but no size, are documents."""
    write(tmp_path / "a.json", [{"text": "a", "url": "https://example.org/a", "sha256": "0" * 64}])
    (file,) = discover([tmp_path / "a.json"]).files
    assert file.kind == "array"
