"""Arrow files and streams, and the folders that Hugging Face `save_to_disk` writes."""

import json
import random
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources import discover, read_shard
from headrace.sources.arrow import read_arrow
from headrace.sources.files import SourceFile
from headrace.sources.rawfile import DamagedFileError

pa = pytest.importorskip("pyarrow")

TEXTS = ["a", "äöü€𝄞", "", None, "x" * 3000, "a"]
FORMATS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def written(path: Path, table, form: str, rows: int = 1000) -> SourceFile:
    """Write a table in batches of some rows, and list its file."""
    with FORMATS[form](path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return SourceFile(path, path.name, path.stat().st_size, "arrow", None)


def read(file: SourceFile, **options):
    """All texts, their rows, and the drops as row and reason; the file's bytes pass by once, in order."""
    texts, rows, drops, seen, consumed = [], [], [], [], 0
    for batch in read_arrow(file, observe=lambda _, data: seen.append(data), **options):
        texts += batch.texts
        rows += batch.rows.tolist()
        drops += batch.drops
        consumed += batch.consumed
    assert b"".join(seen) == file.path.read_bytes()
    assert consumed == file.size
    return texts, rows, [(drop.row, drop.reason) for drop in drops]


@settings(max_examples=40)
@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=6)), max_size=40),
    form=st.sampled_from(sorted(FORMATS)),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]),
    rows=st.integers(1, 50),
    batch=st.integers(1, 64),
)
def test_any_column(folder, texts, form, kind, rows, batch):
    """Both formats give the same texts, rows and nulls, however the rows are cut into batches."""
    plain = pa.array(texts, pa.string())
    column = plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
    file = written(folder / "a.arrow", pa.table({"id": range(len(texts)), "text": column}), form, rows)
    kept = [(text.encode(), row) for row, text in enumerate(texts) if text]
    drops = [(row, "empty" if text is not None else "text is null") for row, text in enumerate(texts) if not text]
    assert read(file, batch_bytes=batch) == ([text for text, _ in kept], [row for _, row in kept], drops)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("any")


@pytest.mark.parametrize("form", FORMATS)
def test_nested_and_missing_columns(tmp_path, form):
    """A dotted field goes through structs; one that is not there is an error that names the columns there are."""
    table = pa.table({"id": [1, 2], "data": [{"text": "x"}, None]})
    file = written(tmp_path / "a.arrow", table, form)
    assert read(file, text_field="data.text") == ([b"x"], [0], [(1, "data.text is null")])
    with pytest.raises(SourceError, match=r"a\.arrow: no column text; its columns are id, data"):
        discover([file.path])


@pytest.mark.parametrize("form", FORMATS)
def test_every_cut(tmp_path, form):
    """A file or stream that lost its end is an error that names it, where messages end too."""
    path = tmp_path / "a.arrow"
    data = written(path, pa.table({"text": ["a", "b", "c"]}), form, 1).path.read_bytes()
    for end in range(0, len(data), 8):
        path.write_bytes(data[:end])
        with pytest.raises(SourceError, match=r"a\.arrow: (cut or damaged|damaged|no) Arrow"):
            discover([path])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_bytes_after_the_end_of_a_stream(tmp_path, rows):
    """Streams joined to one file, and a mark of the end within one: what follows is not left out without a word."""
    file = written(tmp_path / "a.arrow", pa.table({"text": ["a", "b", "c"]}), "stream", rows)
    data = file.path.read_bytes()
    file.path.write_bytes(data + data)
    with pytest.raises(DamagedFileError, match=f"ends at byte {len(data)}, but {len(data)} bytes follow"):
        read(SourceFile(file.path, "a.arrow", 2 * len(data), "arrow", None))
    message = data.rindex(b"\xff\xff\xff\xff", 0, len(data) - 8)
    file.path.write_bytes(data[: message + 4] + bytes(4) + data[message + 8 :])
    with pytest.raises(DamagedFileError, match=f"ends at byte {message + 8}, but"):
        read(file)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int8(), pa.string())])
def test_joined_files(tmp_path, kind, rows):
    """Files of the file format joined to one would give the first one's rows alone: they are refused."""
    table = pa.table({"text": pa.array(["a", "ARROW1ARROW1\0\0", "c"]).cast(kind)})
    data = written(tmp_path / "a.arrow", table, "file", rows).path.read_bytes()
    assert len(discover([tmp_path / "a.arrow"]).files) == 1
    for count in (2, 3):
        (tmp_path / "b.arrow").write_bytes(data * count)
        start = len(data) * (count - 1)
        with pytest.raises(SourceError, match=rf"b\.arrow: several Arrow files joined to one, .* byte {start},"):
            discover([tmp_path / "b.arrow"])


def test_joined_files_of_which_the_last_has_no_batch(tmp_path):
    """However long its schema is, it does not hide the rows before it."""
    empty = pa.schema([("text", pa.string())], {"note": "x" * 5_000}).empty_table()
    data = written(tmp_path / "a.arrow", pa.table({"text": ["a"] * 1_000}), "file").path.read_bytes()
    none = written(tmp_path / "none.arrow", empty, "file").path.read_bytes()
    assert len(discover([tmp_path / "none.arrow"]).files) == 1
    for joined, start in ((data + none, len(data)), (none + none, len(none))):
        (tmp_path / "b.arrow").write_bytes(joined)
        with pytest.raises(SourceError, match=rf"b\.arrow: several Arrow files joined to one, .* byte {start},"):
            discover([tmp_path / "b.arrow"])


@pytest.mark.parametrize("form", FORMATS)
def test_flipped_bits(tmp_path, form):
    """Damage is an error that names the file, or changes texts; it never ends in anything else."""
    path = tmp_path / "a.arrow"
    data = written(path, pa.table({"text": ["ab", None, "c" * 20] * 5}), form, 4).path.read_bytes()
    told = []
    for place in random.Random(0).sample(range(len(data)), 150):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        try:
            read(SourceFile(path, "a.arrow", len(data), "arrow", None))
        except DamagedFileError as error:
            told.append(str(error))
    assert len(told) > 10
    assert all(message.startswith("a.arrow: ") for message in told)


@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_name_that_is_no_utf8(tmp_path, form):
    """The name of another column cannot be told: the file is damaged, and says so."""
    file = written(tmp_path / "a.arrow", pa.table({"xyzd": [1], "text": ["a"]}), form)
    file.path.write_bytes(file.path.read_bytes().replace(b"xyzd", b"xyz\xe9"))
    with pytest.raises(SourceError, match=r"a\.arrow: damaged Arrow data \(.*can't decode byte 0xe9"):
        discover([str(tmp_path)])


def test_the_content_decides(tmp_path):
    """An Arrow file is one under any name; what is only named so is refused."""
    for form in FORMATS:
        file = written(tmp_path / f"{form}.jsonl", pa.table({"text": ["a"]}), form)
        assert [found.kind for found in discover([file.path]).files] == ["arrow"]
    (tmp_path / "a.arrow").write_bytes(b'{"text": "a"}\n')
    with pytest.raises(SourceError, match="no Arrow file"):
        discover([tmp_path / "a.arrow"])


def saved(folder: Path, names: list[str], listed: list[str] | None = None, **state) -> None:
    """Write files of one row, their name, and a state as `save_to_disk` does."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        written(folder / name, pa.table({"text": [name]}), "stream")
    files = [{"filename": name} for name in (names if listed is None else listed)]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None, **state}, indent=2))
    (folder / "dataset_info.json").write_text("{}")


def texts_of(path: Path) -> list[str]:
    """All texts that a path gives."""
    return [text.decode() for shard in discover([path]).shards for batch in read_shard(shard) for text in batch.texts]


def test_saved_folders(tmp_path):
    """The files that `state.json` names are read in its order, in every split; caches beside them are left out."""
    saved(tmp_path / "train", ["data-b.arrow", "data-a.arrow", "cache-1.arrow"], ["data-b.arrow", "data-a.arrow"])
    saved(tmp_path / "test", ["data-0.arrow"])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert texts_of(tmp_path) == ["data-0.arrow", "data-b.arrow", "data-a.arrow"]
    assert texts_of(tmp_path / "train") == ["data-b.arrow", "data-a.arrow"]
    reasons = dict(discover([tmp_path]).skipped)
    assert reasons["train/cache-1.arrow"] == "not among the files that state.json names"


def test_saved_folders_that_are_not_whole(tmp_path):
    """A file that `state.json` names and that is not there is missing; rows chosen by an index are no plain files."""
    saved(tmp_path / "a", ["x.arrow"], ["x.arrow", "y.arrow"])
    with pytest.raises(SourceNotFoundError, match=r"a/y\.arrow: state\.json names it, but it does not exist"):
        discover([tmp_path / "a"])
    saved(tmp_path / "b", ["x.arrow"], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(SourceError, match="flatten_indices"):
        discover([tmp_path / "b"])
    saved(tmp_path / "c", ["x.arrow"], ["../b/x.arrow"])
    with pytest.raises(SourceError, match="names files outside of the folder"):
        discover([tmp_path / "c"])
