"""Which files are read, in what order, under which names; and all that is wrong with the inputs, at once."""

import gzip
import io
import lzma
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources import Discovery, discover, read_shard
from headrace.sources.files import SourceFile, group_into_shards, label

LINE = b'{"text": "a"}\n'

WANTED = "wanted names in .jsonl, .ndjson, .json, .txt, .parquet, .arrow, or --include PATTERN"


def write(root: Path, *names: str, data: bytes = LINE) -> None:
    """Write the same bytes into files below `root`."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def labels(found: Discovery) -> list[str]:
    """The labels of all files, in order."""
    return [file.label for file in found.files]


def problems(*inputs: str | Path, **options: object) -> dict[str, str]:
    """Place and reason of all that is wrong with inputs."""
    with pytest.raises(SourceError) as caught:
        discover(inputs, **options)
    return {problem.place: problem.reason for problem in caught.value.problems}


# --- order and names


def test_order_is_bytewise_by_path(tmp_path: Path) -> None:
    """Inside a folder, and inside a pattern, files come in the order of the bytes of their paths."""
    names = ["B.jsonl", "a-b.jsonl", "a.jsonl", "a/b.jsonl", "a0.jsonl", "part-10.jsonl", "part-2.jsonl", "é.jsonl"]
    write(tmp_path, *reversed(names))
    assert labels(discover([tmp_path])) == names
    assert labels(discover([f"{tmp_path}/*.jsonl"])) == [name for name in names if "/" not in name]
    assert labels(discover([f"{tmp_path}/**/*.jsonl"])) == names


def test_inputs_keep_their_order(tmp_path: Path) -> None:
    """Inputs are read in the order given, under labels below their common root."""
    write(tmp_path, "x/b.jsonl", "x/deep/a.jsonl", "y/c.jsonl")
    found = discover([tmp_path / "y", tmp_path / "x" / "b.jsonl", str(tmp_path / "x" / "deep")])
    assert labels(found) == ["y/c.jsonl", "x/b.jsonl", "x/deep/a.jsonl"]
    assert found.root == tmp_path
    assert [file.path for file in found.files] == [tmp_path / name for name in labels(found)]
    assert [shard.index for shard in found.shards] == [0, 1, 2]
    assert labels(discover([tmp_path / "x" / "b.jsonl"])) == ["b.jsonl"]


def test_relative_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the same as the absolute one; behind a link, `..` leads where the system goes."""
    write(tmp_path, "data/a.jsonl", "other/inner/c.jsonl", "other/b.jsonl")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "other" / "inner")
    monkeypatch.chdir(tmp_path / "data")
    for given in (".", "a.jsonl", "./a.jsonl", "*.jsonl", "../data/a.jsonl", "../data"):
        found = discover([given], include=["a.jsonl"])
        assert (found.root, labels(found)) == (tmp_path / "data", ["a.jsonl"]), given
    found = discover(["link/../b.jsonl"])
    assert found.files[0].path == tmp_path / "other" / "b.jsonl"


def test_names_in_any_case_and_compression(tmp_path: Path) -> None:
    """The names read in a folder, compressed or not; `.json` only with the text field in its first line or element."""
    write(tmp_path, "a.JSONL", "b.ndjson", "c.json", "h.Txt")
    write(tmp_path, "d.jsonl.gz", "e.txt.GZ", data=gzip.compress(LINE))
    write(tmp_path, "f.json.zst", data=zstandard.compress(LINE))
    write(tmp_path, "g.json", data=b'{"other": 1}\n')
    write(tmp_path, "i.json", data=b'[{"text": "a"},\n{"text": "b"}]')
    write(tmp_path, "j.json", data=b'\xef\xbb\xbf\n \n{"text": "a", "x": "' + b"x" * 100_000 + b'"}\n' + LINE)
    write(tmp_path, "k.json", data=b"")
    found = discover([tmp_path])
    assert {file.label: (file.kind, file.compression) for file in found.files} == {
        "a.JSONL": ("jsonl", None),
        "b.ndjson": ("jsonl", None),
        "c.json": ("jsonl", None),
        "d.jsonl.gz": ("jsonl", "gzip"),
        "e.txt.GZ": ("text", "gzip"),
        "f.json.zst": ("jsonl", "zstd"),
        "h.Txt": ("text", None),
        "i.json": ("array", None),
        "j.json": ("jsonl", None),
    }
    reason = "a .json file whose first line is no object with the field text"
    assert dict(found.skipped) == {"g.json": reason, "k.json": reason}
    assert [file.size for file in found.files] == [file.path.stat().st_size for file in found.files]


def test_dotted_field_of_json_files(tmp_path: Path) -> None:
    """A `.json` file is looked at with the field asked for."""
    write(tmp_path, "a.json", data=b'{"data": {"text": "a"}}\n')
    write(tmp_path, "b.json", data=b'{"data": "text"}\n')
    assert labels(discover([tmp_path], text_field="data.text")) == ["a.json"]


# --- what a file is


@pytest.mark.parametrize("name", ["a", "a.md", "a.data"])
def test_a_named_file_is_read_whatever_its_name(tmp_path: Path, name: str) -> None:
    """A name that says nothing leaves it to the first line; in a folder such a file is left out."""
    write(tmp_path / "x", name, data=b"\n" + LINE)
    write(tmp_path / "y", name, data=b"# {}\n")
    assert [file.kind for file in discover([tmp_path / "x" / name, tmp_path / "y" / name]).files] == ["jsonl", "text"]
    assert problems(tmp_path / "x").keys() == {str(tmp_path / "x")}


def test_format_forces(tmp_path: Path) -> None:
    """`format` decides for named and included files, and selects the names of its kind in folders."""
    write(tmp_path, "a.jsonl", "b.txt", "c.py", "d.json")
    named = [tmp_path / name for name in ("a.jsonl", "b.txt", "c.py")]
    assert {file.kind for file in discover(named, format="text").files} == {"text"}
    assert {file.kind for file in discover(named, format="jsonl").files} == {"jsonl"}
    assert labels(discover([tmp_path], format="text")) == ["b.txt"]
    assert labels(discover([tmp_path], format="jsonl")) == ["a.jsonl", "d.json"]
    with pytest.raises(SourceError, match="wanted a format of auto, jsonl, text, parquet, arrow, got 'xml'"):
        discover(named, format="xml")  # type: ignore[arg-type]


def test_include(tmp_path: Path) -> None:
    """Patterns of `include` select in folders, by name or path, whatever the ending; hidden files stay out."""
    write(tmp_path, "a.py", "b.txt", "src/c.py", "src/.d.py", "src/e.md", data=b"x = 1\n")
    found = discover([tmp_path], format="text", include=["*.py"])
    assert labels(found) == ["a.py", "src/c.py"]
    assert ("b.txt", "no --include pattern matches it") in found.skipped
    assert labels(discover([tmp_path], include=["src/*"])) == ["src/c.py", "src/e.md"]
    assert labels(discover([tmp_path], include="src/*")) == ["src/c.py", "src/e.md"]  # not its characters
    assert labels(discover([tmp_path / "b.txt", tmp_path / "src"], include=["c.*"])) == ["b.txt", "src/c.py"]


def test_compression_is_known_by_content(tmp_path: Path) -> None:
    """Compressed bytes under a plain name, or under that of another compression, are read as what they are."""
    write(tmp_path, "a.jsonl", "b.jsonl.zst", data=gzip.compress(LINE))
    found = discover([tmp_path])
    assert [file.compression for file in found.files] == ["gzip", "gzip"]
    assert [text for shard in found.shards for batch in read_shard(shard) for text in batch.texts] == [b"a", b"a"]


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
@pytest.mark.parametrize("data", [LINE, b"<html>404</html>", b"\x1f", b"\xfd7z"])
def test_wrong_compression_suffix(tmp_path: Path, suffix: str, data: bytes) -> None:
    """A name that promises a compression which the bytes do not have is an error; an empty file is just empty."""
    write(tmp_path, f"a.jsonl.{suffix}", data=data)
    assert "its name says" in problems(tmp_path)[f"{tmp_path}/a.jsonl.{suffix}"]
    write(tmp_path, f"a.jsonl.{suffix}", data=b"")
    assert labels(discover([tmp_path])) == [f"a.jsonl.{suffix}"]


def archive(kind: str) -> bytes:
    """An archive with one good file in it."""
    data = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(data, "w") as zipped:
            zipped.writestr("a.jsonl", LINE)
    else:
        with tarfile.open(fileobj=data, mode="w:gz" if kind == "tar.gz" else "w") as tar:
            info = tarfile.TarInfo("a.jsonl")
            info.size = len(LINE)
            tar.addfile(info, io.BytesIO(LINE))
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (archive("zip"), "a zip archive"),
        (archive("tar"), "a tar archive"),
        (archive("tar.gz"), "a tar archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(50), "a 7z archive"),
        (b"\x04\x22\x4d\x18" + bytes(50), "compressed with lz4"),
        (lzma.compress(LINE, lzma.FORMAT_ALONE), "compressed with lzma"),
        (b"LZIP\x01" + bytes(50), "compressed with lzip"),
        (b"FEA1" + bytes(50), "a Feather file of version 1"),
        (gzip.compress(archive("zip")), "a zip archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the archives hold the time
)
def test_archives_under_a_good_name(tmp_path: Path, data: bytes, reason: str) -> None:
    """What turns out to be no documents is left out of a folder, and listed; named, it is an error."""
    write(tmp_path, "a.jsonl", data=data)
    write(tmp_path, "b.jsonl")
    ((name, why),) = discover([tmp_path]).skipped
    assert name == "a.jsonl"
    assert why.startswith(reason)
    assert problems(tmp_path / "a.jsonl")[str(tmp_path / "a.jsonl")].startswith(reason)


@pytest.mark.parametrize(
    ("data", "array"),
    [
        (b"[\n" + LINE + b"]", True),
        (b"\xef\xbb\xbf\n [" + LINE, True),
        (b'[{"text": "a"}]\n \n', True),
        (b'["' + b"x" * 200_000 + b'",\n"y"]', True),
        (b'["a", "b"]\n' + LINE, False),
        (b'["' + b"x" * 200_000 + b'"]\n' + LINE, False),
        (b'"text"\n[\n', False),
        (b'[{"text": "a\xff"},\n{"text": "b"}]', True),
        (b"[2026-01-01] started\n" + LINE, False),
        (b"[" * 300_000 + b"\n" + LINE, False),
        (b'[{"text": "a"}]]\n' + LINE, False),
    ],
)
def test_json_arrays(tmp_path: Path, data: bytes, array: bool) -> None:
    """A file that is one JSON array is read as one; lines that are arrays are judged later."""
    for name, content in (("a.jsonl", data), ("b.jsonl.gz", gzip.compress(data))):
        write(tmp_path, name, data=content)
        (file,) = discover([tmp_path / name]).files
        assert file.kind == ("array" if array else "jsonl")


def test_compressed_twice(tmp_path: Path) -> None:
    """A file that was compressed twice is an error that says so, whatever compressions they are."""
    write(tmp_path, "a.jsonl.gz", data=gzip.compress(gzip.compress(LINE)))
    write(tmp_path, "b.jsonl.zst", data=zstandard.compress(lzma.compress(LINE)))
    found = problems(tmp_path)
    assert found == {
        f"{tmp_path}/a.jsonl.gz": "compressed twice, gzip inside gzip; decompress it once",
        f"{tmp_path}/b.jsonl.zst": "compressed twice, xz inside zstd; decompress it once",
    }


def test_a_cut_stream_is_found_early(tmp_path: Path) -> None:
    """A compressed file cut near its start is told with the other problems, before anything is read."""
    write(tmp_path, "a.jsonl.gz", data=gzip.compress(LINE)[:-4])
    assert problems(tmp_path, "nowhere") == {
        f"{tmp_path}/a.jsonl.gz": "the gzip stream ends early, at compressed byte 30; fetch the file again",
        "nowhere": "does not exist",
    }


# --- folders, patterns, links


def test_hidden_and_odd_names_are_listed(tmp_path: Path) -> None:
    """Hidden files and folders are left out of a folder, and said; named ones are read."""
    write(tmp_path, "a.jsonl", ".b.jsonl", "_c.jsonl", ".git/d.jsonl", "_temporary/0/e.jsonl", "f.jsonl/g.jsonl")
    found = discover([tmp_path])
    assert labels(found) == ["_c.jsonl", "_temporary/0/e.jsonl", "a.jsonl", "f.jsonl/g.jsonl"]
    assert dict(found.skipped) == {".b.jsonl": "a hidden file", ".git/": "a hidden folder"}
    assert labels(discover([tmp_path / ".b.jsonl", tmp_path / ".git"])) == [".b.jsonl", ".git/d.jsonl"]


def test_a_file_named_and_left_out_is_read(tmp_path: Path) -> None:
    """A file that a folder leaves out and that is named as well is read, and not reported as left out."""
    write(tmp_path, "a.jsonl", "notes.md")
    found = discover([tmp_path, tmp_path / "notes.md"])
    assert (labels(found), found.skipped) == (["a.jsonl", "notes.md"], ())


def test_patterns(tmp_path: Path) -> None:
    """Patterns match parts of paths, no leading dots, and folders as a shell would; what exists is no pattern."""
    write(tmp_path, "a1.jsonl", "a2.jsonl", ".a3.jsonl", "d1/x.jsonl", "d1/e/y.jsonl", "d2/z.txt")
    write(tmp_path, "odd/[a]*.jsonl", "odd/a?.jsonl", "odd/ab.jsonl")
    wanted = {
        "a?.jsonl": ["a1.jsonl", "a2.jsonl"],
        "a[!1].jsonl": ["a2.jsonl"],
        ".a*": [".a3.jsonl"],
        "d*": ["d1/e/y.jsonl", "d1/x.jsonl", "d2/z.txt"],
        "d*/": ["d1/e/y.jsonl", "d1/x.jsonl", "d2/z.txt"],
        "d*/*.jsonl": ["d1/x.jsonl"],
        "**/[xy].jsonl": ["d1/e/y.jsonl", "d1/x.jsonl"],
        "d1/**": ["d1/e/y.jsonl", "d1/x.jsonl"],
        "d1/**/y.jsonl": ["d1/e/y.jsonl"],
    }
    for pattern, names in wanted.items():
        found = discover([f"{tmp_path}/{pattern}"])
        assert [str(file.path.relative_to(tmp_path)) for file in found.files] == names, pattern
        assert not found.duplicates
    for name in ("[a]*.jsonl", "a?.jsonl"):
        assert labels(discover([tmp_path / "odd" / name])) == [name]


def test_the_same_file_twice(tmp_path: Path) -> None:
    """A file met again, by a second input, a link or a second name, is read once, where it came first, and said."""
    write(tmp_path, "a.jsonl", "b.jsonl")
    (tmp_path / "c.jsonl").symlink_to("a.jsonl")
    (tmp_path / "d.jsonl").hardlink_to(tmp_path / "b.jsonl")
    found = discover([tmp_path / "b.jsonl", tmp_path, f"{tmp_path}/*.jsonl"])
    assert labels(found) == ["b.jsonl", "a.jsonl"]
    assert found.duplicates[:3] == (
        "b.jsonl (given more than once)",
        "c.jsonl (the same file as a.jsonl)",
        "d.jsonl (the same file as b.jsonl)",
    )
    assert len(found.duplicates) == 7


@pytest.mark.parametrize("pattern", ["", "/**/*.jsonl"])
def test_links_to_folders(tmp_path: Path, pattern: str) -> None:
    """Links to folders are followed, each folder is read once by its own name, and loops end."""
    write(tmp_path, "data/real/a.jsonl", "outside/b.jsonl")
    (tmp_path / "data" / "again").symlink_to("real")
    (tmp_path / "data" / "loop").symlink_to("..")
    (tmp_path / "data" / "real" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "out").symlink_to(tmp_path / "outside")
    found = discover([f"{tmp_path}/data{pattern}"])
    assert len(found.files) == 2
    assert {file.path.resolve() for file in found.files} == {
        tmp_path / "data/real/a.jsonl",
        tmp_path / "outside/b.jsonl",
    }
    assert "real/a.jsonl" in labels(found)
    if not pattern:
        assert "again/ (a link to a folder that is read anyway)" in found.duplicates


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    """A dangling link, and a link to itself, are errors under a name that would be read, and left out under others."""
    write(tmp_path, "a.jsonl")
    for name, target in {"gone.jsonl": "nothing", "self.jsonl": "self.jsonl", "gone": "nothing"}.items():
        (tmp_path / name).symlink_to(target)
    found = problems(tmp_path)
    assert found[f"{tmp_path}/gone.jsonl"] == "a link to something that does not exist"
    assert "cannot be opened" in found[f"{tmp_path}/self.jsonl"]
    assert len(found) == 2


def test_compressed_beside_plain(tmp_path: Path) -> None:
    """`a.jsonl` beside `a.jsonl.gz` is an error unless it is allowed; other neighbours are none."""
    write(tmp_path, "a.jsonl", "b.jsonl", "a.txt")
    write(tmp_path, "a.jsonl.gz", "sub/b.jsonl.gz", data=gzip.compress(LINE))
    ((place, reason),) = problems(tmp_path).items()
    assert place == f"{tmp_path}/a.jsonl.gz"
    assert "a.jsonl;" in reason
    assert "--allow-duplicates" in reason
    assert len(discover([tmp_path], allow_duplicates=True).files) == 5
    assert len(discover([f"{tmp_path}/*.jsonl"]).files) == 2


def test_special_files(tmp_path: Path) -> None:
    """FIFOs, sockets and devices are errors and are never opened, which could wait for ever."""
    write(tmp_path, "a.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.jsonl"))
        found = problems(tmp_path, "/dev/null")
    assert found == {
        f"{tmp_path}/pipe.jsonl": "a FIFO; wanted a file",
        f"{tmp_path}/s.jsonl": "a socket; wanted a file",
        "/dev/null": "a character device; wanted a file",
    }


def test_unreadable_files_and_folders(tmp_path: Path, bound_by_modes) -> None:
    """What may not be read is told with the path, and with everything else that is wrong."""
    folder = tmp_path
    write(folder, "a.jsonl", "sub/b.jsonl", "c.jsonl", "closed/d.jsonl")
    (folder / "a.jsonl").chmod(0)
    (folder / "sub").chmod(0)
    (folder / "closed").chmod(0o444)
    try:
        with bound_by_modes():
            found = problems(folder, f"{folder}/sub/*", folder / "sub" / "b.jsonl", "nowhere")
    finally:
        for closed in ("sub", "closed"):
            (folder / closed).chmod(0o700)
    denied = {place: reason for place, reason in found.items() if "Permission denied" in reason}
    assert denied.keys() == {f"{folder}/{name}" for name in ("a.jsonl", "sub", "sub/b.jsonl", "closed/d.jsonl")}
    assert denied[f"{folder}/sub"] == "cannot be listed (Permission denied)"
    assert found.keys() - denied.keys() == {"nowhere"}


def test_folders_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, for users who may read everything: a failing listing is never an empty folder."""
    write(tmp_path, "a.jsonl", "sub/b.jsonl")
    scandir = os.scandir

    def failing(path: str):
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    for given in (tmp_path, f"{tmp_path}/**/*.jsonl"):
        assert problems(given) == {f"{tmp_path}/sub": "cannot be listed (Permission denied)"}


def test_paths_that_cannot_be_looked_up(tmp_path: Path) -> None:
    """A path that the system cannot look up is an error that says why, not one that is missing."""
    (tmp_path / "loop").symlink_to("loop")
    assert problems(tmp_path / "loop" / "a.jsonl", "x" * 5000, "a.jsonl\0") == {
        f"{tmp_path}/loop/a.jsonl": "cannot be opened (Too many levels of symbolic links)",
        "x" * 5000: "cannot be opened (File name too long)",
        r"a.jsonl\x00": "does not exist",
    }
    write(tmp_path, "a.jsonl")
    assert problems(tmp_path / "a.jsonl" / "b.jsonl") == {f"{tmp_path}/a.jsonl/b.jsonl": "does not exist"}


def test_thousands_of_files(tmp_path: Path, descriptors) -> None:
    """A large folder is listed in one go; no descriptor stays open."""
    for number in range(2000):
        (tmp_path / f"{number % 7}-{number}.jsonl").write_bytes(LINE)
    before = descriptors()
    found = labels(discover([tmp_path, f"{tmp_path}/*.jsonl"]))
    assert (len(found), found) == (2000, sorted(found))
    assert descriptors() <= before


# --- nothing found


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Missing paths, patterns and files are told together; the error is a FileNotFoundError if all are missing."""
    (tmp_path / "empty").mkdir()
    write(tmp_path, "other/README.md")
    write(tmp_path, "good.jsonl")
    inputs = [tmp_path / "good.jsonl", tmp_path / "no.jsonl", f"{tmp_path}/x*.jsonl", "", "https://example.org/a.jsonl"]
    assert problems(*inputs) == {
        f"{tmp_path}/no.jsonl": "does not exist",
        f"{tmp_path}/x*.jsonl": "no path matches this pattern",
        "(an empty path)": "does not exist",
        "https://example.org/a.jsonl": "a URL; this version reads local files",
    }
    with pytest.raises(SourceError, match="2 problems:") as mixed:
        discover(["no.jsonl", "/dev/null"])
    assert not isinstance(mixed.value, SourceNotFoundError)
    with pytest.raises(SourceNotFoundError, match="1 problem:"):
        discover([tmp_path / "no.jsonl"])
    with pytest.raises(FileNotFoundError, match="no inputs"):
        discover([])
    assert problems(tmp_path / "good.jsonl", tmp_path / "empty", tmp_path / "other") == {
        f"{tmp_path}/empty": f"no input files here; {WANTED}",
        f"{tmp_path}/other": f"no input files here; {WANTED}; left out: other/README.md (not a name of documents)",
    }


def test_a_folder_of_duplicates_is_not_empty(tmp_path: Path) -> None:
    """A folder whose files are all read already is no error."""
    write(tmp_path, "x/a.jsonl")
    assert labels(discover([tmp_path, tmp_path / "x"])) == ["x/a.jsonl"]


def test_empty_files_are_inputs(tmp_path: Path) -> None:
    """Files without a byte are listed like others: they give no documents, and that is said later."""
    write(tmp_path, "a.jsonl", "b.txt", data=b"")
    assert [(file.label, file.size) for file in discover([tmp_path]).files] == [("a.jsonl", 0), ("b.txt", 0)]


# --- names as bytes


def test_names_that_are_not_utf8_or_hold_line_feeds(tmp_path: Path) -> None:
    """Any name can be read; its label is one line of valid UTF-8, and names that differ have labels that differ."""
    names = [b"caf\xe9.jsonl", b"a\nb.jsonl", rb"a\x0ab.jsonl", "日本 \u2028.jsonl".encode(), b"tab\t\x1b[31m.jsonl"]
    for name in names:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_bytes(b'{"text": 1}\n')
    found = discover([tmp_path])
    assert set(labels(found)) == {
        r"caf\xe9.jsonl",
        r"a\x0ab.jsonl",
        r"a\\x0ab.jsonl",
        r"日本 \u2028.jsonl",
        r"tab\x09\x1b[31m.jsonl",
    }
    for shard in found.shards:
        ((drop,),) = [batch.drops for batch in read_shard(shard)]
        assert str(drop) == f"{shard.files[0].label}:1: text is not a string (byte 0)"
        assert str(drop).encode()
    assert problems("a\nb") == {r"a\x0ab": "does not exist"}


def test_labels_differ_where_names_do() -> None:
    """No two names share a label, over all bytes."""
    names = [os.fsdecode(bytes([byte])) for byte in range(1, 256)] + [
        "\x85",
        "\ue9ff",
        "é",
        r"\x0a",
        "\\",
        "\\\\",
        r"\u2028",
    ]
    assert len({label(name) for name in names}) == len(set(names))
    assert label("a b/é.jsonl") == "a b/é.jsonl"


# --- source shards


def test_neighbouring_text_files_share_a_shard() -> None:
    """Text files fill a shard up to the limit, in order; a JSONL file is one by itself and parts its neighbours."""
    kinds = ["text", "text", "jsonl", "text", "text", "text", "text", "jsonl", "jsonl", "text", "text", *["text"] * 3]
    sizes = [60, 40, 5, 50, 51, 0, 500, 10, 0, 99, 1, 30, 30, 50]
    pairs = enumerate(zip(kinds, sizes, strict=True))
    files = [SourceFile(Path(f"/{n}"), str(n), size, kind, None) for n, (kind, size) in pairs]
    shards = group_into_shards(files, limit=100)
    assert [[int(file.label) for file in shard.files] for shard in shards] == [
        [0, 1], [2], [3], [4, 5], [6], [7], [8], [9, 10], [11, 12], [13],
    ]  # fmt: skip
    assert [shard.size for shard in shards] == [100, 5, 50, 51, 500, 10, 0, 100, 60, 50]
