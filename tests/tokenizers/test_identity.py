"""A tokenizer's hash: equal where the ids are equal, different where they may differ."""

import copy
import json

import pytest

from headrace.testing.gpt2 import gpt2_tokenizer_json
from headrace.tokenizers.identity import identity_sha256, parse_tokenizer_json

GPT2_SHA256 = "33940f96fd5cf555b0844fcb077f3bea6092ff59d190b10167950c6be814c0c9"


def sha256(document: dict) -> str:
    """Identity of a document as a file would give it."""
    return identity_sha256(parse_tokenizer_json(json.dumps(document), "made"))


@pytest.fixture
def document(byte_level, added_token):
    """A small tokenizer with merges and added tokens."""
    return byte_level(
        {"ab": 256, "cd": 257},
        [["a", "b"], ["c", "d"]],
        added_tokens=[added_token(258, "<s>", special=True), added_token(259, "  ")],
    )


def test_gpt2_is_pinned():
    """Corpora record it: another value would make this version refuse the corpora of the last."""
    assert identity_sha256(json.loads(gpt2_tokenizer_json())) == GPT2_SHA256


def reverse_keys(value):
    """The same JSON with all keys in reverse order."""
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(value)}
    return [reverse_keys(item) for item in value] if isinstance(value, list) else value


def test_formatting_does_not_matter(document):
    """Indentation, key order and escapes are a matter of who saved the file."""
    reference = sha256(document)
    text = json.dumps(reverse_keys(document), indent=2, ensure_ascii=False)
    assert text != json.dumps(document)
    assert identity_sha256(parse_tokenizer_json(text, "made")) == reference


SAME = {
    "truncation": lambda d: d.update(truncation={"max_length": 512, "strategy": "LongestFirst", "stride": 0}),
    "padding": lambda d: d.update(padding={"strategy": "BatchLongest", "pad_id": 0, "pad_token": "x"}),
    "post-processor": lambda d: d.update(post_processor={"type": "ByteLevel", "trim_offsets": False}),
    "decoder": lambda d: d.update(decoder=None),
    "version": lambda d: d.update(version="1.1"),
    "merges as strings": lambda d: d["model"].update(merges=[" ".join(pair) for pair in d["model"]["merges"]]),
    "defaults spelled out": lambda d: d["model"].update(
        dropout=None, fuse_unk=False, ignore_merges=False, unk_token=None
    ),
    "no model type": lambda d: d["model"].pop("type"),
    "order of added tokens": lambda d: d["added_tokens"].reverse(),
    "absent normalizer": lambda d: d.pop("normalizer"),
}
DIFFERENT = {
    "order of merges": lambda d: d["model"]["merges"].reverse(),
    "a merge less": lambda d: d["model"]["merges"].pop(),
    "swapped ids": lambda d: d["model"]["vocab"].update(ab=257, cd=256),
    "a token more": lambda d: d["model"]["vocab"].update(ef=400),
    "normalizer": lambda d: d.update(normalizer={"type": "NFC"}),
    "pre-tokenizer": lambda d: d["pre_tokenizer"].update(add_prefix_space=True),
    "no pre-tokenizer": lambda d: d.update(pre_tokenizer=None),
    "ignore_merges": lambda d: d["model"].update(ignore_merges=True),
    "byte_fallback": lambda d: d["model"].update(byte_fallback=True),
    "unk_token": lambda d: d["model"].update(unk_token="a"),  # noqa: S106  # a vocabulary entry
    "an added token more": lambda d: d["added_tokens"].append({"id": 260, "content": "<x>"}),
    "an added token's text": lambda d: d["added_tokens"][0].update(content="<S>"),
    "an added token's id": lambda d: d["added_tokens"][0].update(id=300),
    "no longer special": lambda d: d["added_tokens"][0].update(special=False),
    "strips to the left": lambda d: d["added_tokens"][1].update(lstrip=True),
}


@pytest.mark.parametrize("change", SAME)
def test_what_decides_no_id_does_not_matter(document, change):
    """The same ids, the same hash."""
    changed = copy.deepcopy(document)
    SAME[change](changed)
    assert changed != document
    assert sha256(changed) == sha256(document)


@pytest.mark.parametrize("change", DIFFERENT)
def test_what_may_decide_an_id_matters(document, change):
    """Other vocabulary, merges, normalizer, pre-tokenizer, options or added tokens: another hash."""
    changed = copy.deepcopy(document)
    DIFFERENT[change](changed)
    assert sha256(changed) != sha256(document)
