"""Where the rows of many steps lie, worked out together: numpy's cost of a call is paid once for them."""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.loading.document_rows import DocumentRows
from headrace.loading.marks import Marker, MarkOptions, WindowMarker
from headrace.loading.source import MaskSource, WindowBlock, WindowSource, ends_of
from headrace.sampling import Plan
from headrace.sampling.checks import checked_int, nearest_divisors

__all__ = ["BLOCK_STARTS", "BLOCK_STEPS", "Rows", "locate_rows", "locate_samples"]

BLOCK_STEPS = 1_024
"""Steps whose starts are worked out together."""
BLOCK_STARTS = 131_072
"""Most starts of a block (1 MiB), whatever the batch size."""
BLOCK_EPOCHS = 16
"""Most epochs of a block: each costs keys, and a tiny corpus has many in few steps."""


class Rows(NamedTuple):
    """Several steps of one batch size, their windows located once. A row is a part of a step, `of` of them."""

    first: int
    stop: int
    of: int
    shape: tuple[int, int]
    """Of what is read for a row of the block."""
    starts: NDArray[np.int64]
    """`(steps * of, rows)`."""
    windows: WindowBlock
    stored: WindowBlock | None
    """The corpus' loss mask of the same windows."""
    marker: Marker | None
    documents: DocumentRows | None
    numbers: range
    """Of its rows in the order of all."""

    def holds(self, step: int, of: int) -> bool:
        """Whether a step is among them, in so many parts."""
        return self.first <= step < self.stop and self.of == of

    def gathered(
        self, windows: WindowBlock, row: int, dtype: np.dtype[Any], pad: int, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the windows of one row, `(rows, read_length)`; `pad` stands behind the end of a document's row.

        Args:
            windows: of this block.
            row: of this block, from 0.
            dtype: of the result.
            pad: see above.
            out: holds the result, if given.
        """
        read = out if out is not None and out.shape == self.shape else np.empty(self.shape, dtype)
        windows.gather_into(row, read)
        return read if self.documents is None else self.documents.arrange(row, read, pad, out)


def locate_rows(
    corpus: WindowSource, plan: Plan, step: int, of: int, *, rank: int, world_size: int, options: MarkOptions
) -> Rows:
    """Work out where the rows of a step lie, and those of the steps around it.

    Args:
        corpus: holds the tokens.
        plan: of the rows.
        step: one of the plan's.
        of: parts of a step, at least 1.
        rank: whose rows.
        world_size: number of ranks.
        options: what is marked in them.

    Raises:
        PlanError: the plan has no such step, or the step no such parts.
    """
    of = checked_int("of", of, least=1)
    alike = plan.steps_alike(step)
    rows = plan.valid(step, rank, world_size).size
    if rows % of:
        raise PlanError(
            f"of must divide the {rows} rows of a rank's batch, found {of}; the nearest that does is "
            f"{nearest_divisors(rows, of)}"
        )
    epoch_steps = BLOCK_EPOCHS * plan.windows // plan.batch_size_at(step)
    count = max(1, min(BLOCK_STEPS, BLOCK_STARTS // rows, epoch_steps))
    first = step - (step - alike.start) % count
    stop = min(first + count, alike.stop)
    numbers = plan.documents_many if plan.order == "documents" else plan.starts_many
    found = numbers(first, stop - first, rank, world_size).reshape(-1, rows // of)
    return _rows_at(corpus, plan, found, options, first=first, stop=stop, of=of)


def locate_samples(corpus: WindowSource, plan: Plan, samples: NDArray[np.int64], options: MarkOptions) -> Rows:
    """Work out where any samples of the plan's order lie, int64 `(S,)`, as the one step 0 of a block.

    Raises:
        PlanError: the plan has no such sample, or they are no list of at least one.
    """
    starts = plan.starts_of(samples)
    if starts.ndim != 1 or not starts.size:
        raise PlanError(f"samples: wanted integers of shape (S,), at least one; found shape {starts.shape}")
    return _rows_at(corpus, plan, starts[np.newaxis], options, first=0, stop=1, of=1)


def _rows_at(
    corpus: WindowSource,
    plan: Plan,
    found: NDArray[np.int64],
    options: MarkOptions,
    *,
    first: int,
    stop: int,
    of: int,
) -> Rows:
    """Locate rows, `(steps * of, rows)`, that begin at `found`, or hold these documents."""
    documents = marker = None
    starts, length = found, plan.read_length
    if plan.order == "documents":
        marker = documents = DocumentRows(
            ends_of(corpus),
            found,
            window=plan.window,
            read_length=plan.read_length,
            token_count=plan.token_count,
            options=options,
        )
        starts, length = documents.starts, documents.reads
    elif options.any:
        reads_next = plan.targets == "next"
        marker = WindowMarker(ends_of(corpus), found, window=plan.window, reads_next=reads_next, options=options)
    places = starts if documents is None else documents.places
    windows, masked = corpus.windows(places, length), isinstance(corpus, MaskSource) and corpus.has_loss_mask
    stored = cast("MaskSource", corpus).loss_mask_windows(places, length) if masked else None
    shape = found.shape[1], length
    return Rows(
        first, stop, of, shape, starts, windows, stored, marker, documents, numbers=range(first * of, stop * of)
    )
