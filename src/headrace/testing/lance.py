"""Lance data sets as other people write them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

if TYPE_CHECKING:
    from lance import LanceDataset

__all__ = ["FORMATS", "write_blocks", "write_lists", "write_recipe"]

StorageVersion = Literal["0.1", "2.0", "2.1", "2.2"]
FORMATS: tuple[StorageVersion, ...] = ("0.1", "2.0", "2.1", "2.2")
"""Formats of data files."""


def write_recipe(
    path: str | os.PathLike[str],
    documents: Iterable[ArrayLike],
    *,
    storage_version: StorageVersion,
    dtype: DTypeLike = np.int64,
    mode: Literal["create", "append", "overwrite"] = "create",
    **options: Any,  # noqa: ANN401  # of lance.write_dataset
) -> "LanceDataset":
    """Write as the published recipe does: a token a row in the column `input_ids`, a batch a document."""
    import pyarrow as pa  # noqa: PLC0415  # comes with Lance

    parts = (pa.array(np.asarray(document).astype(dtype)) for document in documents)
    return _written(path, pa.from_numpy_dtype(np.dtype(dtype)), parts, storage_version, mode=mode, **options)


def write_lists(
    path: str | os.PathLike[str],
    documents: Sequence[ArrayLike],
    *,
    storage_version: StorageVersion,
    dtype: DTypeLike = np.uint32,
    large: bool = False,
    **options: Any,  # noqa: ANN401  # of lance.write_dataset
) -> "LanceDataset":
    """Write a row a document, which is a list of its tokens, in the column `input_ids`."""
    import pyarrow as pa  # noqa: PLC0415  # comes with Lance

    values = pa.from_numpy_dtype(np.dtype(dtype))
    kind: Any = pa.large_list(values) if large else pa.list_(values)
    rows = pa.array([np.asarray(document).astype(dtype) for document in documents], kind)
    return _written(path, kind, iter([rows]), storage_version, **options)


def write_blocks(
    path: str | os.PathLike[str],
    tokens: NDArray[Any],
    *,
    width: int,
    storage_version: StorageVersion,
    **options: Any,  # noqa: ANN401  # of lance.write_dataset
) -> "LanceDataset":
    """Write `width` tokens a row, in the dtype that they have; their number is a multiple of it."""
    import pyarrow as pa  # noqa: PLC0415  # comes with Lance

    rows = pa.FixedSizeListArray.from_arrays(pa.array(tokens), width)
    return _written(path, rows.type, iter([rows]), storage_version, **options)


def _written(
    path: str | os.PathLike[str],
    kind: Any,  # noqa: ANN401  # a pyarrow.DataType
    parts: Iterator[Any],  # arrays of that type
    storage_version: StorageVersion,
    **options: Any,  # noqa: ANN401  # of lance.write_dataset
) -> "LanceDataset":
    import lance  # noqa: PLC0415  # heavy, and an extra
    import pyarrow as pa  # noqa: PLC0415  # comes with it

    schema = pa.schema([pa.field("input_ids", kind)])
    batches = (pa.record_batch([part], schema=schema) for part in parts)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return lance.write_dataset(reader, os.fspath(path), data_storage_version=storage_version, **options)
