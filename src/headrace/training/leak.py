"""Whether a held-out corpus has texts that the model is trained on."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import NoDocumentsError, Problem, TrainingError
from headrace.events import Notice, Subscriber, ignore
from headrace.reading import Corpus

__all__ = ["check_no_leak"]


def check_no_leak(
    train: Corpus, held_out: Corpus, *, on_event: Subscriber = ignore
) -> Literal["split", "texts", "unknown"]:
    """Refuse a held-out corpus that shares texts with the training corpus, as far as it can be told.

    Parts of one split (`headrace split`) share none. Others are told by the hashes of their texts, which a corpus stores
    that was built with `--dedup exact`; texts that are nearly the same are different.

    Args:
        train: what is trained on.
        held_out: what is evaluated on.
        on_event: receives one `Notice` where it cannot be told.

    Returns:
        What tells that they share no text: the record of their split, the hashes of all texts; or that nothing does.

    Raises:
        TrainingError: they do share texts, or have different tokenizers.
    """
    names = f"{held_out.path}, which is held out, and {train.path}"
    tokenizers = [corpus.manifest.tokenizer for corpus in (held_out, train)]
    if len({one.sha256 for one in tokenizers if one is not None and one.sha256}) > 1:
        raise TrainingError(f"{names} have different tokenizers: {' and '.join(one.name for one in tokenizers if one)}")
    if _within(held_out) & _holds(train) or _within(train) & _holds(held_out):
        raise TrainingError(
            f"{names} are the same corpus, or one is a part of the other: evaluate on a part that is not trained on, as "
            "`headrace split` makes them"
        )
    if _sides_differ(train, held_out):
        return "split"
    try:
        problems, count = _shared(train, held_out)
    except NoDocumentsError:
        message = (
            f"whether {names} share texts cannot be told: they are no parts of one `headrace split`, and do not both store "
            "the hashes of their texts, as those built with --dedup exact do"
        )
        on_event(Notice(kind="warning", message=message))
        return "unknown"
    if count:
        raise TrainingError(f"{names} share {count:,} documents", problems=problems)
    return "texts"


def _within(corpus: Corpus) -> set[str]:
    """Fingerprints of corpora that have all of its documents: its own, and those that it is a part of."""
    return {corpus.fingerprint.hex, *(split.base for split in corpus.manifest.splits)}


def _holds(corpus: Corpus) -> set[str]:
    """Fingerprints of corpora all of whose documents it has: its own, and those before something was appended."""
    return {corpus.fingerprint.hex, *(append.base for append in corpus.manifest.appends)}


def _sides_differ(one: Corpus, other: Corpus) -> bool:
    """Whether they are different parts of one split: by seed, fractions and the hash of a document, whatever it is in."""
    if one.manifest.appends or other.manifest.appends:  # of what came later the record says nothing
        return False
    parts = {(split.seed, split.by, split.fractions, split.rest): split.part for split in one.manifest.splits}
    return any(
        parts.get((split.seed, split.by, split.fractions, split.rest), split.part) != split.part
        for split in other.manifest.splits
    )


def _shared(train: Corpus, held_out: Corpus) -> tuple[list[Problem], int]:
    """Find the documents that are held out and trained on; returns the first of each shard of `train`, and how many.

    Raises:
        NoDocumentsError: one of the two does not store the hashes of its texts.
    """
    held = [_hashes(held_out, shard) for shard in range(len(held_out.entries))]
    numbers = {row.tobytes(): number for number, row in enumerate(np.concatenate([np.empty((0, 16), np.uint8), *held]))}
    known = np.array([int.from_bytes(text[:8], "little") for text in numbers], np.uint64)
    problems: list[Problem] = []
    count = first = 0
    for shard, entry in enumerate(train.entries):
        hashes = _hashes(train, shard)
        alike = np.flatnonzero(np.isin(hashes[:, :8].copy().view("<u8")[:, 0], known))
        shared = [place for place in alike.tolist() if hashes[place].tobytes() in numbers]
        if shared:
            place = shared[0]
            problems.append(
                Problem(_place(held_out, numbers[hashes[place].tobytes()]), f"is also {_place(train, first + place)}")
            )
        count += len(shared)
        first += entry.document_count
    return problems, count


def _hashes(corpus: Corpus, shard: int) -> NDArray[np.uint8]:
    """Of the texts of a shard, `(documents, 16)`."""
    if not corpus.entries[shard].document_count:
        return np.empty((0, 16), np.uint8)
    return corpus.documents.text_hashes(shard)


def _place(corpus: Corpus, document: int) -> str:
    where = corpus.locate(corpus.documents.bounds(document)[0])
    return f"document {document} of {corpus.path}" + ("" if where.source is None else f" ({where.source}:{where.line})")
