"""Where in its source shard a job is, in words: said beforehand, so that it is known when the process is gone."""

from headrace.sources import DocumentBatch, SourceShard

__all__ = ["place_after", "place_of", "start_of"]

_UNITS = {"parquet": "row", "arrow": "row", "array": "element", "given": "item"}


def start_of(shard: SourceShard) -> str:
    """Before the first documents are there."""
    return f"the beginning of {shard.files[0].label}"


def place_of(batch: DocumentBatch, shard: SourceShard) -> str:
    """The documents of a batch that has some: their file and lines, from 1, or their text files."""
    first, last = shard.files[batch.files[0]], shard.files[batch.files[-1]]
    if first.kind == "text":
        return first.label if first is last else f"{first.label} to {last.label}"
    start, end = int(batch.rows[0]) + 1, int(batch.rows[-1]) + 1
    unit = _unit(shard)
    return f"{first.label}, {unit} {start:,}" if start == end else f"{first.label}, {unit}s {start:,} to {end:,}"


def place_after(batch: DocumentBatch, shard: SourceShard) -> str:
    """Behind all that a batch holds, where the next documents are read; empty if it holds nothing."""
    ends = [(int(batch.rows[-1]), shard.files[batch.files[-1]].label)] if batch.texts else []
    ends += [(drop.row, drop.path) for drop in batch.drops[-1:]]
    if not ends:
        return ""
    row, label = max(ends)
    return f"what follows {label}" if shard.files[0].kind == "text" else f"{label} after {_unit(shard)} {row + 1:,}"


def _unit(shard: SourceShard) -> str:
    return _UNITS.get(shard.files[0].kind, "line")
