"""From the cuts of files to whole ones: the lines of cuts are known once all before them are read."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.building.cutting import unplaced_log
from headrace.building.job import ShardOutcome
from headrace.building.output import drop_log
from headrace.manifest import SourceEntry
from headrace.storage.atomic import fresh_name, publish

__all__ = ["in_files", "merged_sources", "publish_logs", "row_bases"]


def in_files(outcomes: Sequence[ShardOutcome]) -> Iterator[ShardOutcome]:
    """Outcomes with the rows of their files, where those of a cut count from its first; all cuts of a file, in order."""
    for outcome, base in zip(outcomes, row_bases((outcome.cut, outcome.rows) for outcome in outcomes), strict=True):
        entries = (replace(entry, row_base=entry.row_base + base) for entry in outcome.entries)
        drops = (replace(drop, row=drop.row + base) if drop.row >= 0 else drop for drop in outcome.drops)
        yield replace(outcome, entries=tuple(entries), drops=tuple(drops)) if base else outcome


def row_bases(parts: Iterable[tuple[int, int]]) -> Iterator[int]:
    """What is added to the rows of each part of a file; `parts` are the number and the lines of all cuts of it, in order."""
    base = 0
    for cut, rows in parts:
        base = base if cut else 0
        yield base
        base += rows


def merged_sources(outcomes: Sequence[ShardOutcome]) -> tuple[SourceEntry, ...]:
    """The entry of each source file, put together from its cuts; `outcomes` are of whole files, in order."""
    found: list[SourceEntry] = []
    for outcome in outcomes:
        if not outcome.cut:
            found += outcome.sources
            continue
        whole, (part,) = found[-1], outcome.sources
        dropped = {
            reason: whole.dropped.get(reason, 0) + part.dropped.get(reason, 0)
            for reason in sorted({*whole.dropped, *part.dropped})
        }
        found[-1] = replace(
            whole, documents=whole.documents + part.documents, dropped=dropped, cuts=(*whole.cuts, *part.cuts)
        )
    return tuple(found)


def publish_logs(folder: Path, outcomes: Sequence[ShardOutcome]) -> None:
    """Give the lists of documents that were not kept the lines of their files, where they have those of a cut."""
    for outcome, base in zip(outcomes, row_bases((outcome.cut, outcome.rows) for outcome in outcomes), strict=True):
        unplaced = unplaced_log(folder, outcome.key)
        if not unplaced.exists():
            continue
        final = drop_log(folder, outcome.key)
        fresh = fresh_name(final)
        try:
            with unplaced.open(encoding="utf-8") as lines, fresh.open("w", encoding="utf-8") as log:
                for line in lines:
                    row = json.loads(line)
                    row["line"] = row["line"] and row["line"] + base
                    log.write(json.dumps(row, ensure_ascii=False) + "\n")
            publish(fresh, final)
        finally:
            fresh.unlink(missing_ok=True)
        unplaced.unlink()
