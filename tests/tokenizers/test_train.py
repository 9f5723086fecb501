"""A byte-level BPE of one's own text: what is learned, what is written, what is refused."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers as hf

from headrace.errors import OutputExistsError, SourceError, SourceNotFoundError, TokenizerError
from headrace.tokenizers.bpe_file import byte_level_bpe
from headrace.tokenizers.bpe_trainer import train_merges
from headrace.tokenizers.load import load_tokenizer, resolve_boundary
from headrace.tokenizers.reference import with_probe
from headrace.tokenizers.train import train_tokenizer

HARD = [
    "^" * 20_000,
    "nospaces" * 500,
    "e\u0301\u0302\u0303 cafe\u0301 \u0939\u093f\u0928\u094d\u0926\u0940 \u304b\u306a\u3099",
    "\u4e2d\u6587\u5b57\u7b26\u6c49\u5b57 \ud55c\uae00 \u0e44\u0e17\u0e22",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f642",
    "<|endoftext|> <|endoftext|",
    "  \t\t \n\n   x\r\n\u00a0\u2003 y   ",
    "\x00\x01\x7f\ufeff\u200b",
    "".join(map(chr, [*range(0x20, 0x3000), *range(0xE000, 0xE100)])),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, texts) -> Path:
    """Three quarters of the texts as JSON lines; the rest is held out."""
    path = tmp_path_factory.mktemp("own") / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[: len(texts) * 3 // 4]))
    return path


@pytest.fixture(scope="module")
def trained(corpus) -> tuple[Path, object]:
    """A folder with a tokenizer of 3,000 ids, and the report; do not write into it."""
    folder = corpus.parent / "own"
    return folder, train_tokenizer(corpus, folder, vocab_size=3000)


def train_elsewhere(corpus: Path, output: Path, threads: int) -> bytes:
    """Train in a process with a number of threads, and return the file."""
    program = "import sys; from headrace.tokenizers.train import train_tokenizer as t; t(*sys.argv[1:], vocab_size=800)"
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(threads)}
    subprocess.run([sys.executable, "-P", "-c", program, corpus, output], env=environment, check=True)
    return output.read_bytes()


def test_the_same_documents_give_the_same_bytes(corpus, tmp_path):
    """Neither threads nor processes, the name of the file, its compression or the order of files change the result."""
    first = train_elsewhere(corpus, tmp_path / "one.json", 1)
    assert train_elsewhere(corpus, tmp_path / "two.json", 3) == first
    lines = corpus.read_bytes().splitlines(keepends=True)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "b.jsonl").write_bytes(b"".join(lines[:7]))
    with gzip.open(tmp_path / "parts" / "a.jsonl.gz", "wb") as file:
        file.write(b"".join(lines[7:]))
    train_tokenizer(tmp_path / "parts", tmp_path / "three", vocab_size=800)
    assert (tmp_path / "three" / "tokenizer.json").read_bytes() == first


def merges_of_the_reference(documents: list[str], vocab_size: int) -> list[str]:
    """What Hugging Face's trainer learns, written as ours are."""
    alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
    tokenizer = hf.Tokenizer(hf.models.BPE())
    tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = hf.trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


@pytest.mark.parametrize("seed", range(3))
def test_the_merges_are_those_of_the_reference(tmp_path, seed):
    """Few and many merges, up to those after which nothing is left to merge, are those that `tokenizers` learns."""
    rng = random.Random(seed)
    documents = [
        "".join(rng.choices("aab b\n1\u00e9\u4e2d", k=rng.randrange(1, 80))) for _ in range(rng.randrange(1, 9))
    ]
    for count in (9, 5000):
        with (tmp_path / "text").open("w+b") as file:
            file.write(b"\xff".join(text.encode() for text in documents))
            file.flush()
            rules = byte_level_bpe(train_merges(file, count), [])["model"]["merges"]
        assert rules == merges_of_the_reference(documents, 256 + count)
        assert len(rules) <= count


def test_a_text_without_more_pairs_gives_fewer_ids(tmp_path):
    """The vocabulary ends where the text does: no id is without use, none is left out."""
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n')
    report = train_tokenizer(tmp_path / "a.jsonl", tmp_path / "t.json", vocab_size=5000)
    document = json.loads((tmp_path / "t.json").read_bytes())
    assert list(document["model"]["vocab"])[256:] == ["el", "hel", "lo", "hello"]
    assert (report.vocab_size, report.special_tokens) == (261, {"<|endoftext|>": 260})


def test_real_text_gives_the_merges_of_the_reference(corpus, trained):
    """So do half a MB of source code and many scripts, with no id left out."""
    folder, report = trained
    documents = [json.loads(line)["text"] for line in corpus.read_text().splitlines()]
    model = json.loads((folder / "tokenizer.json").read_bytes())["model"]
    assert model["merges"] == merges_of_the_reference([text for text in documents if text], 2999)
    assert (report.vocab_size, len(model["vocab"])) == (3000, 2999)


def test_equal_ids_in_both_libraries(trained, texts):
    """Text that was held out, and hard text, has the ids that Hugging Face `tokenizers` gives, and decodes to itself."""
    folder, report = trained
    tokenizer = load_tokenizer(folder)
    reference = hf.Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.encode_special_tokens = True
    assert report.sha256 == tokenizer.ref.sha256
    assert tokenizer.vocab_size == report.vocab_size == reference.get_vocab_size()
    held_out = [*texts[len(texts) * 3 // 4 :], *HARD]
    documents = with_probe([text.encode() for text in held_out], tokenizer.special_tokens)
    ids, ends = tokenizer.encode_documents(documents)
    start = 0
    for document, end in zip(documents, ends.tolist(), strict=True):
        found = ids[start:end].tolist()
        assert found == reference.encode(document.decode(), add_special_tokens=False).ids
        assert tokenizer.decode(found) == document.decode()
        start = end


def test_the_end_of_text(trained, tmp_path, corpus):
    """It is the last id, special, the boundary without being told, and never made by text; more special ones follow it."""
    folder, report = trained
    tokenizer = load_tokenizer(folder)
    assert report.special_tokens == tokenizer.special_tokens == {"<|endoftext|>": 2999}
    assert resolve_boundary(tokenizer) == 2999
    assert 2999 not in tokenizer.encode("<|endoftext|>")
    assert hf.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("<|endoftext|>").ids == [2999]
    more = train_tokenizer(corpus, tmp_path, vocab_size=300, end_of_text="</s>", special=["<pad>", "[\u4e2d]"])
    assert more.special_tokens == {"</s>": 297, "<pad>": 298, "[\u4e2d]": 299}
    assert resolve_boundary(load_tokenizer(tmp_path)) == 297


def test_bad_documents_are_left_out_and_counted(tmp_path):
    """The report counts them by reason and says where the first are; the result is that of the good ones."""
    good = [b'{"text": "some words of text"}\n', b'{"text": "and some more words"}\n']
    bad = [b"[]\n", b'{"body": "x"}\n', b'{"text": "\xff"}\n', b"{\n", b'{"text": ""}\n']
    (tmp_path / "good.jsonl").write_bytes(b"".join(good))
    (tmp_path / "all.jsonl").write_bytes(b"".join([good[0], *bad, good[1]]))
    clean = train_tokenizer(tmp_path / "good.jsonl", tmp_path / "clean.json", vocab_size=280)
    report = train_tokenizer(tmp_path / "all.jsonl", tmp_path / "report.json", vocab_size=280)
    assert (clean.documents, report.documents, report.text_bytes) == (2, 2, 37)
    assert (clean.dropped, sum(report.dropped.values()), report.dropped["not an object"]) == ({}, 5, 1)
    assert report.places[0].startswith("all.jsonl:2: not an object")
    assert report.dropped["empty"] == 1
    assert len(report.places) == 4  # an empty document is no fault
    assert (tmp_path / "report.json").read_bytes() == (tmp_path / "clean.json").read_bytes()


def test_a_sample_is_spread_over_the_sources(tmp_path):
    """With `max_bytes` each source gives a share, text that does not fit is cut at a character, and the report says so."""
    for name in ("a", "b", "c"):
        words = "".join(f"{name}{name}\u4e2d " for _ in range(500))
        (tmp_path / f"{name}.jsonl").write_text((json.dumps({"text": words}, ensure_ascii=False) + "\n") * 4)
    told = []
    report = train_tokenizer(
        [tmp_path / f"{name}.jsonl" for name in "abc"],
        tmp_path / "t.json",
        vocab_size=300,
        max_bytes=3001,
        on_event=told.append,
    )
    assert not report.complete
    assert 2990 <= report.text_bytes <= 3001
    assert report.documents == 3
    assert [event.kind for event in told] == ["sampled"]
    vocab = json.loads((tmp_path / "t.json").read_bytes())["model"]["vocab"]
    assert {"aa", "bb", "cc"} <= {token.lstrip("\u0120")[:2] for token in vocab}
    whole = train_tokenizer(tmp_path / "a.jsonl", tmp_path / "whole.json", vocab_size=300, max_bytes=12_000)
    assert whole.complete
    assert whole.text_bytes == 12_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 256}, "at least 257"),
        ({"vocab_size": 257, "special": ["<a>"]}, "at least 258, for 256 bytes and 2 special tokens"),
        ({"special": ["<a>", "<a>"]}, "'<a>': given twice"),
        ({"special": ["<|endoftext|>"]}, "given twice"),
        ({"end_of_text": ""}, "it is empty"),
        ({"end_of_text": "\ud800"}, "lone surrogate"),
        ({"special": ["a"]}, "spells a byte"),
        ({"special": ["words"]}, "'words' is a word of the text too"),
    ],
)
def test_what_is_refused(tmp_path, options, message):
    """A vocabulary without room and special tokens that are none are refused, and nothing is written."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "words words words words"}) + "\n")
    with pytest.raises(TokenizerError, match=message):
        train_tokenizer(tmp_path / "a.jsonl", tmp_path / "out", **({"vocab_size": 300} | options))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_sources_without_documents(tmp_path):
    """No file, no document and none that can be used are told apart, and nothing is written."""
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "bad.jsonl").write_bytes(b'{"body": "x"}\n')
    (tmp_path / "wide.jsonl").write_text('{"text": "\\u4e2d"}\n')
    for name, message in (
        ("none.jsonl", "does not exist"),
        ("empty.jsonl", "no documents"),
        ("bad.jsonl", "no usable documents: 1 no field text. First of all: bad.jsonl:1"),
    ):
        with pytest.raises(SourceNotFoundError, match=message):
            train_tokenizer(tmp_path / name, tmp_path / "out", vocab_size=300)
    with pytest.raises(SourceError, match="2 bytes of text is too small"):
        train_tokenizer(tmp_path / "wide.jsonl", tmp_path / "out", vocab_size=300, max_bytes=2)
    with pytest.raises(ValueError, match="name of the field"):
        train_tokenizer(tmp_path, tmp_path / "out", vocab_size=300, text_field="")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "empty.jsonl", "wide.jsonl"]


def test_nothing_is_overwritten_unasked(tmp_path):
    """A tokenizer, and a tokenizer_config.json that says something else, stay as they are without `overwrite`."""
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n')
    for name in ("tokenizer.json", "tokenizer_config.json"):
        folder = tmp_path / f"with_{name}"
        folder.mkdir()
        (folder / name).write_text("{}")
        with pytest.raises(OutputExistsError, match=name):
            train_tokenizer(tmp_path / "a.jsonl", folder, vocab_size=260)
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "{}")]
    train_tokenizer(tmp_path / "a.jsonl", folder, vocab_size=260, overwrite=True)
    assert resolve_boundary(load_tokenizer(folder)) == 259
    train_tokenizer(tmp_path / "a.jsonl", folder / "second.json", vocab_size=258)
    assert resolve_boundary(load_tokenizer(folder / "second.json")) == 257


def test_memory_does_not_grow_with_the_text(tmp_path):
    """This process holds no more of 60 MB of text than of 1 MB; the text goes through a file."""
    line = json.dumps({"text": "the same few words over and over again " * 2500}) + "\n"
    (tmp_path / "small.jsonl").write_text(line * 10)
    (tmp_path / "large.jsonl").write_text(line * 600)
    program = """
import sys
from headrace.tokenizers.train import train_tokenizer
def peak():  # KiB; `ru_maxrss` counts what the process that started this one had
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
train_tokenizer(*sys.argv[1:], vocab_size=300)
print(peak())
"""
    peaks = [
        int(subprocess.check_output([sys.executable, "-P", "-c", program, tmp_path / f"{name}.jsonl", tmp_path / name]))
        for name in ("small", "large")
    ]
    assert peaks[1] < peaks[0] + 30_000  # KiB
