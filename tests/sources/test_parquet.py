"""Parquet: any column of strings, row by row, with nulls told, every byte observed, and damage named."""

import io
import random
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headrace.errors import MissingExtraError, SourceError
from headrace.sources import discover, read_shard
from headrace.sources.files import SourceFile
from headrace.sources.parquet import read_parquet
from headrace.sources.rawfile import DamagedFileError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

STRINGS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "dictionary of binary": pa.dictionary(pa.int16(), pa.large_binary()),
}
TEXTS = ["a", "äöü€𝄞", "", None, "x" * 3000, "a", " ", "\0", "a\r\nb"]


def written(path: Path, table, **options) -> SourceFile:
    """Write a table, and list its file."""
    pq.write_table(table, path, **options)
    return SourceFile(path, path.name, path.stat().st_size, "parquet", None)


def column(texts, kind):
    """A column of texts or bytes; pyarrow makes some types only out of others."""
    texts = [text.encode() if isinstance(text, str) else text for text in texts]
    if pa.types.is_dictionary(kind):
        return column(texts, kind.value_type).dictionary_encode().cast(kind)
    plain = pa.array(texts, pa.large_binary())
    pair = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    same_bytes = pair.get(kind)
    return plain.cast(same_bytes).view(kind) if same_bytes else plain.cast(kind)


def read(file: SourceFile, **options):
    """All texts, their rows, and the drops as row and reason; the file's bytes pass by once, in order."""
    texts, rows, drops, seen, consumed = [], [], [], [], 0
    for batch in read_parquet(file, observe=lambda _, data: seen.append(data), **options):
        texts += batch.texts
        rows += batch.rows.tolist()
        drops += batch.drops
        consumed += batch.consumed
        assert not batch.offsets.any()
        assert len(batch.rows) == len(batch.files) == len(batch.offsets) == len(batch.texts)
    assert b"".join(seen) == file.path.read_bytes()
    assert consumed == file.size
    assert all(drop.path == file.label and drop.byte == -1 for drop in drops)
    return texts, rows, [(drop.row, drop.reason) for drop in drops]


def model(texts, mode, *, keep_empty=False):
    """The same, by the rule."""
    kept, rows, drops = [], [], []
    for row, text in enumerate(texts):
        if text is None:
            drops.append((row, "text is null"))
        elif not text and not keep_empty:
            drops.append((row, "empty"))
        else:
            data = text.encode() if isinstance(text, str) else text
            clean = data.decode(errors="replace").encode()
            if clean != data and mode != "replace":
                drops.append((row, "invalid UTF-8"))
            else:
                kept.append(clean)
                rows.append(row)
    return kept, rows, drops


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_every_type_of_strings(tmp_path, kind, rows):
    """Texts, rows and nulls come out alike, whatever type the column has and how the rows are grouped."""
    table = pa.table({"id": range(len(TEXTS)), "text": column(TEXTS, STRINGS[kind]), "z": TEXTS})
    file = written(tmp_path / "a.parquet", table, row_group_size=rows)
    assert read(file) == model(TEXTS, "error")
    assert read(file, keep_empty=True) == model(TEXTS, "error", keep_empty=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("any")


@settings(max_examples=40)
@given(
    texts=st.lists(st.one_of(st.none(), st.binary(max_size=6), st.text(max_size=6)), max_size=40),
    kind=st.sampled_from(sorted(STRINGS)),
    group=st.integers(1, 50),
    batch=st.integers(1, 64),
    mode=st.sampled_from(["error", "skip", "replace"]),
    keep_empty=st.booleans(),
    plain=st.booleans(),
)
def test_any_column(folder, texts, kind, group, batch, mode, keep_empty, plain):
    """Bytes that are no UTF-8 are found even in a column that claims to be text; batches do not matter."""
    table = pa.table({"text": column(texts, STRINGS[kind])})
    file = written(folder / "a.parquet", table, row_group_size=group, use_dictionary=not plain)
    found = read(file, on_bad_input=mode, keep_empty=keep_empty, batch_bytes=batch)
    assert found == model(texts, mode, keep_empty=keep_empty)


def test_fixed_size_null_and_extension_columns(tmp_path):
    """Bytes of one size are texts too; a column of nulls alone has no text in any row; an extension type is looked into."""
    fixed = pa.array([b"ab", None, b"cd"], pa.binary(2))
    assert read(written(tmp_path / "a.parquet", pa.table({"text": fixed})))[0] == [b"ab", b"cd"]
    nothing = written(tmp_path / "b.parquet", pa.table({"text": pa.nulls(3)}))
    assert read(nothing) == ([], [], [(row, "text is null") for row in range(3)])
    json = pa.array(['{"a": 1}', None], pa.json_())
    assert read(written(tmp_path / "c.parquet", pa.table({"text": json})))[0] == [b'{"a": 1}']


def test_nested_columns(tmp_path):
    """A dotted field goes through structs, at any depth; a null on the way is a null."""
    rows = [{"b": {"c": "x"}}, {"b": None}, None, {"b": {"c": None}}, {"b": {"c": "y"}}]
    file = written(tmp_path / "a.parquet", pa.table({"a": rows, "text": ["no"] * 5}), row_group_size=2)
    texts, places, drops = read(file, text_field="a.b.c")
    assert (texts, places) == ([b"x", b"y"], [0, 4])
    assert drops == [(row, "a.b.c is null") for row in (1, 2, 3)]


@pytest.mark.parametrize(
    ("table", "field", "message"),
    [
        ({"id": [1], "body": ["x"]}, "text", "no column text; its columns are id, body (--text-field)"),
        ({"a": [{"b": "x", "c": 1}]}, "a.text", "no column a.text; its columns are a.b, a.c (--text-field)"),
        ({"text": [1]}, "text", "the column text holds int64; wanted strings (--text-field)"),
        ({"text": [["a"]]}, "text", "the column text holds list<element: string>; wanted strings (--text-field)"),
        ({"text": ["a"]}, "text.b", "no column text.b; text holds string, which has no fields (--text-field)"),
        (
            {"a": [[{"b": "x"}]]},
            "a.b",
            "no column a.b; a holds list<element: struct<b: string>>, which has no fields (--text-field)",
        ),
        (
            {"a.b": ["x"], "c": ["y"]},
            "a.b",
            "no column a.b; its columns are a.b, c (--text-field); a name with a dot in it cannot be given, rename the column",
        ),
        ({}, "text", "no column text; it has no columns (--text-field)"),
        ({f"c{i}": [1] for i in range(30)}, "text", ", c19 and 10 more (--text-field)"),
    ],
)
def test_a_column_that_is_not_there(tmp_path, table, field, message):
    """It is found before any reading, and the columns that there are, or the type, are named."""
    written(tmp_path / "a.parquet", pa.table(table))
    with pytest.raises(SourceError) as caught:
        discover([tmp_path], text_field=field)
    (problem,) = caught.value.problems
    assert problem.place == f"{tmp_path}/a.parquet"
    assert problem.reason.endswith(message)


def test_two_columns_of_one_name(tmp_path):
    """Which one is meant cannot be known."""
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(SourceError, match="2 columns are named text; wanted one"):
        discover([written(tmp_path / "a.parquet", table).path])


def test_many_rows_in_order(tmp_path):
    """Row numbers go on through row groups of all sizes, empty ones among them."""
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("text", pa.string())])) as writer:
        for start, count in ((0, 5000), (5000, 0), (5000, 1), (5001, 3000)):
            texts = [f"text {row}" for row in range(start, start + count)]
            writer.write_table(pa.table({"text": pa.array(texts, pa.string())}))
    file = SourceFile(tmp_path / "a.parquet", "a.parquet", (tmp_path / "a.parquet").stat().st_size, "parquet", None)
    texts, rows, drops = read(file, batch_bytes=10_000)
    assert rows == list(range(8001))
    assert texts == [b"text %d" % row for row in rows]
    assert not drops


def test_no_rows(tmp_path):
    """A file without rows, or without row groups, has no documents and no faults."""
    schema = pa.schema([("text", pa.string())])
    assert read(written(tmp_path / "a.parquet", schema.empty_table())) == ([], [], [])
    with pq.ParquetWriter(tmp_path / "b.parquet", schema):
        pass
    (file,) = discover([tmp_path / "b.parquet"]).files
    assert read(file) == ([], [], [])


def test_the_content_decides(tmp_path):
    """A Parquet file is read as one whatever its name, and what is named so but is none is refused."""
    data = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), data)
    for name in ("a.jsonl", "a.txt", "a", "a.PARQUET"):
        (tmp_path / name).write_bytes(data.getvalue())
        (file,) = discover([tmp_path / name]).files
        assert (file.kind, read(file)[0]) == ("parquet", [b"a"])
    (tmp_path / "b.parquet").write_bytes(b'{"text": "a"}\n')
    (tmp_path / "c.parquet").touch()
    for name in ("b.parquet", "c.parquet"):
        with pytest.raises(SourceError, match="no Parquet file: it does not begin with PAR1"):
            discover([tmp_path / name])
    with pytest.raises(SourceError, match="a Parquet file; --format jsonl reads none"):
        discover([tmp_path / "a.PARQUET"], format="jsonl")
    assert [file.kind for file in discover([tmp_path / "a"], format="parquet").files] == ["parquet"]


def test_compressed_from_outside(tmp_path):
    """Parquet inside gzip cannot be read here and there; the message says what to do."""
    import gzip

    data = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), data)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(data.getvalue()))
    with pytest.raises(SourceError, match="a Parquet file compressed with gzip; decompress it first"):
        discover([tmp_path / "a.parquet.gz"])


def test_a_partitioned_folder(tmp_path):
    """Folders such as `lang=de` are folders; each file is a source of its own; the marks of other tools are left out."""
    for folder, text in (("lang=de/year=2024", "eins"), ("lang=en", "one"), ("lang=en/x", "two")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        written(tmp_path / folder / "part-0.parquet", pa.table({"text": [text]}))
    for name in ("_SUCCESS", "_metadata", ".part-0.parquet.crc"):
        (tmp_path / name).write_bytes(b"x")
    found = discover([tmp_path])
    assert [file.label for file in found.files] == [
        *("lang=de/year=2024/part-0.parquet", "lang=en/part-0.parquet", "lang=en/x/part-0.parquet"),
    ]
    assert [text for shard in found.shards for batch in read_shard(shard) for text in batch.texts] == [
        *(b"eins", b"one", b"two"),
    ]
    assert len(found.shards) == 3


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize("ahead", [1, 2])
def test_joined_files(tmp_path, index, rows, ahead):
    """Files joined to one would give the first one's rows alone, or a mixture: they are refused, a file alone is not."""
    files = []
    for number, texts in enumerate([["a", "PAR1PAR1"] * 20, ["b"] * rows]):
        path = tmp_path / f"{number}.parquet"
        table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})
        pq.write_table(table, path, row_group_size=7, write_page_index=index, compression="none")
        assert len(discover([path]).files) == 1
        files.append(path.read_bytes())
    (tmp_path / "joined.parquet").write_bytes(files[0] * ahead + files[1])
    start = len(files[0]) * ahead
    with pytest.raises(SourceError, match=rf"joined\.parquet: several Parquet files joined to one, .* byte {start},"):
        discover([tmp_path / "joined.parquet"])


def test_every_cut(tmp_path):
    """A file that lost its end is an error that names it, wherever it was cut."""
    data = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"] * 20}), data, row_group_size=7)
    path = tmp_path / "a.parquet"
    for end in range(0, len(data.getvalue()), 7):
        path.write_bytes(data.getvalue()[:end])
        with pytest.raises(SourceError, match=r"a\.parquet: (cut or damaged|no) Parquet"):
            discover([path])


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_flipped_bits_behind_checksums(tmp_path, compression):
    """With page checksums any change of a page is found; elsewhere it is an error, or changes nothing but texts."""
    texts = [f"text {number} {number % 7}" for number in range(500)]
    file = written(
        tmp_path / "a.parquet",
        pa.table({"text": texts}),
        compression=compression,
        write_page_checksum=True,
        row_group_size=100,
        use_dictionary=False,
    )
    data = file.path.read_bytes()
    metadata = pq.ParquetFile(file.path).metadata
    chunk = metadata.row_group(2).column(0)
    end = chunk.data_page_offset + chunk.total_compressed_size
    for place in random.Random(0).sample(range(end - 100, end), 20):
        file.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DamagedFileError, match=r"^a\.parquet: damaged Parquet \("):
            read(file)


def test_a_file_that_changes(tmp_path):
    """What was listed is what is read, or an error says that it changed."""
    file = written(tmp_path / "a.parquet", pa.table({"text": ["x" * 1000] * 3000}), use_dictionary=False)
    batches = read_parquet(file, batch_bytes=1000)
    next(batches)
    with file.path.open("ab") as grown:
        grown.write(b"more")
    with pytest.raises(DamagedFileError, match=r"changed while it was read"):
        list(batches)


def test_an_observer_that_fails_is_no_damage(tmp_path):
    """Errors of those who are told of the bytes are not taken for the file's."""
    file = written(tmp_path / "a.parquet", pa.table({"text": ["x"]}))

    def fails(_file, _data):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(read_parquet(file, observe=fails))


MEASURED = """
import sys
from headrace.sources import discover, read_shard
def peak():  # KiB; `ru_maxrss` counts what the process that started this one had
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
(shard,) = discover([sys.argv[1]]).shards
size = 0
largest = 0
batches = read_shard(shard)
first = next(batches)
for batch in batches:
    size += sum(map(len, batch.texts))
    largest = max(largest, sum(map(len, batch.texts)))
print(size + sum(map(len, first.texts)), largest, peak() >> 10)
"""


@pytest.mark.parametrize("rows", [600, pytest.param(2100, marks=pytest.mark.extended)])
def test_a_column_of_gigabytes(tmp_path, rows):
    """One row group of much text (2100 rows: over 2 GiB), a few MB on disk, is read piece by piece in bounded memory."""
    text = "".join(random.Random(0).choices("abcdefgh ", k=1 << 20))
    values = pa.DictionaryArray.from_arrays([number % 2 for number in range(rows)], [text, text[1:]])
    file = written(tmp_path / "a.parquet", pa.table({"text": values}), store_schema=rows != 600)
    assert pq.ParquetFile(file.path).num_row_groups == 1
    ran = subprocess.run([sys.executable, "-P", "-c", MEASURED, file.path], capture_output=True, text=True, check=True)
    size, largest, peak = map(int, ran.stdout.split())
    assert size == rows * (1 << 20) - rows // 2
    assert largest <= 70 << 20
    assert peak < 900  # twice the text otherwise


WITHOUT = """
import sys
sys.modules["pyarrow"] = None  # as if it were not installed
from headrace.errors import MissingExtraError
from headrace.sources import discover
discover([sys.argv[1] + "/b.jsonl"])
try:
    discover([sys.argv[1]])
except MissingExtraError as error:
    print(isinstance(error, ImportError), error)
"""


def test_without_pyarrow(tmp_path):
    """Other inputs do without it; a Parquet file is an error that names the extra, and is not left out in silence."""
    written(tmp_path / "a.parquet", pa.table({"text": ["x"]}))
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n')
    ran = subprocess.run([sys.executable, "-P", "-c", WITHOUT, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout == ("True a.parquet: a Parquet file, which needs pyarrow: pip install 'headrace[parquet]'\n")
    assert issubclass(MissingExtraError, ImportError)
