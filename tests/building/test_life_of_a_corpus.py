"""The life of a corpus: built, appended to, replaced, damaged, littered, and killed at any write.

A plain model, a list of documents for each version, says at every moment what must open and what it must serve.
"""

import json
import pickle
import re
import runpy
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
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
from headrace.errors import HeadraceError, MissingShardError, OutOfRangeError
from headrace.in_progress import JOURNAL
from headrace.status import build_status
from headrace.storage.stores import files_of
from headrace.testing.memory import MemoryCorpus
from headrace.testing.strategies import contents, input_file
from headrace.verify import verify_path

DYING = runpy.run_path(str(Path(__file__).with_name("dying_builds.py")))
MODEL = runpy.run_path(str(Path(__file__).with_name("life_model.py")))
FILES = runpy.run_path(str(Path(__file__).with_name("corpus_files.py")))
Command, Version = MODEL["Command"], MODEL["Version"]
contents_of, comparable, shards_in = FILES["contents_of"], FILES["comparable"], FILES["shards_in"]
damage, damage_bytes, journal_as_of = FILES["damage"], FILES["damage_bytes"], FILES["journal_as_of"]
DAMAGE = st.sampled_from(["flip", "cut", "gone", "other"])
HDF5 = ("SwmrFile", "Column", "Scalar")
"""How the points of HDF5 are called."""
KINDS = {kind: {"compression": kind} for kind in ("none", "gzip:1", "zstd:3")} | {
    "lance": {"compression": "none", "store": "lance"}
}
"""Options of each kind of corpus."""


# -- reading --------------------------------------------------------------------------------------------------------


class Reads(RuleBasedStateMachine):
    """What may be asked of any store that serves a version."""

    def serve(self) -> tuple[Any, Version] | None:
        """A store and what it must serve; None where there is none."""
        raise NotImplementedError

    @rule(
        ends=st.lists(st.floats(0, 1), min_size=2, max_size=8),
        order=st.sampled_from(["random", "blocks", "sequential"]),
        window=st.integers(1, 40),
        rows=st.integers(1, 5),
        step=st.integers(0, 1000),
    )
    def read(self, ends: list[float], order: str, window: int, rows: int, step: int) -> None:
        """Ranges and the windows that a loader serves are the model's, in a copy made by pickle, too."""
        if served := self.serve():
            store, version = served
            copy = pickle.loads(pickle.dumps(store))  # noqa: S301  # our own
            assert str(copy.fingerprint) == str(store.fingerprint)
            for one in (store, copy):
                self.slices(one, version, sorted(round(end * len(version.line)) for end in ends))
                if len(version.line) > window:
                    self.windows(one, version, order=order, window=window, rows=rows, step=step)

    def slices(self, store: Any, version: Version, places: list[int]) -> None:
        """A range is the model's, wherever it begins and ends; one outside is refused."""
        for start, stop in pairwise(places):
            assert np.array_equal(store.get_slice(start, stop), version.line[start:stop])
        for start, stop in ((0, len(version.line) + 1), (-1, 0), (1, 0)):
            with pytest.raises(OutOfRangeError):
                store.get_slice(start, stop)

    def windows(self, store: Any, version: Version, *, order: str, window: int, rows: int, step: int) -> None:
        """A loader serves the windows that its plan names."""
        plan = headrace.Plan(
            order=order, token_count=len(version.line), window=window, batch_size=rows, corpus=str(store.fingerprint)
        )
        step %= plan.steps or 1001
        batch = headrace.Loader(store, plan).batch(step)
        wanted = version.line[plan.starts(step)[:, None] + np.arange(window + 1)]
        assert np.array_equal(batch.input_ids, wanted[:, :-1])
        assert np.array_equal(batch.targets, wanted[:, 1:])


def some_files(lowest: int = 1) -> st.SearchStrategy:
    """What the files of a command hold."""
    return st.lists(contents(), min_size=lowest, max_size=3)


OPTIONS = st.fixed_dictionaries(
    {
        "shard_tokens": st.sampled_from([None, 20, 60]),
        "keep_empty": st.booleans(),
        "max_document_tokens": st.sampled_from([None, None, 5]),
        "chunk_tokens": st.sampled_from([7, 16, 17]),
        "kind": st.integers(0, 3),
    }
)
WHEN = st.sampled_from(["before", "within", "after"])
CHANGES = [name for name in (*DYING["POINTS"], *DYING["LANCE_POINTS"]) if not name.startswith(HDF5)]
FAULTS = st.fixed_dictionaries(
    {
        "when": WHEN,
        "name": st.sampled_from(DYING["POINTS"]) | st.sampled_from(CHANGES),
        "nth": st.integers(0, 7),
        "publishing": st.just(False),
    }
) | st.fixed_dictionaries(
    {"when": WHEN, "name": st.sampled_from(CHANGES), "nth": st.integers(0, 4), "publishing": st.just(True)}
)
"""Deaths of a build: at any of its writes, or while it publishes. Not by the index among all writes: two threads write,
and what dies at one moment must do so again."""


class InMemory(Reads):
    """The twin that is an array: what was served stays, whatever is made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[MemoryCorpus, Version]] = []

    def serve(self) -> tuple[Any, Version] | None:
        """The newest."""
        return self.made[-1] if self.made else None

    @rule(files=some_files(), options=OPTIONS, append=st.booleans())
    def build(self, files: list, options: dict[str, Any], append: bool) -> None:
        """Make one, of the last one and more, or anew."""
        before = self.made[-1][1].commands if append and self.made else ()
        command = Command("build", Path(), tuple(map(input_file, files)), options)
        version = Version((*before, command))
        self.made.append((MemoryCorpus(version.line), version))

    @invariant()
    def all_serve(self) -> None:
        """Each serves its own tokens, and has a fingerprint of its own."""
        for store, version in self.made:
            assert np.array_equal(store.get_slice(0, len(version.line)), version.line)
        lines = {version.line.tobytes() for _, version in self.made}
        assert len({store.fingerprint for store, _ in self.made}) == len(lines)


# -- a corpus on disk -------------------------------------------------------------------------------------------------


class OnDisk(Reads):
    """A corpus in a folder, and a second one beside it to which nothing bad ever happens."""

    def __init__(self, builder: Any, kinds: tuple[str, ...]) -> None:
        super().__init__()
        self.builder = builder
        self.kinds = [KINDS[kind] for kind in kinds]
        self._place = tempfile.TemporaryDirectory(prefix="life-")
        self.place = Path(self._place.name)
        self.output, self.calm = self.place / "c", self.place / "calm"
        self.commands: list[Command] = []
        self.published: Version | None = None
        self.earlier: dict[str, Version] = {}
        """By fingerprint, what was appended to since the last build or overwrite."""
        self.doubtful: dict[str, Version] = {}
        """The same, where an overwrite has perhaps removed them."""
        self.unfinished: list[Command] = []
        self.held: list[tuple[headrace.Corpus, Version, bytes]] = []
        """Corpora that stay open, and what was pickled of them."""
        self.followed: list[tuple[headrace.Corpus, list[int]]] = []
        """Likewise what is followed, and what it has served."""
        self.litter_left: dict[str, bytes] = {}
        """Files of others in the folder."""
        self.io = "mmap"
        self.looked = True
        """Whether nothing has changed since what is there was looked at."""
        self.damaged = False
        """Whether a build that is not finished is."""
        self.untidy = False
        """Whether an overwrite has died, and none was finished since."""
        self.replaced = False
        """Whether one was ever begun."""

    def teardown(self) -> None:
        """Leave nothing."""
        for corpus, *_ in self.held + self.followed:
            corpus.close()
        self._place.cleanup()

    @initialize(files=some_files(), options=OPTIONS, fault=st.none() | FAULTS)
    def begin(self, files: list, options: dict[str, Any], fault: dict[str, Any] | None) -> None:
        """There is something, as a rule."""
        self.run(self.command("build", files, options), fault)

    def open(self, **options: Any) -> headrace.Corpus | None:
        """The corpus, if there is one."""
        try:
            return headrace.open(self.output, **options)
        except MissingShardError:
            assert not (self.output / "shards.json").exists()
            return None

    def serve(self) -> tuple[Any, Version] | None:
        """The corpus that is there, with and without maps in turn."""
        self.io = "mmap" if self.io == "pread" else "pread"
        corpus = self.open(io=self.io)
        return (corpus, self.published) if corpus is not None and self.published is not None else None

    # -- commands ---------------------------------------------------------------------------------------------------

    def command(self, mode: str, files: list | int, options: dict[str, Any]) -> Command:
        """Write down inputs that nobody else has, or those of an earlier command."""
        number = len(self.commands)
        options = {**options}
        kinds = self.kinds
        if options.pop("same_store", False):
            kinds = [kind for kind in kinds if kind.get("store", "hdf5") == self.published.store]
        options |= kinds[options.pop("kind") % len(kinds)]
        if isinstance(files, int):
            inputs = self.commands[files % number].files
        else:
            inputs = tuple(input_file(content, f"m{number}n{k}") for k, content in enumerate(files))
        made = Command(mode, self.place / f"in{number}", inputs, options)
        made.inputs.mkdir()
        for label, file in zip(made.labels, made.files, strict=True):
            (made.inputs / label).write_bytes(file.data)
        self.commands.append(made)
        return made

    def is_published(self, command: Command) -> bool:
        """Whether it has nothing to do."""
        if self.published is None or command.mode == "overwrite":
            return False
        made = self.published.commands
        return (command.mode == "append") == (len(made) > 1) and made[-1].content == command.content

    def must_be_refused(self, command: Command) -> bool:
        """Whether it would mix what is not to be mixed, or throw away what is finished, unasked."""
        if command.mode == "overwrite" or self.is_published(command):
            return False
        if command.mode == "build" and self.published is not None:
            return True
        if command.mode == "append" and (self.published is None or self.cannot_take(self.published, command)):
            return True
        others = [other.content for other in self.unfinished if self.effective(other) == command.mode]
        with suppress(MissingShardError):
            status = build_status(self.output)
            return (
                status.state == "dead"
                and status.mode == command.mode
                and status.finished > 0
                and command.content not in others
            )
        return False

    def cannot_take(self, version: Version, command: Command) -> bool:
        """Whether a corpus has other chunks, or is of another store, or has one of the files."""
        known = {source[1:] for made in version.commands for source in made.sources if source[1]}
        chunks = version.commands[0].options["chunk_tokens"]
        others = chunks != command.options["chunk_tokens"] or version.store != command.store
        return others or any(source[1:] in known for source in command.sources)

    def may_be_refused(self, command: Command) -> bool:
        """Whether another one of its kind was begun, how far ever."""
        return any(
            self.effective(other) == command.mode and other.content != command.content for other in self.unfinished
        )

    def effective(self, command: Command) -> str:
        """What it does: to replace nothing is to build."""
        return "build" if command.mode == "overwrite" and self.published is None else command.mode

    def run(self, command: Command, fault: dict[str, Any] | None = None) -> None:
        """Ask for it, and see that it ended as it must."""
        self.looked = False
        before = contents_of(self.output)
        self.replaced |= command.mode == "overwrite"
        must, may, nothing = self.must_be_refused(command), self.may_be_refused(command), self.is_published(command)
        answer = self.builder.ask(command.inputs, self.output, command.asked, fault=fault)
        ended = answer["ended"]
        if ended == "killed":
            if not must and not nothing:
                self.died(command)
        elif ended == "OutputExistsError":
            assert must or may, answer["message"]
            assert contents_of(self.output) == before
        elif not command.documents:
            assert ended in {"BuildError", "SourceError"}, answer
            assert "no documents" in answer["message"]
            self.forget(command)
        else:
            assert ended == "done", ended
            assert not must
            self.finished(command, nothing=nothing)
            self.check_report(command, answer["report"])

    def forget(self, command: Command) -> None:
        """It is not begun any more."""
        self.unfinished = [other for other in self.unfinished if other.content != command.content]

    def after(self, command: Command) -> Version:
        """What it makes."""
        before = self.published.commands if command.mode == "append" and self.published else ()
        return Version((*before, command))

    def died(self, command: Command) -> None:
        """It may have published its corpus."""
        self.forget(command)
        self.unfinished.append(command)
        self.untidy |= command.mode == "overwrite"
        corpus = self.open()
        new = self.after(command)
        published = corpus is not None and bool(new.documents) and new.served_by(corpus)
        if command.mode == "overwrite" and published:
            self.doubtful |= self.earlier
            self.earlier = {}
        if published:
            self.publish(command, new)

    def finished(self, command: Command, *, nothing: bool) -> None:
        """It was done to the end."""
        self.forget(command)
        if command.mode == "overwrite":
            self.earlier, self.doubtful, self.untidy = {}, {}, False
        if not nothing:
            self.publish(command, self.after(command))
            self.damaged = False
        if not self.untidy and not (nothing and self.unfinished):
            self.compare()

    def publish(self, command: Command, new: Version) -> None:
        """A new version is the one; the calm corpus becomes it, too."""
        if command.mode == "append":
            self.earlier[self.fingerprint] = self.published
        answer = self.builder.ask(command.inputs, self.calm, command.asked)
        assert answer["ended"] == "done", answer
        self.published, self.fingerprint = new, answer["report"]["fingerprint"]

    def check_report(self, command: Command, report: dict[str, Any]) -> None:
        """Its counts are those of the command."""
        assert report["fingerprint"] == self.fingerprint
        assert report["total_tokens"] == len(self.published.line)
        kept, empty, bad = (sum(numbers) for numbers in zip(*command.counts, strict=True))
        assert (report["documents"], report["dropped"].get("empty", 0)) == (kept, empty)
        assert (report["documents_in"], sum(report["dropped"].values())) == (kept + empty + bad, empty + bad)
        assert report["tokens"] == sum(len(document.tokens) for document in command.documents)

    def compare(self) -> None:
        """Every file is as if nothing bad had ever happened, and there is no other."""
        for name, data in self.litter_left.items():
            assert (self.output / name).read_bytes() == data
        found = {name: sha for name, sha in comparable(self.output).items() if name not in self.litter_left}
        wrong = sorted({name for name, _ in found.items() ^ comparable(self.calm).items()})
        assert not wrong, wrong

    def compare_while_unfinished(self) -> None:
        """While a first build or appends are unfinished, what is published keeps its files."""
        if not self.untidy and self.published is not None:
            wanted = comparable(self.calm)
            keep = {name for name in wanted if not re.search("journal|local|extents|building", name)}
            found = comparable(self.output)
            wrong = sorted(name for name in keep if found.get(name) != wanted[name])
            assert not wrong, wrong

    @rule(
        mode=st.sampled_from(["build", "append", "append", "append", "overwrite", "overwrite"]),
        files=some_files() | some_files() | st.integers(0, 20),
        options=OPTIONS,
        same_chunks=st.integers(0, 7),
        fault=st.none() | FAULTS | FAULTS,
    )
    def another(
        self, mode: str, files: list | int, options: dict[str, Any], same_chunks: int, fault: dict[str, Any] | None
    ) -> None:
        """A command that was not there before, and may die."""
        if self.published is None and mode == "append":
            mode = "build"
        if mode == "append" and same_chunks:
            chunks = self.published.commands[0].options["chunk_tokens"]
            options = {**options, "chunk_tokens": chunks, "same_store": True}
        self.run(self.command(mode, files, options), fault)

    @precondition(lambda self: self.unfinished)
    @rule(fault=st.none() | FAULTS)
    def go_on(self, fault: dict[str, Any] | None) -> None:
        """The command that died last, to the end or to its next death."""
        self.run(self.unfinished[-1], fault)

    @rule(number=st.integers(0, 50), fault=st.none() | FAULTS)
    def repeat(self, number: int, fault: dict[str, Any] | None) -> None:
        """Any command that ever was."""
        self.run(self.commands[number % len(self.commands)], fault)

    # -- damage and litter ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.unfinished)
    @rule(how=DAMAGE, which=st.integers(0, 20), documents=st.booleans())
    def damage_what_is_finished(self, how: str, which: int, documents: bool) -> None:
        """Of a build that is not; it will be found out and built again."""
        listed = set(self.listed())
        folders = (self.output, self.output / ".headrace" / "next")
        shards = [path for folder in folders for path in shards_in(folder) if path not in listed]
        if shards:
            damage(shards[which % len(shards)], how, documents=documents)
            self.damaged = True
            self.looked = False

    @precondition(lambda self: self.unfinished)
    @rule(cut=st.integers(0, 60), junk=st.sampled_from([b"", b"{", b"\0\0", b'{"finished": {}}\n']))
    def damage_the_journal(self, cut: int, junk: bytes) -> None:
        """Its tail, as far as it is of a build that is not finished."""
        journal = self.output / ".headrace" / "next" / JOURNAL
        if not journal.exists():
            journal = self.output / JOURNAL
        if journal.exists():
            data = journal.read_bytes()
            whole = journal_as_of(self.calm, self.output) if (self.calm / JOURNAL).exists() else b""
            keep = len(whole) if data.startswith(whole) else 0
            if len(data) > keep:
                journal.write_bytes(data[: max(keep, len(data) - cut)] + junk)
                self.looked = False

    @precondition(lambda self: self.published is not None and not self.untidy)
    @rule(how=DAMAGE, which=st.integers(0, 20), documents=st.booleans(), faults=st.lists(FAULTS, max_size=2))
    def damage_what_is_published(self, how: str, which: int, documents: bool, faults: list[dict[str, Any]]) -> None:
        """It is found by verifying; the same command mends what one build has made, even if it dies meanwhile."""
        shards = self.listed()
        path = shards[which % len(shards)]
        whole = [(file, file.read_bytes()) for file in files_of(path, loss_mask=False)]
        damage(path, how, documents=documents)
        reports = verify_path(self.output)
        assert [report.ok for report in reports] == [shard != path for shard in shards]
        with pytest.raises(HeadraceError):
            headrace.open(self.output, verify="full")
        if len(self.published.commands) > 1 or self.unfinished:
            for file, data in whole:
                file.write_bytes(data)
            return
        (command,) = self.published.commands
        again = {**command.asked, "overwrite": False}
        for fault in (*faults, None):
            answer = self.builder.ask(command.inputs, self.output, again, fault=fault)
            assert answer["ended"] in {"killed", "done"}, answer["ended"]
            with suppress(HeadraceError), headrace.open(self.output) as corpus:
                served = corpus.get_slice(0, len(corpus))
                assert np.array_equal(served, self.published.line) or how == "flip"
        self.replaced |= not path.exists()  # what Lance writes again has another name
        # Where it died between a shard and its row, the row stays lost, for then there is nothing left to do.
        (self.output / JOURNAL).write_bytes(journal_as_of(self.calm, self.output))
        self.compare()

    @precondition(lambda self: self.published is not None)
    @rule(how=st.sampled_from(["flip", "cut", "gone", "other"]), at=st.floats(0, 1), which=st.integers(0, 3))
    def damage_a_sidecar(self, how: str, at: float, which: int) -> None:
        """The corpus serves the same without it, and so does each earlier version."""
        sidecars = sorted((self.output / ".headrace").rglob("*extents.bin"))
        if sidecars:
            path = sidecars[which % len(sidecars)]
            data = path.read_bytes()
            damage_bytes(path, how, round(at * (len(data) - 1)))
            self.looked = False
            self.look()
            path.write_bytes(data)

    @rule(
        name=st.sampled_from(
            [
                *("x.h5.partial", "notes.txt", "shards.json.tmp", ".headrace/theirs"),
                *(".000000-0000-0000.h5.1.partial", "000007-0000-0000.h5", ".shards.json.123.0a1b2c3d"),
            ]
        ),
        data=st.sampled_from([b"", b"{", b"HDF"]),
    )
    def litter(self, name: str, data: bytes) -> None:
        """Files that no build has made change nothing and stay; those that look as if one had are removed."""
        path = self.output / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.looked = False
            if not re.search(r"\d{6}|\.\d+\.[0-9a-f]{8}", name):
                self.litter_left[name] = data

    # -- looking ----------------------------------------------------------------------------------------------------

    def listed(self) -> list[Path]:
        """The shards of the index that is there."""
        index = self.output / "shards.json"
        return (
            [self.output / entry["path"] for entry in json.loads(index.read_bytes())["shards"]]
            if index.exists()
            else []
        )

    @precondition(lambda self: self.published is not None)
    @rule(touch=st.booleans())
    def hold(self, touch: bool) -> None:
        """What is there is whole; keep it open, and keep what pickle made of it."""
        faults = [report.fault for report in verify_path(self.output) if not report.ok]
        assert not faults, faults
        headrace.open(self.output, verify="full").close()
        if len(self.held) < 3 and (corpus := self.open()) is not None:
            if touch:
                corpus.get_slice(0, len(corpus))
            self.held.append((corpus, self.published, pickle.dumps(corpus)))

    @precondition(lambda self: not self.damaged and len(self.followed) < 2)
    @rule()
    def keep_following(self) -> None:
        """Follow what is there, or is not finished, from now on."""
        with suppress(MissingShardError):
            self.followed.append((headrace.open(self.output, live=True), []))
            self.looked = False

    @invariant()
    def look(self) -> None:
        """See what opens, after all that may have changed it."""
        if self.looked:
            return
        self.looked = True
        self.look_at_what_is_published()
        self.look_at_what_is_held()
        self.look_at_what_is_followed()
        self.look_from_outside()
        self.compare_while_unfinished()

    def look_at_what_is_published(self) -> None:
        """No corpus opens, or the one that was published last; and each that it was made of."""
        corpus = self.open()
        assert (corpus is None) == (self.published is None)
        if corpus is not None:
            with corpus:
                assert corpus.fingerprint.hex == self.fingerprint
                assert self.published.served_by(corpus)
        for fingerprint, version in (self.earlier | self.doubtful).items():
            try:
                with headrace.open(self.output, version=fingerprint) as corpus:
                    assert corpus.fingerprint.hex == fingerprint
                    # A new corpus may have the very tokens of one that went.
                    assert version.served_by(corpus) or fingerprint == self.fingerprint
            except HeadraceError:
                assert fingerprint in self.doubtful

    def look_at_what_is_held(self) -> None:
        """What was opened serves what it did; after a replacement it may refuse to."""
        for corpus, version, pickled in self.held:
            there = version is self.published or version in self.earlier.values()
            for copied in (False, True):
                try:
                    served = pickle.loads(pickled) if copied else corpus  # noqa: S301  # our own
                    assert np.array_equal(served.get_slice(0, len(version.line)), version.line)
                except HeadraceError:
                    assert not there or self.replaced

    def look_at_what_is_followed(self) -> None:
        """What was served once stays, and is served again; where another build took over, that is said."""
        followed, self.followed = self.followed, []
        for corpus, before in followed:
            try:
                corpus.refresh()
                tokens = corpus.get_slice(0, corpus.token_count).tolist()
            except HeadraceError:
                corpus.close()
            else:
                assert tokens[: len(before)] == before
                self.followed.append((corpus, tokens))

    def look_from_outside(self) -> None:
        """What `headrace status` says fits, and so does what can be followed of a build that is not finished."""
        try:
            status = build_status(self.output)
        except MissingShardError:
            assert self.published is None
            return
        assert status.fingerprint == (self.fingerprint if self.published is not None else "")
        if status.state == "done":
            assert (status.tokens, status.documents) == (len(self.published.line), len(self.published.documents))
        else:
            assert status.state == "dead"
            modes = {self.effective(command) for command in self.unfinished} | {c.mode for c in self.unfinished}
            assert status.mode in modes
        self.follow()

    def follow(self) -> None:
        """What can be followed is whole documents from the beginning of what is built, or what is published."""
        try:
            with headrace.open(self.output, live=True) as corpus:
                documents = [corpus.documents[number].tolist() for number in range(len(corpus.documents))]
                tokens = corpus.get_slice(0, corpus.token_count).tolist()
        except HeadraceError:
            if not self.damaged:
                raise
            return
        assert [token for document in documents for token in document] == tokens
        ends = [self.published] if self.published else []
        ends += [self.after(command) for command in self.unfinished]
        lines = [[list(document.tokens) for document in version.documents] for version in ends]
        assert self.damaged or any(line[: len(documents)] == documents for line in lines)


def live(machine: Any, examples: int, steps: int) -> None:
    """Live many lives, each of so many steps."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.reuse, Phase.generate],  # shorter lives are sought for longer than a test may take
        ),
    )


def test_in_memory():
    """What is read of an array is what the model says: so what the rules of reading ask is not asked of files alone."""
    live(InMemory, 10, 10)


@pytest.fixture
def builder_of_all(builder, tmp_path):
    """One that builds Lance corpora, too."""
    pytest.importorskip("lance")
    builder.ask(tmp_path, tmp_path, {}, lance=True)
    return builder


@pytest.mark.parametrize(("kind", "lives"), [("none", 4), ("gzip:1", 3), ("zstd:3", 3), ("lance", 3)])
def test_on_disk(builder_of_all, kind, lives):
    """Whatever happens, each corpus serves what was published, or nothing does, and every command ends as if undisturbed."""
    live(lambda: OnDisk(builder_of_all, (kind,)), lives, 10)


@pytest.mark.extended
@pytest.mark.parametrize(
    "kinds", [("none", "gzip:1", "zstd:3"), ("lance",), tuple(KINDS)], ids=["hdf5", "lance", "all"]
)
def test_on_disk_at_length(builder_of_all, kinds):
    """The same with many more lives, which are longer, and shards of several kinds in one corpus, or of one after another."""
    live(lambda: OnDisk(builder_of_all, kinds), 40, 25)


@pytest.mark.soak
@pytest.mark.parametrize(
    "kinds", [("none", "gzip:1", "zstd:3"), ("lance",), tuple(KINDS)], ids=["hdf5", "lance", "all"]
)
def test_on_disk_for_hours(builder_of_all, kinds):
    """The same again."""
    live(lambda: OnDisk(builder_of_all, kinds), 2000, 50)
