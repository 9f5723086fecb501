"""Every back end, and every way of reading one, against the store contract."""

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest

import headrace
from headrace.corpus import MmapTokenStore
from headrace.shard_paths import load_index
from headrace.storage import decoded, pool
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing.contract import StoreCase, StoreContract
from headrace.testing.corpora import line_of, random_documents, small_corpus
from headrace.testing.memory import MemoryCorpus

DATA = Path(__file__).parent.parent / "data" / "formats"

SHARDS = random_documents(11, (12, 0, 1, 0, 0, 30, 5, 0))
"""Shards of many documents, of one and of none, the empty ones together, between others and last."""


def case_of(folder, *, shards=SHARDS, dtype=np.uint16, store=None, **options):
    """A corpus in `folder`, with the marks where its shards and extents begin."""
    tokens, lengths = line_of(shards)
    store = store or headrace.open(folder, **options)
    marks = {entry.global_start for entry in store.entries}
    for entry in store.entries:
        layout = inspect_shard(Path(entry.path))
        firsts = [*layout.first.tolist(), *range(0, entry.token_count, layout.chunk_size)]
        marks.update(entry.global_start + first for first in firsts[:40])
    return StoreCase(store=store, tokens=tokens.astype(dtype), document_lengths=lengths, marks=tuple(sorted(marks)))


@pytest.fixture(scope="class")
def folder(tmp_path_factory):
    """A folder for one class."""
    return tmp_path_factory.mktemp("corpus")


class TestMappedChunks(StoreContract):
    """Shards of a few chunks each, through maps."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 64 tokens."""
        return case_of(small_corpus(folder, SHARDS, chunk_size=64))


class TestChunksOfOneToken(StoreContract):
    """The smallest chunk."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 1 token."""
        shards = random_documents(12, (5, 0, 3), longest=20)
        return case_of(small_corpus(folder, shards, chunk_size=1), shards=shards)


class TestChunksLargerThanTheData(StoreContract):
    """One chunk that is never full."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 100,000 tokens."""
        return case_of(small_corpus(folder, SHARDS, chunk_size=100_000))


class TestManyExtents(StoreContract):
    """Document rows and checksums lie between the token chunks, so that no extent is long."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Chunks of 7 tokens, and more documents than one chunk of their index holds."""
        shards = random_documents(13, (6000,), longest=2)
        return case_of(small_corpus(folder, shards, chunk_size=701), shards=shards)


class TestWithoutMaps(StoreContract):
    """The same bytes by pread."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`io="pread"`."""
        return case_of(small_corpus(folder, SHARDS, chunk_size=16), io="pread")


class TestWideTokens(StoreContract):
    """uint32 tokens, some beyond uint16."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """A vocabulary of 151,936 ids."""
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        return case_of(small_corpus(folder, shards, vocab_size=151_936), shards=shards, dtype=np.uint32)


class TestGzip(StoreContract):
    """Compressed by us: decoded chunk by chunk, several of which a window straddles."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """gzip, chunks of 37 tokens."""
        return case_of(small_corpus(folder, SHARDS, chunk_size=37, compression="gzip:1"))


class TestZstd(StoreContract):
    """The same with zstd, and tokens of four bytes."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """zstd, uint32, chunks of 29 tokens."""
        pytest.importorskip("hdf5plugin")
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        folder = small_corpus(folder, shards, chunk_size=29, vocab_size=151_936, compression="zstd")
        return case_of(folder, shards=shards, dtype=np.uint32)


class TestGzipInOneChunk(StoreContract):
    """A chunk larger than the tokens, most of it padding; and no maps anywhere."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """gzip, uint32, chunks of 100,000 tokens, `io="pread"`, no sidecar."""
        shards = random_documents(14, (20, 0, 9), vocab_size=151_936)
        options = {"chunk_size": 100_000, "vocab_size": 151_936, "compression": "gzip", "sidecar": False}
        return case_of(small_corpus(folder, shards, **options), shards=shards, dtype=np.uint32, io="pread")


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
            patch.setattr(decoded, "_CACHE_BYTES", 0)
            yield case_of(small_corpus(folder, shards, chunk_size=8, compression="zstd:1"), shards=shards)


class TestWithoutSidecar(StoreContract):
    """Extents derived from the shards themselves."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """No `extents.bin`."""
        return case_of(small_corpus(folder, SHARDS, sidecar=False))


class TestFewHandles(StoreContract):
    """More shards than may be open at once."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """25 shards through 4 maps."""
        shards = random_documents(15, (3,) * 25)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "handle_limit", lambda: 4)
            yield case_of(small_corpus(folder, shards, chunk_size=8), shards=shards)


class TestTinyGather(StoreContract):
    """Windows too long to be gathered out of all memory at once."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """As on a machine of 2**60 addresses, where even two tokens an item are too many."""
        case = case_of(small_corpus(folder, SHARDS, chunk_size=64))
        case.store._line._files.addresses = 1 << 61
        return case


class TestUnverified(StoreContract):
    """Reading without the check at first touch."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`verify="off"`."""
        return case_of(small_corpus(folder, SHARDS), verify="off")


class TestTokenStore(StoreContract):
    """The store of the lesson's name, over entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`MmapTokenStore(load_index(folder))`."""
        return case_of(folder, store=MmapTokenStore(load_index(small_corpus(folder, SHARDS))))


class TestEmptyCorpus(StoreContract):
    """A corpus without a single token."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Two empty shards."""
        return case_of(small_corpus(folder, [[], []]), shards=[[], []])


class TestMemory(StoreContract):
    """The in-memory twin."""

    indexing = False

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls):
        """An array."""
        tokens, _ = line_of(SHARDS)
        return StoreCase(store=MemoryCorpus(tokens.astype(np.uint16)), tokens=tokens.astype(np.uint16), marks=(5, 99))


# -- files of others ----------------------------------------------------------------------------------------------------

TOKENS = np.random.default_rng(2).integers(0, 50_257, 5_000)


def foreign(path, dtype="<u2", **options):
    """A file with a `tokens` data set, as someone might have written it."""
    with h5py.File(path, "w", libver=options.pop("libver", "latest")) as file:
        file.create_dataset("tokens", data=TOKENS.astype(dtype), **options)
    return StoreCase(store=headrace.open(path), tokens=TOKENS.astype(dtype), marks=(100, 1000, 4999))


class TestContiguous(StoreContract):
    """One run of bytes."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """No chunks."""
        return foreign(folder / "tokens.h5")


class TestCompressed(StoreContract):
    """Nothing to map: every read goes through the library."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Gzip and shuffle."""
        return foreign(folder / "tokens.h5", chunks=(700,), compression="gzip", shuffle=True)


class TestBigEndianGzip(StoreContract):
    """Decoded by us, although the bytes are the wrong way round."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`>u2`, gzip alone."""
        return foreign(folder / "tokens.h5", dtype=">u2", chunks=(700,), compression="gzip")


class TestEarliestFormat(StoreContract):
    """Superblock 0 and a version 1 B-tree."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`libver="earliest"`."""
        return foreign(folder / "tokens.h5", chunks=(512,), libver="earliest")


class TestBigEndian(StoreContract):
    """The file's dtype is kept, even where its bytes are the wrong way round."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`>u2`."""
        return foreign(folder / "tokens.h5", dtype=">u2", chunks=(1000,))


class TestSignedWide(StoreContract):
    """int64 tokens, eight bytes each."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """`<i8`."""
        return foreign(folder / "tokens.h5", dtype="<i8", chunks=(1000,))


class TestUserBlock(StoreContract):
    """Bytes before the HDF5 file proper, which shift every offset."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """A user block of 512 bytes."""
        with h5py.File(folder / "tokens.h5", "w", userblock_size=512, libver="latest") as file:
            file.create_dataset("tokens", data=TOKENS.astype("<u2"), chunks=(1000,))
        return StoreCase(store=headrace.open(folder / "tokens.h5"), tokens=TOKENS.astype("<u2"))


class TestUnwrittenChunk(StoreContract):
    """A chunk that was never written holds the fill value, and is nowhere in the file."""

    options: ClassVar = {}

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """The second of five chunks is missing, and the last two are padding."""
        tokens = TOKENS.astype("<u2")
        tokens[1000:2000] = 9
        with h5py.File(folder / "tokens.h5", "w", libver="latest") as file:
            dataset = file.create_dataset("tokens", (5000,), "<u2", chunks=(1000,), fillvalue=9, **cls.options)
            dataset[:1000], dataset[2000:] = tokens[:1000], tokens[2000:]
            dataset.attrs["token_count"] = 3000
        return StoreCase(store=headrace.open(folder / "tokens.h5"), tokens=tokens[:3000])


class TestUnwrittenChunkGzip(TestUnwrittenChunk):
    """The same among compressed chunks."""

    options: ClassVar = {"compression": "gzip"}


class TestPadding(StoreContract):
    """A data set longer than `token_count`: the rest is never served."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """4,321 of 5,000 tokens count."""
        with h5py.File(folder / "tokens.h5", "w", libver="latest") as file:
            dataset = file.create_dataset("tokens", data=TOKENS.astype("<u2"), chunks=(256,))
            dataset.attrs["token_count"] = 4321
        return StoreCase(store=headrace.open(folder / "tokens.h5"), tokens=TOKENS[:4321].astype("<u2"))


class TestVersion1(StoreContract):
    """The lesson's own corpus, written by the lesson's own code; its documents end at each 0."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls):
        """Four shards, the last one empty."""
        wanted = json.loads((DATA / "lesson_hdf5" / "expected.json").read_text())
        store = headrace.open(DATA / "lesson_hdf5")
        tokens = np.concatenate([_with_h5py(Path(entry.path)) for entry in store.entries])
        assert hashlib.sha256(tokens.astype("<u4").tobytes()).hexdigest() == wanted["tokens_sha256_u32le"]
        marks = tuple(entry.global_start for entry in store.entries)
        return StoreCase(store=store, tokens=tokens, document_lengths=wanted["document_lengths"], marks=marks)


class TestCompressedVersion1(StoreContract):
    """A corpus of several shards of which none can be mapped, and more of them than may be open at once."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """7 gzip shards through 4 handles."""
        rows, parts, start = [], [], 0
        for number, size in enumerate((50, 0, 300, 7, 1, 400, 90)):
            tokens = np.append(TOKENS[start : start + size - 1], 0).astype("<u2")[:size]
            digest = hashlib.sha256(tokens.tobytes()).hexdigest()
            with h5py.File(folder / f"{number}.h5", "w", libver="latest") as file:
                dataset = file.create_dataset("tokens", data=tokens, chunks=(33,), maxshape=(None,), compression="gzip")
                dataset.attrs.update({"token_count": size, "sha256": digest, "document_count": min(size, 1)})
            rows.append(
                {"shard_id": str(number), "path": f"{number}.h5", "token_count": size, "sha256": digest}
                | {"global_start": start, "document_count": min(size, 1)}
            )
            parts.append(tokens)
            start += size
        index = {"version": 1, "chunk_size": 33, "total_tokens": start, "shards": rows}
        (folder / "shards.json").write_text(json.dumps(index))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "handle_limit", lambda: 4)
            yield StoreCase(
                store=headrace.open(folder),
                tokens=np.concatenate(parts),
                document_lengths=[len(part) for part in parts if len(part)],
                marks=tuple(row["global_start"] for row in rows),
            )


def _with_h5py(path):
    with h5py.File(path, "r", locking=False) as file:
        return file["tokens"][: file["tokens"].attrs["token_count"]]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in DATA.glob("h5_*/tokens.h5")))
def test_single_files(name):
    """Each HDF5 layout found in the field gives the tokens that its tool wrote, and knows no documents."""
    wanted = json.loads((DATA / name / "expected.json").read_text())
    corpus = headrace.open(DATA / name / "tokens.h5")
    tokens = corpus[:]
    assert len(corpus) == wanted["token_count"]
    assert corpus.dtype == np.dtype(wanted["dtype"])
    assert tokens[:16].tolist() == wanted["first16"]
    assert tokens[-16:].tolist() == wanted["last16"]
    assert hashlib.sha256(tokens.astype("<u4").tobytes()).hexdigest() == wanted["tokens_sha256_u32le"]
    assert all(report.ok for report in corpus.verify())
    with pytest.raises(headrace.errors.NoDocumentsError):
        len(corpus.documents)
