"""Lance data sets of other people against the store contract."""

import lance
import numpy as np
import pytest

import headrace
from headrace.testing.contract import StoreCase, StoreContract
from headrace.testing.corpora import random_documents
from headrace.testing.lance import write_blocks, write_lists, write_recipe

DOCUMENTS = [np.asarray(document) for shard in random_documents(31, (40, 25, 60), longest=90) for document in shard]


def case_of(path, *, dtype, documents=None, tokens=None, **options):
    """The data set, and where its pieces and fragments begin."""
    store = headrace.open(path, **options)
    tokens = np.concatenate(DOCUMENTS).astype(dtype) if tokens is None else tokens
    marks = tuple(sorted({entry.global_start for entry in store.entries} | set(range(0, len(tokens), 1024))))
    lengths = None if documents is None else [len(document) for document in documents]
    return StoreCase(store=store, tokens=tokens, document_lengths=lengths, marks=marks)


class TestRecipeFlat(StoreContract):
    """As the recipe wrote with earlier ones of Lance: flat pages, which are mapped."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.0, files of 500 rows."""
        path = folder / "data.lance"
        write_recipe(path, DOCUMENTS, storage_version="2.0", max_rows_per_file=500)
        return case_of(path, dtype=np.int64)


class TestRecipePacked(StoreContract):
    """As the recipe writes with newer ones: bit-packed pages, which are unpacked here."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.2, files of 1,500 rows."""
        path = folder / "data.lance"
        write_recipe(path, DOCUMENTS, storage_version="2.2", max_rows_per_file=1500)
        return case_of(path, dtype=np.int64)


class TestRecipePackedWithoutMaps(StoreContract):
    """The same by pread."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.2, uint16."""
        path = folder / "data.lance"
        write_recipe(path, DOCUMENTS, storage_version="2.2", dtype=np.uint16)
        return case_of(path, dtype=np.uint16, io="pread")


class TestFlatLists(StoreContract):
    """A row a document, flat on disk."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.0."""
        path = folder / "data.lance"
        write_lists(path, DOCUMENTS, storage_version="2.0", max_rows_per_file=50)
        return case_of(path, dtype=np.uint32, documents=DOCUMENTS)


@pytest.mark.extended
class TestLists(StoreContract):
    """A row a document, as only Lance can read it: in a forked child, through a program of its own."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.2."""
        path = folder / "data.lance"
        write_lists(path, DOCUMENTS, storage_version="2.2", max_rows_per_file=50)
        return case_of(path, dtype=np.uint32, documents=DOCUMENTS)


@pytest.mark.extended
class TestMixed(StoreContract):
    """Mapped, unpacked and library pieces side by side, pinned to a version."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Formats 2.0, 2.2, 0.1 where Lance lets them be mixed; deletions in the second fragment; another append later."""
        path = folder / "data.lance"
        thirds = np.array_split(np.concatenate(DOCUMENTS), 3)
        for number, (third, storage_version) in enumerate(zip(thirds, ("2.0", "2.2", "2.1"), strict=True)):
            mode = "append" if number else "create"
            write_recipe(path, [third], storage_version=storage_version, dtype=np.uint16, mode=mode)
        gone = thirds[1][:3].tolist()
        lance.dataset(str(path)).delete(f"input_ids IN ({', '.join(map(str, gone))})")
        tokens = np.concatenate(thirds)
        version = lance.dataset(str(path)).version
        write_recipe(path, [[1, 2, 3]], storage_version="2.0", dtype=np.uint16, mode="append")
        return case_of(f"{path}@v{version}", dtype=np.uint16, tokens=tokens[~np.isin(tokens, gone)].astype(np.uint16))


@pytest.mark.extended
class TestBlocks(StoreContract):
    """Many tokens a row, flat on disk."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, folder):
        """Format 2.2, 64 tokens a row."""
        tokens = np.concatenate(DOCUMENTS).astype(np.uint16)
        tokens = tokens[: len(tokens) // 64 * 64]
        write_blocks(folder / "data.lance", tokens, width=64, storage_version="2.2", max_rows_per_file=20)
        return case_of(folder / "data.lance", dtype=np.uint16, tokens=tokens)
