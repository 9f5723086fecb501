"""Lists of token ids, in every form: what is delivered, and what is wrong with a list that is none, by a plain model."""

import json
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from headrace.errors import SourceError
from headrace.sources import SourceShard, discover, read_shard
from headrace.sources.array import read_array
from headrace.sources.field import Field, Ids
from headrace.sources.files import SourceFile
from headrace.sources.jsonl import read_jsonl

VOCAB = 300
SIZES = [VOCAB, 65_536, 65_537, 1 << 32]
GOOD = [0, 1, 7, VOCAB - 1]


NAMES = {type(None): "null", bool: "a boolean", float: "a float", str: "a string", list: "a list", dict: "an object"}


def judged(value: object, ids: Ids, *, keep_empty: bool) -> list[int] | str:
    """What becomes of a value, in plain words: its ids, or why there are none."""
    if type(value) is not list:
        return "ids is null" if value is None else "ids is not a list"
    for element in value:
        if type(element) is not int:
            return f"ids holds {NAMES[type(element)]}"
        if not 0 <= element < ids.vocab_size:
            return f"ids holds {'a negative id' if element < 0 else f'an id beyond the vocabulary of {ids.vocab_size}'}"
    found = value[1:] if value[:1] == [ids.bos] else value
    found = found[:-1] if found[-1:] == [ids.boundary] else found
    return found if found or keep_empty else "empty"


def read(reader, file, ids: Ids, **options):
    """The lists by row, and the reasons by row."""
    lists, reasons = {}, {}
    for batch in reader(file, text_field=Field("ids", ids), **options):
        found = [np.frombuffer(text, ids.dtype).tolist() for text in batch.texts]
        lists |= dict(zip(batch.rows.tolist(), found, strict=True))
        reasons |= {drop.row: drop.reason for drop in batch.drops}
    assert lists.keys().isdisjoint(reasons)
    return lists, reasons


def wanted(values: list, ids: Ids, *, keep_empty: bool):
    """What `read` is to give."""
    model = {row: judged(value, ids, keep_empty=keep_empty) for row, value in enumerate(values)}
    return (
        {row: found for row, found in model.items() if not isinstance(found, str)},
        {row: found for row, found in model.items() if isinstance(found, str)},
    )


def integers() -> st.SearchStrategy[int]:
    """Ids, and what is nearly one."""
    edges = [-1, 0, VOCAB - 1, VOCAB, 65_535, 65_536, (1 << 32) - 1, 1 << 32, 1 << 63, 1 << 64, 10**30, -(10**30)]
    return st.sampled_from(edges) | st.integers(0, VOCAB - 1)


ELEMENTS = integers() | st.sampled_from([None, True, 1.0, 0.5, "1", [1], {"a": 1}])
LISTS = st.lists(st.integers(0, 9), max_size=5) | st.lists(integers(), max_size=4) | st.lists(ELEMENTS, max_size=4)
VALUES = st.one_of(LISTS, LISTS, LISTS, st.sampled_from([None, 3, "1,2", {"a": [1]}, True, 1.5]))
WAYS = st.builds(
    Ids,
    st.sampled_from(SIZES),
    st.sampled_from([None, 0, 7]),
    st.sampled_from([None, 1, 7]),
)


@pytest.mark.parametrize("kind", ["jsonl", "array"])
@settings(max_examples=80)
@given(data=st.data())
def test_json(tmp_path_factory, kind, data):
    """Every list of ids is delivered, without the boundary and BOS that the build adds; all else is told, by row."""
    values = data.draw(st.lists(VALUES, max_size=12), label="values")
    ids, keep_empty = data.draw(WAYS, label="ids"), data.draw(st.booleans(), label="keep_empty")
    separators = data.draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", ":")]))
    lines = [json.dumps({"before": "x", "ids": value, "after": 0.5}, separators=separators) for value in values]
    text = "[" + ",\n".join(lines) + "]" if kind == "array" else "\n".join(lines)
    path = tmp_path_factory.mktemp("json") / "a"
    path.write_text(text)
    file = SourceFile(path, "a", len(text), kind, None)
    reader = read_array if kind == "array" else read_jsonl
    block = data.draw(st.sampled_from([1, 40, 10_000]), label="block")
    found = read(reader, file, ids, keep_empty=keep_empty, block_bytes=block)
    assert found == wanted(values, ids, keep_empty=keep_empty)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", "no field ids"),
        ('{"ids": NaN}', "not JSON (NaN or Infinity in ids)"),
        ('{"ids": [1, Infinity]}', "not JSON (NaN or Infinity in ids)"),
        ('{"ids": [01]}', "not JSON"),
        ('{"ids": [1,]}', "not JSON"),
        ('{"ids": [1', "not JSON, ends early"),
        ('{"ids": [-0.0]}', "ids holds a float"),
        ('{"ids": [1e2]}', "ids holds a float"),
        ('{"ids": [%s]}' % ("9" * 5000), "ids holds an id beyond the vocabulary of 300"),
        ('{"ids": [-%s]}' % ("9" * 5000), "ids holds a negative id"),
        ('{"ids": [ ], "ids": null}', "ids is null"),
        ('{"ids": [\t \r]}', "empty"),
    ],
)
def test_odd_lines(make_file, line, reason):
    """A line among good ones is judged as it would be alone, and the good ones are delivered."""
    good = '{"ids": [5, 6]}'
    file = make_file(f"{good}\n{line}\n{good}\n".encode())
    assert read(read_jsonl, file, Ids(VOCAB)) == ({0: [5, 6], 2: [5, 6]}, {1: reason})


def test_a_nested_field(make_file):
    """A dotted name leads into objects, as for texts."""
    file = make_file(b'{"a": {"ids": [1, 2]}}\n{"a": {"ids": [3]}}\n{"a": 1}\n')
    (batch,) = read_jsonl(file, text_field=Field("a.ids", Ids(VOCAB)))
    assert [np.frombuffer(text, np.uint16).tolist() for text in batch.texts] == [[1, 2], [3]]
    assert [drop.reason for drop in batch.drops] == ["no field a.ids"]


def test_text_files_hold_none(tmp_path):
    """One that is named is refused, one in a folder is left out."""
    (tmp_path / "a.txt").write_text("1 2 3")
    (tmp_path / "b.jsonl").write_text('{"ids": [1]}')
    field = Field("ids", Ids(VOCAB))
    found = discover([tmp_path], text_field=field)
    assert [file.label for file in found.files] == ["b.jsonl"]
    assert found.skipped == (("a.txt", "a text file, which holds no lists of ids (--ids-field)"),)
    with pytest.raises(SourceError, match=r"a\.txt: a text file, which holds no lists of ids"):
        discover([tmp_path / "a.txt"], text_field=field)


# -- Parquet and Arrow ------------------------------------------------------------------------------------------------


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LISTS_OF = ("list_", "large_list", "list_view", "fixed")


def tabled(tmp_path: Path, values, kind, form: str):
    """A file of one column, and how it is listed."""
    import pyarrow as pa
    from pyarrow import feather
    from pyarrow import parquet as pq

    table = pa.table({"id": list(range(len(values))), "ids": pa.array(values, kind)})
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        feather.write_feather(table, path, compression="uncompressed", chunksize=3)
    (shard,) = discover([path], text_field=Field("ids", Ids())).shards
    return shard


def table_read(shard: SourceShard, ids: Ids, **options):
    """As `read`, of a shard."""
    return read(read_shard, shard, ids, **options)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("lists", LISTS_OF)
@pytest.mark.parametrize("integer", INTEGERS)
def test_columns(tmp_path, form, lists, integer):
    """Lists of any integers, of any kind of list, null and slices of null among them, are judged as those of JSON."""
    pa = pytest.importorskip("pyarrow")
    kind, width = pa.type_for_alias(integer), 2
    info = np.iinfo(integer)
    edges = [value for value in (-1, 0, 7, VOCAB, 65_536, info.min, info.max) if info.min <= value <= info.max]
    values = [[1, edge] for edge in edges] + [None, [7, None], [None, -1] if info.min else [None, 1], [5, 7], [7, 7]]
    if lists == "fixed":
        kind = pa.list_(kind, width)
    else:
        kind = getattr(pa, lists)(kind)
        values += [[], [7], [1], [1, 7], [1, 2, 3, 4]]
        if form == "parquet" and lists == "list_view":
            pytest.skip("this version of pyarrow writes no such Parquet")
    shard = tabled(tmp_path, values, kind, form)
    for ids in (Ids(VOCAB), Ids(VOCAB, 7, 1), Ids(65_536, 7), Ids(1 << 32, None, 5)):
        for keep_empty in (False, True):
            assert table_read(shard, ids, keep_empty=keep_empty) == wanted(values, ids, keep_empty=keep_empty)


@settings(max_examples=30)
@given(data=st.data())
def test_columns_by_the_model(tmp_path_factory, data):
    """Of any lists of int64, the same as of JSON."""
    pa = pytest.importorskip("pyarrow")
    number = st.sampled_from([None, -1, 0, 7, VOCAB - 1, VOCAB, 1 << 62]) | st.integers(0, 9)
    values = data.draw(st.lists(st.none() | st.lists(number, max_size=5), max_size=12), label="values")
    ids, keep_empty = data.draw(WAYS, label="ids"), data.draw(st.booleans(), label="keep_empty")
    form = data.draw(st.sampled_from(["parquet", "arrow"]))
    shard = tabled(tmp_path_factory.mktemp("table"), values, pa.list_(pa.int64()), form)
    assert table_read(shard, ids, keep_empty=keep_empty) == wanted(values, ids, keep_empty=keep_empty)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_column_without_ids(tmp_path, form):
    """A column that cannot hold them is refused when the files are listed, by its type."""
    pa = pytest.importorskip("pyarrow")
    for kind, values in (
        (pa.list_(pa.float32()), [[1.0]]),
        (pa.string(), ["1"]),
        (pa.int64(), [1]),
        (pa.bool_(), [True]),
    ):
        with pytest.raises(SourceError, match=r"the column ids holds .*; wanted lists of integers \(--ids-field\)"):
            tabled(tmp_path, values, kind, form)
    assert table_read(tabled(tmp_path, [None, None], pa.null(), form), Ids(VOCAB)) == (
        {},
        {0: "ids is null", 1: "ids is null"},
    )


def test_columns_are_read_without_a_loop_over_ids(tmp_path):
    """A million ids in a few lists take no million steps."""
    pytest.importorskip("pyarrow")
    import sys

    import pyarrow as pa

    values = [list(range(1000))] * 1000
    shard = tabled(tmp_path, values, pa.list_(pa.int32()), "parquet")
    steps = [0]

    def count(*_: object):
        steps[0] += 1
        return count

    sys.settrace(count)
    try:
        lists, _ = read(read_shard, shard, Ids(VOCAB * 10))
    finally:
        sys.settrace(None)
    assert len(lists) == 1000
    assert steps[0] < 200_000
