"""What a build has finished so far, on disk, so that the same command can go on from there.

The journal (`.headrace/journal.jsonl`) begins with the plan: everything that makes a command "the same". Each source shard
adds a row once its files are whole on disk. After publishing it stays, its rows in order.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.building.job import ShardOutcome
from headrace.building.plan import BuildPlan, PlannedSource
from headrace.errors import ManifestError
from headrace.in_progress import Key, entries_of, journal_rows
from headrace.manifest import Manifest, SourceEntry, TokenizerRef
from headrace.manifest_checks import ManifestChecker
from headrace.sources import Drop
from headrace.storage.atomic import naming_file, write_bytes

__all__ = ["Journal", "Shuffled"]

_SYNC_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Shuffled:
    """What a build has read that puts its documents in a random order: the other rows are of parts of that order."""

    parts: int
    """How many there are to write."""
    read: tuple[ShardOutcome, ...]
    """What became of each source shard, in order, without shards."""

    def is_like(self, other: "Shuffled | None") -> bool:
        """Whether the same was read, and so the same parts are to be written."""
        if other is None or self.parts != other.parts:
            return False
        mine, theirs = (
            [(outcome.key, outcome.sources, outcome.duplicates) for outcome in read] for read in (self.read, other.read)
        )
        return mine == theirs


@dataclass(slots=True)
class Journal:
    """The journal of the shards in a folder."""

    path: Path
    before: bytes = b""
    """Rows of the builds that were published before this one."""
    plan: BuildPlan | None = None
    finished: dict[Key, ShardOutcome] = field(default_factory=dict[Key, ShardOutcome])
    earlier: dict[Key, ShardOutcome] = field(default_factory=dict[Key, ShardOutcome])
    """What the build before this one had finished."""
    shuffled: Shuffled | None = None
    """Where documents are shuffled and all were read."""
    faulty: frozenset[str] = frozenset()
    """Labels of sources with bad documents, which stopped the build."""
    aside: bytes = b""
    """Rows of an append that is not finished, while the corpus that it adds to is mended; and ..."""
    aside_finished: dict[Key, ShardOutcome] = field(default_factory=dict[Key, ShardOutcome])
    """... what it has finished."""
    _aside_plan: BuildPlan | None = None
    _aside_shuffled: Shuffled | None = None
    _synced: float = 0.0

    @classmethod
    def load(cls, path: Path) -> "Journal":
        """Read what an earlier run has left; an empty journal where there is none, or it makes no sense."""
        journal = cls(path)
        try:
            for kind, value in journal_rows(path):
                if kind == "plan":
                    plan = _plan_of(value)
                    if journal.plan is not None and journal.plan.mode == "append" != plan.mode:
                        journal.set_aside()
                    journal.publish()
                    journal.plan = plan
                elif kind == "shuffled":
                    read = tuple(_outcome_of(row, name=str(path)) for row in value["read"])
                    journal.shuffled = Shuffled(value["parts"], read)
                elif kind == "finished":
                    outcome = _outcome_of(value, name=str(path))
                    journal.finished[outcome.key] = outcome
                elif kind == "faulty":
                    journal.faulty |= frozenset(map(str, value))
        except (ManifestError, KeyError, TypeError, ValueError):
            return cls(path)
        return journal

    def publish(self) -> None:
        """Count what is recorded so far as published: what is begun from now on adds to it."""
        if self.plan is not None:
            self.before += self._rows()
            self.earlier = self.finished
        self.plan, self.finished, self.faulty, self.shuffled = None, {}, frozenset(), None

    def appends_to(self, corpus: Manifest) -> bool:
        """Whether an append to this corpus was begun and not published."""
        return self.plan is not None and self.plan.mode == "append" and self.plan.base == corpus.fingerprint.hex

    def share(self, count: int, shards: int) -> str:
        """So many of what the build does, in words; `shards` are its source shards."""
        if self.shuffled is None:
            return f"{count} of {shards} source shards"
        return f"{count} of {self.shuffled.parts} parts of the shuffled documents"

    @property
    def kept(self) -> dict[Key, ShardOutcome]:
        """What is finished, and whose shards lie in the folder."""
        return self.aside_finished | self.finished

    def set_aside(self) -> None:
        """Go back to the build before the append that was begun: the corpus is to be mended first."""
        self.aside, self._aside_plan, self.aside_finished = self._rows(), self.plan, self.finished
        self._aside_shuffled = self.shuffled
        self.before, self.plan, self.finished, self.earlier, self.shuffled = b"", None, self.earlier, {}, None
        self.faulty = frozenset()

    def take_up(self) -> None:
        """Go on with the append that was set aside, if there is one."""
        if self.aside:
            self.publish()
            self.plan, self.finished, self.shuffled = self._aside_plan, self.aside_finished, self._aside_shuffled
            self.aside, self._aside_plan, self.aside_finished, self._aside_shuffled = b"", None, {}, None

    def begin(self, plan: BuildPlan) -> None:
        """Write the plan and what is finished, in order of the source shards."""
        self.plan = plan
        if plan.options.get("sample_seed") is None:  # what was begun there before may have had one
            self.shuffled = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.record()

    def record(self) -> None:
        """Write all rows anew, in order of the source shards, however they were finished."""
        write_bytes(self.path, self.before + self.aside + self._rows())

    def move(self, path: Path) -> None:
        """Go on at another place, as the journal of a first build."""
        if self.plan is not None:
            self.plan = replace(self.plan, mode="build")
        self.path = path
        self.record()

    def _rows(self) -> bytes:
        assert self.plan is not None  # noqa: S101  # begun or loaded
        rows: list[Mapping[str, Any]] = [{"plan": asdict(self.plan)}]
        if self.shuffled is not None:
            read = [_row_of(outcome) for outcome in self.shuffled.read]
            rows.append({"shuffled": {"parts": self.shuffled.parts, "read": read}})
        rows += [{"finished": _row_of(self.finished[key])} for key in sorted(self.finished)]
        return b"".join(map(_line, rows))

    def restore(self) -> None:
        """Leave what was published before, and nothing of this build."""
        if self.before or self.aside:
            write_bytes(self.path, self.before + self.aside)
        else:
            self.path.unlink(missing_ok=True)

    def finish(self, outcome: ShardOutcome) -> None:
        """Record a source shard whose files are whole on disk."""
        self.finished[outcome.key] = outcome
        self._append({"finished": _row_of(outcome)})

    def blame(self, labels: Sequence[str]) -> None:
        """Record sources that the user is asked to mend, so that they may change."""
        self._append({"faulty": sorted(set(labels))})

    def _append(self, row: Mapping[str, Any]) -> None:
        with naming_file(self.path), self.path.open("ab") as file:
            file.write(_line(row))
            file.flush()
            # A row that a crash of the machine loses costs one source shard; waiting each time would cost more.
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                os.fsync(file.fileno())
                self._synced = time.monotonic()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True).encode() + b"\n"  # ASCII: file names that are no UTF-8 are escaped


def _plan_of(row: dict[str, Any]) -> BuildPlan:
    tokenizer = row["tokenizer"] and TokenizerRef(**row["tokenizer"])
    sources = tuple(PlannedSource(**source) for source in row["sources"])
    return BuildPlan(mode=row["mode"], base=row["base"], options=row["options"], tokenizer=tokenizer, sources=sources)


def _row_of(outcome: ShardOutcome) -> dict[str, Any]:
    of_a_cut = {"cut": outcome.cut, "cuts": outcome.cuts, "rows": outcome.rows} if outcome.cuts > 1 else {}
    return (
        of_a_cut
        | {
            "index": outcome.index,
            "entries": [entry.row() for entry in outcome.entries],
            "sources": [source.row() for source in outcome.sources],
            "documents_in": outcome.documents_in,
            "replaced": outcome.replaced,
            "cut_tokens": outcome.cut_tokens,
            "text_bytes": outcome.text_bytes,
            "drops": [asdict(drop) for drop in outcome.drops],
        }
        | ({} if outcome.most is None else {"most": outcome.most})
        | ({"duplicates": outcome.duplicates} if outcome.duplicates else {})
    )


def _outcome_of(row: dict[str, Any], *, name: str) -> ShardOutcome:
    return ShardOutcome(
        index=row["index"],
        entries=entries_of(row["entries"], name=name),
        extents=(),
        sources=_sources_of(row["sources"], name=name),
        documents_in=row["documents_in"],
        replaced=row["replaced"],
        cut_tokens=row["cut_tokens"],
        text_bytes=row["text_bytes"],
        drops=tuple(Drop(**drop) for drop in row["drops"]),
        most=row.get("most"),
        cut=row.get("cut", 0),
        cuts=row.get("cuts", 1),
        rows=row.get("rows", 0),
        duplicates=row.get("duplicates", ""),
    )


def _sources_of(rows: Sequence[Mapping[str, Any]], *, name: str) -> tuple[SourceEntry, ...]:
    check = ManifestChecker(name)
    sources = tuple(check.source(row, f"sources[{number}].", part=True) for number, row in enumerate(rows))
    if check.problems:
        raise ManifestError(f"{name}: is damaged", problems=check.problems)
    return sources
