"""What a split tells in the end."""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path

from headrace.events import Notice, SplitFinished, SplitPart, Subscriber
from headrace.manifest import Manifest, Split
from headrace.splitting.place import Part

__all__ = ["closing_report", "tell_cut", "tell_small"]

_FEW = 4
_FAR = 0.5
"""A part that is so many standard deviations below what was asked for, and has less than this share of it, is small."""


def tell_cut(whole: Manifest, record: Split, on_event: Subscriber) -> None:
    """Say where documents may be on two sides that are equal only as far as they were kept."""
    options = [whole.options, *(append.options for append in whole.appends)]
    if record.by == "text" and any(one.get("max_document_tokens") for one in options):
        message = (
            "documents were cut at max_document_tokens, and go by their whole texts: two that differ only behind the cut may "
            "be in two parts; by tokens they would be in one"
        )
        on_event(Notice(kind="cut", message=message))


def tell_small(parts: Sequence[Part], whole: Manifest, on_event: Subscriber) -> None:
    """Say which parts have no document, or far fewer than were asked for."""
    total = whole.total_documents
    for part in parts:
        found = part.manifest.total_documents if part.manifest else 0
        share = float(part.share)
        wanted = total * share
        if not found or found < min(wanted - _FEW * sqrt(wanted * (1 - share)), wanted * _FAR):
            message = (
                f"{part.name} has {found:,} of {total:,} documents, where {wanted:,.1f} were to be expected; documents go by "
                "the hash of their content, so a part of a small corpus, or of one with many equal documents, can be empty"
            )
            on_event(Notice(kind="small", message=message))


def closing_report(output: str, record: Split, parts: Sequence[Part], *, kept: int, seconds: float) -> SplitFinished:
    """All exact.

    Args:
        output: the folder.
        record: what the parts say of their origin.
        parts: which are there.
        kept: how many of them were there before.
        seconds: of this run.
    """
    asked = dict(record.fractions)
    made = [(part, part.manifest) for part in parts if part.manifest is not None]
    return SplitFinished(
        output=output,
        base=record.base,
        seed=record.seed,
        by=record.by,
        parts=tuple(
            SplitPart(
                name=part.name,
                path=str(Path(output) / part.name),
                fingerprint=manifest.fingerprint.hex,
                fraction=asked.get(part.name, ""),
                documents=manifest.total_documents,
                tokens=manifest.total_tokens,
                shards=len(manifest.shards),
            )
            for part, manifest in made
        ),
        kept=kept,
        seconds=seconds,
    )
