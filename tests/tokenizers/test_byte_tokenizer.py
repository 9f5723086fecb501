"""The byte-level tokenizer as described: 0 the boundary, 1 to 256 the bytes."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TokenIdError, TokenizerError
from headrace.tokenizers.bytes import Tokenizer

TOKENIZER = Tokenizer()


@given(st.text())
def test_any_text_comes_back(text):
    """decode(encode(text)) is the text, and every id is a byte + 1."""
    ids = TOKENIZER.encode(text)
    assert ids == [byte + 1 for byte in text.encode()]
    assert TOKENIZER.decode(ids) == text


@given(st.lists(st.text()))
def test_a_batch_is_its_texts_one_after_another(texts):
    """encode_documents gives each text's own ids, in order, as uint16, with exclusive ends; empty texts included."""
    ids, ends = TOKENIZER.encode_documents([text.encode() for text in texts])
    assert (ids.dtype, ends.dtype) == (np.uint16, np.int64)
    starts = [0, *ends[:-1]] if texts else []
    found = [ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
    assert found == [TOKENIZER.encode_text(text) for text in texts]
    assert len(ids) == sum(map(len, found))


def test_boundary_decodes_to_nothing():
    """The boundary is no text, wherever it stands."""
    ids = [0, *TOKENIZER.encode("ab"), 0, *TOKENIZER.encode("é"), 0]
    assert TOKENIZER.decode(ids) == "abé"
    assert TOKENIZER.decode(np.array(ids, np.uint16)) == "abé"
    assert TOKENIZER.decode([]) == ""


def test_half_a_character_decodes_to_a_replacement():
    """A window may begin or end inside a character."""
    ids = TOKENIZER.encode("é中")
    assert TOKENIZER.decode(ids[1:]) == "\ufffd中"
    assert TOKENIZER.decode(ids[:-1]) == "é\ufffd"


@pytest.mark.parametrize("ids", [[97, 257], [-1], np.array([300]), [1 << 70]])
def test_ids_outside_the_vocabulary_are_refused(ids):
    """257 ids, 0 to 256; nothing wraps."""
    with pytest.raises(TokenIdError):
        TOKENIZER.decode(ids)


def test_the_error_names_the_id_and_its_place():
    """A bad id among good ones can be found."""
    with pytest.raises(TokenIdError, match="id 257 at position 2 is not in the vocabulary of 257 ids"):
        TOKENIZER.decode([1, 2, 257])


def test_lone_surrogate_is_a_clear_error():
    """It is a ValueError that says where and what, not a bare UnicodeEncodeError."""
    with pytest.raises(TokenizerError, match=r"character 2 .*U\+D83D"):
        TOKENIZER.encode("ab\ud83d")
    assert issubclass(TokenizerError, ValueError)


def test_entries_of_the_vocabulary_are_one_to_one():
    """token_id and id_to_token are inverse over all 257 ids, and None elsewhere."""
    tokens = [TOKENIZER.id_to_token(token_id) for token_id in range(257)]
    assert len(set(tokens)) == 257
    assert [TOKENIZER.token_id(token) for token in tokens] == list(range(257))
    assert (tokens[0], tokens[1 + ord("a")], tokens[1 + ord("\n")]) == ("<boundary>", "a", "<0x0A>")
    assert TOKENIZER.id_to_token(257) is None
    assert TOKENIZER.id_to_token(-1) is None
    assert TOKENIZER.token_id("ab") is None
    assert TOKENIZER.token_id("<0x100>") is None


def test_identity_is_pinned():
    """Corpora record it: another value would make this version refuse the corpora of the last."""
    assert TOKENIZER.ref.sha256 == "349760d9aca30f04fbbc18f4e00463efc24eddc3cd7a88b09c9db280a41d6533"
    assert (TOKENIZER.ref.kind, TOKENIZER.ref.name, TOKENIZER.ref.vocab_size) == ("bytes", "bytes", 257)
    assert pickle.loads(pickle.dumps(TOKENIZER)).ref == TOKENIZER.ref  # noqa: S301  # our own bytes
