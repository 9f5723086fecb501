"""Lists of integers in a column of an Arrow table, as arrays: no step is taken for each of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.sources.field import Ids

__all__ = ["Lists", "id_faults", "lists_of", "storage"]


def storage(array: Any) -> Any:  # noqa: ANN401  # pyarrow's arrays have no types
    """What an array of an extension type is stored as; another array as it is."""
    import pyarrow as pa  # noqa: PLC0415  # an extra

    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


class Lists(NamedTuple):
    """The lists of an array, one behind the other."""

    flat: NDArray[Any]
    """(n,) The integers of all lists, 0 for null."""
    lengths: NDArray[np.int64]
    """(d,) Of each list, 0 for null."""
    null: NDArray[np.bool_]
    """(d,) Whether there is no list."""
    holes: NDArray[np.bool_]
    """(n,) Whether an integer is null."""


def lists_of(array: Any) -> Lists:  # noqa: ANN401  # as above
    """The lists of an array.

    Raises:
        pyarrow.ArrowInvalid: its offsets lead out of its data.
    """
    import pyarrow as pa  # noqa: PLC0415  # an extra
    from pyarrow import compute  # noqa: PLC0415  # an extra

    if pa.types.is_null(array.type):
        nothing = np.empty(0, np.int64)
        return Lists(nothing, np.zeros(len(array), np.int64), np.ones(len(array), np.bool_), nothing.astype(np.bool_))
    array.validate(full=True)
    flat = storage(array.flatten())  # without what lies under null
    lengths = compute.call_function("list_value_length", [array]).fill_null(0)
    return Lists(
        flat=(flat.fill_null(0) if flat.null_count else flat).to_numpy(zero_copy_only=False),
        lengths=lengths.to_numpy(zero_copy_only=False).astype(np.int64),
        null=array.is_null().to_numpy(zero_copy_only=False),
        holes=flat.is_null().to_numpy(zero_copy_only=False),
    )


def id_faults(found: Lists, ids: Ids) -> Iterator[tuple[int, str]]:
    """Rows that are no lists of ids, and why, as `Ids.fault` says it of the first thing that is none."""
    yield from ((row, "is null") for row in np.flatnonzero(found.null).tolist())
    bad = found.holes | (found.flat < 0) | (found.flat >= ids.vocab_size)
    places = np.flatnonzero(bad)
    rows, first = np.unique(np.searchsorted(np.cumsum(found.lengths), places, side="right"), return_index=True)
    for row, place in zip(rows.tolist(), places[first].tolist(), strict=True):
        yield row, "holds null" if found.holes[place] else f"holds {ids.why_not(int(found.flat[place]))}"
