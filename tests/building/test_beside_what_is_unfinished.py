"""A corpus beside an append or an overwrite that is not finished: no command throws away what another has done."""

import json
import shutil
from contextlib import suppress

import pytest

import headrace
from headrace.errors import HeadraceError, OutputExistsError
from headrace.status import build_status
from headrace.verify import verify_path

SECOND_ROW = {"when": "after", "name": "file.write", "nth": 2, "publishing": False}
"""Of a build of two files that each have a bad line: the first one is finished."""


@pytest.fixture
def corpus(tmp_path):
    """Where the corpus is."""
    return tmp_path / "c"


def unfinished(corpus):
    """What `headrace status` says of a build that is dead."""
    status = build_status(corpus)
    return status.state, status.mode, status.finished


def contents(corpus):
    """The files of a corpus, but for what concerns one machine and moment."""
    left_out = {"lock", "local.json", "journal.jsonl", "building.json"}
    files = [path for path in corpus.rglob("*") if path.is_file() and path.name not in left_out]
    return {str(path.relative_to(corpus)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["file.write", "os.link"])
def test_a_repeated_build_leaves_an_unfinished_overwrite_alone(build, corpus, name):
    """Wherever that died: it can be followed, and goes on."""
    for nth in range(2, 60, 4):
        build("one")
        fault = {"when": "after", "name": name, "nth": nth, "publishing": False}
        try:
            build("two", "three", overwrite=True, fault=fault)
        except AssertionError:  # there are no more such calls
            assert nth > 2
            return
        with headrace.open(corpus) as there:
            if there.locate(0).source == "one.jsonl":
                before = unfinished(corpus)
                assert before[:2] == ("dead", "overwrite")
                build("one")
                assert unfinished(corpus) == before
                assert build("two", "three", overwrite=True)["resumed"] == before[2]
        shutil.rmtree(corpus)
    raise AssertionError


@pytest.mark.parametrize("name", ["os.unlink", "os.rmdir"])
def test_a_repeated_command_finishes_an_overwrite_that_was_published(build, corpus, name):
    """What it has replaced goes, and nothing tells of a build any more."""
    build("two")
    wanted = contents(corpus)
    shutil.rmtree(corpus)
    for nth in range(0, 40, 3):
        build("one")
        build("more", append=True)
        try:
            build("two", overwrite=True, fault={"when": "before", "name": name, "nth": nth, "publishing": True})
        except AssertionError:  # there are no more such calls
            assert nth > 2
            return
        with headrace.open(corpus) as there:
            published = there.locate(0).source == "two.jsonl"
        if published:
            build("two")
            assert contents(corpus) == wanted
            assert build_status(corpus).state == "done"
        shutil.rmtree(corpus)
    raise AssertionError


def test_an_append_leaves_an_unfinished_overwrite_alone(build, corpus, tmp_path):
    """It says so; the overwrite goes on later, and then replaces what was appended, too."""
    build("one")
    build("two", "three", overwrite=True, fault=SECOND_ROW)
    events = []
    (tmp_path / "more.jsonl").write_text('{"text": "more"}\n')
    headrace.build(tmp_path / "more.jsonl", corpus, append=True, workers=1, on_event=events.append)
    messages = [event.message for event in events if getattr(event, "kind", "") == "kept"]
    assert len(messages) == 1
    assert "1 source shards of an --overwrite that was not finished stay in" in messages[0]
    assert [report.fault for report in verify_path(corpus) if not report.ok] == []
    status = build_status(corpus)
    assert (status.state, status.overwriting) == ("done", 1)
    assert build("two", "three", overwrite=True)["resumed"] == 1
    assert [source.path for source in headrace.open(corpus).manifest.sources] == ["three.jsonl", "two.jsonl"]
    assert build_status(corpus).overwriting == 0


@pytest.mark.parametrize("name", [None, "Path.write_bytes", "SwmrFile.close"])
def test_mending_keeps_what_an_unfinished_append_has_done(build, corpus, name):
    """Also where the mending dies as well; then the corpus is as if nothing had happened."""
    build("one", "other")
    build("two", "three", append=True)
    wanted = contents(corpus)
    for nth in range(12 if name else 1):
        shutil.rmtree(corpus)
        build("one", "other")
        build("two", "three", append=True, fault=SECOND_ROW)
        (corpus / "000001-0000-0000.h5").write_bytes(b"damaged")
        if name:
            try:
                build("one", "other", fault={"when": "after", "name": name, "nth": nth, "publishing": False})
            except AssertionError:  # there are no more such calls
                assert nth > 0
                return
            with suppress(HeadraceError), headrace.open(corpus, live=True) as live:  # a shard is damaged
                assert len(live.documents) <= 2
        mended = build("one", "other")
        assert mended["resumed"] in ({1, 2} if name else {1})
        assert [report.fault for report in verify_path(corpus) if not report.ok] == []
        assert build("two", "three", append=True)["resumed"] == 1
        assert contents(corpus) == wanted


@pytest.mark.parametrize("name", ["os.replace", "file.write"])
def test_mending_that_dies_keeps_the_lists_of_drops(build, corpus, name):
    """A shard that is whole again is not enough: what was dropped of its source is listed, too."""
    build("one", "other")
    wanted = contents(corpus)
    for nth in range(20):
        (corpus / "000000-0000-0000.h5").unlink()
        try:
            build("one", "other", fault={"when": "after", "name": name, "nth": nth, "publishing": False})
        except AssertionError:  # there are no more such calls
            assert nth > 0
            return
        build("one", "other")
        assert contents(corpus) == wanted
    raise AssertionError


def test_an_unfinished_append_can_be_given_up(build, corpus, tmp_path):
    """Another append is refused, and told how; the way that is named leads there."""
    build("one")
    build("two", "three", append=True, fault=SECOND_ROW)
    (tmp_path / "more.jsonl").write_text(json.dumps({"text": "more"}) + "\n")
    with pytest.raises(
        OutputExistsError, match=r"unfinished append .*give it up by removing (.*journal\.jsonl)"
    ) as error:
        headrace.build(tmp_path / "more.jsonl", corpus, append=True, workers=1)
    assert "--overwrite" not in str(error.value)
    (corpus / ".headrace" / "journal.jsonl").unlink()
    headrace.build(tmp_path / "more.jsonl", corpus, append=True, workers=1)
    assert [source.path for source in headrace.open(corpus).manifest.sources] == ["one.jsonl", "more.jsonl"]
    assert sorted(path.name for path in corpus.glob("*.h5")) == ["000000-0000-0000.h5", "000001-0000-0000.h5"]
