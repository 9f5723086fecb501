"""Bad documents: reported many at once, and judged when there are too many."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.building.drop_log import MOST_KEPT, DropLog, faults_in
from headrace.building.hints import encoding_hint, fields_hint
from headrace.errors import MAX_LISTED, Problem, SourceError
from headrace.sources import WHOLE_FILE, DocumentBatch, Drop, SourceFile, SourceShard, read_shard
from headrace.sources.cuts import in_file
from headrace.sources.excerpt import excerpts
from headrace.sources.field import Field
from headrace.sources.rawfile import DamagedFileError

__all__ = [
    "CHECK_BYTES",
    "JUDGED_FROM",
    "MOST_KEPT",
    "BadDocumentsError",
    "DropLog",
    "FaultyInputError",
    "TooManyBadError",
    "check_sources",
    "fields_hint",
    "judge",
    "look_on",
    "places",
    "show_texts",
    "with_more",
]

CHECK_BYTES = 1 << 28
"""Bytes of input read on after the first bad document, in search of more to report."""
JUDGED_FROM = 1000
"""Documents of a source after which the share of bad ones is judged, so that small files are not cut off."""
_PLACES_BYTES = 1 << 24
"""Bytes read again in search of documents that were kept."""


def look_on(batches: Iterator[DocumentBatch], limit: int) -> tuple[list[Drop], bool]:
    """Return the faults in the next `limit` bytes, and whether reading stopped before the end.

    It also stops where there are enough, which more than a few are if most documents are bad: then the file or an option
    is wrong, and that is to be said at once. A damaged file is one fault, and the end.
    """
    found: list[Drop] = []
    consumed = kept = 0
    try:
        for batch in batches:
            found += faults_in(batch.drops)
            kept += len(batch.texts)
            consumed += batch.consumed
            if consumed > limit or len(found) >= MOST_KEPT or (len(found) > MAX_LISTED and len(found) > kept):
                return found, True
    except DamagedFileError as error:
        return [*found, _damage(error)], True
    return found, False


def check_sources(
    shards: Iterable[SourceShard], text_field: str | Field, limit: int = CHECK_BYTES
) -> tuple[list[Drop], bool]:
    """Read without encoding, for faults only, until `limit` bytes or enough of them; a damaged file is one fault.

    Returns:
        The faults, and whether reading stopped before the end.
    """
    found: list[Drop] = []
    for shard in shards:
        rest = tuple(file for file in shard.files if file.given is None)  # that can only be read once
        while rest:
            if limit <= 0 or len(found) > MAX_LISTED:
                return found, True
            left = replace(shard, files=rest)
            more, cut = look_on(read_shard(left, text_field=text_field), limit)
            found += in_file(left, more)
            limit -= left.size
            damaged = more[-1].path if more and more[-1].damage else None
            if cut and damaged is None:
                return found, True
            rest = rest[[file.label for file in rest].index(damaged) + 1 :] if damaged else ()
    return found, False


def _damage(error: DamagedFileError) -> Drop:
    return Drop(error.label, WHOLE_FILE, -1, error.what)


def with_more(
    error: SourceError, rest: Iterable[SourceShard], order: Mapping[str, int], text_field: str | Field
) -> SourceError:
    """The error that stopped a build which was to have no bad documents, with what is wrong in sources not yet read.

    So that one run reports many faults, whichever was met first.

    Args:
        error: what stopped it. One that is not about documents or damage is returned as it is.
        rest: the source shards that are not finished, the one that `error` is about among them.
        order: place of each file, by label; the problems are listed in it.
        text_field: as the build's.
    """
    if isinstance(error, DamagedFileError):
        damaged = _damage(error)
        others = (replace(shard, files=tuple(f for f in shard.files if f.label != error.label)) for shard in rest)
        more, cut = check_sources(others, text_field)
        if not more:
            return error
        first, documents, complete, hint = [damaged], 0, not cut, ""
    elif isinstance(error, BadDocumentsError) and len(error.drops) <= MAX_LISTED:
        first, documents, complete, hint = [*error.drops], error.documents, error.complete, error.hint
        told = {drop.path for drop in first}
        others = (shard for shard in rest if shard.cut or told.isdisjoint(file.label for file in shard.files))
        more, cut = check_sources(others, text_field)
        more = [drop for drop in more if drop not in first]  # one of the cuts has told of its own
        complete = complete and not cut
    else:
        return error
    documents += sum(not drop.damage for drop in more)
    drops = sorted([*first, *more], key=lambda drop: (order[drop.path], drop.damage, drop.row))
    return BadDocumentsError(drops, documents, complete=complete, hint=hint)


class FaultyInputError(SourceError):
    """Documents that stop a build.

    Attributes:
        drops: the first of them, `MOST_KEPT` at most, and damaged files.
        count: how many were found.
    """

    drops: tuple[Drop, ...]
    count: int

    def __str__(self) -> str:
        lines = [self.summary, *(f"  {problem}" for problem in self.problems[:MAX_LISTED])]
        more = self.count - min(len(self.problems), MAX_LISTED)
        return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines)


class BadDocumentsError(FaultyInputError):
    """Bad documents stop a build that was to have none.

    Args:
        drops: the first of them, and damaged files.
        documents: how many bad ones were found, at least those in `drops`.
        complete: whether everything was read, so that there are no more.
        hint: added to the message.
    """

    def __init__(self, drops: Sequence[Drop], documents: int, *, complete: bool, hint: str = "") -> None:
        damaged = sum(drop.damage for drop in drops)
        self.drops = tuple(drops[:MOST_KEPT])
        self.documents = documents
        self.count = documents + damaged
        self.complete = complete
        self.hint = hint
        found = [f"{documents} bad document{'s' * (documents != 1)}"] * (documents > 0)
        found += [f"{damaged} damaged file{'s' * (damaged > 1)}"] * (damaged > 0)
        other = ", or replace to put U+FFFD for what is no UTF-8" if any(map(_undecodable, drops)) else ""
        super().__init__(
            f"{'' if complete else 'at least '}{' and '.join(found)}; nothing was published. Mend them, or build with "
            f"--on-bad-input skip to leave {'bad documents' if damaged else 'them'} out and count them{other}{hint}"
            f"{encoding_hint(drops)}",
            problems=places(self.drops),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), complete=self.complete, hint=self.hint), (self.drops, self.documents)


class TooManyBadError(FaultyInputError):
    """So large a share of a source is bad that an option is likely wrong, or the source.

    Args:
        message: how many of how many, and what may be wrong.
        drops: the first of the bad ones.
        count: how many there were.
    """

    def __init__(self, message: str, drops: Sequence[Drop], count: int) -> None:
        self.drops = tuple(drops[:MOST_KEPT])
        self.count = count
        super().__init__(message, problems=places(self.drops))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.summary, self.drops, self.count)


def places(drops: Sequence[Drop]) -> list[Problem]:
    """Drops as the problems of an error."""
    return [Problem(drop.place, drop.told) for drop in drops]


def show_texts(error: FaultyInputError, files: Sequence[SourceFile]) -> list[Problem]:
    """The problems of an error, each with a part of the text that it is about, read from the files again.

    Args:
        error: what stopped a build.
        files: the build's inputs, the faulty ones among them.
    """
    wanted: dict[str, list[int]] = {}
    for drop in error.drops:
        if drop.byte >= 0:
            wanted.setdefault(drop.path, []).append(drop.byte)
    texts = {file.label: excerpts(file, wanted[file.label]) for file in files if file.label in wanted}
    return [
        replace(problem, reason=f"{problem.reason}: {text}") if text else problem
        for problem, drop in zip(error.problems, error.drops, strict=True)
        for text in [texts.get(drop.path, {}).get(drop.byte, "")]
    ]


def judge(
    shard: SourceShard,
    text_field: str | Field,
    first: Sequence[Drop],
    *,
    seen: int,
    faults: int,
    replaced: int,
    limit: float,
) -> None:
    """Stop where too large a share of a source is bad: it is then more likely that an option is wrong, or the source.

    Documents in which something was replaced are as bad as those left out: a source full of them is in another encoding.

    Args:
        shard: the source.
        text_field: where its texts are looked for.
        first: the first documents left out for a fault.
        seen: documents so far.
        faults: of them, left out for another reason than being empty.
        replaced: of them, kept with U+FFFD for what was no UTF-8.
        limit: share of them that may be bad, from 0 to 1.

    Raises:
        TooManyBadError: more of them are, and enough were seen to tell.
    """
    bad = faults + replaced
    if seen < JUDGED_FROM or bad <= limit * seen:
        return
    drops = in_file(shard, first)
    if replaced:  # where they lie was not written down, as they were kept
        drops = check_sources([shard], text_field, _PLACES_BYTES)[0] or drops
    kept = f" ({replaced} hold bytes that are no UTF-8 and became U+FFFD)" if replaced else ""
    part = f" (from byte {shard.cut.start:,})" if shard.cut and shard.cut.start else ""
    raise TooManyBadError(
        f"{shard.files[0].label}{part}: {bad} of the first {seen} documents are bad{kept}, more than the {limit:.2%} that "
        f"--max-bad allows{fields_hint(shard, drops)}{encoding_hint(drops)}",
        drops,
        bad,
    )


def _undecodable(drop: Drop) -> bool:
    return drop.reason in {"invalid UTF-8", "lone surrogate"}  # not where the file is in a wide encoding
