"""Corpora as we write them, of every store, and every way of reading one, against the store contract."""

import numpy as np
import pytest

from headrace.corpus import MmapTokenStore
from headrace.shard_paths import load_index
from headrace.storage import decoded, pool
from headrace.testing.contract import StoreCase, StoreContract
from headrace.testing.corpora import corpus_case, line_of, random_documents, small_corpus
from headrace.testing.memory import MemoryCorpus

SHARDS = random_documents(11, (12, 0, 1, 0, 0, 30, 5, 0))
"""Shards of many documents, of one and of none, the empty ones together, between others and last."""
WIDE = random_documents(22, (20, 0, 9), vocab_size=151_936)


class TestMappedChunks(StoreContract):
    """Shards of a few chunks each, through maps."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 64 tokens."""
        return corpus_case(small_corpus(folder, SHARDS, chunk_size=64), SHARDS)


class TestChunksOfOneToken(StoreContract):
    """The smallest chunk."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 1 token."""
        shards = random_documents(12, (5, 0, 3), longest=20)
        return corpus_case(small_corpus(folder, shards, chunk_size=1), shards)


class TestChunksLargerThanTheData(StoreContract):
    """One chunk that is never full."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 100,000 tokens."""
        return corpus_case(small_corpus(folder, SHARDS, chunk_size=100_000), SHARDS)


class TestManyExtents(StoreContract):
    """Document rows and checksums lie between the token chunks, so that no extent is long."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 7 tokens, and more documents than one chunk of their index holds."""
        shards = random_documents(13, (6000,), longest=2)
        return corpus_case(small_corpus(folder, shards, chunk_size=701), shards)


class TestWithoutMaps(StoreContract):
    """The same bytes by pread."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`io="pread"`."""
        return corpus_case(small_corpus(folder, SHARDS, chunk_size=16), SHARDS, io="pread")


class TestWideTokens(StoreContract):
    """uint32 tokens, some beyond uint16."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """A vocabulary of 151,936 ids."""
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        return corpus_case(small_corpus(folder, shards, vocab_size=151_936), shards, dtype=np.uint32)


class TestGzip(StoreContract):
    """Compressed by us: decoded chunk by chunk, several of which a window straddles."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """gzip, chunks of 37 tokens."""
        return corpus_case(small_corpus(folder, SHARDS, chunk_size=37, compression="gzip:1"), SHARDS)


class TestZstd(StoreContract):
    """The same with zstd, and tokens of four bytes."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """zstd, uint32, chunks of 29 tokens."""
        pytest.importorskip("hdf5plugin")
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        folder = small_corpus(folder, shards, chunk_size=29, vocab_size=151_936, compression="zstd")
        return corpus_case(folder, shards, dtype=np.uint32)


class TestGzipInOneChunk(StoreContract):
    """A chunk larger than the tokens, most of it padding; and no maps anywhere."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """gzip, uint32, chunks of 100,000 tokens, `io="pread"`, no sidecar."""
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        options = {"chunk_size": 100_000, "vocab_size": 151_936, "compression": "gzip", "sidecar": False}
        return corpus_case(small_corpus(folder, shards, **options), shards, dtype=np.uint32, io="pread")


class TestZstdFewHandles(StoreContract):
    """More compressed shards than may be open at once, and more chunks than are kept decoded."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """6 zstd shards through 4 handles, and 4 chunks kept."""
        pytest.importorskip("hdf5plugin")
        shards = random_documents(15, (2,) * 6, longest=20)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "handle_limit", lambda: 4)
            patch.setattr(decoded._cache, "most", 0)
            yield corpus_case(small_corpus(folder, shards, chunk_size=8, compression="zstd:1"), shards)


class TestWithoutSidecar(StoreContract):
    """Extents derived from the shards themselves."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """No `extents.bin`."""
        return corpus_case(small_corpus(folder, SHARDS, sidecar=False), SHARDS)


class TestFewHandles(StoreContract):
    """More shards than may be open at once."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """25 shards through 4 maps."""
        shards = random_documents(15, (3,) * 25)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "handle_limit", lambda: 4)
            yield corpus_case(small_corpus(folder, shards, chunk_size=8), shards)


class TestTinyGather(StoreContract):
    """Windows too long to be gathered out of all memory at once."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """As on a machine of 2**60 addresses, where even two tokens an item are too many."""
        case = corpus_case(small_corpus(folder, SHARDS, chunk_size=64), SHARDS)
        case.store._line._files.addresses = 1 << 61
        return case


class TestUnverified(StoreContract):
    """Reading without the check at first touch."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`verify="off"`."""
        return corpus_case(small_corpus(folder, SHARDS), SHARDS, verify="off")


class TestTokenStore(StoreContract):
    """The store of the lesson's name, over entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`MmapTokenStore(load_index(folder))`."""
        return corpus_case(folder, SHARDS, store=MmapTokenStore(load_index(small_corpus(folder, SHARDS))))


class TestLance(StoreContract):
    """Mapped pages."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 64 tokens."""
        pytest.importorskip("lance")
        return corpus_case(small_corpus(folder, SHARDS, store="lance"), SHARDS)


class TestLanceWideWithoutSidecar(StoreContract):
    """uint32; where the pages lie is read from the data files; no maps."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """No `extents.bin`, `io="pread"`."""
        corpus = small_corpus(folder, WIDE, vocab_size=151_936, store="lance", sidecar=False, chunk_size=7)
        return corpus_case(corpus, WIDE, dtype=np.uint32, io="pread")


class TestLanceFewHandles(StoreContract):
    """More shards than may be open at once, chosen by their entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """25 shards through 4 maps."""
        pytest.importorskip("lance")
        shards = random_documents(23, (3,) * 25)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "handle_limit", lambda: 4)
            store = MmapTokenStore(load_index(small_corpus(folder, shards, store="lance")))
            yield corpus_case(folder, shards, store=store)


class TestEmptyCorpus(StoreContract):
    """A corpus without a single token."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Two empty shards."""
        return corpus_case(small_corpus(folder, [[], []]), [[], []])


class TestMemory(StoreContract):
    """The in-memory twin."""

    indexing = False

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls):
        """An array."""
        tokens, _ = line_of(SHARDS)
        return StoreCase(store=MemoryCorpus(tokens.astype(np.uint16)), tokens=tokens.astype(np.uint16), marks=(5, 99))
