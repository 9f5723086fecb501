"""Reading what a build wants of a source shard, and stopping where too much of it is bad."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.building.duplicates import Duplicates
from headrace.building.faults import CHECK_BYTES, BadDocumentsError, fields_hint, judge, look_on
from headrace.building.tally import Tally
from headrace.errors import BuildError
from headrace.sources import BadInput, DocumentBatch, Drop, SourceShard, first_documents, read_shard
from headrace.sources.cuts import in_file
from headrace.sources.rawfile import Observer

if TYPE_CHECKING:
    from headrace.building.job import ContentOptions

__all__ = ["not_enough_memory", "refuse_faults", "wanted_batches"]


def wanted_batches(
    shard: SourceShard,
    options: "ContentOptions",
    *,
    most: int | None = None,
    duplicates: Duplicates | None = None,
    observe: Observer | None = None,
) -> Iterator[DocumentBatch]:
    """Read the documents of a source shard but for its duplicates, `most` of them at most; errors are those of `read_shard`."""
    batches = read_shard(
        shard,
        text_field=options.field,
        on_bad_input=options.on_bad_input,
        keep_empty=options.keep_empty,
        observe=observe,
        cut_bytes=options.cut_bytes,
    )
    if duplicates is not None:
        batches = duplicates.left_out(batches, shard)
    return batches if most is None else first_documents(batches, shard, most)


def refuse_faults(
    shard: SourceShard,
    options: "ContentOptions",
    tally: Tally,
    first: Sequence[Drop],
    rest: Iterator[DocumentBatch],
) -> None:
    """Stop at bad documents, as `on_bad_input` and `max_bad` say.

    Args:
        shard: the source.
        options: of the build.
        tally: of what was read so far.
        first: the first bad documents in it.
        rest: what comes after it, read on for a while so that one run reports many faults.

    Raises:
        BadDocumentsError: there is one, and there must be none.
        TooManyBadError: too large a share is bad.
    """
    if tally.faults and options.on_bad_input == BadInput.ERROR:
        more, cut = look_on(rest, CHECK_BYTES)
        found = in_file(shard, [*first, *more])
        raise BadDocumentsError(found, tally.faults, complete=not cut, hint=fields_hint(shard, found))
    judge(
        shard,
        options.field,
        first,
        seen=tally.documents_in,
        faults=tally.faults,
        replaced=tally.replaced,
        limit=options.max_bad,
    )


def not_enough_memory(shard: SourceShard, tally: Tally, error: MemoryError) -> BuildError:
    """What is said where memory runs out while a source shard is read."""
    part = f" of the part from byte {shard.cut.start:,} on" if shard.cut else ""
    return BuildError(
        f"{shard.files[0].label}: not enough memory ({error or 'an allocation failed'}) after document "
        f"{tally.documents_in}{part}; a document needs some 12 times its size: leave out the largest, or build with fewer "
        "--workers"
    )
