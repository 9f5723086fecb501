"""Which column of a Lance data set holds tokens, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import FormatError

if TYPE_CHECKING:
    from lance import LanceDataset

__all__ = ["COLUMN", "TokenColumn", "column_name_at", "token_column"]

COLUMN = "input_ids"
"""The column that is taken where a data set has several of integers."""


@dataclass(frozen=True, slots=True)
class TokenColumn:
    """A column of tokens."""

    name: str
    field: int
    """By which Lance knows it, and ..."""
    values: int
    """... the field with the integers; another one where rows are lists."""
    dtype: np.dtype[Any]
    """Of the stored tokens, little-endian."""
    width: int = 1
    """Tokens a row."""
    lists: bool = False
    """Whether a row is a list of any number of tokens instead."""

    def tokens(self, column: Any, file: str) -> NDArray[Any]:  # noqa: ANN401  # a pyarrow.ChunkedArray
        """The tokens of a column that was read from a file, as a new array.

        Raises:
            FormatError: it has nulls.
        """
        return np.concatenate([np.empty(0, self.dtype), *(self._values(rows, file) for rows in column.chunks)])

    def _values(self, rows: Any, file: str) -> NDArray[Any]:  # noqa: ANN401  # a pyarrow.Array
        nested = rows.type.num_fields > 0
        values = rows.flatten() if nested else rows
        if rows.null_count or values.null_count:
            raise FormatError(f"{file}: column {self.name} has nulls, which are no tokens")
        return values.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)


def token_column(dataset: "LanceDataset", path: Path) -> TokenColumn:
    """Find the column of tokens: `input_ids`, else the only one of lists of integers, else the only one of integers.

    Raises:
        FormatError: there is none, or there are several; what there is is named.
    """
    columns = {
        field.name: (field, own) for field, own in zip(dataset.schema, dataset.lance_schema.fields(), strict=True)
    }
    kinds = {name: _kind(field.type) for name, (field, _) in columns.items()}
    fitting = [name for name, kind in kinds.items() if kind is not None]
    lists = [name for name, kind in kinds.items() if kind is not None and (kind[1] > 1 or kind[2])]
    if COLUMN in columns:
        fitting = [name for name in fitting if name == COLUMN]
    elif len(lists) == 1:
        fitting = lists
    if len(fitting) != 1:
        there = ", ".join(f"{name} ({field.type})" for name, (field, _) in columns.items()) or "none"
        wanted = (
            f"wanted a column {COLUMN} of integers, or of lists of them, or just one such column under another name"
        )
        raise FormatError(f"{path}: {wanted}; its columns are {there}")
    kind = kinds[fitting[0]]
    assert kind is not None  # noqa: S101  # of those that fit
    own = columns[fitting[0]][1]
    dtype, width, varying = kind
    values = own.children()[0].id() if varying else own.id()
    return TokenColumn(fitting[0], own.id(), values, dtype, width, varying)


def column_name_at(schema: Any, place: int, columns: int) -> str | None:  # noqa: ANN401  # a pyarrow.Schema
    """The name, in a data file, of the field that has a column of it; None where the file's columns are not understood.

    Args:
        schema: of the file.
        place: number of the column.
        columns: how many the file has.
    """
    for own in (0, 1):  # in format 2.0, fields that hold others have a column, too
        counts = [_columns(field.type, own) for field in schema]
        if sum(counts) == columns:
            return schema.names[int(np.searchsorted(np.cumsum(counts), place, side="right"))]
    return None


def _columns(type_: Any, own: int) -> int:  # noqa: ANN401  # a pyarrow.DataType
    """Columns of a field in its file, if one that holds others has `own` besides theirs."""
    from pyarrow import types  # noqa: PLC0415  # comes with Lance

    if not type_.num_fields or (types.is_fixed_size_list(type_) and not type_.value_type.num_fields):
        return 1
    return own + sum(_columns(type_.field(number).type, own) for number in range(type_.num_fields))


def _kind(type_: Any) -> tuple[np.dtype[Any], int, bool] | None:  # noqa: ANN401  # a pyarrow.DataType
    """The dtype, tokens a row, and whether rows are lists; None for what holds no tokens."""
    from pyarrow import types  # noqa: PLC0415  # comes with Lance

    lists = types.is_list(type_) or types.is_large_list(type_)
    blocks = types.is_fixed_size_list(type_) and type_.list_size > 0
    values = type_.value_type if lists or blocks else type_
    if not types.is_integer(values):
        return None
    return np.dtype(values.to_pandas_dtype()).newbyteorder("<"), type_.list_size if blocks else 1, lists
