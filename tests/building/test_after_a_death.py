"""What a build that died, or one that is repeated, must leave as it was: faults that the life of a corpus has shown."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.status import build_status
from headrace.verify import verify_path

SIDECAR = {"when": "before", "name": "Path.write_bytes", "nth": 4, "publishing": True}
"""Of an overwrite: all is in place but the sidecar and the index."""


def logs(output: Path) -> list[str]:
    """The lists of dropped documents."""
    return sorted(path.name for path in (output / ".headrace" / "dropped").glob("*"))


def hidden(output: Path) -> list[Path]:
    """Files under names that are not final."""
    return [path for path in output.rglob(".*") if path.is_file()]


def test_a_repeated_append_keeps_the_lists_of_drops(build, tmp_path):
    """They belong to the corpus."""
    build("one")
    build("two", append=True)
    build("two", append=True)
    assert logs(tmp_path / "c") == ["000000-0000.jsonl", "000001-0000.jsonl"]


def test_a_repeated_build_without_its_journal_keeps_the_lists_of_drops(build, tmp_path):
    """The journal decides nothing about a corpus that is whole."""
    build("one")
    (tmp_path / "c" / ".headrace" / "journal.jsonl").unlink()
    build("one")
    assert logs(tmp_path / "c") == ["000000-0000.jsonl"]


def test_a_repeated_append_reports_what_it_has_added(build):
    """As the first one did."""
    build("one")
    first = build("second", append=True)
    again = build("second", append=True)
    names = ("documents_in", "documents", "dropped", "tokens", "text_bytes", "shards", "total_tokens", "fingerprint")
    assert {name: again[name] for name in names} == {name: first[name] for name in names}


def test_an_overwrite_goes_on_without_a_trace(build, tmp_path):
    """Where the new shards have their final names already, none is left under another."""
    build("one")
    build("two", overwrite=True, fault=SIDECAR)
    build("two", overwrite=True)
    assert hidden(tmp_path / "c") == []


def test_what_was_appended_to_opens_while_an_overwrite_is_unfinished(build, tmp_path):
    """As the corpus itself does; and both are sound."""
    old = build("one")["fingerprint"]
    with headrace.open(tmp_path / "c") as corpus:
        tokens = corpus[:]
    build("two", append=True)
    build("three", overwrite=True, fault=SIDECAR)
    with headrace.open(tmp_path / "c", version=old, verify="full") as corpus:
        assert np.array_equal(corpus[:], tokens)
    assert [report.fault for report in verify_path(tmp_path / "c") if not report.ok] == []


def test_a_repeated_build_leaves_an_unfinished_append_alone(build, tmp_path):
    """It has nothing to do, and says of its own what it said before; the append can be followed, and goes on."""
    first = build("one")
    build("two", "three", append=True, fault={"when": "after", "name": "file.write", "nth": 2, "publishing": False})
    before = build_status(tmp_path / "c")
    assert (before.state, before.mode, before.finished) == ("dead", "append", 1)
    again = build("one")
    assert again["text_bytes"] == first["text_bytes"]
    assert "000000-0000.jsonl" in logs(tmp_path / "c")
    after = build_status(tmp_path / "c")
    assert (after.state, after.mode, after.finished) == ("dead", "append", 1)
    assert build("two", "three", append=True)["resumed"] == 1


@pytest.mark.parametrize("name", ["os.unlink", "os.rmdir"])
def test_a_published_overwrite_is_followed_as_such(build, tmp_path, name):
    """Whatever of its leftovers is there when it dies: what opens opens live as well."""
    for nth in range(8):
        build("one")
        fault = {"when": "after", "name": name, "nth": nth, "publishing": True}
        try:
            build("two", overwrite=True, fault=fault)
        except AssertionError:  # there are no more such calls
            assert nth > 1
            return
        with headrace.open(tmp_path / "c") as corpus, headrace.open(tmp_path / "c", live=True) as live:
            if corpus.locate(0).source == "two.jsonl":
                assert np.array_equal(corpus[:], live[:])
        shutil.rmtree(tmp_path / "c")


def test_mending_leaves_nothing_beside_the_tokenizer(build, tmp_path):
    """A corpus that was damaged is mended; where that dies in the last moment, there is still something to remove."""
    build("one")
    (tmp_path / "c" / "000000-0000-0000.h5").unlink()
    build("one", fault={"when": "within", "name": "Path.write_bytes", "nth": 2, "publishing": True})
    build("one")
    assert hidden(tmp_path / "c") == []


def test_what_takes_over_an_unfinished_build_and_dies_at_once(build, tmp_path):
    """What can be followed then is a build that has finished nothing, or something that is there."""
    build("one", "two", fault={"when": "after", "name": "file.write", "nth": 2, "publishing": False})
    build("three", overwrite=True, fault={"when": "before", "name": "Path.write_bytes", "nth": 0, "publishing": False})
    with headrace.open(tmp_path / "c", live=True) as corpus:
        assert len(corpus.documents) <= 1


def test_an_overwrite_after_another_that_died_leaves_none_of_its_shards(build, tmp_path):
    """However many that one had: they had their final names, beside the second names of the old ones."""
    build("one", "two")
    build("three", "four", overwrite=True, fault=SIDECAR)
    build("five", overwrite=True)
    assert [path.name for path in (tmp_path / "c").glob("*.h5")] == ["000000-0000-0000.h5"]


@pytest.mark.parametrize("finished", [False, True])
def test_who_follows_a_build_is_told_of_another_one(builder, tmp_path, finished):
    """One that takes its place is not served as if it were the first, however much of either is finished."""

    def begin(word: str, lines: int, nth: int) -> None:
        (tmp_path / word).mkdir()
        for name in ("a", "b"):
            (tmp_path / word / f"{name}.jsonl").write_text((json.dumps({"text": word}) + "\n") * lines)
        fault = {"when": "after", "name": "SwmrFile.flush", "nth": nth, "publishing": False}
        options = {"chunk_tokens": 4, "overwrite": True}
        assert builder.ask(tmp_path / word, tmp_path / "c", options, fault=fault) == {"ended": "killed"}

    begin("first", 9, 4 if finished else 2)
    with headrace.open(tmp_path / "c", live=True) as corpus:
        before = corpus[:].tolist()
        assert before
        assert corpus.entries[-1].path.endswith(".partial") != finished
        begin("other", 40, 2)
        assert len(headrace.open(tmp_path / "c", live=True)) > len(before)
        with pytest.raises(headrace.errors.MissingShardError, match="does not begin with the same tokens"):
            corpus.refresh()
        assert len(corpus) == len(before)
