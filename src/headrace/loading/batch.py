"""One step's rows, as a trainer consumes them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B rows of T tokens: arrays `(B, T)`, and `starts` `(B,)`. They are the caller's own: no loader keeps or reuses them.

    `input_ids` comes with `targets` (`targets="next"`) or with `labels` (`targets="inside"`); `loss_mask`, `document_ids` and
    `position_ids` are None where there is nothing to say, or nobody asked.
    """

    step: int
    input_ids: NDArray[Any]
    """int64 `(B, T)` (the file's dtype where the loader was asked for it)."""
    targets: NDArray[Any] | None = None
    """int64 `(B, T)`, `targets[:, t]` is the token after `input_ids[:, t]`; a view of the same memory as the inputs.
    None where the plan's targets are `inside`."""
    labels: NDArray[Any] | None = None
    """The inputs themselves, for models that move them on by one inside; None where the plan's targets are `next`."""
    loss_mask: NDArray[np.bool_] | None = None
    """bool `(B, T)`, whether the token predicted at each input counts: `loss_mask[:, t]` is about `targets[:, t]`, and about
    `labels[:, t + 1]`. What the corpus stores (`Corpus.loss_mask`) and what the plan leaves out are put together; None where
    there is neither, so that all that are there count."""
    starts: NDArray[np.int64]
    """int64 `(B,)`, the token position of each row's first token."""
    document_ids: NDArray[np.int64] | None = None
    """int64 `(B, T)`, the number of each input's document in the corpus, -1 at padding; None where not asked for."""
    position_ids: NDArray[np.int64] | None = None
    """int64 `(B, T)`, each input's place in its document, the first of it that is in the row being 0; None where not asked
    for: positions run through the row."""
