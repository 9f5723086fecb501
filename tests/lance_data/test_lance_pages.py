"""The page matrix: whatever a data set's pages look like on disk, it serves the tokens that were written.

Runs with the oldest Lance that the pins allow, too: see `test_oldest_lance.py`.
"""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import headrace
from headrace.errors import CorruptShardError
from headrace.storage.document_ends import HELD
from headrace.storage.lance_dictionary import CODINGS
from headrace.storage.lance_pages import page_table
from headrace.storage.lance_pieces import FlatPiece, LibraryPiece, PackedPiece
from headrace.testing.lance import FORMATS, write_blocks, write_lists, write_recipe

DTYPES = ("uint16", "uint32", "int32", "int64")
SHAPES = {
    "constant": lambda _, n: np.full(n, 7),
    "zeros": lambda _, n: np.zeros(n, np.int64),
    "bits": lambda random, n: random.integers(0, 2, n),
    "small": lambda random, n: random.integers(0, 300, n),
    "vocabulary": lambda random, n: random.integers(0, 50_257, n),
    "full": lambda random, n: random.integers(0, 65_536, n),
    "sequential": lambda _, n: np.arange(n) % 65_536,
    "runs": lambda random, n: np.repeat(random.integers(0, 60_000, n // 90 + 1), 90)[:n],
    "few": lambda random, n: random.choice([1, 40_000, 65_535], n),
    "large": lambda random, n: random.integers(0, 200_000, n),
    "rare": lambda random, n: np.where(random.random(n) < 0.001, 60_000, random.integers(0, 9, n)),
}
LENGTHS = (1, 2, 1023, 1024, 1025, 5000)
WINDOWS = (1, 300, 1025, 2100)
LONG = pytest.mark.extended


def values(shape, length, dtype, seed=0):
    """So many tokens of a shape, as the dtype holds them."""
    found = SHAPES[shape](np.random.default_rng(seed + length), length)
    return (found % 65_536 if dtype == "uint16" else found).astype(dtype)


def check(path, model, **options):
    """A data set is its model: whole, in parts, and in windows, with maps and without."""
    for io in ("mmap", "pread"):
        corpus = headrace.open(path, io=io, **options)
        assert (len(corpus), corpus.dtype) == (len(model), model.dtype)
        np.testing.assert_array_equal(corpus.get_slice(0, len(model)), model)
        random = np.random.default_rng(3)
        for length in WINDOWS:
            if length > len(model):
                continue
            starts = random.integers(0, len(model) - length + 1, (2, 6))
            block = corpus.windows(starts, length)
            for step in range(2):
                wanted = model[starts[step][:, None] + np.arange(length)]
                for dtype in (np.int64, model.dtype):
                    out = np.empty(wanted.shape, dtype)
                    block.gather_into(step, out)
                    np.testing.assert_array_equal(out, wanted)
        corpus.close()


def with_fragments(path, parts, dtype, versions):
    """A data set with a fragment for each part."""
    for number, (part, version) in enumerate(zip(parts, versions, strict=True)):
        write_recipe(path, [part], storage_version=version, dtype=dtype, mode="append" if number else "create")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage_version", FORMATS)
def test_fragments_of_all_shapes(storage_version, dtype, tmp_path):
    """One data set of fragments of every shape and of awkward lengths."""
    lengths = (1, 5000, 1024, 2500, 1025, 2, 1023, 3000, 1, 4097, 2048)
    parts = [values(shape, length, dtype) for shape, length in zip(SHAPES, lengths, strict=True)]
    with_fragments(tmp_path / "a.lance", parts, dtype, [storage_version] * len(parts))
    check(tmp_path / "a.lance", np.concatenate(parts))


@LONG
@pytest.mark.parametrize("fullzip", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage_version", FORMATS)
def test_every_cell(storage_version, dtype, shape, fullzip, tmp_path):
    """Each format, dtype, shape and length by itself; also with the encoding that makes pages flat from 2.1 on."""
    for length in LENGTHS:
        model = values(shape, length, dtype)
        metadata = {"lance-encoding:structural-encoding": "fullzip"} if fullzip else None
        schema = pa.schema([pa.field("input_ids", pa.from_numpy_dtype(model.dtype), metadata=metadata)])
        path = tmp_path / f"{length}.lance"
        lance.write_dataset(pa.table([pa.array(model)], schema=schema), path, data_storage_version=storage_version)
        check(path, model)


@pytest.mark.parametrize("storage_version", FORMATS[1:])
def test_what_is_not_read_through_lance(storage_version, tmp_path):
    """Tokens of a vocabulary are mapped where they lie flat, and unpacked where they are packed."""
    write_recipe(tmp_path / "a.lance", [values("vocabulary", 9000, "int64")], storage_version=storage_version)
    (piece,) = page_table(tmp_path / "a.lance").pieces
    assert isinstance(piece, FlatPiece if storage_version == "2.0" else PackedPiece)


def words(distinct, length):
    """Tokens as texts have them: so many ids, few of them often."""
    random = np.random.default_rng(distinct)
    ids = random.choice(50_257, distinct, replace=False)
    return ids[np.minimum(random.zipf(1.2, length) - 1, distinct - 1)]


@pytest.mark.parametrize(
    ("distinct", "length", "coding"),
    [(3, 5000, "lz4"), (190, 3664, "lz4"), (1300, 20_000, "chunks"), (3000, 40_000, "bits"), (2400, 30_000, "bits")],
)
def test_dictionaries(distinct, length, coding, tmp_path):
    """Pages whose chunks hold numbers of a dictionary's items are unpacked here, however that one is stored."""
    model, other = words(distinct, length), words(distinct + 1, length // 2)
    write_recipe(tmp_path / "a.lance", [model], storage_version="2.2")
    write_recipe(tmp_path / "a.lance", [other], storage_version="2.2", mode="append")
    pieces = page_table(tmp_path / "a.lance").pieces
    assert [CODINGS[piece.packing.dictionary.coding] for piece in pieces if piece.packing.dictionary.items] == [
        coding
    ] * 2
    check(tmp_path / "a.lance", np.concatenate([model, other]))


@pytest.mark.parametrize(("distinct", "length"), [(190, 3664), (1300, 20_000), (3000, 40_000)])
def test_damaged_dictionaries(distinct, length, tmp_path):
    """A dictionary in which a byte is wrong, or one that is gone, gives other tokens at most; never anything else."""
    write_recipe(tmp_path / "a.lance", [words(distinct, length)], storage_version="2.2")
    table = page_table(tmp_path / "a.lance")
    place, size = table.pieces[0].packing.dictionary[:2]
    file = Path(table.fragments[0].file)
    whole = file.read_bytes()
    corpus = headrace.open(tmp_path / "a.lance")
    for at in (0, 3, 5, size // 2, size - 1):
        file.write_bytes(whole[: place + at] + bytes([whole[place + at] ^ 0x55]) + whole[place + at + 1 :])
        try:
            assert corpus.get_slice(0, length).shape == (length,)
        except CorruptShardError as error:
            assert str(file) in str(error)  # noqa: PT017  # one of two right ends
        corpus.close()


@pytest.mark.parametrize("storage_version", FORMATS)
def test_deletions(storage_version, tmp_path):
    """Rows that are deleted are gone, from a fragment of several, and the files are not touched."""
    parts = [values("vocabulary", 3000, "int64", seed) for seed in range(3)]
    path = tmp_path / "a.lance"
    with_fragments(path, parts, "int64", [storage_version] * 3)
    model = np.concatenate(parts)
    before = headrace.open(path)
    gone = int(parts[1][17])
    lance.dataset(str(path)).delete(f"input_ids = {gone} OR input_ids < 500")
    check(path, model[(model != gone) & (model >= 500)])
    check(f"{path}@v3", model)
    np.testing.assert_array_equal(before[:], model)
    lance.dataset(str(path)).delete("input_ids >= 0")
    assert len(headrace.open(path)) == 0


@pytest.mark.parametrize("storage_version", FORMATS)
def test_extra_columns(storage_version, tmp_path):
    """Other columns lie between the pages, or in files of their own."""
    model = values("vocabulary", 5000, "uint16")
    table = pa.table({"row": np.arange(5000), "text": [f"text {n}" for n in range(5000)], "input_ids": model})
    path = tmp_path / "a.lance"
    lance.write_dataset(table, path, data_storage_version=storage_version, max_rows_per_file=1500)
    lance.dataset(str(path)).add_columns({"twice": "row * 2"})
    check(path, model)


@pytest.mark.parametrize("storage_version", FORMATS)
def test_a_column_that_came_later(storage_version, tmp_path):
    """The tokens may be in a second file of each fragment."""
    path = tmp_path / "a.lance"
    lance.write_dataset(
        pa.table({"text": ["a", "b"] * 1000}), path, data_storage_version=storage_version, max_rows_per_file=700
    )
    lance.dataset(str(path)).add_columns({"input_ids": "CAST(length(text) AS INT)"})
    check(path, np.ones(2000, np.int32))


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("storage_version", FORMATS)
def test_a_column_of_another_name(storage_version, lists, tmp_path):
    """The files keep the names that columns had when they were written; another column may bear the tokens' own there."""
    path = tmp_path / "a.lance"
    model = values("vocabulary", 4000, "int64")
    lengths = np.full(40, 100)
    columns = {
        "text": ["a"] * 40,
        "inner": [{"a": [1, 2], "b": {"c": 3}}] * 40,
        "pair": pa.array([[1.0, 2.0]] * 40, pa.list_(pa.float32(), 2)),
        "input_ids": np.arange(40),
        "tokens": [part.tolist() for part in np.split(model, 40)],
    }
    if not lists:
        rows = {"input_ids": np.arange(4000), "tokens": model}
        columns = {
            **{name: list(column) * 100 for name, column in columns.items() if name in {"text", "inner"}},
            **rows,
        }
    table = pa.table(columns if storage_version != "0.1" else {name: columns[name] for name in ("input_ids", "tokens")})
    lance.write_dataset(table, path, data_storage_version=storage_version, max_rows_per_file=len(table) // 2)
    lance.dataset(str(path)).alter_columns({"path": "input_ids", "name": "before"})
    lance.dataset(str(path)).alter_columns({"path": "tokens", "name": "input_ids"})
    check(path, model)
    kinds = {type(piece) for piece in page_table(path).pieces}
    mapped = {FlatPiece if storage_version == "2.0" else PackedPiece}
    through_lance = storage_version == "0.1" or (lists and storage_version != "2.0")
    assert kinds == ({LibraryPiece} if through_lance else mapped)
    if lists:
        np.testing.assert_array_equal(headrace.open(path).documents.ends, np.cumsum(lengths))


@pytest.mark.parametrize("lists", [False, True])
def test_names_that_were_exchanged(lists, tmp_path):
    """Another column of the same files under the same name is another data set, of which nothing is known yet."""
    path = tmp_path / "a.lance"
    count = HELD + 2
    model = np.arange(2 * count) % 60_000
    lengths = np.tile([1, 3], count // 2), np.tile([3, 1], count // 2)
    columns = [pa.array(model[:count]), pa.array(model[:count][::-1])]
    if lists:
        offsets = [np.append(0, np.cumsum(each)).astype(np.int32) for each in lengths]
        columns = [pa.ListArray.from_arrays(each, model[: each[-1]]) for each in offsets]
    lance.write_dataset(pa.table(columns, ["input_ids", "others"]), path, data_storage_version="2.0")
    before = headrace.open(path)
    if lists:
        np.testing.assert_array_equal(before.documents.ends, np.cumsum(lengths[0]))
    for old, new in (("input_ids", "before"), ("others", "input_ids")):
        lance.dataset(str(path)).alter_columns({"path": old, "name": new})
    after = headrace.open(path)
    assert after.fingerprint != before.fingerprint
    np.testing.assert_array_equal(after[:], model[: len(after)] if lists else model[:count][::-1])
    if lists:
        np.testing.assert_array_equal(after.documents.ends, np.cumsum(lengths[1]))


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=LONG)])
@pytest.mark.parametrize(
    "storage_version", [pytest.param("0.1", marks=LONG), "2.0", pytest.param("2.1", marks=LONG), "2.2"]
)
def test_lists(storage_version, large, tmp_path):
    """A row is a document, of any length; rows that are deleted are gone."""
    random = np.random.default_rng(1)
    lengths = [0, 3, 0, 0, 1, *random.integers(0, 90, 150).tolist(), 0, 2500, 0]
    documents = [random.integers(0, 200_000, length) for length in lengths]
    path = tmp_path / "a.lance"
    write_lists(path, documents, storage_version=storage_version, large=large, max_rows_per_file=60)
    corpus = headrace.open(path)
    flat = storage_version == "2.0"
    assert {type(piece) for piece in page_table(path).pieces} == {FlatPiece if flat else LibraryPiece}
    check(path, np.concatenate(documents).astype(np.uint32))
    assert len(corpus.documents) == len(documents)
    for number, document in enumerate(documents):
        np.testing.assert_array_equal(corpus.documents[number], document)
    np.testing.assert_array_equal(corpus.documents.ends, np.cumsum(lengths))
    for position in random.integers(0, len(corpus), 20).tolist():
        found = corpus.locate(position)
        assert found.start <= position < found.stop
        assert found.stop - found.start == lengths[found.document]
        assert found.source is None
    lance.dataset(str(path)).delete("array_length(input_ids) > 60")
    left = [document for document in documents if len(document) <= 60]
    check(path, np.concatenate(left).astype(np.uint32))
    assert [len(document) for document in headrace.open(path).documents] == [len(document) for document in left]


@pytest.mark.parametrize("width", [pytest.param(1, marks=LONG), pytest.param(4, marks=LONG), 500])
@pytest.mark.parametrize("dtype", ["uint16", *(pytest.param(dtype, marks=LONG) for dtype in DTYPES[1:])])
@pytest.mark.parametrize("storage_version", FORMATS)
def test_blocks(storage_version, dtype, width, tmp_path):
    """A fixed number of tokens a row; borders of rows are no borders of documents."""
    model = values("vocabulary", 7000, dtype)
    write_blocks(tmp_path / "a.lance", model, width=width, storage_version=storage_version, max_rows_per_file=900)
    check(tmp_path / "a.lance", model)
    with pytest.raises(headrace.errors.NoDocumentsError):
        len(headrace.open(tmp_path / "a.lance").documents)


@pytest.mark.parametrize("storage_version", FORMATS)
def test_compaction(storage_version, tmp_path):
    """Compaction changes the files, not the tokens; who has the data set open goes on with the old ones."""
    parts = [values("vocabulary", 700, "int64", seed) for seed in range(5)]
    path = tmp_path / "a.lance"
    with_fragments(path, parts, "int64", [storage_version] * 5)
    before = headrace.open(path)
    lance.dataset(str(path)).optimize.compact_files()
    model = np.concatenate(parts)
    assert len(headrace.open(path).entries) == 1
    check(path, model)
    np.testing.assert_array_equal(before[:], model)


def test_fragments_of_several_formats(tmp_path):
    """An append may be of another format than what is there (older ones of Lance keep the first)."""
    parts = [values("vocabulary", 3000, "int64", seed) for seed in range(4)]
    with_fragments(tmp_path / "a.lance", parts, "int64", ["2.0", "2.2", "2.1", "2.0"])
    check(tmp_path / "a.lance", np.concatenate(parts))


@LONG
@pytest.mark.parametrize("storage_version", FORMATS)
def test_more_than_one_page(storage_version, tmp_path):
    """Files of several pages, and of pages beyond a megabyte."""
    model = values("vocabulary", 3_500_000, "int64")
    parts = np.array_split(model, 40)
    write_recipe(tmp_path / "a.lance", parts, storage_version=storage_version, max_rows_per_file=3_000_000)
    check(tmp_path / "a.lance", model)
