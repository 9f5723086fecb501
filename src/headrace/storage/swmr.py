"""A file that others read while it is written, laid out before that begins.

HDF5's single writer, multiple readers mode allows no object and no attribute that did not exist when it began. h5py does
not say so: what is created too late works or fails by luck, for the writer or for a reader. Here it is an error.
"""

import os
from typing import Any

import h5py
from numpy.typing import ArrayLike, DTypeLike

from headrace.errors import WriterError

__all__ = ["SwmrFile"]


class SwmrFile:
    """An HDF5 file in two states: new, while it takes objects and attributes; then, from `start` on, in SWMR mode.

    Args:
        file: open for writing with `libver="latest"` (or any bound from "v110" on), not in SWMR mode. It is used through
            this object alone from now on.

    Raises:
        WriterError: (a ValueError) the file was opened in another way.
    """

    def __init__(self, file: h5py.File) -> None:
        self._file = file
        self._started = False
        if not file:
            raise WriterError("wanted an open HDF5 file, found a closed one")
        self._name = os.fsdecode(file.filename)
        if file.mode == "r":
            raise WriterError(f"{self._name}: is open read-only: open it with mode 'x', 'w', 'r+' or 'a' to write it")
        if file.id.get_access_plist().get_libver_bounds()[0] < h5py.h5f.LIBVER_V110:
            raise WriterError(
                f'{self._name}: was opened without libver="latest": older layouts cannot be read while they are written; '
                f'open it as h5py.File(path, "x", libver="latest")'
            )
        if file.swmr_mode:
            raise WriterError(
                f"{self._name}: is in SWMR mode already; wrap it before that, to create what it is to hold"
            )

    @property
    def started(self) -> bool:
        """Whether SWMR mode has begun."""
        return self._started

    def create_dataset(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        **options: Any,  # noqa: ANN401  # h5py's
    ) -> h5py.Dataset:
        """Create a data set; `options` as for `h5py.File.create_dataset`.

        Raises:
            WriterError: SWMR mode has begun.
        """
        self._require_new(f"data set {name!r}")
        return self._file.create_dataset(name, shape, dtype, **options)

    def create_group(self, name: str) -> h5py.Group:
        """Create a group.

        Raises:
            WriterError: SWMR mode has begun.
        """
        self._require_new(f"group {name!r}")
        return self._file.create_group(name)

    def create_attribute(self, owner: h5py.Dataset | h5py.Group, name: str, value: ArrayLike) -> None:
        """Give a data set or a group of this file an attribute, whose value may change later, but not its type.

        Raises:
            WriterError: SWMR mode has begun.
        """
        self._require_new(f"attribute {name!r} of {owner.name}")
        owner.attrs.create(name, value)

    def start(self) -> None:
        """Begin SWMR mode: from now on data sets grow and values change, and nothing is created.

        Raises:
            WriterError: it has begun already, or the file cannot be written so: it was made for older versions of HDF5, or
                an attribute of it is open.
        """
        if self._started:
            raise WriterError(f"{self._name}: SWMR mode has begun already; it begins once, after all is created")
        try:
            self._file.swmr_mode = True
        except (OSError, RuntimeError, ValueError) as error:
            raise WriterError(
                f'{self._name}: SWMR mode cannot begin: {error}; create the file anew with libver="latest", and close '
                "all attributes first"
            ) from error
        self._started = True

    def flush(self) -> None:
        """Make all that was written visible to readers."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _require_new(self, what: str) -> None:
        if self._started or self._file.swmr_mode:
            raise WriterError(
                f"{self._name}: {what} would be created after SWMR mode began: HDF5 allows no new object or attribute then; "
                "create it before start()"
            )
