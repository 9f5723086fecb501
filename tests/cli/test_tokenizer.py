"""`headrace tokenizer`: from one's own text to a corpus and back, and what a user may get wrong."""

import inspect
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import tokenizers as hf

COMMAND = [sys.executable, "-P", "-m", "headrace", "tokenizer"]
HARD = "h\u00e9llo  w\u00f6rld\t\U0001f642 e\u0301 \u4e2d\u6587 12345 <|endoftext|>\r\n\n  end "


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A folder with two files of JSON lines and one of text; one line is bad. Do not write into it."""
    folder = tmp_path_factory.mktemp("documents")
    lines = [json.dumps({"text": f"the quick brown fox number {row} jumps over the lazy dog"}) for row in range(200)]
    (folder / "a.jsonl").write_text("\n".join([*lines, "[]", ""]))
    (folder / "b.jsonl").write_text(json.dumps({"text": HARD}) + "\n")
    (folder / "c.txt").write_text("a text of several lines\nwith words\n" * 20)
    return folder


def run(*arguments: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `headrace tokenizer` as a process."""
    return subprocess.run([*COMMAND, *map(str, arguments)], input=data, capture_output=True, check=False)


@pytest.fixture(scope="module")
def own(source, tmp_path_factory) -> Path:
    """A tokenizer of 400 ids, trained by the command. Do not write into it."""
    folder = tmp_path_factory.mktemp("trained") / "own"
    done = run("train", source, "--vocab-size", 400, "-o", folder)
    assert done.returncode == 0, done.stderr
    byte = (source / "a.jsonl").read_bytes().index(b"[]")
    assert done.stderr.decode() == f"left out: a.jsonl:201: not an object (byte {byte})\n"
    rows = dict(line.split("  ", 1) for line in done.stdout.decode().splitlines())
    assert rows["tokenizer"].strip() == str(folder / "tokenizer.json")
    assert rows["documents"].strip().startswith("202, ")
    assert rows["left out"].strip() == "1 not an object"
    assert rows["special tokens"] == "'<|endoftext|>' 399"
    return folder


def rows_of(ran) -> dict[str, str]:
    """The two columns of a report."""
    return {name.strip(): value.strip() for name, value in (line.split("  ", 1) for line in ran.out.splitlines())}


def test_train_build_show(headrace, own, source, tmp_path):
    """A build takes the folder as it is, ends documents with the end of text, and `show` decodes what was written."""
    corpus = tmp_path / "corpus"
    built = headrace("build", source, "-o", corpus, "--tokenizer", own, "--on-bad-input", "skip", "--workers", 1)
    assert built.code == 0, built.err
    shown = headrace("show", corpus, "--document", 200, "--json")
    piece = json.loads(shown.out)["pieces"][0]
    assert (piece["text"], piece["boundary"], piece["location"]["source"]) == (HARD, True, "b.jsonl")
    reference = hf.Tokenizer.from_file(str(own / "tokenizer.json"))
    reference.encode_special_tokens = True
    assert piece["tokens"] == reference.encode(HARD, add_special_tokens=False).ids
    inside = json.loads(headrace("tokenizer", "info", corpus, "--json").out)
    alone = json.loads(headrace("tokenizer", "info", own, "--json").out)
    assert inside == alone
    for copy in (corpus, corpus / "shards.json", corpus / "tokenizer"):
        same = headrace("tokenizer", "compare", own, copy)
        assert (same.code, rows_of(same)["identity"]) == (0, "equal")


def test_info(headrace, own, tmp_path):
    """The summary says identity, vocabulary, dtype, special tokens, boundary and BOS, and what is not known."""
    rows = rows_of(headrace("tokenizer", "info", own))
    assert len(rows.pop("identity")) == 64
    assert rows == {
        "tokenizer": "own",
        "kind": "huggingface",
        "vocabulary": "400 ids, stored as uint16",
        "special tokens": "'<|endoftext|>' 399",
        "boundary": "id 399, '<|endoftext|>'",
        "bos": "not known",
    }
    (tmp_path / "alone.json").write_bytes((own / "tokenizer.json").read_bytes())
    assert rows_of(headrace("tokenizer", "info", tmp_path / "alone.json"))["boundary"].startswith("not known")
    summary = json.loads(headrace("tokenizer", "info", "bytes", "--json").out)
    assert (summary["kind"], summary["vocab_size"], summary["boundary"]) == ("bytes", 257, 0)
    assert (summary["dtype"], summary["boundary_token"], summary["bos"]) == ("uint16", "<boundary>", None)


@pytest.mark.parametrize("tokenizer", ["own", "bytes"])
def test_encode_and_decode_are_inverse(own, tokenizer):
    """Text goes through ids and back, byte for byte, as an argument or through pipes; special tokens are text."""
    named = own if tokenizer == "own" else tokenizer
    encoded = run("encode", named, "-", data=HARD.encode())
    assert encoded.returncode == 0
    assert encoded.stdout == run("encode", named, HARD).stdout
    assert b"399" not in encoded.stdout.split()
    decoded = run("decode", named, data=encoded.stdout)
    assert (decoded.returncode, decoded.stdout.decode()) == (0, HARD)
    row = json.loads(run("encode", named, HARD, "--json").stdout)
    assert row["ids"] == list(map(int, encoded.stdout.split()))
    assert len(row["tokens"]) == len(row["ids"])
    again = run("decode", named, "--json", "-", data=json.dumps(row["ids"]).encode())
    assert json.loads(again.stdout) == {"text": HARD}


def test_decode_special_tokens_and_nothing(headrace, own):
    """The end of text is spelled out; no ids have no text, and no text has no ids."""
    assert headrace("tokenizer", "decode", own, 104, 105, 399).out == "hi<|endoftext|>"
    assert run("decode", own, data=b"").stdout == b""
    assert run("encode", own, data=b"").stdout == b"\n"


def test_compare_says_where_two_differ(headrace, own, source, tmp_path):
    """Entries and ids that differ are named and make exit code 1; how a file is written makes no difference."""
    document = json.loads((own / "tokenizer.json").read_bytes())
    (tmp_path / "rewritten.json").write_text(json.dumps(document, sort_keys=True))
    assert headrace("tokenizer", "compare", own, tmp_path / "rewritten.json").code == 0
    merges = document["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    (tmp_path / "other.json").write_text(json.dumps(document))
    vocab = document["model"]["vocab"]
    last, before = list(vocab)[-1], list(vocab)[-2]
    vocab[last], vocab[before] = vocab[before], vocab[last]
    (tmp_path / "swapped.json").write_text(json.dumps(document))
    swapped = headrace("tokenizer", "compare", own, tmp_path / "swapped.json", source / "a.jsonl")
    assert swapped.code == 1
    rows = rows_of(swapped)
    assert rows["identity"].startswith("different")
    assert rows["vocabulary"] == "400 entries, 2 different"
    assert f"id 397: {before!r} and {last!r}" in swapped.out
    assert rows["ids"].startswith("200 texts, ")
    found = json.loads(headrace("tokenizer", "compare", own, tmp_path / "other.json", "--json").out)
    assert (found["identical"], found["different_entries"]) == (False, 0)
    assert found["differ"] == bool(found["different_texts"])
    assert headrace("tokenizer", "compare", own, "bytes").code == 1


def test_compare_tells_the_place(headrace, own, source, tmp_path):
    """A text whose ids differ is named by file and line, and the first place in it by its token."""
    document = json.loads((own / "tokenizer.json").read_bytes())
    document["model"]["merges"] = []
    (tmp_path / "bytes.json").write_text(json.dumps(document))
    ran = headrace("tokenizer", "compare", own, tmp_path / "bytes.json", source / "a.jsonl", "--max-bytes", 100)
    assert ran.code == 1
    assert "2 texts, 100 B, a sample (--max-bytes), 2 different" in ran.out
    assert "a.jsonl:1: token 0: ids [" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("train",),
        ("train", "a.jsonl", "-o", "t"),
        ("train", "a.jsonl", "--vocab-size", "300"),
        ("train", "a.jsonl", "-o", "t", "--vocab-size", "256"),
        ("train", "a.jsonl", "-o", "t", "--vocab-size", "many"),
        ("train", "a.jsonl", "-o", "t", "--vocab-size", "300", "--max-bytes", "0"),
        ("info",),
        ("encode",),
        ("decode", "bytes", "1", "x"),
        ("decode", "bytes", "-5"),
        ("compare", "bytes"),
        ("no-such-command",),
    ],
)
def test_wrong_usage(headrace, tmp_path, monkeypatch, arguments):
    """Wrong usage is exit code 2 with a hint at the help; nothing is made."""
    monkeypatch.chdir(tmp_path)
    ran = headrace("tokenizer", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: headrace tokenizer")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        (("train", "absent.jsonl", "-o", "t", "--vocab-size", "300"), b"", b"absent.jsonl: does not exist"),
        (("train", "empty.jsonl", "-o", "t", "--vocab-size", "300"), b"", b"the sources hold no documents"),
        (("train", "one.jsonl", "-o", "t", "--vocab-size", "300", "--text-field", "body"), b"", b"1 no field body"),
        (("train", "one.jsonl", "-o", "t", "--vocab-size", "257", "--special", "<a>"), b"", b"at least 258"),
        (("train", "one.jsonl", "-o", "one.jsonl", "--vocab-size", "257"), b"", b"one.jsonl is a file"),
        (("info", "absent/a.json"), b"", b"there is no tokenizer at absent"),
        (("info", "one.jsonl"), b"", b"one.jsonl"),
        (("encode", "bytes", "-"), b"a\xff", b"not UTF-8 (byte 1)"),
        (("encode", "bytes", b"a\xff"), b"", b"lone surrogate"),
        (("decode", "bytes", "257"), b"", b"id 257 at position 0"),
        (("decode", "bytes", "18446744073709551615"), b"", b"id 18446744073709551615"),
        (("compare", "bytes", "absent/a.json"), b"", b"there is no tokenizer at absent"),
        (("compare", "bytes", "bytes", "absent.jsonl"), b"", b"absent.jsonl: does not exist"),
    ],
)
def test_failures(tmp_path, arguments, data, message):
    """What cannot be done is exit code 1, with one message on stderr, no traceback, and nothing made."""
    (tmp_path / "one.jsonl").write_bytes(b'{"text": "some words"}\n')
    (tmp_path / "empty.jsonl").write_bytes(b"")
    done = subprocess.run([*COMMAND, *arguments], input=data, capture_output=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, b""), done.stderr
    assert message in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"headrace: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "one.jsonl"]


def test_nothing_is_overwritten_unasked(headrace, own, source):
    """The same command over a tokenizer that is there is refused; with --overwrite it gives the same file again."""
    before = (own / "tokenizer.json").read_bytes()
    command = ("tokenizer", "train", source, "--vocab-size", 400, "-o", own)
    refused = headrace(*command)
    assert (refused.code, refused.out) == (1, "")
    assert "--overwrite" in refused.err
    report = json.loads(headrace(*command, "--overwrite", "--json").out)
    assert (report["vocab_size"], report["documents"], report["dropped"]) == (400, 202, {"not an object": 1})
    assert (own / "tokenizer.json").read_bytes() == before


def test_the_library_has_what_the_commands_have():
    """`train_tokenizer` and `compare_tokenizers` take the options of their commands, with the same defaults."""
    from headrace.cli import tokenizer as commands
    from headrace.tokenizers.compare import compare_tokenizers
    from headrace.tokenizers.train import train_tokenizer

    pairs = ((commands.train, train_tokenizer), (commands.compare, compare_tokenizers))
    for command, function in pairs:
        options, library = (inspect.signature(one).parameters for one in (command, function))
        wanted = {name: p.default for name, p in options.items() if name not in {"json_object", "max_reported"}}
        found = {name: p.default for name, p in library.items() if name != "on_event"}
        wanted |= {name: () for name in ("special", "sources") if wanted.get(name, ...) is None}
        assert wanted == found


def test_interrupted(until, tmp_path):
    """^C while the trainer works ends it too: exit code 130, one line, nothing written, no process left."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(300_000)]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": " ".join(words)}) + "\n")
    command = [*COMMAND, "train", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--vocab-size", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        parent = psutil.Process(process.pid)
        until(lambda: any(child.cmdline() != parent.cmdline() for child in parent.children()))
        until(lambda: parent.status() == psutil.STATUS_SLEEPING)  # for the trainer's end
        trainers = parent.children()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert len(trainers) == 1
    assert (process.returncode, out, err) == (130, b"", b"headrace: interrupted\n")
    assert psutil.wait_procs(trainers, timeout=240)[1] == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_name_that_the_system_refuses(headrace, source, tmp_path):
    """The file and the system's reason, without its number; exit code 1, and nothing is left."""
    path = tmp_path / ("x" * 300 + ".json")
    ran = headrace("tokenizer", "train", source, "--vocab-size", 300, "-o", path)
    assert (ran.code, ran.err.splitlines()[-1]) == (1, f"headrace: {path}: File name too long")
    assert not list(tmp_path.iterdir())
