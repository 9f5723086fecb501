"""`ShardedTokenizationPipeline` and `pack_documents`, as described and beyond."""

import itertools
import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.errors import BoundaryError, TokenizerError, WriterError
from headrace.manifest import TokenizerRef
from headrace.storage.hdf5_corpus import SIDECAR, load_table
from headrace.tokenizers.load import load_from_corpus


class Wide(headrace.Tokenizer):
    """70,000 ids, so that tokens are stored as uint32: a byte b is 65,536 + b, the boundary is 69,999."""

    ref = TokenizerRef(kind="bytes", name="wide", sha256="0" * 63 + "1", vocab_size=70_000)
    vocab_size = 70_000

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """The bytes, high up."""
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32) + 65_536
        return ids, np.cumsum([len(text) for text in texts], dtype=np.int64)


def tokens_of(texts: Sequence[str]) -> list[int]:
    """Byte tokens of all texts that are not empty, boundaries included."""
    return [token for text in texts if text for token in [*headrace.Tokenizer().encode(text), 0]]


def test_shards_keep_the_mappings_order(tmp_path):
    """Entries come in the mapping's order, not sorted, with global starts; the store reads them back."""
    corpus = {"z": ["one", "two"], "a": ["three"], "m": ["four"]}
    entries = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path, 4).write_corpus(corpus)
    assert [entry.shard_id for entry in entries] == ["z", "a", "m"]
    assert [entry.global_start for entry in entries] == [0, 8, 14]
    assert [entry.document_count for entry in entries] == [2, 1, 1]
    with headrace.MmapTokenStore(entries) as store:
        assert store.get_slice(0, store.total_tokens).tolist() == tokens_of(
            [t for texts in corpus.values() for t in texts]
        )
    assert [entry.shard_id for entry in headrace.load_index(tmp_path)] == ["z", "a", "m"]
    assert headrace.validate_corpus(entries) == []


def test_empty_documents_and_empty_shards(tmp_path):
    """Empty texts are dropped and counted; a shard without documents is a shard of no tokens, and reads as such."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path, 4)
    entries = pipeline.write_corpus({"a": ["", "x", ""], "b": [], "c": [""], "d": iter(["y"])})
    assert pipeline.empty_documents == 3
    assert [(entry.token_count, entry.document_count) for entry in entries] == [(2, 1), (0, 0), (0, 0), (2, 1)]
    assert headrace.validate_corpus(tmp_path) == []
    with headrace.open(tmp_path, verify="full") as corpus:
        assert corpus[:].tolist() == tokens_of(["x", "y"])
        assert corpus.locate(2).shard_id == "d"


def test_a_corpus_of_no_shards(tmp_path):
    """No shards make an index of no shards; there is nothing to open a store on."""
    entries = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path).write_corpus({})
    assert entries == headrace.load_index(tmp_path) == []
    with pytest.raises(ValueError, match="at least one shard"):
        headrace.MmapTokenStore(entries)


def test_more_than_16_bits(tmp_path):
    """With a vocabulary above 65,536 ids, every id is stored whole, as uint32."""
    pipeline = headrace.ShardedTokenizationPipeline(Wide(), tmp_path, 4, boundary_token_id=69_999)
    entries = pipeline.write_corpus({"a": ["hi", "", "you"]})
    with headrace.MmapTokenStore(entries) as store:
        assert store.dtype == np.dtype("<u4")
        ids = store.get_slice(0, store.total_tokens).tolist()
    assert ids == [65_536 + b for b in b"hi"] + [69_999] + [65_536 + b for b in b"you"] + [69_999]
    assert json.loads((tmp_path / "shards.json").read_text())["dtype"] == "uint32"


def test_what_comes_with_the_shards(tmp_path):
    """The corpus holds the copy of the tokenizer that decodes it, and the sidecar that opens it without HDF5."""
    headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path).write_corpus({"a": ["hi"]})
    assert load_from_corpus(tmp_path).decode([105, 106, 0]) == "hi"
    with headrace.open(tmp_path) as corpus:
        assert load_table(tmp_path / SIDECAR, str(corpus.fingerprint)) is not None


def test_writing_again_replaces_the_corpus(tmp_path, published):
    """The second corpus of a pipeline is the one that is there; equal documents give equal bytes."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path)
    pipeline.write_corpus({"a": ["one"], "b": ["two"]})
    first = published(tmp_path)
    pipeline.write_corpus({"a": ["three"]})
    with headrace.open(tmp_path, verify="full") as corpus:
        assert corpus[:].tolist() == tokens_of(["three"])
    pipeline.write_corpus({"a": ["one"], "b": ["two"]})
    assert published(tmp_path) == first


def test_documents_that_fail_midway(tmp_path):
    """An exception out of the documents leaves no index that tells of other shards, and no partial file."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path)
    pipeline.write_corpus({"a": ["one"], "b": ["two"]})

    def failing():
        yield "three"
        raise KeyError("from the caller")

    with pytest.raises(KeyError, match="from the caller"):
        pipeline.write_corpus({"a": ["new"], "b": failing()})
    with pytest.raises(FileNotFoundError):
        headrace.open(tmp_path)
    assert not list(tmp_path.glob(".*partial*"))


@pytest.mark.parametrize("shard_id", ["", ".", "..", ".hidden", "a/b", "/a", "a\0", "a\nb", "\udcff"])
def test_bad_shard_ids(tmp_path, shard_id):
    """A shard id that is no plain, printable file name is an error before anything is written."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path / "c")
    with pytest.raises(WriterError, match="a shard id is a plain file name"):
        pipeline.write_corpus({"good": ["text"], shard_id: ["text"]})
    assert list((tmp_path / "c").iterdir()) == []


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        ("one text", WriterError, "wanted an iterable of documents, found one str"),
        ([b"bytes"], WriterError, "document 0: wanted a str, found bytes"),
        (["fine", None], WriterError, "document 1: wanted a str, found NoneType"),
        (["fine", "\ud800"], TokenizerError, "document 1: a lone surrogate"),
    ],
)
def test_documents_that_are_no_texts(tmp_path, documents, error, message):
    """They are errors that say which document, never tokens of something else."""
    pipeline = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path)
    with pytest.raises(error, match=message):
        pipeline.write_corpus({"a": documents})
    assert not list(tmp_path.glob("*.h5"))


def test_a_tokenizer_of_another_kind(tmp_path):
    """A tokenizer without batches, or one that does not say its boundary, is refused with what to pass instead."""

    class Plain:
        def encode(self, text: str) -> list[int]:
            return list(text.encode())

    with pytest.raises(TokenizerError, match=r"wanted headrace.Tokenizer\(\)"):
        headrace.ShardedTokenizationPipeline(Plain(), tmp_path)
    with pytest.raises(BoundaryError):
        list(headrace.pack_documents(Plain(), ["a"], 3))
    assert list(headrace.pack_documents(Plain(), ["ab", "c"], 3, boundary_token_id=7)) == [[97, 98, 7], [99]]


def test_large_documents_of_many_batches(tmp_path):
    """Documents are encoded in batches of some MB; where a batch ends makes no difference."""
    texts = ["x" * 1_500_000, "y" * 1_000_000, "z" * 3_000_000, *(str(number) for number in range(1000))]
    (entry,) = headrace.ShardedTokenizationPipeline(headrace.Tokenizer(), tmp_path).write_corpus({"a": iter(texts)})
    assert entry.document_count == len(texts)
    with headrace.open(tmp_path, verify="full") as corpus:
        assert [len(corpus.documents[n]) - 1 for n in range(5)] == [len(text) for text in texts[:5]]
        assert headrace.Tokenizer().decode(corpus.documents[-1]) == "999"


@given(st.lists(st.text(max_size=15), max_size=8), st.integers(1, 20))
def test_packed_groups_are_the_documents(documents, max_tokens):
    """Groups, joined, are the documents with one boundary between each two; all have `max_tokens` but the last."""
    tokenizer = headrace.Tokenizer()
    groups = list(headrace.pack_documents(tokenizer, iter(documents), max_tokens))
    joined = list(itertools.chain(*groups))
    encoded = [tokenizer.encode(document) for document in documents if document]
    wanted = [token for ids in encoded for token in [0, *ids]][1:]
    assert joined == wanted
    assert all(len(group) == max_tokens for group in groups[:-1])
    assert not groups or 1 <= len(groups[-1]) <= max_tokens


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5), st.integers(1, 6), st.integers(0, 300))
def test_packing_with_another_boundary(documents, max_tokens, boundary):
    """The boundary that is given stands between documents and nowhere else."""
    groups = headrace.pack_documents(headrace.Tokenizer(), documents, max_tokens, boundary_token_id=boundary + 1000)
    assert sum(token == boundary + 1000 for group in groups for token in group) == len(documents) - 1


def test_packing_into_nothing():
    """A group has at least one token."""
    with pytest.raises(ValueError, match="max_tokens is at least 1"):
        list(headrace.pack_documents(headrace.Tokenizer(), ["a"], 0))


@pytest.mark.parametrize("text", ["ab", b"ab"])
def test_one_text_is_not_documents(text):
    """A text in place of texts is refused, for its characters would be documents."""
    with pytest.raises(WriterError, match="wanted an iterable of documents, found one"):
        list(headrace.pack_documents(headrace.Tokenizer(), text, 3))
