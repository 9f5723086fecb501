"""A live corpus beside a build that takes one step at a time."""

import os
import pickle
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

import headrace
from headrace import Corpus, Loader, Plan
from headrace.errors import CorruptShardError, FormatError, ManifestError, MissingShardError, UnreadableShardError
from headrace.in_progress import BUILDING_NAME, JOURNAL
from headrace.storage import growing
from headrace.testing.contract import StoreCase, StoreContract

RANDOM = np.random.default_rng(61)
DOCUMENTS = [[RANDOM.integers(1, 997, RANDOM.integers(3, 25)).tolist() for _ in range(count)] for count in (12, 14, 15)]


def agrees(corpus, build, *, base=()):
    """Check all that a live corpus says against what must be visible now."""
    count = build.whole
    lengths = [*base, *build.lengths[:count]]
    assert corpus.token_count == len(corpus) == sum(lengths)
    skipped = sum(base)
    assert corpus.get_slice(skipped, len(corpus)).tolist() == build.line[: len(corpus) - skipped]
    assert [len(document) for document in corpus.documents] == lengths
    if count:
        found = corpus.locate(len(corpus) - 1)
        assert (found.document, found.stop, found.source) == (len(lengths) - 1, len(corpus), "a.jsonl")
    return True


@pytest.fixture(params=["none", "gzip", pytest.param("zstd", marks=pytest.mark.extended)])
def compression(request):
    """How shards are compressed."""
    if request.param == "zstd":
        pytest.importorskip("hdf5plugin")
    return request.param


@pytest.mark.parametrize("io", ["mmap", pytest.param("pread", marks=pytest.mark.extended)])
def test_from_the_first_step_to_the_last(tmp_path, stepped_build, compression, io):
    """At every step it is the finished prefix in the order of the sources, and whole documents of the next; then all."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=100, compression=compression)
    corpus = headrace.open(tmp_path, live=True, io=io)
    assert isinstance(corpus, Corpus)
    assert (len(corpus), corpus.dtype, corpus.finished, corpus.fingerprint.kind) == (0, np.uint16, False, "live")
    assert agrees(corpus, build)
    seen = set()
    for number in (0, 1, 2):
        for other in range(number, 3):  # others are at work, too, and do not show
            build.write(other, 2)
        while build.write(number, 1):
            before = len(corpus)
            grown = corpus.refresh()
            assert grown == (len(corpus) > before)
            assert agrees(corpus, build)
            seen.add(len(corpus))
        build.finish(number)
        assert corpus.refresh()
        assert agrees(corpus, build)
    assert len(seen) > 10
    assert not corpus.finished
    manifest = build.publish()
    build.tidy()
    assert corpus.refresh()
    assert (corpus.finished, corpus.fingerprint) == (True, manifest.fingerprint)
    assert agrees(corpus, build)
    assert not corpus.refresh()
    assert [report.status for report in corpus.verify()] == ["ok"] * len(manifest.shards)


def test_sources_that_finish_out_of_order(tmp_path, stepped_build):
    """A finished source shard shows once all before it are finished; one without documents is no gap."""
    build = stepped_build(tmp_path, [DOCUMENTS[0], [], DOCUMENTS[2]])
    corpus = headrace.open(tmp_path, live=True)
    build.finish(2)
    assert not corpus.refresh()
    build.finish(0)
    assert corpus.refresh()
    assert len(corpus.documents) == 12
    build.finish(1)
    assert corpus.refresh()
    assert agrees(corpus, build)


def test_a_snapshot_does_not_change(tmp_path, stepped_build):
    """Between two refreshes, and for what was made of it before, all stays as it was, whatever the build does."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=100)
    build.finish(0)
    build.write(1, 6)
    corpus = headrace.open(tmp_path, live=True)
    count, fingerprint, documents = len(corpus), corpus.fingerprint, corpus.documents
    starts = np.array([[0, count - 20, count - 30]])
    block = corpus.windows(starts, 20)
    for step in (
        lambda: build.write(1, 2),
        lambda: build.finish(1),
        lambda: build.finish(2),
        build.publish,
        build.tidy,
    ):
        step()
        assert (len(corpus), corpus.fingerprint, len(documents)) == (count, fingerprint, len(corpus.documents))
        assert corpus[:].tolist() == build.line[:count]
    corpus.refresh()
    assert len(corpus) > count
    out = np.empty((3, 20), np.int64)
    block.gather_into(0, out)
    np.testing.assert_array_equal(out, np.array(build.line)[starts[0][:, None] + np.arange(20)])
    assert documents[len(documents) - 1].tolist() == corpus.documents[len(documents) - 1].tolist()


def test_windows_over_what_grows(tmp_path, stepped_build, compression):
    """Windows that lie in finished shards, in the growing one, and across, are those of the line."""
    build = stepped_build(tmp_path, DOCUMENTS, compression=compression)
    build.finish(0)
    build.write(1, 8)
    corpus = headrace.open(tmp_path, live=True)
    line = np.array(build.line[: len(corpus)])
    for length in (1, 7, 50):
        starts = np.arange(len(line) - length + 1)[None]
        out = np.empty((starts.size, length), np.int64)
        corpus.windows(starts, length).gather_into(0, out)
        np.testing.assert_array_equal(out, line[starts[0][:, None] + np.arange(length)])


def test_a_loader_over_a_snapshot(tmp_path, stepped_build):
    """A plan made for what is there serves it, and goes on serving it after a refresh; a new plan serves more."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    build.write(1, 8)
    corpus = headrace.open(tmp_path, live=True)
    plan = Plan(order="blocks", token_count=corpus.token_count, window=8, batch_size=4, corpus=str(corpus.fingerprint))
    loader = Loader(corpus, plan)
    first = [loader.batch(step).input_ids.tolist() for step in range(5)]
    build.finish(1)
    corpus.refresh()
    assert [loader.batch(step).input_ids.tolist() for step in range(5)] == first
    with pytest.raises(ValueError, match="token_count"):
        Loader(corpus, plan)
    again = Plan(order="sequential", token_count=corpus.token_count, window=8, batch_size=4)
    assert Loader(corpus, again).batch(9).input_ids.shape == (4, 8)


# -- killed, and begun anew ----------------------------------------------------------------------------------------------


def test_killed_and_begun_anew(tmp_path, stepped_build, compression):
    """What was seen stays, readable throughout, until the same command has got as far again; then it grows."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=60, compression=compression)
    build.finish(0)
    build.grow(1)
    corpus = headrace.open(tmp_path, live=True)
    count, documents = len(corpus), len(corpus.documents)
    build.kill()
    assert agrees(headrace.open(tmp_path, live=True), build)
    assert not corpus.refresh()
    build.clean()
    assert len(headrace.open(tmp_path, live=True).documents) == 12
    behind = 0
    while build.write(1, 1):
        before = len(corpus)
        assert corpus.refresh() == (len(corpus) > before)
        if build.whole < documents:
            assert (len(corpus), corpus.finished) == (count, False)
            assert corpus[:].tolist() == build.line[:count]
            assert [len(document) for document in corpus.documents] == build.lengths[:documents]
            behind += 1
        else:
            assert agrees(corpus, build)
    assert behind > 3
    corpus.refresh()
    assert agrees(corpus, build)
    build.finish(1), build.finish(2)
    corpus.refresh()
    assert agrees(corpus, build)


def test_a_worker_that_begins_its_source_anew(tmp_path, stepped_build):
    """Its shards go, `building.json` still naming them for a while: nothing is lost of the view, and nothing is wrong."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=40)
    build.grow(0)
    corpus = headrace.open(tmp_path, live=True)
    count = len(corpus)
    assert len(corpus.entries) >= 2
    build.retry(0)
    assert not corpus.refresh()
    assert corpus[:].tolist() == build.line[:count]
    assert sum(len(document) for document in corpus.documents) == count
    assert len(headrace.open(tmp_path, live=True)) == 0
    build.write(0, 3)
    assert not corpus.refresh()
    assert corpus[:].tolist() == build.line[:count]
    build.finish(0)
    assert corpus.refresh()
    assert agrees(corpus, build)


def test_a_build_that_failed_and_left_nothing(tmp_path, stepped_build):
    """Who follows it is told, and keeps what can be kept; who opens it finds nothing there."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.write(0, 8)
    corpus = headrace.open(tmp_path, live=True)
    count = len(corpus)
    build.sources[0].shards.abandon()
    build.tidy()
    for _ in range(2):
        with pytest.raises(MissingShardError, match=r"found neither"):
            corpus.refresh()
    assert len(corpus) == count
    with pytest.raises((CorruptShardError, UnreadableShardError), match=r"\.partial"):
        corpus[:]
    with pytest.raises(MissingShardError, match=r"wanted a corpus .* found neither"):
        headrace.open(tmp_path, live=True)


def test_an_empty_partial_is_none(tmp_path, stepped_build):
    """A partial that its writer has emptied to give it up shows nothing, before and after."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    build.write(1, 8)
    corpus = headrace.open(tmp_path, live=True)
    count = len(corpus)
    os.truncate(tmp_path / build.open[1].path, 0)
    assert not corpus.refresh()
    assert len(corpus) == count
    assert len(headrace.open(tmp_path, live=True).documents) == 12


@pytest.mark.parametrize("known", [False, True])
def test_a_partial_that_is_emptied_while_it_is_looked_at(tmp_path, stepped_build, monkeypatch, known):
    """It is given up, not damaged, although it has its name for a moment longer."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    build.write(1, 8)
    corpus = headrace.open(tmp_path, live=True)
    partial, counts = tmp_path / build.open[1].path, growing._File.counts

    def counts_once_it_is_empty(file):
        os.truncate(partial, 0)
        return counts(file)

    monkeypatch.setattr(growing._File, "counts", counts_once_it_is_empty)
    count = len(corpus)
    if known:
        assert not corpus.refresh()
        assert len(corpus) == count
    else:
        assert len(headrace.open(tmp_path, live=True).documents) == 12


def test_a_damaged_partial_ends_in_an_error(tmp_path, stepped_build):
    """HDF5 alone would wait for ever for its writer to make it whole, and serve zeros for what was seen of it."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    build.write(1, 8)
    corpus = headrace.open(tmp_path, live=True)
    other = headrace.open(tmp_path, live=True)
    path, first = tmp_path / build.open[1].path, corpus.entries[1].global_start
    size = path.stat().st_size
    os.truncate(path, 1500)
    os.truncate(path, size)
    begun = time.monotonic()
    for ask in (corpus.refresh, lambda: other[first:], lambda: headrace.open(tmp_path, live=True)):
        with pytest.raises((CorruptShardError, UnreadableShardError), match=r"\.partial"):
            ask()
    assert time.monotonic() - begun < 120
    assert corpus[:first].tolist() == build.line[:first]


def test_another_build_in_its_place(tmp_path, stepped_build):
    """What does not begin with the same tokens is refused, whether it is at work or finished."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    corpus = headrace.open(tmp_path, live=True)
    count = len(corpus)
    build.kill()
    for path in tmp_path.glob("*.h5"):
        path.unlink()
    other = stepped_build(tmp_path, DOCUMENTS[::-1])
    other.finish(0)
    with pytest.raises(MissingShardError, match="does not begin with the same tokens"):
        corpus.refresh()
    other.finish(1), other.finish(2), other.publish(), other.tidy()
    with pytest.raises(MissingShardError, match="does not begin with the same tokens"):
        corpus.refresh()
    assert (len(corpus), corpus.finished) == (count, False)
    assert headrace.open(tmp_path, live=True).finished


# -- between two steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_a_shard_that_was_renamed_a_moment_ago(tmp_path, stepped_build, known):
    """Where `building.json` still names the partial, the finished shard is found, held open before or not."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=60)
    build.write(0, 2)
    corpus = headrace.open(tmp_path, live=True) if known else None
    build.silent = True
    while len(build.sources[0].shards.entries) < 1:
        build.write(0, 1)
    corpus = corpus or headrace.open(tmp_path, live=True)
    corpus.refresh()
    assert agrees(corpus, build)


def test_a_source_that_was_finished_a_moment_ago(tmp_path, stepped_build):
    """Where the journal says more than `building.json`, the journal is right."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=60)
    build.write(0, 5)
    corpus = headrace.open(tmp_path, live=True)
    build.silent = True
    build.finish(0)
    corpus.refresh()
    assert agrees(corpus, build)
    assert agrees(headrace.open(tmp_path, live=True), build)


@pytest.mark.parametrize("mode", ["build", "append"])
def test_published_but_not_tidied_up(tmp_path, stepped_build, published, mode):
    """With the index of the new build there, what is left of the old state does not matter."""
    base = published(tmp_path, DOCUMENTS[:1]) if mode == "append" else None
    build = stepped_build(tmp_path, DOCUMENTS[1:], mode=mode, base=base)
    corpus = headrace.open(tmp_path, live=True)
    build.finish(0), build.finish(1)
    build.publish()
    assert corpus.refresh()
    assert corpus.finished
    assert agrees(corpus, build, base=[len(document) + 1 for document in DOCUMENTS[0]] if base else ())
    assert headrace.open(tmp_path, live=True).finished


def test_a_torn_last_row_of_the_journal(tmp_path, stepped_build):
    """A row that is being written, or that a crash has cut, is not there."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    row = (tmp_path / JOURNAL).read_bytes().splitlines()[-1]
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(row[: len(row) // 2])
    assert agrees(headrace.open(tmp_path, live=True), build)


# -- appending and overwriting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sidecar", [False, True])
def test_appending(tmp_path, stepped_build, published, sidecar):
    """The corpus that is appended to comes first, and is what opens without `live`, until all is published."""
    base = published(tmp_path, DOCUMENTS[:1])
    lengths = [len(document) + 1 for document in DOCUMENTS[0]]
    if sidecar:
        headrace.open(tmp_path)
    build = stepped_build(tmp_path, DOCUMENTS[1:], mode="append", base=base, shard_tokens=100)
    corpus = headrace.open(tmp_path, live=True)
    assert corpus[:].tolist() == [token for document in DOCUMENTS[0] for token in [*document, 0]]
    while build.write(0, 1):
        corpus.refresh()
        assert agrees(corpus, build, base=lengths)
        assert headrace.open(tmp_path).fingerprint == base.fingerprint
    assert not corpus.finished
    build.finish(0), build.finish(1)
    manifest = build.publish()
    build.tidy()
    assert corpus.refresh()
    assert (corpus.finished, corpus.fingerprint) == (True, manifest.fingerprint)
    assert agrees(corpus, build, base=lengths)


def test_overwriting(tmp_path, stepped_build, published):
    """The new corpus is followed in its own folder, and is the one at the end; the old one opens until then."""
    old = published(tmp_path, DOCUMENTS[:2])
    build = stepped_build(tmp_path, DOCUMENTS[::-1], mode="overwrite", shard_tokens=100)
    corpus = headrace.open(tmp_path, live=True)
    assert len(corpus) == 0
    while build.write(0, 1):
        corpus.refresh()
        assert agrees(corpus, build)
        assert headrace.open(tmp_path).fingerprint == old.fingerprint
    build.finish(0), build.finish(1), build.finish(2)
    manifest = build.publish()
    build.tidy()
    assert corpus.refresh()
    assert (corpus.finished, corpus.fingerprint) == (True, manifest.fingerprint)
    assert agrees(corpus, build)


def documents_of(corpus):
    """Tokens of each document."""
    return [document.tolist() for document in corpus.documents]


def test_a_finished_corpus_that_is_appended_to(tmp_path, stepped_build, published):
    """Who follows it sees the append grow by whole documents, and end; one append after the other."""
    base = published(tmp_path, DOCUMENTS[:1])
    corpus = headrace.open(tmp_path, live=True)
    wanted = documents_of(corpus)
    for documents in DOCUMENTS[1:]:
        build = stepped_build(tmp_path, [documents], mode="append", base=base)
        seen = set()
        while build.write(0, 1):
            assert corpus.refresh() == (len(corpus.documents) not in seen and build.whole > 0)
            seen.add(len(corpus.documents))
            assert not corpus.finished
            assert documents_of(corpus) == [*wanted, *([*ids, 0] for ids in documents[: build.whole])]
        assert len(seen) > 5
        build.finish(0)
        base = build.publish()
        build.tidy()
        assert corpus.refresh()
        wanted += [[*ids, 0] for ids in documents]
        assert (corpus.finished, corpus.fingerprint, corpus.refresh()) == (True, base.fingerprint, False)
        assert documents_of(corpus) == wanted


def test_a_finished_corpus_that_is_replaced(tmp_path, stepped_build, published):
    """Who follows it keeps it until it is gone, and is told then; one of the same beginning goes on."""
    published(tmp_path, DOCUMENTS[:2])
    corpus = headrace.open(tmp_path, live=True)
    before = corpus[:].tolist()
    build = stepped_build(tmp_path, DOCUMENTS[::-1], mode="overwrite")
    for number in range(3):
        build.finish(number)
        assert (corpus.refresh(), corpus.finished, corpus[:].tolist()) == (False, True, before)
    build.publish()
    build.tidy()
    for _ in range(2):
        with pytest.raises(MissingShardError, match="does not begin with the same tokens"):
            corpus.refresh()
    assert len(corpus) == len(before)


def test_a_copy_of_a_finished_corpus_follows_on(tmp_path, stepped_build, published):
    """It is the version that was sent, and grows by what was appended since."""
    base = published(tmp_path, DOCUMENTS[:1])
    sent = pickle.dumps(headrace.open(tmp_path, live=True))
    build = stepped_build(tmp_path, DOCUMENTS[1:], mode="append", base=base)
    build.finish(0), build.finish(1), build.publish(), build.tidy()
    copy = pickle.loads(sent)  # noqa: S301  # our own bytes
    assert (copy.finished, copy.fingerprint) == (True, base.fingerprint)
    assert copy.refresh()
    assert copy[:].tolist() == headrace.open(tmp_path)[:].tolist()
    assert not copy.refresh()


def test_a_copy_is_of_the_same_build(tmp_path, stepped_build):
    """What was sent while a shard was being written does not arrive as what another build writes there."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.write(0, 6)
    sent = pickle.dumps(headrace.open(tmp_path, live=True))
    build.kill()
    build.clean()
    other = stepped_build(tmp_path, DOCUMENTS[::-1])
    other.write(0, 12)
    with pytest.raises(MissingShardError, match="does not begin with the same tokens"):
        pickle.loads(sent)  # noqa: S301  # our own bytes


# -- opening -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["folder", "index", "shard"])
def test_a_finished_corpus(tmp_path, published, form):
    """`live=True` just opens it."""
    manifest = published(tmp_path, DOCUMENTS)
    path = {"folder": tmp_path, "index": tmp_path / "shards.json"}.get(form, tmp_path / manifest.shards[0].path)
    corpus, plain = headrace.open(path, live=True), headrace.open(path)
    assert (corpus.finished, corpus.refresh(), corpus.fingerprint) == (True, False, plain.fingerprint)
    assert corpus[:].tolist() == plain[:].tolist()
    assert [report.status for report in corpus.verify()] == [report.status for report in plain.verify()]


@pytest.mark.parametrize("path", [".", "no", "no/shards.json", "shards.json", "no.h5"])
def test_nothing_there(tmp_path, path):
    """Where there is no corpus and no build of one, the error says what was wanted."""
    with pytest.raises(MissingShardError, match="wanted a corpus") as caught:
        headrace.open(tmp_path / path, live=True)
    assert str(tmp_path) in str(caught.value)


def test_without_live_an_unfinished_build_is_named(tmp_path, stepped_build):
    """The error says what is there, how to ask how far it is, and how to open it all the same."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    for path in (tmp_path, tmp_path / "shards.json"):
        with pytest.raises(MissingShardError, match=r"a build that is not finished.*headrace status.*live=True"):
            headrace.open(path)
    with pytest.raises(MissingShardError, match="not finished"):
        headrace.open(tmp_path, version="0" * 64)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 99}', b"\xff"])
def test_damaged_building_json(tmp_path, stepped_build, content):
    """It is an error that names the file, at opening and at a refresh."""
    stepped_build(tmp_path, DOCUMENTS)
    corpus = headrace.open(tmp_path, live=True)
    (tmp_path / BUILDING_NAME).write_bytes(content)
    for ask in (corpus.refresh, lambda: headrace.open(tmp_path, live=True)):
        with pytest.raises(ManifestError, match=r"building\.json"):
            ask()


@pytest.mark.parametrize(
    "row", ['{"finished": 3}', '{"finished": {"index": 0}}', '{"finished": {"index": 0, "entries": [{}]}}']
)
def test_a_damaged_journal(tmp_path, stepped_build, row):
    """A row that makes no sense is an error that names the file."""
    stepped_build(tmp_path, DOCUMENTS)
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write(row + "\n")
    with pytest.raises(ManifestError, match=r"journal\.jsonl"):
        headrace.open(tmp_path, live=True)


def test_a_finished_shard_that_is_not_as_the_journal_says(tmp_path, stepped_build):
    """It is named, and nothing of it is served."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0), build.finish(1)
    (tmp_path / "000001-0000-0000.h5").replace(tmp_path / "000000-0000-0000.h5")
    with pytest.raises(CorruptShardError, match=r"000000-0000-0000\.h5"):
        headrace.open(tmp_path, live=True)


@pytest.mark.parametrize("options", [{"dtype": "uint32"}, {"vocab_size": 998}])
def test_a_flag_that_contradicts_the_build(tmp_path, stepped_build, options):
    """What the caller expects is compared with what is being built."""
    stepped_build(tmp_path, DOCUMENTS)
    with pytest.raises(FormatError, match=next(iter(options.values())).__str__()):
        headrace.open(tmp_path, live=True, **options)
    headrace.open(tmp_path, live=True, dtype="uint16", vocab_size=997)


def test_a_version_does_not_grow(tmp_path, published):
    """Both at once make no sense."""
    manifest = published(tmp_path, DOCUMENTS[:1])
    with pytest.raises(ValueError, match="not both"):
        headrace.open(tmp_path, live=True, version=manifest.fingerprint)


def test_verify_leaves_out_what_is_being_written(tmp_path, stepped_build):
    """Finished shards are judged, also when opening; one that grows has nothing to be judged by."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=70)
    build.finish(0)
    build.grow(1)
    corpus = headrace.open(tmp_path, live=True, verify="full")
    assert len(corpus.entries) > len(corpus.verify()) > 2
    assert {report.status for report in corpus.verify()} == {"ok"}
    with h5py.File(corpus.entries[1].path, "r") as file:
        at = file["tokens"].id.get_chunk_info(1).byte_offset
    with open(corpus.entries[1].path, "r+b") as file:  # noqa: PTH123
        file.seek(at)
        file.write(b"\xff\x01")
    assert [report.status for report in corpus.verify()].count("corrupt") == 1
    with pytest.raises(CorruptShardError, match=r"1 of [0-9]+ shards are not ok"):
        headrace.open(tmp_path, live=True, verify="full")


# -- processes and threads -----------------------------------------------------------------------------------------------


def test_pickles(tmp_path, stepped_build):
    """A copy has at least what the original has; it follows the same build, or is the same finished corpus."""
    build = stepped_build(tmp_path, DOCUMENTS)
    build.finish(0)
    build.write(1, 5)
    corpus = headrace.open(tmp_path, live=True)
    sent, count = pickle.dumps(corpus), len(corpus)
    build.write(1, 3)
    copy = pickle.loads(sent)  # noqa: S301  # our own bytes
    assert agrees(copy, build)
    assert len(copy) > count
    build.kill()
    build.clean()
    with pytest.raises(MissingShardError, match="begun anew"):
        pickle.loads(sent)  # noqa: S301
    build.finish(1), build.finish(2), build.publish(), build.tidy()
    copy.refresh()
    for known in (sent, pickle.dumps(copy)):
        again = pickle.loads(known)  # noqa: S301
        assert again.finished
        assert agrees(again, build)


def test_other_handles_of_this_process_see_the_finished_file(tmp_path, stepped_build):
    """What a live corpus has seen of a shard while it grew is not what others in this process are shown of it later."""
    build = stepped_build(tmp_path, DOCUMENTS[:1])
    build.write(0, 8)
    corpus = headrace.open(tmp_path, live=True)
    count = len(corpus)
    build.finish(0)
    path = tmp_path / "000000-0000-0000.h5"
    with h5py.File(path, "r") as file:  # no flags to agree on, and nothing stale
        assert file["tokens"].shape == (len(build.line),)
    assert headrace.open(path).verify()[0].ok
    build.publish()
    build.tidy()
    finished = headrace.open(tmp_path)
    assert len(finished.documents) == len(DOCUMENTS[0])
    assert finished.locate(len(finished) - 1).line == len(DOCUMENTS[0])
    assert corpus[:].tolist() == build.line[:count]


def test_refreshing_in_one_thread_and_reading_in_others(tmp_path, stepped_build):
    """Whatever a reader has counted once, it can read, and it is right."""
    documents = [[[(number * 7 + at) % 996 + 1 for at in range(20)] for number in range(150)]]
    build = stepped_build(tmp_path, documents, shard_tokens=700)
    corpus = headrace.open(tmp_path, live=True)
    line, faults, done = np.array(build.line), [], threading.Event()

    def read(seed):
        random = np.random.default_rng(seed)
        try:
            while not done.is_set():
                count = len(corpus)
                start, stop = sorted(random.integers(0, count + 1, 2).tolist())
                assert corpus[start:stop].tolist() == line[start:stop].tolist()
                if count:
                    assert corpus.locate(count - 1).stop <= len(corpus)
        except BaseException as fault:  # noqa: BLE001  # reported below
            faults.append(fault)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        while build.write(0, 5):
            corpus.refresh()
        build.finish(0), corpus.refresh(), build.publish(), build.tidy(), corpus.refresh()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not faults, faults[0]
    assert len(corpus) == len(line)


def test_nothing_is_written_and_no_folder_listed(tmp_path, stepped_build):
    """Following changes nothing in the corpus folder, and reads only what is named there."""
    build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=100)
    build.finish(0)
    build.write(1, 8)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}
    code = (
        "import os, sys, headrace, headrace.live, headrace.storage.growing\nseen = []\n"
        "sys.addaudithook(lambda event, arguments: seen.append(event))\n"
        "corpus = headrace.open(sys.argv[1], live=True)\ncorpus.refresh(), corpus[:], corpus.documents[0]\n"
        "assert not {*seen} & {'os.listdir', 'os.scandir', 'os.walk', 'glob.glob', 'os.mkdir', 'os.rename', 'os.remove'}\n"
        "print(len(corpus))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(build.lengths[: build.whole])
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before


class TestLiveStore(StoreContract):
    """A live corpus is a store like any other."""

    @pytest.fixture(params=["none", "gzip"])
    def case(self, request, tmp_path, stepped_build):
        """Finished shards, finished rolls of the source shard at work, and a growing one."""
        build = stepped_build(tmp_path, DOCUMENTS, shard_tokens=60, compression=request.param)
        build.finish(0)
        build.grow(1)
        corpus = headrace.open(tmp_path, live=True)
        assert corpus.entries[-1].path.endswith(".partial")
        return StoreCase(
            store=corpus,
            tokens=np.array(build.line[: len(corpus)], "<u2"),
            document_lengths=build.lengths[: build.whole],
            marks=tuple(entry.global_start for entry in corpus.entries),
        )
