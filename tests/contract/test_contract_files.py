"""HDF5 files of other people, and of the lesson, against the store contract."""

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest

import headrace
from headrace.storage import pool
from headrace.testing.contract import StoreCase, StoreContract

DATA = Path(__file__).parent.parent / "data" / "formats"

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
