"""A BPE model without an unknown token drops characters that it has no entry for: such texts are refused by their place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

import headrace
from headrace.errors import TokenizerError
from headrace.tokenizers.alphabet import Alphabet

VOCABULARY = {entry: number for number, entry in enumerate(["a", "b", "c", "ab", "abc", " "])}
MERGES = [("a", "b"), ("ab", "c")]


def plain(**options):
    """A model of three letters and the space."""
    return Tokenizer(models.BPE(VOCABULARY, MERGES, **options))


@given(st.text("abcd é", max_size=12))
def test_what_is_lost_is_found(text):
    """A text is refused if and only if its entries do not spell it."""
    tokenizer = plain()
    spelled = "".join(tokenizer.id_to_token(one) for one in tokenizer.encode(text).ids)
    lost = Alphabet.of(tokenizer).first_lost(text)
    assert (lost is None) == (spelled == text)
    assert lost is None or lost in "dé"


@given(st.text("abcd", max_size=8))
def test_prefixes_and_suffixes(text):
    """Likewise where entries say whether they begin or end a word."""
    vocabulary = {entry: number for number, entry in enumerate(["a", "##a", "b</w>", "##b</w>", "##c"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    letters = [tokenizer.id_to_token(one) for one in tokenizer.encode(text).ids]
    assert (Alphabet.of(tokenizer).first_lost(text) is None) == (len(letters) == len(text))


@pytest.mark.parametrize("options", [{"unk_token": "a"}, {"byte_fallback": True}])
def test_models_that_drop_nothing(options):
    """An unknown token or bytes stand for what has no entry: nothing is looked at."""
    assert Alphabet.of(plain(**options)) is None


@pytest.mark.parametrize("place", ["normalizer", "pre_tokenizer"])
def test_bytes(place):
    """A byte-level model is looked at only if it lacks bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    part = pre_tokenizers.ByteLevel(add_prefix_space=False) if place == "pre_tokenizer" else normalizers.ByteLevel()
    for entries, looked_at in ((alphabet, False), (alphabet[:40], True)):
        tokenizer = Tokenizer(models.BPE({entry: number for number, entry in enumerate(entries)}, []))
        setattr(tokenizer, place, part)
        assert (Alphabet.of(tokenizer) is not None) == looked_at
    assert Alphabet.of(tokenizer).first_lost("!") is None
    assert Alphabet.of(tokenizer).first_lost("é")


def test_added_tokens():
    """Added tokens have ids of their own; the spelling of a special one is text."""
    tokenizer = plain()
    tokenizer.add_tokens([AddedToken("xyz")])
    tokenizer.add_special_tokens([AddedToken("<e>")])
    alphabet = Alphabet.of(tokenizer)
    assert alphabet.first_lost("abxyzc") is None
    assert alphabet.first_lost("xy") == "x"
    assert alphabet.first_lost("ab<e>") == "<"


def test_builds(tmp_path):
    """A build stops at the first such document, names its line and the character, and publishes nothing."""
    tokenizer = plain()
    tokenizer.add_special_tokens([AddedToken("<e>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["abc ab", "ab", "ab\u20acc"]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = {"tokenizer": tmp_path / "tokenizer.json", "boundary": "<e>", "workers": 1}
    with pytest.raises(TokenizerError, match=r"a\.jsonl:3: .*U\+20AC"):
        headrace.build(source, tmp_path / "c", **options)
    assert not (tmp_path / "c" / "shards.json").exists()
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:2]))
    headrace.build(source, tmp_path / "c", **options)
    with headrace.open(tmp_path / "c") as corpus:
        assert corpus.get_slice(0, len(corpus)).tolist() == [4, 5, 3, 6, 3, 6]
