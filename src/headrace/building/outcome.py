"""From what became of each source shard: the manifest, the closing report, and the error where nothing was kept."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.building.job import ContentOptions, ShardOutcome
from headrace.building.joining import merged_sources
from headrace.building.plan import manifest_options
from headrace.errors import MAX_LISTED
from headrace.events import BuildFinished
from headrace.manifest import Manifest, SourceEntry, dtype_name_for
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["closing_report", "make_manifest", "nothing_kept"]


def make_manifest(outcomes: Sequence[ShardOutcome], tokenizer: BatchTokenizer, options: ContentOptions) -> Manifest:
    """The manifest of all shards; `outcomes` in source order, with the rows of their files."""
    entries = [entry for outcome in outcomes for entry in outcome.entries]
    start = 0
    placed = []
    for entry in entries:
        placed.append(replace(entry, global_start=start))
        start += entry.token_count
    return Manifest(
        chunk_size=options.chunk_tokens,
        shards=tuple(placed),
        dtype=dtype_name_for(tokenizer.vocab_size),
        vocab_size=tokenizer.vocab_size,
        boundary_token_id=options.boundary_token_id,
        tokenizer=tokenizer.ref,
        options=manifest_options(options),
        sources=merged_sources(outcomes),
        store=options.store,
    )


def _dropped(sources: Iterable[SourceEntry]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for source in sources:
        total.update(source.dropped)
    return dict(sorted(total.items()))


def nothing_kept(outcomes: Sequence[ShardOutcome]) -> str:
    """The message of a build that kept no document."""
    sources = merged_sources(outcomes)
    reasons = ", ".join(f"{count} {reason}" for reason, count in _dropped(sources).items())
    files = [source.path for source in sources]
    names = ", ".join(files[:MAX_LISTED]) + (" ..." if len(files) > MAX_LISTED else "")
    return f"no documents were kept of {names} ({reasons or '0 documents'}); nothing was published"


def closing_report(
    output: str, corpus: Manifest, added: Manifest, outcomes: Sequence[ShardOutcome], *, resumed: int, seconds: float
) -> BuildFinished:
    """The exact counts of a build.

    Args:
        output: the corpus folder.
        corpus: the manifest of the whole.
        added: that of what this build has made.
        outcomes: what became of each source shard.
        resumed: how many of them were finished by an earlier run.
        seconds: of this run.
    """
    dropped = _dropped(added.sources)
    return BuildFinished(
        output=output,
        fingerprint=corpus.fingerprint.hex,
        shards=len(added.shards),
        documents_in=sum(source.documents for source in added.sources) + sum(dropped.values()),
        documents=added.total_documents,
        dropped=dropped,
        replaced=sum(outcome.replaced for outcome in outcomes),
        cut_tokens=sum(outcome.cut_tokens for outcome in outcomes),
        tokens=sum(entry.token_count for entry in added.shards),
        boundary_tokens=added.total_documents,
        text_bytes=sum(outcome.text_bytes for outcome in outcomes),
        seconds=seconds,
        resumed=resumed,
        total_tokens=corpus.total_tokens,
    )
