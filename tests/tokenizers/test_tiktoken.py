"""tiktoken files: the ids of the `tiktoken` library, whoever encodes; OpenAI's and Qwen's schemes are known."""

import base64
import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import MissingExtraError, TokenIdError, TokenizerError
from headrace.testing.gpt2 import gpt2_tokenizer_json
from headrace.testing.vocabularies import QWEN, QWEN_3_6
from headrace.tokenizers.bpe_file import byte_spellings
from headrace.tokenizers.load import load_from_corpus, load_tokenizer, resolve_boundary
from headrace.tokenizers.ranks import known_scheme, parse_ranks
from headrace.tokenizers.tiktoken import TiktokenTokenizer

tiktoken = pytest.importorskip("tiktoken")
BYTES = [(bytes([byte]), byte) for byte in range(256)]
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def lines(ranks) -> bytes:
    """Content of a tiktoken file."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks)


def write(folder: Path, ranks, scheme: dict | None = None) -> Path:
    """A tiktoken file, and the file beside it."""
    folder.mkdir(exist_ok=True)
    path = folder / "made.tiktoken"
    path.write_bytes(lines(ranks))
    if scheme is not None:
        (folder / "made.tiktoken.json").write_text(json.dumps(scheme), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def gpt2_ranks(tmp_path_factory) -> Path:
    """GPT-2's ranks as r50k_base.tiktoken is published."""
    document = json.loads(gpt2_tokenizer_json())
    byte = {spelling: value for value, spelling in enumerate(byte_spellings())}
    vocab = document["model"]["vocab"]
    ranks = [(bytes(byte[letter] for letter in token), rank) for token, rank in vocab.items() if rank != 50256]
    path = tmp_path_factory.mktemp("ranks") / "any name"
    path.write_bytes(lines(sorted(ranks, key=lambda entry: entry[1])))
    return path


def encoding(path: Path):
    """The library's own, for a known file."""
    tokenizer = TiktokenTokenizer(path)
    ranks = parse_ranks(path.read_bytes(), "file")
    return tiktoken.Encoding(
        "reference",
        pat_str=tokenizer._scheme.pattern,
        mergeable_ranks=ranks,
        special_tokens=dict(tokenizer.special_tokens),
    )


@pytest.mark.parametrize(
    ("vocabulary", "size", "end"), [(QWEN, 151_851, 151_643), (QWEN_3_6, 248_077, 248_044)], ids=["qwen", "qwen3.6"]
)
def test_ids_of_qwen_equal_tiktoken(real, vocabulary, size, end, texts, hard):
    """Hard texts and many scripts, by gigatoken and by the library: the library's ids of the composed text."""
    path = real(vocabulary)
    loaded = load_tokenizer(path)
    reference = encoding(path)
    drawn = [*hard, *texts[:20]]
    wanted = [reference.encode_ordinary(unicodedata.normalize("NFC", text)) for text in drawn]
    for tokenizer in (loaded, loaded.run_by_library()):
        ids, ends = tokenizer.encode_documents([text.encode() for text in drawn])
        assert [part.tolist() for part in np.split(ids, ends[:-1])] == wanted
        assert ids.dtype == np.uint32
        assert int(ids.max()) < end
    assert not loaded.by_library
    assert (loaded.ref.kind, loaded.vocab_size, resolve_boundary(loaded)) == ("tiktoken", size, end)
    for text, ids in zip(drawn, wanted, strict=True):
        assert loaded.decode(ids) == unicodedata.normalize("NFC", text)
    loaded.check([text.encode() for text in texts[:10]])


def test_gpt2s_ranks_are_known_and_equal_its_tokenizer_json(gpt2_ranks, gpt2, texts, hard):
    """The same model in two file formats gives the same ids; no name tells which file it is."""
    loaded = load_tokenizer(gpt2_ranks)
    batch = [text.encode() for text in [*hard, *texts[:20]]]
    assert [part.tolist() for part in loaded.encode_documents(batch)] == [
        part.tolist() for part in gpt2.encode_documents(batch)
    ]
    assert (loaded.vocab_size, resolve_boundary(loaded)) == (50257, 50256)
    loaded.check(batch[:5])


def test_a_special_token_in_a_text_is_text(gpt2_ranks):
    """A text cannot forge one, and one is spelled out when it is decoded."""
    loaded = load_tokenizer(gpt2_ranks)
    assert loaded.encode("<|endoftext|>") == [27, 91, 437, 1659, 5239, 91, 29]
    assert loaded.token_id("<|endoftext|>") == 50256
    assert loaded.id_to_token(50256) == "<|endoftext|>"
    assert loaded.decode([15496, 50256]) == "Hello<|endoftext|>"


def test_decode_takes_any_ids(gpt2_ranks):
    """Parts of characters become U+FFFD; ids outside the vocabulary are refused."""
    loaded = load_tokenizer(gpt2_ranks)
    parrot = loaded.encode("ok 🦜")
    assert loaded.decode(parrot[:-1]) == "ok \ufffd"
    assert loaded.id_to_token(parrot[-1]) == r"\x9c"
    assert loaded.token_id("Hello") == 15496
    assert loaded.token_id("no such token") is None
    assert loaded.id_to_token(50257) is None
    with pytest.raises(TokenIdError, match="not in the vocabulary of 50257 ids"):
        loaded.decode([50257])


def test_an_unknown_file_says_what_it_needs(tmp_path):
    """Nothing is guessed: how texts are cut decides the ids."""
    with pytest.raises(TokenizerError, match=r"put a file made\.tiktoken\.json beside it, with the fields") as error:
        load_tokenizer(write(tmp_path, [*BYTES, (b"ab", 256)]))
    assert '"pattern"' in str(error.value)


def test_a_file_beside_it_says_how_texts_are_cut(tmp_path):
    """Pattern, special tokens, EOS; a copy holds them."""
    scheme = {"pattern": GPT2_PATTERN, "special_tokens": {"<end>": 300}, "eos_token": "<end>"}
    loaded = load_tokenizer(write(tmp_path, [*BYTES, (b"ab", 256), (b" ab", 257)], scheme))
    assert loaded.encode("ab abab<end>") == [256, 257, 256, *b"<end>"]
    assert (loaded.vocab_size, resolve_boundary(loaded)) == (301, 300)
    loaded.check([b"ab abab"])


def test_a_pattern_that_gigatoken_does_not_know_is_run_by_the_library(tmp_path):
    """With a notice, and the library's ids."""
    notices = []
    path = write(tmp_path, [*BYTES, (b"ab", 256), (b"abab", 257)], {"pattern": r"[a-z]{3}|[\s\S]"})
    loaded = load_tokenizer(path, on_notice=notices.append)
    assert loaded.by_library
    assert "the tiktoken library encodes" in notices[0]
    assert loaded.encode("abab") == [256, 97, 98]


@pytest.mark.parametrize("pattern", ["[a-z]+", r"[a-z]+|.", GPT2_PATTERN.replace(r"|\s+", "")])
def test_a_pattern_that_would_lose_text_is_refused(tmp_path, pattern):
    """Tiktoken leaves out what its pattern does not match, such as the line breaks that a dot does not."""
    path = write(tmp_path, BYTES, {"pattern": pattern})
    for spec in (path, f"tiktoken:{path}"):
        with pytest.raises(
            TokenizerError, match="does not match all of a text, and what it does not match would be lost"
        ):
            load_tokenizer(spec)


@pytest.mark.parametrize("by_library", [False, True])
def test_pickles_and_copies(gpt2_ranks, tmp_path, by_library):
    """Workers and a corpus without the original give the same ids under the same identity."""
    loaded = TiktokenTokenizer(gpt2_ranks, by_library=by_library)
    (tmp_path / "tokenizer").mkdir()
    for name, content in loaded.files().items():
        (tmp_path / "tokenizer" / name).write_bytes(content)
    for other in (
        pickle.loads(pickle.dumps(loaded)),  # noqa: S301  # our own bytes
        load_from_corpus(tmp_path),
        load_tokenizer(tmp_path / "tokenizer"),
    ):
        assert (other.ref, other.by_library) == (loaded.ref, by_library)
        assert other.decode(other.encode("Hello, world")) == "Hello, world"


def test_formatting_does_not_matter_and_content_does(tmp_path):
    """Order and line ends of the file: the same identity; a rank, the pattern, a special token: another."""
    ranks = [*BYTES, (b"ab", 256), (b"cd", 257)]
    scheme = {"pattern": GPT2_PATTERN, "special_tokens": {"<end>": 300}}
    first = TiktokenTokenizer(write(tmp_path / "0", ranks, scheme)).ref.sha256
    again = write(tmp_path / "1", ranks[::-1], scheme)
    again.write_bytes(again.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert TiktokenTokenizer(again).ref.sha256 == first
    swapped = [*BYTES, (b"cd", 256), (b"ab", 257)]
    others = [
        (swapped, scheme),
        (ranks, scheme | {"pattern": GPT2_PATTERN + "|x"}),
        (ranks, scheme | {"special_tokens": {"<end>": 301}}),
        (ranks, scheme | {"normalizer": "NFC"}),
    ]
    hashes = {TiktokenTokenizer(write(tmp_path / f"o{i}", *other)).ref.sha256 for i, other in enumerate(others)}
    assert len({first, *hashes}) == 5


def test_gpt2_is_pinned(gpt2_ranks):
    """Corpora record it: another value would make this version refuse the corpora of the last."""
    assert (
        TiktokenTokenizer(gpt2_ranks).ref.sha256 == "72e0be195efa713c1e1e73baeb7fd4947e69db45ed2db23436d44d2f279f3fb4"
    )


DAMAGED = {
    b"YQ== 0\nYQ== 1\n": "made.tiktoken:2: the token or rank 1 stood before",
    b"YQ== 0\nYg== 0\n": "made.tiktoken:2: the token or rank 0 stood before",
    b"YQ== 0\nYg==\n": "made.tiktoken:2: wanted a token in base64, a space, and its rank",
    b"YQ== 0\n!! 1\n": "made.tiktoken:2: wanted a token in base64",
    b"YQ== 0\nYg== 99999999999\n": "made.tiktoken:2: wanted a token in base64",
    b"YQ== 0\n": "255 of the 256 bytes are no tokens, the first is 0x00",
}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_named_with_the_line(tmp_path, content):
    """Never a bare traceback of a library, never a panic."""
    path = tmp_path / "made.tiktoken"
    path.write_bytes(content)
    with pytest.raises(TokenizerError) as error:
        load_tokenizer(path)
    assert DAMAGED[content] in str(error.value)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({}, "pattern: wanted a text, found None"),
        ({"pattern": 5}, "pattern: wanted a text, found 5"),
        ({"pattern": ".", "normalizer": "NFKC"}, "normalizer: wanted NFC or null"),
        ({"pattern": ".", "special_tokens": {"<x>": 97}}, r"special_tokens\['<x>'\]: the id 97 is taken"),
        ({"pattern": ".", "special_tokens": {"<x>": "300"}}, r"special_tokens\['<x>'\]: wanted an id"),
        ({"pattern": ".", "special_tokens": []}, "special_tokens: wanted an object"),
        ([], 'wanted an object with a "pattern"'),
    ],
)
def test_a_damaged_scheme_is_named(tmp_path, scheme, message):
    """All that is wrong, in the file beside."""
    if scheme == {"pattern": ".", "special_tokens": []}:
        scheme = {"pattern": ".", "special_tokens": [1]}
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(write(tmp_path, BYTES, scheme))


def test_without_the_library_the_extra_is_named(gpt2_ranks, monkeypatch):
    """Encoding asks for it at once; decoding needs no library at all."""
    monkeypatch.setattr("headrace.tokenizers.tiktoken.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headrace\[tiktoken\]'"):
        load_tokenizer(gpt2_ranks)
    assert TiktokenTokenizer(gpt2_ranks).decode([15496]) == "Hello"


@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_openais_schemes_are_the_librarys_own(name, monkeypatch):
    """Pattern and special tokens are those that tiktoken has for the file of that hash."""
    import tiktoken_ext.openai_public as published

    hashes = []

    def load(_, expected_hash):
        hashes.append(expected_hash)
        return {}

    monkeypatch.setattr(published, "load_tiktoken_bpe", load)
    wanted = getattr(published, name)()
    known = known_scheme(hashes[0])
    assert known.pattern == wanted["pat_str"]
    assert dict(known.special_tokens) == wanted["special_tokens"]
    assert known.normalizer is None
