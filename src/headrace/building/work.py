"""What a build has to do in its output folder: everything, or what an earlier run of the same command has not finished."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from headrace.building.job import ContentOptions, ShardJob, ShardOutcome
from headrace.building.journal import Journal, Shuffled
from headrace.building.output import (
    DROPPED,
    OutputFolder,
    remove_empty_data_sets,
    remove_first_pass,
    remove_logs,
    remove_partial,
    remove_shards,
)
from headrace.building.plan import BuildPlan
from headrace.building.replacing import forget_data_sets, remove_replaced
from headrace.errors import OutputExistsError, Problem
from headrace.in_progress import BUILDING_NAME, JOURNAL, NEXT, Key, Mode
from headrace.manifest import Manifest
from headrace.sources import Discovery
from headrace.storage.lance_names import DATA_SETS

__all__ = ["Work"]


@dataclass(kw_only=True)
class Work:
    """A build's place in its output folder."""

    folder: OutputFolder
    mode: Mode
    journal: Journal
    base: Manifest | None = None
    """The corpus that is appended to."""
    replaced: Manifest | None = None
    """The corpus that goes once the new one is whole."""
    first_index: int = 0
    """Of the new source shards."""
    published: Manifest | None = None
    """The corpus that this very command has published before, where it has, or added to."""
    refuse_known: bool = False
    """Whether documents of a program must not be added that are in the corpus already."""
    sound: bool = False
    """Whether that is whole on disk, so that nothing is left to do."""

    @property
    def shards(self) -> Path:
        """Folder of the new shards."""
        return self.folder.path / NEXT if self.mode == "overwrite" else self.folder.path

    @property
    def there(self) -> Manifest | None:
        """The corpus that is published in the folder, if one is."""
        return self.base or self.published or self.replaced

    @property
    def first_source(self) -> int:
        """Index of the first new source file in the manifest."""
        return len(self.base.sources) if self.base else 0

    def jobs(self, found: Discovery, options: ContentOptions) -> list[ShardJob]:
        """All source shards, in order, the finished ones included."""
        jobs: list[ShardJob] = []
        source = self.first_source
        for shard in found.shards:
            placed = replace(shard, index=self.first_index + shard.index)
            jobs.append(ShardJob(shard=placed, source=source, options=options, output=self.shards))
            source += len(shard.files) if shard.is_last else 0
        return jobs

    def begin(self, plan: BuildPlan) -> None:
        """Remove leftovers, and write down what is built and what of it is finished."""
        (self.shards / DROPPED.parent).mkdir(parents=True, exist_ok=True)
        self.journal.begin(plan)  # first, so that nothing is gone that the journal still tells of
        remove_first_pass(self.folder.path)
        self._roll_back()
        self.remove_leftovers()

    def _roll_back(self) -> None:
        """Remove what of Lance data sets was committed and never published; without them, Lance is not asked."""
        if any((self.folder.path / name).exists() for name in DATA_SETS):
            from headrace.storage.lance_versions import roll_back  # noqa: PLC0415  # an extra

            roll_back(self.folder.path, self.there.lance if self.there else None)

    @property
    def done(self) -> Sequence[ShardOutcome]:
        """What became of each source shard of the corpus that is published, as far as that is known."""
        return tuple(
            (self.journal.earlier if self.appending else self.journal.finished or self.journal.earlier).values()
        )

    @property
    def appending(self) -> bool:
        """Whether an append to the corpus that is published was begun and not finished."""
        return self.published is not None and self.journal.appends_to(self.published)

    @cached_property
    def overwriting(self) -> int | None:
        """How many source shards an overwrite has finished that would replace the corpus that is there; None without one."""
        there = self.published or self.base
        journal = Journal.load(self.folder.path / NEXT / JOURNAL)
        if there is None or journal.plan is None:
            return None
        made = [
            (entry.path, entry.sha256) for key in sorted(journal.finished) for entry in journal.finished[key].entries
        ]
        is_there = made == [(entry.path, entry.sha256) for entry in there.shards]  # then it only could not tidy up
        return None if is_there else len(journal.finished)

    def tidy(self) -> None:
        """Remove what is left beside a corpus that is there and whole, but for what another command has not finished."""
        assert self.published is not None  # noqa: S101  # the corpus that is there
        remove_first_pass(self.folder.path)
        if self.appending or self.journal.aside or self.overwriting is not None:
            return
        (self.folder.path / BUILDING_NAME).unlink(missing_ok=True)
        remove_partial(self.folder.path)
        remove_shards(self.folder.path, _paths(self.published))
        remove_replaced(self.folder.path, self.published, NEXT)
        self.remove_mended(self.published)

    def remove_mended(self, manifest: Manifest) -> None:
        """Of a Lance corpus that was whole no more, and is again, remove what was damaged: what is mended has other names."""
        if self.published is not None and manifest.lance is not None and not manifest.appends:
            forget_data_sets(self.folder.path, manifest)
            kept = {entry.path for outcome in self.journal.kept.values() for entry in outcome.entries}
            remove_shards(self.folder.path, kept | _paths(manifest))

    def remove_leftovers(self) -> None:
        """Remove what an earlier run has left half done."""
        keep = {entry.path for outcome in self.journal.kept.values() for entry in outcome.entries}
        for manifest in (self.base, self.published):  # these go on being served
            keep |= _paths(manifest) if manifest else set()
            if manifest and self.overwriting is None:
                remove_replaced(self.folder.path, manifest, NEXT)
        remove_partial(self.folder.path)
        if self.replaced is not None:
            # An overwrite may have ended just before it removed the shards of an older corpus.
            remove_partial(self.shards)
            remove_shards(self.folder.path, {entry.path for entry in self.replaced.shards})  # not those set aside
        remove_shards(self.shards, keep)
        shuffled = self.journal.shuffled
        listed = set(self.journal.kept) | {outcome.key for outcome in (shuffled.read if shuffled else ())}
        remove_logs(self.shards, self.first_index, listed)

    def forget_logs(self) -> None:
        """Remove the lists of what was not kept: all sources are read again."""
        remove_logs(self.shards, self.first_index, ())

    def begin_parts(self, shuffled: Shuffled) -> None:
        """Write down what was read of documents that are shuffled; parts that were made of something else go."""
        if not shuffled.is_like(self.journal.shuffled):
            self.journal.finished.clear()
        self.journal.shuffled = shuffled
        self.journal.record()
        self.remove_leftovers()

    def discard(self, keys: Sequence[Key]) -> None:
        """Do source shards again that were finished by an earlier run, but not as this one wants them."""
        if keys:
            for key in keys:
                del self.journal.finished[key]
            self.journal.record()
            self.remove_leftovers()

    def refuse_known_documents(self, outcomes: Sequence[ShardOutcome]) -> None:
        """Refuse to add what a program gave, if the corpus holds all of it already; what it is, is known once it was read.

        Raises:
            OutputExistsError: it does.
        """
        if not self.refuse_known or self.base is None:
            return
        known = {source.sha256: source.path for source in self.base.sources if source.sha256}
        same = [source for outcome in outcomes for source in outcome.sources if source.sha256 in known]
        if same:
            raise OutputExistsError(
                f"{self.folder.path}: the same documents would be in the corpus twice; allow_duplicates adds them",
                problems=[
                    Problem(source.path, f"is in the corpus already, as {known[source.sha256]}") for source in same
                ],
            )

    def abandon(self, faulty: Sequence[str] = (), *, keep: bool = True) -> int:
        """After a failure: keep the source shards that are finished; if there are none, leave the folder as it was.

        Args:
            faulty: labels of sources that the user is asked to mend.
            keep: whether what is finished can be trusted.

        Returns:
            How many source shards were kept.
        """
        if not keep or not any(outcome.entries for outcome in self.journal.finished.values()):
            self.journal.finished.clear()
        finished = len(self.journal.finished)
        with suppress(OSError):  # what cannot be removed is no reason to hide what went wrong
            self.remove_leftovers()
            if finished and faulty:
                self.journal.blame(faulty)
            elif not finished:
                (self.folder.path / BUILDING_NAME).unlink(missing_ok=True)
                self.journal.restore()
                remove_empty_data_sets(self.shards)
                (self.shards / DROPPED).rmdir()  # empty now, unless there was a corpus before
        if not finished and self.mode == "overwrite":
            shutil.rmtree(self.shards, ignore_errors=True)
        return finished if self.journal.path.exists() else 0  # else it was removed, perhaps with all else


def _paths(manifest: Manifest) -> set[str]:
    """Of its shards in the folder, under their own names also where they have second ones."""
    return {entry.path for entry in manifest.shards} | {Path(entry.path).name for entry in manifest.shards}
