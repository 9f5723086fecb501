"""Any order of growing, rolling over, finishing, dying, beginning anew and looking, against a plain list of documents."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import headrace
from headrace.errors import MissingShardError

DOCUMENT = st.integers(0, 25)
SOURCES = st.lists(st.lists(DOCUMENT, max_size=10), min_size=1, max_size=3).filter(any)
"""Lengths of the documents of each source shard: a build that keeps none fails."""


def documents_of(sources):
    """Documents of given lengths, each token telling its place."""
    numbers = iter(range(1_000_000))
    return [[[next(numbers) % 996 + 1 for _ in range(length)] for length in source] for source in sources]


class Following(RuleBasedStateMachine):
    """A build, and two who follow it; `build_class` and `publish` are set by the test."""

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.corpora = []
        self.base = ()
        self.dead = self.published = False

    @initialize(
        sources=SOURCES,
        base=st.none() | SOURCES,
        chunk=st.sampled_from((1, 5, 16)),
        shard_tokens=st.none() | st.sampled_from((1, 20, 60)),
        compression=st.sampled_from(("none", "none", "gzip")),
    )
    def begin(self, sources, base, **options):
        """Begin a build, of a corpus or of a part of one."""
        manifest = None
        self.corpora = []
        if base is not None:
            documents = documents_of(base)
            manifest = self.publish(self.folder, documents, **options)
            self.base = [[*document, 0] for source in documents for document in source]
            self.corpora = [headrace.open(self.folder, live=True)]
        self.build = self.build_class(
            self.folder, documents_of(sources), mode="append" if manifest else "build", base=manifest, **options
        )
        self.line = [token for document in self.base for token in document] + self.build.line
        self.lengths = [*map(len, self.base), *self.build.lengths]
        self.ends = np.cumsum([0, *self.lengths]).tolist()
        self.corpora.append(headrace.open(self.folder, live=True))

    def teardown(self):
        """Remove the folder."""
        if hasattr(self, "build"):
            self.build.kill()  # closes what is open
        self.temporary.cleanup()

    @property
    def visible(self):
        """Tokens of whole documents that can be seen now."""
        return self.ends[len(self.base) + self.build.whole]

    # -- the build --------------------------------------------------------------------------------------------------

    def unfinished(self):
        """Numbers of the source shards that are not finished."""
        return [number for number, source in enumerate(self.build.sources) if not source.finished]

    @precondition(lambda self: not self.dead and self.unfinished())
    @rule(data=st.data(), count=st.integers(1, 4))
    def write(self, data, count):
        """Write some documents of any unfinished source shard."""
        self.build.write(data.draw(st.sampled_from(self.unfinished())), count)

    @precondition(lambda self: not self.dead and self.unfinished())
    @rule(data=st.data())
    def finish(self, data):
        """Finish any source shard."""
        self.build.finish(data.draw(st.sampled_from(self.unfinished())))

    @precondition(lambda self: not self.dead and self.unfinished())
    @rule(data=st.data())
    def retry(self, data):
        """Begin a source shard anew whose worker has died."""
        self.build.retry(data.draw(st.sampled_from(self.unfinished())))

    @precondition(lambda self: not self.dead and not self.published)
    @rule()
    def kill(self):
        """The build dies."""
        self.build.kill()
        self.dead = True

    @precondition(lambda self: self.dead)
    @rule()
    def repeat(self):
        """The same command is given again."""
        self.build.silent = False
        self.build.clean()
        self.dead = False

    @precondition(lambda self: not self.dead and not self.published)
    @rule()
    def fall_behind(self):
        """From now on `building.json` is old."""
        self.build.silent = True

    @precondition(lambda self: not self.dead and not self.published)
    @rule()
    def catch_up(self):
        """It is written anew."""
        self.build.silent = False
        self.build.tell()

    @precondition(lambda self: not self.dead and not self.published and not self.unfinished())
    @rule(tidy=st.booleans())
    def publish_all(self, tidy):
        """The corpus is whole; the build may be gone before it has tidied up."""
        self.fingerprint = self.build.publish().fingerprint
        self.published = True
        if tidy:
            self.build.tidy()

    # -- those who follow it ----------------------------------------------------------------------------------------

    @rule()
    def open_another(self):
        """Someone else begins to follow."""
        corpus = headrace.open(self.folder, live=True)
        self.check_count(corpus, 0)
        self.corpora = [*self.corpora[-1:], corpus]

    @rule(data=st.data())
    def refresh(self, data):
        """It grows by what has become whole, and never shrinks."""
        corpus = data.draw(st.sampled_from(self.corpora))
        before, finished = len(corpus), corpus.finished
        grown = corpus.refresh()
        assert grown == (len(corpus) > before or corpus.finished > finished)
        self.check_count(corpus, before)

    def check_count(self, corpus, before):
        """All that is whole can be seen; where `building.json` is old, perhaps less."""
        assert corpus.finished == self.published
        if self.published:
            assert corpus.fingerprint == self.fingerprint
            assert len(corpus) == len(self.line)
        elif self.build.silent:
            assert before <= len(corpus) <= max(before, self.visible)
        else:
            assert len(corpus) == max(before, self.visible)

    @rule(data=st.data())
    def copy(self, data):
        """What is sent to another process has at least as much there, or is refused."""
        corpus = data.draw(st.sampled_from(self.corpora))
        try:
            copy = pickle.loads(pickle.dumps(corpus))  # noqa: S301  # our own bytes
        except MissingShardError:
            assert self.build.silent or self.visible < len(corpus)
        else:
            assert len(copy) >= len(corpus)
            assert copy[:].tolist() == self.line[: len(copy)]

    @rule(data=st.data(), length=st.integers(1, 20))
    def read_windows(self, data, length):
        """Windows are those of the line."""
        corpus = data.draw(st.sampled_from(self.corpora))
        if len(corpus) >= length:
            starts = data.draw(st.lists(st.integers(0, len(corpus) - length), min_size=1, max_size=5))
            out = np.empty((len(starts), length), np.int64)
            corpus.windows(np.array([starts]), length).gather_into(0, out)
            assert out.tolist() == [self.line[start : start + length] for start in starts]

    @rule(data=st.data())
    def locate(self, data):
        """Each place is in its document, and on its line."""
        corpus = data.draw(st.sampled_from(self.corpora))
        if len(corpus):
            position = data.draw(st.integers(0, len(corpus) - 1))
            found = corpus.locate(position)
            assert (found.start, found.stop) == (self.ends[found.document], self.ends[found.document + 1])
            assert found.start <= position < found.stop
            assert found.byte == (found.line - 1) * 10

    @invariant()
    def all_is_as_it_was(self):
        """Whatever the build has done since, all that was seen is there: whole documents from the beginning of the line."""
        for corpus in self.corpora:
            count = len(corpus.documents)
            assert len(corpus) == self.ends[count]
            assert corpus[:].tolist() == self.line[: len(corpus)]
            assert [len(document) for document in corpus.documents] == self.lengths[:count]


def run(stepped_build, published, **options):
    """Run the machine with a test's fixtures."""
    machine = type("Machine", (Following,), {"build_class": stepped_build, "publish": staticmethod(published)})
    run_state_machine_as_test(machine, settings=settings(**options))


def test_any_order_of_things(stepped_build, published):
    """The machine, for some seconds."""
    run(stepped_build, published, max_examples=10, stateful_step_count=20)


@pytest.mark.extended
def test_any_order_of_things_at_length(stepped_build, published):
    """The machine, for minutes."""
    run(stepped_build, published, max_examples=150, stateful_step_count=40)
