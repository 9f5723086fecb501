"""A worker that dies costs one attempt at its source; a second death of the same source ends the build and says where."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.building import build as build_module
from headrace.building.engine import Listener, PoolEngine
from headrace.building.job import ContentOptions, Hooks, ShardJob, run_job
from headrace.errors import BuildError, TokenizerError
from headrace.events import Notice
from headrace.sources import discover, read_shard
from headrace.tokenizers.bytes import Tokenizer

LINE = 1024
LINES = 9000
"""Of a JSONL file: three batches."""
OPTIONS = {"shard_tokens": 2_000_000, "workers": 2}
MODULE = '''
"""Byte tokenizers that end their process when they meet a word."""
import os, time
import headrace

class Mortal(headrace.Tokenizer):
    def __init__(self, way, words, once):
        # Words, each with a file that is to be there first, or None. `once`: a folder that notes the deaths, or None.
        self.way, self.words, self.once = way, words, once

    def encode_documents(self, texts):
        for word, first in self.words.items():
            if any(word in text for text in texts) and not (self.once and (self.once / word.decode()).exists()):
                end = time.monotonic() + 240
                while first and not first.exists():
                    assert time.monotonic() < end, f"waited in vain for {first}"
                    time.sleep(0.01)
                if self.once:
                    (self.once / word.decode()).touch()
                if self.way:
                    os.kill(os.getpid(), self.way)
                os._exit(3)
        return super().encode_documents(texts)

class Doubted(headrace.Tokenizer):
    def __init__(self, folder):
        self.folder = folder

    def check(self, texts):
        # The first check ends its process once a job is done there, the second one finds that all is wrong.
        if not (self.folder / "first").exists():
            end = time.monotonic() + 240
            while not list(self.folder.glob("c/.headrace/journal.jsonl")):
                assert time.monotonic() < end
                time.sleep(0.01)
            (self.folder / "first").touch()
            os.kill(os.getpid(), 9)
        raise headrace.errors.TokenizerError(f"wrong on {len(texts)} texts")
'''


@pytest.fixture(scope="module")
def mortal(tmp_path_factory) -> Callable[..., Tokenizer]:
    """Make a tokenizer whose process dies of certain words, of a module that workers can import."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "mortal_tokenizer.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    module = importlib.import_module("mortal_tokenizer")

    def make(words: dict[bytes, Path | None], way: int = 9, once: Path | None = None) -> Tokenizer:
        return module.Mortal(way, words, once)

    make.doubted = module.Doubted
    yield make
    sys.path.remove(str(folder))


def line(text: bytes = b"") -> bytes:
    """One line of JSON, `LINE` bytes long."""
    return b'{"text": "' + text + b"x" * (LINE - 13 - len(text)) + b'"}\n'


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> list[tuple[int, int]]:
    """The first and the last line of each batch of a file whose lines have `LINE` bytes."""
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(line() * LINES)
    found = [(int(batch.rows[0]) + 1, int(batch.rows[-1]) + 1) for batch in read_shard(discover([str(path)]).shards[0])]
    assert len(found) == 3
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory, batches) -> Path:
    """Two JSONL files, the second batches with a word, and two text files with one."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()
    for name in ("a", "b"):
        lines = [line()] * LINES
        lines[batches[1][0] + 7] = line(b"word-" + name.encode())
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
    (folder / "c.txt").write_bytes(b"a text")
    (folder / "d.txt").write_bytes(b"a text with a word-c")
    return folder


@pytest.fixture(scope="module")
def undisturbed(sources, tmp_path_factory) -> Path:
    """The corpus of a build in which nothing dies."""
    output = tmp_path_factory.mktemp("undisturbed") / "c"
    headrace.build(sources, output, **OPTIONS)
    return output


@pytest.mark.parametrize(("words", "way"), [("a", 9), ("abc", 11)])
def test_dying_once(sources, undisturbed, mortal, published, tmp_path, words, way):
    """Each source that a worker died of, shards of it finished, is begun anew: every file is as if none had died."""
    (tmp_path / "deaths").mkdir()
    first = {"a": tmp_path / "c" / "000000-0000-0001.h5", "b": tmp_path / "c" / "000001-0000-0001.h5"}
    tokenizer = mortal({b"word-" + word.encode(): first.get(word) for word in words}, way, tmp_path / "deaths")
    headrace.build(sources, tmp_path / "c", tokenizer=tokenizer, **OPTIONS)
    assert len(list((tmp_path / "deaths").iterdir())) == len(words)
    assert published(tmp_path / "c") == published(undisturbed)


@pytest.mark.parametrize(
    ("word", "where", "way", "how"),
    [
        (b"word-b", "b.jsonl, lines {:,} to {:,}", 9, "signal 9: Killed"),
        (b"word-b", "b.jsonl, lines {:,} to {:,}", 11, "signal 11: Segmentation fault"),
        (b"word-c", "c.txt to d.txt", 0, "exit code 3"),
    ],
)
def test_dying_twice(sources, batches, mortal, tmp_path, word, where, way, how):
    """A build error names how the workers died, the file and the lines of the batch, and what to do."""
    with pytest.raises(BuildError) as caught:
        headrace.build(sources, tmp_path / "c", tokenizer=mortal({word: None}, way), **OPTIONS)
    place = where.format(*batches[1])
    message = (
        f"a worker died twice ({how}) while it read {place}. If memory ran short, build with fewer --workers; else "
    )
    assert message in str(caught.value)


def test_dying_twice_in_two_places(sources, batches, mortal, tmp_path):
    """Both places are named where the second worker did not die where the first one did."""
    b = (sources / "b.jsonl").read_bytes()
    (tmp_path / "b.jsonl").write_bytes(b.removesuffix(line()) + line(b"a last word"))
    (tmp_path / "deaths").mkdir()

    tokenizer = mortal({b"word-b": None, b"last": None}, once=tmp_path / "deaths")
    with pytest.raises(BuildError) as caught:
        headrace.build([sources / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "c", tokenizer=tokenizer, **OPTIONS)
    first, last = ("lines {:,} to {:,}".format(*batch) for batch in batches[1:])
    assert f"b.jsonl, {first}, then (signal 9: Killed) while it read " in str(caught.value)
    assert f"b.jsonl, {last}. If" in str(caught.value)


def test_dying_in_a_cut(sources, mortal, published, tmp_path, monkeypatch):
    """It costs the cut: the shards of others stay; the place is told by the lines of the file."""
    monkeypatch.setattr(build_module, "CUT_BYTES", 2000 * LINE + 5)
    data = (sources / "b.jsonl").read_bytes()
    word = data[: data.index(b"word-b")].count(b"\n") + 1
    cut = word // 2000
    first, last = 2000 * cut + 2, 2000 * (cut + 1) + 1
    headrace.build(sources / "b.jsonl", tmp_path / "whole", **OPTIONS)
    (tmp_path / "deaths").mkdir()
    told: list[str] = []
    tokenizer = mortal({b"word-b": tmp_path / "c" / "000000-0000-0000.h5"}, once=tmp_path / "deaths")
    headrace.build(
        sources / "b.jsonl",
        tmp_path / "c",
        tokenizer=tokenizer,
        on_event=lambda event: told.append(event.message) if isinstance(event, Notice) else None,
        **OPTIONS,
    )
    place = f"b.jsonl, lines {first:,} to {last:,}"
    assert told == [f"a worker died (signal 9: Killed) while it read {place}; that source is begun once more"]
    assert published(tmp_path / "c") == published(tmp_path / "whole")
    with pytest.raises(BuildError, match=rf"died twice .* while it read {place}\. If"):
        headrace.build(sources / "b.jsonl", tmp_path / "d", tokenizer=mortal({b"word-b": None}), **OPTIONS)


def test_what_is_told_of_a_death(sources, batches, mortal, tmp_path):
    """The engine tells of the new attempt, whose counts and shards begin anew; the dead one's shards are gone by then."""
    (tmp_path / "deaths").mkdir()
    (tmp_path / "out").mkdir()
    left = [".000001-0000-0003.h5.1.0a1b2c3d.partial", "..000001-0000-0004.h5.1.0a1b2c3d.partial.1.0a1b2c3d"]
    kept = ["000001-0000-0000.h5.bak", "0000010-0000-0000.h5", ".000002-0000-0000.h5.1.0a1b2c3d.partial", "mine.h5"]
    for name in left + kept:
        (tmp_path / "out" / name).touch()
    jobs = _jobs(sources, tmp_path / "out")[1:2]
    told: list[object] = []
    on_disk: list[set[str]] = []

    def retry(message: str) -> None:
        told.append(message)
        on_disk.append({path.name for path in (tmp_path / "out").iterdir()})

    words = {b"word-b": tmp_path / "out" / "000001-0000-0001.h5"}
    PoolEngine(mortal(words, once=tmp_path / "deaths"), 1).run(
        jobs,
        Listener(
            progress=lambda _, counts: told.append(counts[1]),
            outcome=lambda outcome: told.append([entry.path for entry in outcome.entries]),
            opened=lambda shard: told.append((shard.index, shard.roll)),
            retry=retry,
        ),
    )
    where = "b.jsonl, lines {:,} to {:,}".format(*batches[1])
    message = f"a worker died (signal 9: Killed) while it read {where}; that source is begun once more"
    assert on_disk == [set(kept)]
    before, after = told[: told.index(message)], told[told.index(message) + 1 :]
    assert [one for one in before if isinstance(one, tuple)][:2] == [(1, 0), (1, 1)]
    assert [one for one in after if isinstance(one, tuple)] == [(1, roll) for roll in range(5)]
    assert max(one for one in after if isinstance(one, int)) == LINES
    assert after[-1] == [f"000001-0000-{roll:04d}.h5" for roll in range(5)]


def test_a_check_that_dies_is_done_again(sources, mortal, tmp_path):
    """Another worker does it, and what it finds ends the build; nothing is published."""
    told: list[str] = []
    with pytest.raises(TokenizerError, match=r"^wrong on \d+ texts$"):
        headrace.build(
            sources,
            tmp_path / "c",
            tokenizer=mortal.doubted(tmp_path),
            **OPTIONS,
            on_event=lambda event: told.append(getattr(event, "message", "")),
        )
    assert any("a worker died (signal 9: Killed) " in message for message in told)
    assert not (tmp_path / "c" / "shards.json").exists()


def _jobs(sources: Path, output: Path) -> list[ShardJob]:
    options = ContentOptions(boundary_token_id=0, shard_tokens=2_000_000, on_bad_input="skip")
    shards = discover([str(sources)]).shards
    return [ShardJob(shard=shard, source=shard.index, options=options, output=output) for shard in shards]


def test_where_a_job_says_it_is(batches, tmp_path):
    """Before a batch is encoded, its lines; before the next is read, the last line of this one, kept or not."""
    folder = tmp_path / "in"
    folder.mkdir()
    (_, first), (start, last), _ = batches
    lines = [line()] * last
    lines[0] = b" " * (LINE - 1) + b"\n"
    lines[start - 1] = b"not JSON".ljust(LINE - 1) + b"\n"
    lines[last - 1] = b"{}".ljust(LINE - 1) + b"\n"
    (folder / "a.jsonl").write_bytes(b"".join(lines))
    (folder / "b.jsonl").write_bytes(b"{}\n")
    (folder / "c.jsonl").write_bytes(line() + b"\n")
    (folder / "d.txt").write_bytes(b"text")
    (folder / "e.txt").write_bytes(b"")
    told: list[list[str]] = []
    for job in _jobs(folder, tmp_path):
        told.append([])
        run_job(job, Tokenizer(), Hooks(at=lambda place: told[-1].append(place.told(0))))
    assert told == [
        [
            "the beginning of a.jsonl",
            f"a.jsonl, lines 2 to {first:,}",
            f"a.jsonl after line {first:,}",
            f"a.jsonl, lines {start + 1:,} to {last - 1:,}",
            f"a.jsonl after line {last:,}",
        ],
        ["the beginning of b.jsonl", "b.jsonl after line 1"],
        ["the beginning of c.jsonl", "c.jsonl, line 1", "c.jsonl after line 1"],
        ["the beginning of d.txt", "d.txt", "what follows d.txt"],
    ]
