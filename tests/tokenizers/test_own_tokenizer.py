"""A tokenizer object of the user's own: `encode` and `vocab_size` are enough."""

import base64
import io
import json
import pickle

import numpy as np
import pytest

import headrace
from headrace.errors import BoundaryError, TokenIdError, TokenizerError
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.chat_template import chat_template
from headrace.tokenizers.load import load_from_corpus, load_tokenizer, resolve_boundary


class Letters:
    """Code points; large ones are 1."""

    vocab_size = 1000

    def __init__(self, shift=0):
        self.shift = shift

    def encode(self, text):
        """One id a letter."""
        return [ord(letter) + self.shift if ord(letter) + self.shift < 1000 else 1 for letter in text]


class Batched(Letters):
    """Its batches are arrays, and it decodes."""

    def encode_batch(self, texts):
        """Rows of ids."""
        return [np.array(self.encode(text), np.int32) for text in texts]

    def decode(self, ids):
        """The letters."""
        return "".join(map(chr, ids))


@pytest.mark.parametrize("made", [Letters, Batched])
def test_encode_and_vocab_size_are_enough(made, texts):
    """Ids document by document, as a build takes them; by encode_batch where there is one."""
    loaded = load_tokenizer(made())
    assert isinstance(loaded, BatchTokenizer)
    ids, ends = loaded.encode_documents([text.encode() for text in texts])
    assert [part.tolist() for part in np.split(ids, ends[:-1])] == [made().encode(text) for text in texts]
    assert (ids.dtype, ends.dtype, loaded.vocab_size) == (np.uint16, np.int64, 1000)
    loaded.check([b"one", b"", "zwölf".encode()])


def test_the_boundary_must_be_given():
    """An object does not say what ends a document."""
    with pytest.raises(BoundaryError, match=r"Letters does not say what ends a document.*Pass one: an id"):
        resolve_boundary(load_tokenizer(Letters()))
    assert resolve_boundary(load_tokenizer(Letters()), "0") == 0


def test_identity_is_the_class_and_what_it_does():
    """Two alike are the same; other ids or another class are another."""
    first = load_tokenizer(Letters()).ref
    assert (first.kind, first.name) == ("own", f"{__name__}.Letters")
    assert load_tokenizer(Letters()).ref == first
    assert load_tokenizer(Letters(shift=1)).ref.sha256 != first.sha256
    assert load_tokenizer(Batched()).ref.sha256 != first.sha256


def test_decode_is_the_objects():
    """One that cannot says so; an id outside is refused first."""
    assert load_tokenizer(Batched()).decode([104, 105]) == "hi"
    with pytest.raises(TokenizerError, match=r"Letters has no decode\(ids\)"):
        load_tokenizer(Letters()).decode([104])
    with pytest.raises(TokenIdError, match="not in the vocabulary of 1000 ids"):
        load_tokenizer(Batched()).decode([1000])


class Doubling(Letters):
    """Adds a BOS of its own."""

    def encode(self, text):
        """BOS, then the letters."""
        return [2, *super().encode(text)]


class TooHigh(Letters):
    """Has more ids than it says."""

    vocab_size = 60


class Strings(Letters):
    """Gives no ids."""

    def encode(self, text):
        """Text."""
        return text


class Fewer(Letters):
    """Loses a document."""

    def encode_batch(self, texts):
        """One row too few."""
        return [self.encode(text) for text in texts[1:]]


class Wavering(Letters):
    """Its batches are another tokenizer's."""

    def encode_batch(self, texts):
        """Other ids."""
        return [[0] * len(text) for text in texts]


def test_one_that_adds_tokens_is_refused():
    """BOS and boundary would be there twice."""
    with pytest.raises(TokenizerError, match=r"gives \[2\] for an empty text: it adds tokens of its own"):
        load_tokenizer(Doubling())


def test_one_that_is_wrong_about_itself_is_refused():
    """Ids beyond its vocabulary, no ids, no size, no encode."""
    with pytest.raises(TokenIdError, match="not in the vocabulary of 60 ids"):
        load_tokenizer(TooHigh())
    with pytest.raises(TokenizerError, match="gave str for a text; wanted a list of ids"):
        load_tokenizer(Strings())
    for nothing in (5, object(), len, None):
        with pytest.raises(TokenizerError, match="a tokenizer of your own has encode"):
            load_tokenizer(nothing)


def test_lost_documents_and_other_ids_are_found():
    """In the batch itself, and in the check at a build's start."""
    with pytest.raises(TokenizerError, match="encode_batch gave 1 rows of ids for 2 texts"):
        load_tokenizer(Fewer()).encode_documents([b"a", b"b"])
    with pytest.raises(TokenizerError, match="gives other ids for document 1 of the sample in a batch"):
        load_tokenizer(Wavering()).check([b"a"])


def _tokenizers(gpt2_folder):
    tokenizers = pytest.importorskip("tokenizers")
    return tokenizers.Tokenizer.from_file(str(gpt2_folder / "tokenizer.json")), gpt2_folder


def _transformers(gpt2_folder):
    transformers = pytest.importorskip("transformers")
    named = {"eos_token": "<|endoftext|>", "name_or_path": "org/gpt2"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(gpt2_folder / "tokenizer.json"), **named
    ), gpt2_folder


def _tiktoken(_, folder):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"he": 256, b"hel": 257}
    special = {"<|endoftext|>": 258, "<x>": 260}
    made = tiktoken.Encoding("small", pat_str=r"[a-z]+|[^a-z]", mergeable_ranks=ranks, special_tokens=special)
    path = folder / "small.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    scheme = {"pattern": r"[a-z]+|[^a-z]", "special_tokens": special, "eos_token": "<|endoftext|>"}
    path.with_name(path.name + ".json").write_text(json.dumps(scheme))
    return made, path


def _sentencepiece(_, folder):
    sentencepiece = pytest.importorskip("sentencepiece")
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world", "a b  c"] * 10), model_writer=made, vocab_size=300, model_type="bpe",
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity",
    )  # fmt: skip
    (folder / "small.model").write_bytes(made.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=made.getvalue()), folder / "small.model"


@pytest.mark.parametrize("make", [_tokenizers, _transformers, _tiktoken, _sentencepiece])
def test_an_object_of_a_library_is_what_its_file_is(make, gpt2_folder, tmp_path):
    """The same identity and ids, also where a text spells a special token; it pickles, and a corpus keeps a copy."""
    made, path = make(gpt2_folder, tmp_path) if make in {_tiktoken, _sentencepiece} else make(gpt2_folder)
    loaded, named = load_tokenizer(made), load_tokenizer(path)
    assert (loaded.ref.kind, loaded.ref.sha256) == (named.ref.kind, named.ref.sha256)
    texts = ["hello  world", "<|endoftext|> <x> </s>", "", "h\u00e9llo \U0001f642"]
    for one in (loaded, pickle.loads(pickle.dumps(loaded))):  # noqa: S301  # our own bytes
        assert [one.encode(text) for text in texts] == [named.encode(text) for text in texts]
    boundary = "id:50256" if make is _tokenizers else None
    headrace.build((text for text in texts), tmp_path / "made", tokenizer=made, boundary=boundary, workers=1)
    headrace.build((text for text in texts), tmp_path / "named", tokenizer=path, boundary=boundary, workers=1)
    with headrace.open(tmp_path / "made") as corpus, headrace.open(tmp_path / "named") as other:
        assert corpus.fingerprint == other.fingerprint
    copy = load_from_corpus(tmp_path / "made")
    assert copy.ref == loaded.ref
    assert copy.decode(loaded.encode(texts[3])).strip() == texts[3]


def test_special_tokens_and_templates_of_transformers(gpt2_folder):
    """What the object says of itself goes into the corpus: added tokens, EOS, BOS, and chat templates by name."""
    transformers = pytest.importorskip("transformers")
    named = {"eos_token": "<|end|>", "bos_token": "<|begin|>"}
    made = transformers.PreTrainedTokenizerFast(tokenizer_file=str(gpt2_folder / "tokenizer.json"), **named)
    made.chat_template = {"default": "{{ messages }}", "other": "{{ 1 }}"}
    loaded = load_tokenizer(made)
    assert loaded.vocab_size == len(made) == 50259
    assert resolve_boundary(loaded) == made.eos_token_id
    assert loaded.named_token("bos") == "<|begin|>"
    assert chat_template(loaded, "other", date=None).text == "{{ 1 }}"
