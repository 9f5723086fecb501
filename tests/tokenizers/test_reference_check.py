"""`check`: gigatoken's ids are those of Hugging Face `tokenizers`, or the build stops.

Each disagreement here is real: a tokenizer.json that both libraries load and that gigatoken 0.10 reads otherwise.
"""

import pytest

from headrace.errors import TokenizerError
from headrace.testing.gpt2 import gpt2_tokenizer_json
from headrace.tokenizers.tokenizer_json import JsonTokenizer


def test_gpt2_agrees(gpt2, texts):
    """On code, many scripts, special literals and the built-in probe."""
    gpt2.check([text.encode() for text in texts[:30]])
    gpt2.check([])


def test_a_pre_tokenizer_that_gigatoken_adds_is_found(byte_level, write_json):
    """Without a pre-tokenizer `tokenizers` merges across words and knows no byte letters; gigatoken splits as GPT-2.

    The place, both ids, and no word of the document are in the error.
    """
    tokenizer = JsonTokenizer(write_json(byte_level({"ab": 256}, [["a", "b"]], pre_tokenizer=None)))
    with pytest.raises(
        TokenizerError, match=r"disagree in document 2 of the sample, token 0 .*: ids \[97, 32, 98\] and"
    ) as error:
        tokenizer.check([b"abab", b"a b"])
    assert "abab" not in str(error.value)


def test_the_probe_finds_what_a_plain_sample_would_not(byte_level, write_json):
    """An ASCII sample of one word agrees; the probe's spaces do not."""
    tokenizer = JsonTokenizer(write_json(byte_level(pre_tokenizer=None)))
    with pytest.raises(TokenizerError, match="disagree in a built-in probe text"):
        tokenizer.check([b"word"])


def test_renumbered_added_tokens_are_found(byte_level, added_token, write_json):
    """`tokenizers` gives the next free id to an added token with a hole before it; all such are named."""
    document = byte_level(added_tokens=[added_token(300, "<x>"), added_token(301, "<y>", special=True)])
    tokenizer = JsonTokenizer(write_json(document))
    with pytest.raises(TokenizerError, match="ids of added tokens are ambiguous") as error:
        tokenizer.check([])
    assert [str(problem) for problem in error.value.problems] == [
        "added token '<x>': id 300 in the file, 256 in the tokenizers library",
        "added token '<y>': id 301 in the file, 257 in the tokenizers library",
    ]


def test_a_normalizer_is_applied_by_both(byte_level, write_json):
    """NFC: gigatoken supports it, and the ids are those of the composed letter."""
    tokenizer = JsonTokenizer(write_json(byte_level(normalizer={"type": "NFC"})))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")
    tokenizer.check(["e\u0301 cafe\u0301".encode()])


def test_another_vocabulary_disagrees(byte_level, write_json, gpt2):
    """Two real tokenizers side by side: the reference of one refuses the ids of the other."""
    other = JsonTokenizer(write_json(byte_level()))
    with pytest.raises(TokenizerError, match="disagree in document 1 of the sample, token 0 "):
        gpt2.load_reference().compare([b"hello world", b"probe"], *other.encode_documents([b"hello world", b"probe"]))


def test_the_file_is_the_one_compared(write_json):
    """GPT-2 with two merges swapped still agrees with itself, and has another identity."""
    swapped = gpt2_tokenizer_json().replace('["t", "h"], ["Ġ", "a"]', '["Ġ", "a"], ["t", "h"]')
    tokenizer = JsonTokenizer(write_json(swapped))
    tokenizer.check([b"that hat"])
