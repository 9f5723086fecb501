"""Text files cut into documents: each with its line and its byte, whatever the pieces in which the file is read."""

import json
import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import headrace as library
from headrace.errors import SourceError
from headrace.sources import discover, read_shard
from headrace.sources.files import SourceFile
from headrace.sources.split import read_split


def read(path, data: bytes, split: str, **options):
    """All texts with their rows and bytes, and the drops as row, byte and reason."""
    path.write_bytes(data)
    file = SourceFile(path, path.name, len(data), "text", None, split)
    kept, drops, seen, consumed = [], [], [], 0
    for batch in read_split(file, observe=lambda _, piece: seen.append(piece), **options):
        kept += zip(batch.texts, batch.rows.tolist(), batch.offsets.tolist(), strict=True)
        drops += batch.drops
        consumed += batch.consumed
    assert b"".join(seen) == data
    assert consumed == len(data)
    return kept, [(drop.row, drop.byte, drop.reason) for drop in drops]


def model(data: bytes, split: str):
    """The same by regular expressions over the whole file."""
    start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    if split == "blank-lines":
        places = [match.span() for match in re.finditer(rb"(?m)(?:^[^\S\n]*\S[^\n]*(?:\n|\Z))+", data[start:])]
    else:
        text = re.escape(split.removeprefix("line:").encode())
        separator = rb"(?m)^" + text + rb"\r?(?:\n|\Z)" if split.startswith("line:") else text
        ends = [match.span() for match in re.finditer(separator, data[start:]) if match.end() > match.start()]
        places = list(zip([0, *(end for _, end in ends)], [*(at for at, _ in ends), len(data) - start], strict=True))
        places = places[:-1] if places[-1][0] == places[-1][1] else places
    kept, drops = [], []
    for first, end in places:
        text = data[start:][first:end]
        if split == "blank-lines" or split.startswith("line:"):
            text = text.removesuffix(b"\n").removesuffix(b"\r") if text.endswith((b"\n", b"\r")) else text
        row, byte = data[start:][:first].count(b"\n"), first + start
        try:
            text.decode()
            (kept.append((text, row, byte)) if text else drops.append((row, byte, "empty")))
        except UnicodeDecodeError as error:
            drops.append((row, byte + error.start, "invalid UTF-8"))
    return kept, drops


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("any")


@settings(max_examples=300)
@given(
    parts=st.lists(
        st.sampled_from([b"a", b"\n", b"\r\n", b" ", b"--", b"-", "é".encode(), b"\xff", b"<|end|>"]), max_size=30
    ),
    mark=st.booleans(),
    split=st.sampled_from(["blank-lines", "line:--", "--", "<|end|>", "\n\n"]),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 40)),
)
def test_any_text(folder, parts, mark, split, sizes):
    """Documents, places and drops are those that one look at the whole file finds."""
    data = (b"\xef\xbb\xbf" if mark else b"") + b"".join(parts)
    found = read(folder / "a.txt", data, split, block_bytes=sizes[0], batch_bytes=sizes[1])
    assert found == model(data, split)


@pytest.mark.parametrize(
    ("split", "data", "texts"),
    [
        ("blank-lines", b"\n\na\nb\n\n \t\nc", [b"a\nb", b"c"]),
        ("blank-lines", b"a\r\nb\r\n\r\nc\r\n", [b"a\r\nb", b"c"]),
        ("line:---", b"a\n---\nb --- c\n---\n", [b"a", b"b --- c"]),
        ("<|endoftext|>", b"a<|endoftext|>b\n<|endoftext|>", [b"a", b"b\n"]),
    ],
)
def test_what_a_document_is(tmp_path, split, data, texts):
    """Between lines a document ends before the end of its last line; between strings it is all that is there."""
    assert [text for text, _, _ in read(tmp_path / "a.txt", data, split)[0]] == texts


def test_replaced_and_kept_empty(tmp_path):
    """As for other documents."""
    kept, drops = read(tmp_path / "a.txt", b"a\xff;;b", ";", on_bad_input="replace", keep_empty=True)
    assert ([text for text, _, _ in kept], drops) == (["a\ufffd".encode(), b"", b"b"], [])


def test_other_encodings(tmp_path):
    """A file in another encoding is one drop, not one for each document."""
    data = "ein Text\n\nnoch einer\n".encode("utf-16")
    assert read(tmp_path / "a.txt", data, "blank-lines") == ([], [(-1, 0, "invalid UTF-8 (the file is UTF-16)")])


@pytest.mark.parametrize("split", ["", "line:"])
def test_no_separator(tmp_path, split):
    """An empty separator is refused."""
    with pytest.raises(SourceError, match="wanted none, blank-lines, line:TEXT"):
        discover([tmp_path], text_split=split)


def test_only_text_files_are_cut(tmp_path):
    """JSON lines beside them are read as ever; small text files still share a source shard."""
    (tmp_path / "a.jsonl").write_text('{"text": "x\\n\\ny"}\n')
    (tmp_path / "b.txt").write_text("one\n\ntwo")
    (tmp_path / "c.txt").write_text("three")
    shards = discover([tmp_path], text_split="blank-lines").shards
    assert len(shards) == 2
    batches = [batch for shard in shards for batch in read_shard(shard)]
    assert [text for batch in batches for text in batch.texts] == [b"x\n\ny", b"one", b"two", b"three"]
    assert [number for batch in batches for number in batch.files] == [0, 0, 0, 1]


def test_builds(headrace, tmp_path):
    """The command cuts, stores the option, traces documents to their lines, and another option is another command."""
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    arguments = ("build", tmp_path / "a.txt", "-o", tmp_path / "c", "--text-split", "blank-lines")
    assert headrace(*arguments).code == 0
    assert json.loads((tmp_path / "c" / "shards.json").read_text())["options"]["text_split"] == "blank-lines"
    with library.open(tmp_path / "c") as corpus:
        assert [len(document) for document in corpus.documents] == [8, 6]
        assert (corpus.locate(9).line, corpus.locate(9).byte) == (4, 9)
    assert headrace(*arguments).code == 0
    other = headrace(*arguments[:-2])
    assert other.code == 1
    assert "text_split (--text-split)" in other.err


def test_builds_without_are_as_they_were(headrace, tmp_path):
    """The option is not stored where it is not used."""
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert headrace("build", tmp_path / "a.txt", "-o", tmp_path / "c").code == 0
    assert "text_split" not in json.loads((tmp_path / "c" / "shards.json").read_text())["options"]
