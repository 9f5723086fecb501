"""Inputs of every odd kind, through the command: each document is kept, or counted with file, line and reason.

Never a traceback, never a hang; exit code 1 where something is wrong and was not to be left out, and then nothing appears.
"""

import bz2
import gzip
import json
import lzma
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import zstandard

import headrace as library

GOOD = b'{"text": "one"}\n{"text": "two"}\n'
TWO = [b"one", b"two"]
BOM = b"\xef\xbb\xbf"
NOT_JSON, EARLY, EXTRA, UTF8, WIDE = (
    "not JSON",
    "not JSON, ends early",
    "extra data",
    "invalid UTF-8",
    "not JSON (it looks like",
)
SECOND = b"\n" + GOOD


class Kind(NamedTuple):
    """A file with bad documents in it, or none."""

    data: bytes
    kept: list[bytes]
    """Texts, with skip."""
    drops: list[tuple[int | None, str]] = []  # noqa: RUF012  # never changed
    """Line and how the reason begins, with skip; empty documents are no fault."""
    replaced: list[bytes] | None = None
    """Texts with replace, where they are others."""


def skippable(data: bytes) -> bytes:
    """A skippable zstd frame."""
    return b"\x5a\x2a\x4d\x18" + struct.pack("<I", len(data)) + data


def wide_window(data: bytes, log: int) -> bytes:
    """A zstd frame with a window of 2 ** log bytes."""
    parameters = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


KINDS = {
    # line ends, blank lines, byte order marks
    "crlf.jsonl": Kind(GOOD.replace(b"\n", b"\r\n"), TWO),
    "no_end.jsonl": Kind(GOOD[:-1], TWO),
    "cr_only.jsonl": Kind(GOOD.replace(b"\n", b"\r") + SECOND, TWO, [(1, EXTRA)]),
    "blank.jsonl": Kind(b"\n \n\t\r\n" + GOOD + b"\n\n  ", TWO),
    "bom.jsonl": Kind(BOM + GOOD, TWO),
    "bom_inside.jsonl": Kind(GOOD + BOM + GOOD, [*TWO, b"two"], [(3, NOT_JSON)]),
    "nothing.jsonl": Kind(b"", []),
    "newlines.jsonl": Kind(b"\n" * 50, []),
    "bom_alone.jsonl": Kind(BOM, []),
    "bom_alone.txt": Kind(BOM, [], [(None, "empty")]),
    "bom.txt": Kind(BOM + b"a\r\nb\r", [b"a\r\nb\r"]),
    "nothing.txt": Kind(b"", [], [(None, "empty")]),
    "nul.txt": Kind(b"a\0b\n", [b"a\0b\n"]),
    # encodings
    "utf16.jsonl": Kind(GOOD.decode().encode("utf-16"), [], [(None, UTF8)]),
    "utf32.jsonl": Kind(GOOD.decode().encode("utf-32"), [], [(None, UTF8)]),
    "utf16_unmarked.jsonl": Kind(GOOD.decode().encode("utf-16-be"), [], [(1, WIDE), (2, WIDE)]),
    "utf16_unmarked.txt": Kind("plain words".encode("utf-16-le"), [], [(None, UTF8)]),
    "latin1.jsonl": Kind(b'{"text": "caf\xe9"}' + SECOND, TWO, [(1, UTF8)], ["caf\ufffd".encode(), *TWO]),
    "latin1.txt": Kind(b"caf\xe9", [], [(None, UTF8)], ["caf\ufffd".encode()]),
    "overlong.jsonl": Kind(b'{"text": "\xc0\xaf"}' + SECOND, TWO, [(1, UTF8)], ["\ufffd\ufffd".encode(), *TWO]),
    "cut_letter.jsonl": Kind(GOOD + b'{"text": "\xe6\x97', TWO, [(3, UTF8)]),
    "cut_letter.txt": Kind(b"text\xe6\x97", [], [(None, UTF8)], ["text\ufffd".encode()]),
    "bad_byte_elsewhere.jsonl": Kind(b'{"text": "x", "id": "\xff"}' + SECOND, TWO, [(1, UTF8)], [b"x", *TWO]),
    "surrogate.jsonl": Kind(b'{"text": "\\ud83d"}' + SECOND, TWO, [(1, "lone surrogate")], ["\ufffd".encode(), *TWO]),
    "pair.jsonl": Kind(b'{"text": "\\ud83d\\ude00"}\n', ["\U0001f600".encode()]),
    "surrogate_elsewhere.jsonl": Kind(b'{"text": "x", "\\ud83d": "\\udc00"}\n', [b"x"]),
    # JSON, or nearly
    "nul_inside.jsonl": Kind(b'{"text": "a\0b"}' + SECOND, TWO, [(1, NOT_JSON)]),
    "nul_tail.jsonl": Kind(GOOD + bytes(4096), TWO, [(3, NOT_JSON)]),
    "nan.jsonl": Kind(
        b'{"text": "a", "x": [NaN, -Infinity]}\n{"text": NaN}' + SECOND, [b"a", *TWO], [(2, "not JSON (NaN")]
    ),
    "numbers.jsonl": Kind(b'{"text": "a", "x": %s}\n{"x": -1e9999, "text": "b"}\n' % (b"9" * 9999), [b"a", b"b"]),
    "twice.jsonl": Kind(b'{"text": 1, "text": "a"}\n{"text": "a", "text": null}\n', [b"a"], [(2, "text is null")]),
    "deep.jsonl": Kind(b'{"text": "a", "x": %s%s}\n' % (b"[" * 400, b"]" * 400), [b"a"]),
    "too_deep.jsonl": Kind(b'{"x": ' + b'{"x": ' * 90_000 + SECOND, TWO, [(1, "not JSON (nested too deeply)")]),
    "two_a_line.jsonl": Kind(b'{"text": "a"} {"text": "b"}' + SECOND, TWO, [(1, EXTRA)]),
    "over_lines.jsonl": Kind(b'{\n"text": "a"\n}' + SECOND, TWO, [(1, EARLY), (2, EXTRA), (3, NOT_JSON)]),
    "cut.jsonl": Kind(GOOD + b'{"text": "thr', TWO, [(3, EARLY)]),
    "quotes.jsonl": Kind(b"{'text': 'a'}\n{text: \"a\"}" + SECOND, TWO, [(1, NOT_JSON), (2, NOT_JSON)]),
    "comments.jsonl": Kind(b'# a\n// b\n{"text": "a"} // c' + SECOND, TWO, [(1, NOT_JSON), (2, NOT_JSON), (3, EXTRA)]),
    "log.jsonl": Kind(b"[2026-01-01] started" + SECOND, TWO, [(1, NOT_JSON)]),
    "html.jsonl": Kind(b"<!DOCTYPE html>\n<p>404</p>" + SECOND, TWO, [(1, NOT_JSON), (2, NOT_JSON)]),
    "control.jsonl": Kind(b'{"text": "a\tb"}' + SECOND, TWO, [(1, NOT_JSON)]),
    "escapes.jsonl": Kind(b'{"text": "\\x41"}\n{"text": "\\u00"}' + SECOND, TWO, [(1, NOT_JSON), (2, NOT_JSON)]),
    "scalars.jsonl": Kind(b'1\n"a"\nnull\n["a"]\n[]' + SECOND, TWO, [(n, "not an object") for n in range(1, 6)]),
    # the field
    "no_field.jsonl": Kind(
        b'{}\n{"Text": "a"}\n{"text ": "a"}' + SECOND, TWO, [(n, "no field text") for n in (1, 2, 3)]
    ),
    "null.jsonl": Kind(b'{"text": null}' + SECOND, TWO, [(1, "text is null")]),
    "no_string.jsonl": Kind(
        b'{"text": 1}\n{"text": ["a"]}\n{"text": {"text": "a"}}\n{"text": true}\n{"text": 1.5}' + SECOND,
        TWO,
        [(n, "text is not a string") for n in range(1, 6)],
    ),
    "empty.jsonl": Kind(b'{"text": ""}' + SECOND, TWO, [(1, "empty")]),
    "space.jsonl": Kind(b'{"text": " \\n"}\n', [b" \n"]),
    "long.jsonl": Kind(b'{"text": "%s"}\n' % (b"x" * 3_000_000), [b"x" * 3_000_000]),
    # compressed
    "members.jsonl.gz": Kind(b"".join(gzip.compress(part) for part in (b"", GOOD[:9], b"", GOOD[9:], b"")), TWO),
    "padded.jsonl.gz": Kind(gzip.compress(GOOD) + bytes(1000), TWO),
    "frames.jsonl.zst": Kind(b"".join(zstandard.compress(part) for part in (GOOD[:9], b"", GOOD[9:])), TWO),
    "skips.jsonl.zst": Kind(
        skippable(b"") + zstandard.compress(GOOD[:9]) + skippable(GOOD) + zstandard.compress(GOOD[9:]), TWO
    ),
    "skips_alone.jsonl.zst": Kind(skippable(GOOD), []),
    "window.jsonl.zst": Kind(wide_window(GOOD, 31), TWO),
    "streams.jsonl.bz2": Kind(bz2.compress(GOOD[:9]) + bz2.compress(b"") + bz2.compress(GOOD[9:]), TWO),
    "more_streams.jsonl.xz": Kind(lzma.compress(GOOD[:9]) + bytes(8) + lzma.compress(GOOD[9:]), TWO),
    "really_zstd.jsonl": Kind(zstandard.compress(GOOD), TWO),
    "really_xz.jsonl.gz": Kind(lzma.compress(GOOD), TWO),
    "nothing_packed.jsonl.gz": Kind(b"", []),
    "bad_inside.jsonl.gz": Kind(gzip.compress(b"no JSON" + SECOND), TWO, [(1, NOT_JSON)]),
    "UPPER.JSONL.GZ": Kind(gzip.compress(GOOD), TWO),
}


def stored(corpus: Path) -> list[bytes]:
    """The texts of a corpus, out of byte tokens."""
    with library.open(corpus, verify="full") as opened:
        return [(document[:-1] - 1).astype(np.uint8).tobytes() for document in opened.documents]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """All kinds in a folder."""
    path = tmp_path_factory.mktemp("kinds") / "in"
    path.mkdir()
    for name, kind in KINDS.items():
        (path / name).write_bytes(kind.data)
    return path


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_all_kinds_together(headrace, folder, tmp_path, mode, workers):
    """Of each kind what is wanted is kept, all else is told with file, line and reason, counted and listed."""
    output = tmp_path / "c"
    ran = headrace("build", folder, "-o", output, "--on-bad-input", mode, "--workers", workers, "--max-reported", 999)
    assert ran.code == 0, ran.err
    names = sorted(KINDS, key=os.fsencode)
    other = {name: kind.replaced for name, kind in KINDS.items() if mode == "replace" and kind.replaced is not None}
    assert stored(output) == [text for name in names for text in other.get(name, KINDS[name].kept)]
    drops = {name: [] if name in other else KINDS[name].drops for name in names}
    if mode == "replace":
        drops["cut_letter.jsonl"] = [(3, EARLY)]
    rows = [
        json.loads(line)
        for path in (output / ".headrace" / "dropped").iterdir()
        for line in path.read_text().splitlines()
    ]
    for name in names:
        listed = [(row["line"], row["reason"]) for row in rows if row["file"] == name]
        if name == "utf16_unmarked.jsonl":
            listed = listed[:2]  # the end of the last line is one of its own
        assert len(listed) == len(drops[name]), name
        for (line, reason), (wanted_line, begins) in zip(listed, drops[name], strict=True):
            assert line == wanted_line, name
            assert reason.startswith(begins), name
            if begins != "empty":
                assert f"dropped: {name}:{'' if line else ' byte '}{line or ''}" in ran.err
        if not KINDS[name].kept and not KINDS[name].drops:
            assert f"empty: {name}: 0 documents" in ran.err
    for source in json.loads((output / "shards.json").read_text())["sources"]:
        assert source["documents"] == len(other.get(source["path"], KINDS[source["path"]].kept))
    assert f"{len(rows) + len(stored(output)):,} in, {len(stored(output)):,} kept" in ran.out


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.kept or kind.drops])
def test_each_kind_alone(headrace, folder, tmp_path, name):
    """By default a good file is read whole, and a bad one ends with all its places and nothing published."""
    kind = KINDS[name]
    ran = headrace("build", folder / name, "-o", tmp_path / "c")
    bad = [(line, begins) for line, begins in kind.drops if begins != "empty"]
    assert "Traceback" not in ran.err
    if not bad and kind.kept:
        assert ran.code == 0, ran.err
        assert stored(tmp_path / "c") == kind.kept
        return
    assert ran.code == 1
    assert ran.out == ""
    assert not (tmp_path / "c").exists()
    if not bad:
        assert f"no documents were kept of {name} (1 empty)" in ran.err
    for line, begins in bad:
        assert any(
            told.startswith(f"  {name}:{line}: {begins}" if line else f"  {name}: byte ")
            for told in ran.err.splitlines()
        )


REFUSED = {
    "member_cut.jsonl.gz": (gzip.compress(GOOD) + gzip.compress(GOOD)[:-1], "the gzip stream ends early"),
    "header_cut.jsonl.gz": (gzip.compress(GOOD)[:5], "the gzip stream ends early"),
    "wrong_sum.jsonl.gz": (gzip.compress(GOOD)[:-8] + bytes(4) + gzip.compress(GOOD)[-4:], "damaged gzip data"),
    "wrong_size.jsonl.gz": (gzip.compress(GOOD)[:-4] + bytes(4), "damaged gzip data"),
    "garbage.jsonl.gz": (gzip.compress(GOOD) + b"garbage", "bytes after the end of the gzip data"),
    "frame_cut.jsonl.zst": (zstandard.compress(GOOD) * 2 + zstandard.compress(GOOD)[:9], "the zstd stream ends early"),
    "skip_cut.jsonl.zst": (zstandard.compress(GOOD) + skippable(GOOD)[:-1], "the zstd stream ends early"),
    "garbage.jsonl.zst": (zstandard.compress(GOOD) + b"garbage", "bytes after the end of the zstd data"),
    "cut.jsonl.bz2": (bz2.compress(GOOD)[:-1], "the bz2 stream ends early"),
    "cut.jsonl.xz": (lzma.compress(GOOD)[:-1], "the xz stream ends early"),
    "plain.jsonl.zst": (GOOD, "its name says zstd"),
    "page.jsonl.gz": (b"<html>", "its name says gzip"),
    "twice.jsonl.gz": (gzip.compress(gzip.compress(GOOD)), "compressed twice"),
    "zip.jsonl": (b"PK\x03\x04" + bytes(60), "a zip archive"),
    "parquet.jsonl": (b"PAR1" + bytes(60), "Parquet"),
    "hdf5.jsonl": (b"\x89HDF\r\n\x1a\n" + bytes(60), "an HDF5 file"),
}


@pytest.mark.parametrize("mode", ["error", "skip", "replace"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read(headrace, tmp_path, name, mode):
    """A file that is cut, damaged, or something else is an error that says so under every mode, beside good ones too."""
    data, reason = REFUSED[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(GOOD)
    (tmp_path / "in" / name).write_bytes(data)
    given = [tmp_path / "in" / "a.jsonl", tmp_path / "in" / name]
    ran = headrace("build", *given, "-o", tmp_path / "c", "--on-bad-input", mode, "--workers", 1)
    assert (ran.code, ran.out) == (1, "")
    assert "Traceback" not in ran.err
    assert any(name in line and reason in line for line in ran.err.splitlines())
    assert not (tmp_path / "c" / "shards.json").exists()


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_cut_far_into_a_file(headrace, tmp_path, mode, workers):
    """Where whole lines came out before the cut, it still is an error, and not one of the last line."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(GOOD)
    lines = b"".join(b'{"text": "%s"}\n' % os.urandom(100).hex().encode() for _ in range(5000))
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(lines)[:-100])
    (tmp_path / "in" / "c.jsonl.zst").write_bytes(zstandard.compress(lines)[:-100])
    ran = headrace("build", tmp_path / "in", "-o", tmp_path / "c", "--on-bad-input", mode, "--workers", workers)
    assert ran.code == 1
    assert "stream ends early, at compressed byte" in ran.err
    assert not (tmp_path / "c" / "shards.json").exists()


# --- names and places


def test_odd_names(headrace, tmp_path):
    """Names with line feeds, bytes that are no UTF-8, patterns, dashes, and as long as can be, in any folder."""
    inputs = tmp_path / "in"
    names = [
        b"-dash.jsonl",
        b"new\nline.jsonl",
        b"caf\xe9.jsonl",
        b"[a]*?.jsonl",
        b"n" * 249 + b".jsonl",
        b" .jsonl",
        b"\\.txt",
    ]
    inputs.mkdir()
    for number, name in enumerate(names):
        (inputs / os.fsdecode(name)).write_bytes(
            b"%d" % number if name.endswith(b"txt") else b'{"text": "%d"}\n' % number
        )
    ran = headrace("build", inputs, "-o", tmp_path / "c")
    assert ran.code == 0, ran.err
    wanted = [b"%d" % names.index(name) for name in sorted(names)]
    assert stored(tmp_path / "c") == wanted
    each = [inputs / os.fsdecode(name) for name in sorted(names)]
    ran = headrace("build", "-o", tmp_path / "d", "--", *each)
    assert ran.code == 0, ran.err
    assert stored(tmp_path / "d") == wanted


def test_the_same_document_by_many_ways(headrace, tmp_path):
    """A file met by two paths, links, hard links and overlapping patterns is read once, and each other time is said."""
    inputs = tmp_path / "in"
    (inputs / "sub").mkdir(parents=True)
    (inputs / "a.jsonl").write_bytes(GOOD)
    (inputs / "sub" / "b.jsonl").write_bytes(b'{"text": "three"}\n')
    (inputs / "link.jsonl").symlink_to("a.jsonl")
    (inputs / "hard.jsonl").hardlink_to(inputs / "a.jsonl")
    (inputs / "again").symlink_to("sub")
    (inputs / "loop").symlink_to(".")
    given = [inputs, inputs / "a.jsonl", f"{inputs}/*.jsonl", f"{inputs}/**/*.jsonl", f"{inputs}/sub/../a.jsonl"]
    ran = headrace("build", *given, "-o", tmp_path / "c")
    assert ran.code == 0, ran.err
    assert stored(tmp_path / "c") == [*TWO, b"three"]
    told = [line for line in ran.err.splitlines() if line.startswith("duplicate: ")]
    for name in ("link.jsonl (the same file as a.jsonl)", "hard.jsonl (the same file as a.jsonl)", "loop/", "again/"):
        assert any(name in line for line in told)


def test_files_of_equal_bytes_are_read_and_told(headrace, tmp_path):
    """A copy under another name is another file: both are read, and said to be equal, for it is seldom meant."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(GOOD)
    (tmp_path / "d.jsonl").write_bytes(b'{"text": "other"}\n')
    (tmp_path / "e.txt").write_bytes(b"")
    (tmp_path / "f.txt").write_bytes(b"")
    ran = headrace("build", tmp_path, "-o", tmp_path / "c")
    assert ran.code == 0, ran.err
    assert stored(tmp_path / "c") == [*TWO, *TWO, *TWO, b"other"]
    assert [line for line in ran.err.splitlines() if line.startswith("duplicate: ")] == [
        "duplicate: b.jsonl holds the same bytes as a.jsonl; both were read",
        "duplicate: c.jsonl holds the same bytes as a.jsonl; both were read",
    ]


def test_special_files_and_links_that_lead_nowhere(run_process, tmp_path):
    """FIFOs, sockets, devices and dead links are errors, told at once and together; nothing waits for a writer."""
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.jsonl").write_bytes(GOOD)
    os.mkfifo(inputs / "fifo.jsonl")
    (inputs / "dead.jsonl").symlink_to("nothing")
    (inputs / "self.jsonl").symlink_to("self.jsonl")
    (inputs / "null.jsonl").symlink_to("/dev/zero")
    (inputs / "to_fifo.jsonl").symlink_to("fifo.jsonl")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(inputs / "socket.jsonl"))
        ran = run_process("build", inputs, "/dev/zero", "-o", tmp_path / "c", "--on-bad-input", "skip")
    assert ran.code == 1
    assert "5 problems" in ran.err
    for reason in ("a FIFO; wanted a file", "a socket; wanted a file", "a character device; wanted a file"):
        assert reason in ran.err
    assert "dead.jsonl: a link to something that does not exist" in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "c").exists()


def test_the_output_among_the_inputs(headrace, tmp_path):
    """An output below an input folder is not read as input, neither while it is made nor by the next build."""
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "bad\xff"}' + SECOND)
    for output in ("c", "d"):
        ran = headrace("build", tmp_path, "-o", tmp_path / output, "--on-bad-input", "skip")
        assert ran.code == 0, ran.err
        assert stored(tmp_path / output) == TWO
    for given in (tmp_path / "a.jsonl", tmp_path / "a.jsonl" / "c"):
        ran = headrace("build", tmp_path / "a.jsonl", "-o", given)
        assert ran.code == 1
        assert "Traceback" not in ran.err
    assert (tmp_path / "a.jsonl").read_bytes().endswith(GOOD)


def test_a_field_without_a_name(headrace, tmp_path):
    """An empty --text-field is refused in words, not by a traceback."""
    (tmp_path / "a.jsonl").write_bytes(GOOD)
    ran = headrace("build", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--text-field", "")
    assert ran.code in {1, 2}
    assert "the name of the field" in ran.err
    assert "Traceback" not in ran.err
