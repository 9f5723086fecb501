"""Batches of texts become stored documents: cut, begun, ended, and no id wrapped or moved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.building.encode import DocumentEncoder
from headrace.errors import TokenIdError, TokenizerError
from headrace.tokenizers.bytes import Tokenizer


@given(
    texts=st.lists(st.binary(max_size=20), max_size=8),
    bos=st.none() | st.integers(0, 256),
    boundary=st.integers(0, 256),
    limit=st.none() | st.integers(1, 25) | st.just(10**30),
)
def test_encoding_is_its_model(texts, bos, boundary, limit):
    """Tokens and ends are those of encoding each document by itself; what is cut is counted."""
    encoder = DocumentEncoder(Tokenizer(), boundary, bos=bos, max_document_tokens=limit)
    batch = encoder.encode(texts)
    head = [] if bos is None else [bos]
    documents = [[*head, *(byte + 1 for byte in text[:limit]), boundary] for text in texts]
    assert batch.tokens.tolist() == [token for document in documents for token in document]
    assert batch.ends.tolist() == np.cumsum([len(document) for document in documents], dtype=np.int64).tolist()
    lost = [len(text) - len(text[:limit]) for text in texts]
    assert (batch.cut_tokens, batch.cut_documents) == (sum(lost), sum(length > 0 for length in lost))
    assert batch.tokens.dtype == np.dtype("<u2")


class Scripted:
    """A tokenizer that gives what it is told to."""

    def __init__(self, ids: object, ends: object, vocab_size: int = 300, dtype: type = np.int64) -> None:
        self.vocab_size = vocab_size
        self._given = np.array(ids, dtype=dtype), np.array(ends, dtype=np.int64)

    def encode_documents(self, _: object) -> tuple[np.ndarray, np.ndarray]:
        """As told."""
        return self._given


@pytest.mark.parametrize(
    ("ids", "dtype"), [([5, -1], np.int64), ([300, 5], np.uint16), ([70_000], np.uint32), ([1.5], np.float64)]
)
def test_no_id_is_wrapped(ids, dtype):
    """An id below 0, not below the vocabulary's size, or no integer is an error."""
    with pytest.raises(TokenIdError, match="outside its vocabulary of 300 ids"):
        DocumentEncoder(Scripted(ids, [len(ids)], dtype=dtype), 0).encode([b"x"])


@pytest.mark.parametrize("ends", [[], [1], [2, 2], [3, 2], [1, 2, 2], [1, 4], [-1, 2]])
def test_no_token_is_moved(ends):
    """Document ends that do not fit the ids, or are not one a document, are an error."""
    good = DocumentEncoder(Scripted([1, 2], [1, 2]), 0)
    assert good.encode([b"x", b"y"]).tokens.tolist() == [1, 0, 2, 0]
    if ends == [2, 2]:  # two ids and none: right for the ids that there are
        assert DocumentEncoder(Scripted([1, 2], ends), 0).encode([b"xy", b""]).ends.tolist() == [3, 4]
        return
    with pytest.raises(TokenizerError, match="wanted an end for each"):
        DocumentEncoder(Scripted([1, 2], ends), 0).encode([b"x", b"y"])


@pytest.mark.parametrize(("vocab_size", "dtype"), [(257, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (200_000, "<u4")])
def test_the_dtype_is_the_vocabularys(vocab_size, dtype):
    """uint16 up to 65,536 ids, else uint32; the highest id is stored as it is."""
    batch = DocumentEncoder(Scripted([vocab_size - 1], [1], vocab_size), vocab_size - 1).encode([b"x"])
    assert batch.tokens.dtype == np.dtype(dtype)
    assert batch.tokens.tolist() == [vocab_size - 1] * 2


@pytest.mark.parametrize(
    ("boundary", "bos", "name"), [(257, None, "boundary"), (-1, None, "boundary"), (0, 257, "BOS")]
)
def test_added_tokens_are_in_the_vocabulary(boundary, bos, name):
    """A boundary or BOS that the vocabulary does not have is an error before any document."""
    with pytest.raises(TokenIdError, match=f"the {name} id -?[0-9]+ is not in the vocabulary of 257 ids"):
        DocumentEncoder(Tokenizer(), boundary, bos=bos)
