"""Values of a shard, one a token, against their checksums: the tokens themselves, or their loss mask."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.damage import listed, runs
from headrace.errors import CorruptShardError
from headrace.storage.layout import crc_name
from headrace.storage.stores import stored_crcs

if TYPE_CHECKING:
    from headrace.storage.layout import DataLayout

__all__ = ["ChunkCheck", "Read"]

_PIECE = 1 << 22
"""Most bytes read at once."""
Read = Callable[[int, int], Iterator[memoryview | bytes]]
"""Gives the bytes of values [start, stop) of the shard, piece by piece."""


class ChunkCheck:
    """Compares the chunks of one data set of a shard, and tells of each fault.

    Args:
        path: the file of the shard that has it.
        layout: where the values lie.
        name: of the data set.
        called: what the values are called in messages, with their verb.
        sha256: that they should have.
        problem: receives place and reason of each fault.
        where: says where tokens [start, stop) of the shard are.
        stopped: asked between reads; once it is true the check ends with a `CancelledError`.

    Attributes:
        bytes_read: so far.
    """

    def __init__(
        self,
        path: Path,
        layout: "DataLayout",
        *,
        name: str,
        called: tuple[str, str],
        sha256: str,
        problem: Callable[[str, str], None],
        where: Callable[[int, int], str],
        stopped: Callable[[], bool] | None,
    ) -> None:
        self.bytes_read = 0
        self._path = path
        self._layout = layout
        self._name = name
        self._called = called
        self._sha256 = sha256
        self._problem = problem
        self._where = where
        self._stopped = stopped

    def stored_crcs(self) -> NDArray[np.uint32] | None:
        """The checksums in the file; None where they are not one a chunk, which is told.

        Raises:
            CorruptShardError: they cannot be read.
        """
        stored = stored_crcs(self._path, self._name)
        if stored.shape == (self._chunks,):
            return stored
        self._problem(f"/{crc_name(self._name)}", f"{self._chunks} chunks need as many checksums, found {stored.size}")
        return None

    def run(self, *, crcs: NDArray[np.uint32] | None, quick: bool) -> bool:
        """Hash all values (or check the end chunks), and say which chunks are damaged.

        Args:
            crcs: the stored checksums; None where there are none.
            quick: compare the first and the last chunk alone.

        Returns:
            Whether all values are what they were; False where not all were read.
        """
        numbers: Sequence[int] = range(self._chunks)
        if quick and numbers:
            numbers = sorted({0, numbers[-1]})
        digest = hashlib.sha256()
        damaged: list[int] = []
        undecoded: dict[int, str] = {}
        with ExitStack() as stack:
            read = self.reader(stack)
            for number in numbers:
                try:
                    crc = self._crc(read(*self.chunk(number)), None if quick else digest.update)
                except CorruptShardError as error:
                    undecoded[number] = str(error.__cause__ or error.summary.removeprefix(f"{self._path}: "))
                    continue
                if crcs is not None and crc != int(crcs[number]):
                    damaged.append(number)
        whole = not quick and not undecoded and digest.hexdigest() == self._sha256
        self._report(damaged, undecoded, whole=whole, quick=quick)
        return whole

    def _report(self, damaged: Sequence[int], undecoded: Mapping[int, str], *, whole: bool, quick: bool) -> None:
        called, verb = self._called
        if whole and damaged:
            place = f"/{crc_name(self._name)}"
            self._problem(place, f"the checksums of chunks {listed(damaged)} are damaged; the {called} {verb} whole")
        elif not whole:
            self._report_chunks(damaged, undecoded)
            if not quick and not damaged and not undecoded:
                self._problem(f"/{self._name}", f"the SHA-256 of the {called} is not the one in shards.json")

    def _crc(self, pieces: Iterator[memoryview | bytes], update: Callable[[memoryview | bytes], None] | None) -> int:
        """crc32 of a chunk, whose bytes are given to a digest, too."""
        crc = 0
        for data in pieces:
            self.bytes_read += len(data)
            crc = crc32(data, crc)
            if update is not None:
                update(data)
            if self._stopped is not None and self._stopped():
                raise CancelledError
        return crc

    def _report_chunks(self, damaged: Sequence[int], undecoded: Mapping[int, str]) -> None:
        found = [(first, last, "are damaged") for first, last in runs(damaged)]
        for first, last in runs([*undecoded]):  # of the reasons the first will do
            found.append((first, last, f"cannot be decoded: {undecoded[first]}"))
        of = "" if self._name == "tokens" else f"/{self._name} "
        for first, last, fault in sorted(found):
            start, stop = self.chunk(first)[0], self.chunk(last)[1]
            place = f"chunk {first}" if first == last else f"chunks {first} to {last}"
            self._problem(of + place, f"{self._where(start, stop)} {fault}")

    @property
    def _chunks(self) -> int:
        return -(-self._layout.token_count // self._layout.chunk_size)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Tokens [start, stop) of the shard that each chunk is of."""
        return map(self.chunk, range(self._chunks))

    def chunk(self, number: int) -> tuple[int, int]:
        """Tokens [start, stop) of the shard that a chunk is of, padding left out."""
        size = self._layout.chunk_size
        return number * size, min((number + 1) * size, self._layout.token_count)

    def reader(self, stack: ExitStack) -> Read:
        """Reads values from the file, past its maps and page tables, or through HDF5 where they are not flat.

        A range must lie in one chunk.
        """
        if not len(self._layout.first):
            from headrace.storage.hdf5_reader import LibraryReader  # noqa: PLC0415  # imports h5py

            reader = LibraryReader(self._path, dataset_name=self._name)
            stack.callback(reader.close)
            return lambda start, stop: _decoded(reader, start, stop)
        descriptor = os.open(self._path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        return lambda start, stop: self._stored(descriptor, start, stop)

    def _stored(self, descriptor: int, start: int, stop: int) -> Iterator[bytes]:
        layout = self._layout
        itemsize = layout.dtype.itemsize
        extent = int(np.searchsorted(layout.first, np.uint64(start), side="right")) - 1
        at = int(layout.offset[extent]) + (start - int(layout.first[extent])) * itemsize
        end = at + (stop - start) * itemsize
        while at < end:
            piece = os.pread(descriptor, min(end - at, _PIECE), at)
            if not piece:
                raise CorruptShardError(f"{self._path}: is truncated: it ends before byte {end}")
            yield piece
            at += len(piece)


def _decoded(reader: Any, start: int, stop: int) -> Iterator[memoryview]:  # noqa: ANN401  # its module imports h5py
    step = max(_PIECE // 8, 1)
    for begin in range(start, stop, step):
        values: NDArray[Any] = reader.read(begin, min(begin + step, stop))
        yield np.ascontiguousarray(values).data.cast("B")
