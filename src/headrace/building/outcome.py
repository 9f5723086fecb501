"""From what became of each source shard: the manifest, the closing report, and the error where nothing was kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headrace.building.job import ContentOptions, ShardOutcome
from headrace.errors import MAX_LISTED
from headrace.events import BuildFinished
from headrace.manifest import Manifest, dtype_name_for
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["closing_report", "make_manifest", "nothing_kept"]


def make_manifest(outcomes: Sequence[ShardOutcome], tokenizer: BatchTokenizer, options: ContentOptions) -> Manifest:
    """The manifest of all shards; `outcomes` in source order."""
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
        options={
            "bos_token_id": options.bos_token_id,
            "keep_empty": options.keep_empty,
            "max_document_tokens": options.max_document_tokens,
            "on_bad_input": options.on_bad_input,
            "shard_tokens": options.shard_tokens,
            "text_field": options.text_field,
        },
        sources=tuple(source for outcome in outcomes for source in outcome.sources),
    )


def _dropped(outcomes: Sequence[ShardOutcome]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for outcome in outcomes:
        for source in outcome.sources:
            total.update(source.dropped)
    return dict(sorted(total.items()))


def nothing_kept(outcomes: Sequence[ShardOutcome]) -> str:
    """The message of a build that kept no document."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in _dropped(outcomes).items())
    files = [source.path for outcome in outcomes for source in outcome.sources]
    names = ", ".join(files[:MAX_LISTED]) + (" ..." if len(files) > MAX_LISTED else "")
    return f"no documents were kept of {names} ({reasons or '0 documents'}); nothing was published"


def closing_report(output: str, manifest: Manifest, outcomes: Sequence[ShardOutcome], seconds: float) -> BuildFinished:
    """The exact counts of a build."""
    return BuildFinished(
        output=output,
        fingerprint=manifest.fingerprint.hex,
        shards=len(manifest.shards),
        documents_in=sum(outcome.documents_in for outcome in outcomes),
        documents=manifest.total_documents,
        dropped=_dropped(outcomes),
        replaced=sum(outcome.replaced for outcome in outcomes),
        cut_tokens=sum(outcome.cut_tokens for outcome in outcomes),
        tokens=manifest.total_tokens,
        boundary_tokens=manifest.total_documents,
        text_bytes=sum(outcome.text_bytes for outcome in outcomes),
        seconds=seconds,
    )
