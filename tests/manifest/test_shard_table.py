"""The list of shards as columns: accepted where the checks of each row find nothing, and then of the same entries."""

import copy

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.manifest import Manifest
from headrace.manifest_checks import ManifestChecker
from headrace.shards import ShardEntry, ShardTable, column

HASH = "0f" * 32
VALUES = st.sampled_from(
    [None, True, -1, 0, 1, 1 << 63, (1 << 63) - 1, 1.0, "", "a", "/a", "../a", "a/../b", "a\0b", HASH, HASH.upper(), HASH[1:], [], {}]
) | st.text(max_size=3)  # fmt: skip
LACKING = object()


@st.composite
def rows(draw):
    """Rows of an index, each right by itself and all together."""
    counts = draw(st.lists(st.integers(0, 5), max_size=4))
    return [
        {
            "shard_id": str(number),
            "path": draw(st.sampled_from(["{}.h5", "in/{}.h5", "ü{}"])).format(number),
            "token_count": count,
            "document_count": draw(st.integers(0, 3)),
            "sha256": f"{number:064x}",
            "documents_sha256": HASH,
            "sources_sha256": HASH,
            "source": 0,
            "row_base": draw(st.integers(0, 9)),
            "global_start": sum(counts[:number]),
        }
        for number, count in enumerate(counts)
    ]


def slow(rows):
    """The entries as the checks of each row make them, and what they report."""
    check = ManifestChecker("x")
    return tuple(check._shards(rows, 2)), check.problems


@settings(deadline=None)
@given(rows=rows())
def test_same_entries(rows):
    """Right rows are taken, and each entry, however it is reached, is what the checks of its row make it."""
    table = ShardTable.of_rows(rows)
    entries, problems = slow(rows)
    assert not problems
    assert table == entries
    assert entries == tuple(table)
    assert table[1:] == entries[1:]
    assert len(table) == len(entries)
    assert hash(table) == hash(entries)
    for name in ShardEntry.__dataclass_fields__:
        assert list(column(table, name)) == column(entries, name)
    moved = table.in_folder("/there")
    assert [entry.path for entry in moved] == [f"/there/{entry.path}" for entry in entries]
    assert column(moved, "token_count") == column(entries, "token_count")


@settings(deadline=None)
@given(data=st.data(), rows=rows().filter(len))
def test_nothing_wrong_is_taken(data, rows):
    """With one value changed, the table is refused, or the checks find nothing and make the same entries."""
    changed = copy.deepcopy(rows)
    row = data.draw(st.sampled_from(changed))
    name = data.draw(st.sampled_from([*row, "loss_mask_sha256"]))
    value = data.draw(VALUES | st.just(LACKING))
    if value is LACKING:
        row.pop(name, None)
    else:
        row[name] = value
    table = ShardTable.of_rows(changed)
    entries, problems = slow(changed)
    if table is not None:
        assert not problems
        assert table == entries


@settings(deadline=None)
@given(rows=st.lists(st.integers() | st.none() | st.lists(st.none()) | st.just({}), min_size=1))
@example([{}])
def test_no_rows_at_all(rows):
    """What is no object, or an empty one, is refused."""
    assert ShardTable.of_rows(rows) is None


def test_order_and_equality():
    """Tables differ where an entry does, or one lacks; they equal no text."""
    entry = ShardEntry(shard_id="a", path="a", token_count=1, document_count=1, sha256=HASH)
    manifest = Manifest(chunk_size=4, shards=(entry,))
    table = ShardTable.of_rows([{**entry.row(), "documents_sha256": HASH}])
    assert table != manifest.shards
    assert table != (table[0], table[0])
    assert table != "a"
    assert table == [table[0]]
