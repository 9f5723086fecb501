"""Batches as tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from headrace.errors import PlanError
from headrace.loading import Batch
from headrace.sampling.checks import POSITION_LIMIT, checked_int

__all__ = ["Row", "Rows", "WholeBatch", "as_tensors", "checked_ignore_index", "marks_of", "with_marks"]

_MARKS = ("loss_mask", "document_ids", "position_ids")


class WholeBatch(dict[str, Tensor]):
    """The tensors of a batch that must not be put into a batch once more."""


class Row(dict[str, Tensor]):
    """The tensors of one sample, each `(T,)`."""


class Rows(Sequence[Row]):
    """Samples that were read together: a sequence of them, which torch's `default_collate` takes as the batch it is."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["input_ids"])

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401  # a row, or a slice of them
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return Row({name: tensor[index] for name, tensor in self.batch.items()})


def as_tensors(batch: Batch, ignore_index: int | None = None) -> dict[str, Tensor]:
    """Return what a model takes of a batch; the tensors share its memory where nothing has to change.

    Args:
        batch: as a loader makes it; tokens of a narrow dtype are widened.
        ignore_index: stands in `targets`, or in `labels`, where a prediction does not count, as -100 does for
            `cross_entropy` and for the models of transformers; there is no `loss_mask` then. None leaves the ids and gives
            the mask.

    Returns:
        `input_ids`, and `targets` or `labels`, int64 `(B, T)`; `loss_mask` (bool), `document_ids` and `position_ids` where
        the batch has them.
    """
    inputs = _ids(batch.input_ids)
    if batch.targets is None:
        ids = {"input_ids": inputs, "labels": inputs}
    else:
        ids = {"input_ids": inputs, "targets": _ids(batch.targets)}
    marks = marks_of(batch)
    return with_marks(ids, marks, ignore_index) if marks else ids


def checked_ignore_index(value: object) -> int | None:
    """Return it as an int, or None.

    Raises:
        PlanError: it is no integer of 64 bits.
    """
    return None if value is None else checked_int("ignore_index", value, least=-POSITION_LIMIT)


def marks_of(batch: Batch) -> dict[str, Tensor]:
    """Return what a batch says of its tokens."""
    return {name: torch.from_numpy(values) for name in _MARKS if (values := getattr(batch, name)) is not None}


def with_marks(ids: dict[str, Tensor], marks: dict[str, Tensor], ignore_index: int | None) -> dict[str, Tensor]:
    """Put ids and marks together, on any device; see `as_tensors`."""
    mask = marks.get("loss_mask")
    if mask is None or ignore_index is None:
        return {**ids, **marks}
    del marks["loss_mask"]
    for name in ids.keys() - {"input_ids"}:
        # A model shifts labels by itself: the prediction at input t is compared with label t + 1.
        shift = int(name == "labels")
        ids[name] = ids[name].clone()
        ids[name][:, shift:].masked_fill_(~mask[:, : mask.shape[1] - shift], ignore_index)
    return {**ids, **marks}


def _ids(ids: NDArray[Any]) -> Tensor:
    return torch.from_numpy(ids if ids.dtype == np.int64 else ids.astype(np.int64))


def _refuse(batch: Sequence[WholeBatch], *, collate_fn_map: object = None) -> WholeBatch:  # noqa: ARG001  # torch's form
    raise PlanError(
        f"a DataLoader tried to make one batch of {len(batch)} whole batches: give it batch_size=None, as "
        "DataLoader(stream, batch_size=None); the plan says how large a batch is"
    )


def _collated(rows: Any, *, collate_fn_map: object = None) -> dict[str, Tensor]:  # noqa: ANN401, ARG001  # torch's form
    if isinstance(rows, Rows):
        return rows.batch
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


default_collate_fn_map[WholeBatch] = _refuse  # torch's own place for it
default_collate_fn_map[Row] = _collated
