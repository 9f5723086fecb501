"""What was found out of the pages of Lance data files is kept: it is the same, and looked for only where a file is new."""

import os
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import FormatError
from headrace.storage import lance_pages
from headrace.testing.lance import write_recipe

lance = pytest.importorskip("lance")
pa = pytest.importorskip("pyarrow")

FILES = 70
ROWS = 100


@pytest.fixture
def looked(monkeypatch, tmp_path):
    """The data files that are looked at, from now on, with a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found: list[str] = []
    real = lance_pages._pages

    def look(known, *rest):
        found.append(Path(known.file).name)
        return real(known, *rest)

    monkeypatch.setattr(lance_pages, "_pages", look)
    return found


def check(path, model):
    """It is the model, token for token; returns its fingerprint."""
    corpus = headrace.open(path)
    np.testing.assert_array_equal(corpus[:], model)
    return corpus.fingerprint


@pytest.mark.parametrize("storage_version", ["2.0", "2.2"])
def test_files_are_looked_at_once(looked, tmp_path, storage_version):
    """A second time none is, later only what was appended; versions and deletions are right, whatever is kept."""
    path = tmp_path / "a.lance"
    model = np.random.default_rng(3).integers(0, 50_257, (FILES, ROWS))
    write_recipe(path, [model.reshape(-1)], storage_version=storage_version, max_rows_per_file=ROWS)
    fingerprint = check(path, model.reshape(-1))
    assert len(looked) == len(set(looked)) == FILES
    table = lance_pages.page_table(path)
    assert check(path, model.reshape(-1)) == fingerprint
    assert len(looked) == FILES
    write_recipe(path, [[7] * 300], storage_version=storage_version, mode="append")
    longer = np.append(model, [7] * 300)
    check(path, longer)
    assert len(looked) == FILES + 1
    check(f"{path}@v1", model.reshape(-1))
    lance.dataset(str(path)).delete(f"input_ids = {model[1, 1]}")
    check(path, longer[longer != model[1, 1]])
    assert set(looked[FILES:]) == {looked[FILES]}
    assert lance_pages.page_table(path, 1).pieces == table.pieces


def test_a_file_that_changed_is_another(looked, tmp_path):
    """Where size or time of modification are others, as in a copy, it is looked at again; so is all under another column."""
    path = tmp_path / "a.lance"
    model = np.arange(FILES * ROWS)
    table = pa.table({"input_ids": model, "other": model * 2})
    lance.write_dataset(table, path, max_rows_per_file=ROWS, data_storage_version="2.0")
    check(path, model)
    (first, *_) = sorted((path / "data").iterdir())
    os.utime(first, (1, 1))
    check(path, model)
    assert looked[FILES:] == [first.name]
    lance.dataset(str(path)).alter_columns(
        {"path": "input_ids", "name": "others"}, {"path": "other", "name": "input_ids"}
    )
    check(path, model * 2)
    assert len(looked) == 2 * FILES + 1


@pytest.mark.parametrize("damage", ["cut", "flip", "other", "gone", "folder"])
def test_a_damaged_cache_costs_time_only(looked, tmp_path, damage):
    """What is kept is not believed unless it is whole."""
    path = tmp_path / "a.lance"
    model = np.random.default_rng(4).integers(0, 50_257, FILES * ROWS)
    write_recipe(path, [model], storage_version="2.2", max_rows_per_file=ROWS)
    check(path, model)
    (kept,) = (tmp_path / "cache").rglob("*.bin")
    data = kept.read_bytes()
    kept.unlink()
    if damage == "folder":
        kept.mkdir()
    elif damage != "gone":
        at = len(data) // 2
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        kept.write_bytes({"cut": data[:at], "flip": flipped, "other": b"other"}[damage])
    check(path, model)
    assert len(looked) == 2 * FILES


def test_few_pages_are_not_kept(looked, tmp_path):
    """Of a small data set no file is left in the cache folder."""
    write_recipe(tmp_path / "a.lance", [np.arange(1000)], storage_version="2.2", max_rows_per_file=ROWS)
    for _ in range(2):
        check(tmp_path / "a.lance", np.arange(1000))
    assert len(looked) == 20
    assert not (tmp_path / "cache").exists()


def test_a_fault_of_one_of_many_files(tmp_path):
    """Files are looked at side by side; what is wrong with one names it."""
    path = tmp_path / "a.lance"
    values = pa.array([None if number == 4321 else number for number in range(FILES * ROWS)])
    lance.write_dataset(pa.table({"input_ids": values}), path, max_rows_per_file=ROWS, data_storage_version="2.0")
    wrong = lance.dataset(str(path)).get_fragments()[43].data_files()[0].path
    with pytest.raises(FormatError, match=f"{wrong}: column input_ids has nulls"):
        headrace.open(path)
