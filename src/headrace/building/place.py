"""Where in its source shard a job is, in words: said beforehand, so that it is known when the process is gone."""

from typing import NamedTuple

from headrace.sources import DocumentBatch, SourceShard

__all__ = ["Place", "place_after", "place_of", "start_of"]

_UNITS = {"parquet": "row", "arrow": "row", "array": "element", "given": "item"}


class Place(NamedTuple):
    """A place in a source shard."""

    parts: tuple[str | int, ...]
    """Words, and lines or rows from 1, as the source shard's reader counts."""

    def told(self, first_row: int) -> str:
        """In words.

        Args:
            first_row: row of the file from which on the reader counts.
        """
        return "".join(part if isinstance(part, str) else f"{part + first_row:,}" for part in self.parts)


def start_of(shard: SourceShard) -> Place:
    """Before the first documents are there."""
    label = shard.files[0].label
    begun = shard.cut is not None and shard.cut.start > 0
    return Place((f"{label} from byte {shard.cut.start:,}" if begun and shard.cut else f"the beginning of {label}",))


def place_of(batch: DocumentBatch, shard: SourceShard) -> Place:
    """The documents of a batch that has some: their file and lines, from 1, or their text files."""
    first, last = shard.files[batch.files[0]], shard.files[batch.files[-1]]
    if first.kind == "text":
        return Place((first.label if first is last else f"{first.label} to {last.label}",))
    start, end = int(batch.rows[0]) + 1, int(batch.rows[-1]) + 1
    unit = _unit(shard)
    return Place(
        (f"{first.label}, {unit} ", start) if start == end else (f"{first.label}, {unit}s ", start, " to ", end)
    )


def place_after(batch: DocumentBatch, shard: SourceShard) -> Place | None:
    """Behind all that a batch holds, where the next documents are read; None if it holds nothing."""
    ends = [(int(batch.rows[-1]), shard.files[batch.files[-1]].label)] if batch.texts else []
    ends += [(drop.row, drop.path) for drop in batch.drops[-1:]]
    if not ends:
        return None
    row, label = max(ends)
    if shard.files[0].kind == "text":
        return Place((f"what follows {label}",))
    return Place((f"{label} after {_unit(shard)} ", row + 1))


def _unit(shard: SourceShard) -> str:
    return _UNITS.get(shard.files[0].kind, "line")
