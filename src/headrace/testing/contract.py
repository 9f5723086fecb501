"""What every store must do, as tests that any back end can run.

Subclass `StoreContract` in a test module, name the class `Test...`, and give it a pytest fixture `case` that returns a
`StoreCase`. The model is a plain array; a store is right where it answers as the array does.
"""

import os
import pickle
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import NoDocumentsError, OutOfRangeError

__all__ = ["StoreCase", "StoreContract"]

_LENGTHS = (1, 2, 17, 65)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoreCase:
    """A store and what it must serve."""

    store: Any
    tokens: NDArray[Any]
    """All tokens, in the dtype that the store must have."""
    document_lengths: list[int] | None = None
    """Tokens of each document, boundary included; None where the store knows no documents."""
    marks: tuple[int, ...] = ()
    """Positions worth a closer look: where shards, chunks and extents begin."""

    @property
    def places(self) -> list[int]:
        """The marks and their neighbours, the ends of the line and the middle; at most 64, in order."""
        count = len(self.tokens)
        near = {mark + step for mark in (0, count // 2, count, *self.marks) for step in (-1, 0, 1)}
        inside = sorted(place for place in near if 0 <= place <= count)
        return inside[:: len(inside) // 64 + 1]


class StoreContract:
    """Tests of a store against its model."""

    indexing = True
    """Whether the store has `store[...]`, `documents` and `locate`."""

    def test_serves_the_whole_line(self, case: StoreCase) -> None:
        """The counts and the dtype are the model's, and so is every token."""
        store = case.store
        assert store.token_count == store.total_tokens == len(store) == len(case.tokens)
        assert store.dtype == case.tokens.dtype
        _same(store.get_slice(0, len(case.tokens)), case.tokens)

    def test_ranges(self, case: StoreCase) -> None:
        """A range between any two places is that of the model, empty ones included."""
        for start in case.places:
            for stop in case.places:
                if start <= stop:
                    _same(case.store.get_slice(start, stop), case.tokens[start:stop])

    def test_ranges_outside(self, case: StoreCase) -> None:
        """A range that is not within the line raises what is both an IndexError and a ValueError."""
        count = len(case.tokens)
        for start, stop in ((-1, 0), (0, count + 1), (count + 1, count + 1), (1, 0), (0, 1 << 63), (-(1 << 70), 0)):
            with _raises(OutOfRangeError) as caught:
                case.store.get_slice(start, stop)
            assert isinstance(caught[0], IndexError)
            assert isinstance(caught[0], ValueError)

    def test_ranges_are_new_arrays(self, case: StoreCase) -> None:
        """What a caller does to a range changes nothing."""
        case.store.get_slice(0, len(case.tokens))[:] = 1
        _same(case.store.get_slice(0, len(case.tokens)), case.tokens)

    def test_positions_of_any_integer_type(self, case: StoreCase) -> None:
        """Narrow numpy integers are positions like any other."""
        stop = min(len(case.tokens), 100)
        for kind in (np.int8, np.uint16, np.int32, np.uint64):
            _same(case.store.get_slice(kind(0), kind(stop)), case.tokens[:stop])

    def test_python_slices(self, case: StoreCase) -> None:
        """Slices and integers follow Python's rules for sequences."""
        if not self.indexing:
            return
        count = len(case.tokens)
        ends = (None, 0, 7, count // 2, count - 1, count + 5, -1, -count, -count - 5)
        for start in ends:
            for stop in ends:
                for step in (None, 1, 7, 1000, -1, -3, -1000):
                    key = slice(start, stop, step)
                    _same(case.store[key], case.tokens[key])
        for position in {0, count // 2, count - 1, -1, -count} if count else ():
            assert case.store[position] == case.tokens[position]
        for position in (count, -count - 1, 1 << 64):
            with _raises(IndexError):
                case.store[position]
        for key in (0.0, "0", None):
            with _raises(TypeError):
                case.store[key]

    def test_windows(self, case: StoreCase) -> None:
        """Windows are those of the model wherever they begin and whatever they straddle, in both dtypes."""
        count = len(case.tokens)
        for length in {*_LENGTHS, count}:
            places = [place for place in case.places if place + length <= count]
            before = [place - length // 2 for place in case.places if length // 2 <= place <= count - length]
            starts = np.array([places + before] if length else [[]], dtype=np.int64)
            if length and starts.size:
                self._compare(case, starts, length)

    def test_windows_of_many_steps(self, case: StoreCase) -> None:
        """Rows of a block are independent: read in any order, they are their own starts' windows."""
        length = 9
        if len(case.tokens) < length:
            return
        starts = np.random.default_rng(5).integers(0, len(case.tokens) - length + 1, (20, 8))
        block = case.store.windows(starts, length)
        out = np.empty((8, length), dtype=np.int64)
        for row in (3, 19, 0, 3, 7):
            block.gather_into(row, out)
            _same(out, _windows(case.tokens, starts[row], length).astype(np.int64))

    def test_windows_outside(self, case: StoreCase) -> None:
        """A window that leaves the line is refused, by name of the fault, before anything is read."""
        count = len(case.tokens)
        for start, length in ((-1, 1), (count, 1), (count - 1, 2), (0, count + 1)):
            with _raises(OutOfRangeError):
                case.store.windows(np.array([[start]]), length)

    def test_documents(self, case: StoreCase) -> None:
        """Documents are those of the model, boundary included; their numbers follow Python's rules."""
        if not self.indexing:
            return
        documents = case.store.documents
        if case.document_lengths is None:
            for ask in (lambda: len(documents), lambda: documents[0], lambda: case.store.locate(0)):
                if len(case.tokens):
                    with _raises(NoDocumentsError):
                        ask()
            return
        lengths = case.document_lengths
        assert len(documents) == len(lengths)
        ends = np.cumsum([0, *lengths])
        chosen = range(0, len(lengths), len(lengths) // 50 + 1)
        for number in chosen:
            _same(documents[number], case.tokens[ends[number] : ends[number + 1]])
            _same(documents[number - len(lengths)], case.tokens[ends[number] : ends[number + 1]])
        for number in (len(lengths), -len(lengths) - 1):
            with _raises(IndexError):
                documents[number]

    def test_locate(self, case: StoreCase) -> None:
        """The first and the last token of a document are located in it, and nothing is outside the line."""
        if not self.indexing or case.document_lengths is None:
            return
        ends = np.cumsum(case.document_lengths)
        for number in range(0, len(ends), len(ends) // 50 + 1):
            stop = int(ends[number])
            start = stop - case.document_lengths[number]
            for position in (start, stop - 1):
                found = case.store.locate(position)
                assert (found.position, found.document, found.start, found.stop) == (position, number, start, stop)
        for position in (-1, len(case.tokens)):
            with _raises(OutOfRangeError):
                case.store.locate(position)

    def test_pickles(self, case: StoreCase) -> None:
        """A copy made by pickle serves the same, and the original goes on."""
        copy = pickle.loads(pickle.dumps(case.store))  # noqa: S301  # our own bytes
        _same(copy.get_slice(0, len(case.tokens)), case.tokens)
        _same(case.store.get_slice(0, len(case.tokens)), case.tokens)

    def test_reads_in_a_forked_process(self, case: StoreCase) -> None:
        """After a fork, parent and child both read right, whatever was open before."""
        case.store.get_slice(0, len(case.tokens))
        child = os.fork()
        if not child:
            code = 1
            try:
                self._compare_samples(case)
                code = 0
            except BaseException:  # noqa: BLE001  # nothing may return into the parent's tests
                traceback.print_exc()
            os._exit(code)
        self._compare_samples(case)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_reads_in_a_spawned_process(self, case: StoreCase) -> None:
        """A store sent to a new process serves the same there."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_read_all, args=(case.store, theirs))
        process.start()
        theirs.close()
        try:
            dtype, found = ours.recv()
        finally:
            process.join()
        assert dtype == str(case.tokens.dtype)
        np.testing.assert_array_equal(found, case.tokens)

    def test_reads_in_threads(self, case: StoreCase) -> None:
        """Several threads read right at the same time."""
        faults: list[BaseException] = []

        def read() -> None:
            try:
                self._compare_samples(case)
            except BaseException as fault:  # noqa: BLE001  # reported below
                faults.append(fault)

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[0]

    def _compare_samples(self, case: StoreCase) -> None:
        """Ranges and windows at places of this thread's own."""
        random = np.random.default_rng(threading.get_ident() % 1000)
        count = len(case.tokens)
        for length in _LENGTHS:
            if length <= count:
                self._compare(case, random.integers(0, count - length + 1, (3, 16)), length)
        for _ in range(20):
            start, stop = sorted(random.integers(0, count + 1, 2).tolist())
            _same(case.store.get_slice(start, stop), case.tokens[start:stop])

    def _compare(self, case: StoreCase, starts: NDArray[np.int64], length: int) -> None:
        block = case.store.windows(starts, length)
        for row in range(len(starts)):
            wanted = _windows(case.tokens, starts[row], length)
            for dtype in (np.dtype(np.int64), case.tokens.dtype):
                out = np.full(wanted.shape, 7, dtype=dtype)
                block.gather_into(row, out)
                _same(out, wanted.astype(dtype))


def _read_all(store: Any, pipe: Any) -> None:  # noqa: ANN401  # any store; a multiprocessing connection
    tokens = store.get_slice(0, store.token_count)
    pipe.send((str(tokens.dtype), tokens))  # numpy's pickles do not keep the byte order
    pipe.close()


def _windows(tokens: NDArray[Any], starts: NDArray[np.int64], length: int) -> NDArray[Any]:
    return tokens[starts[:, None] + np.arange(length)]


def _same(found: NDArray[Any], wanted: NDArray[Any]) -> None:
    assert found.dtype == wanted.dtype, f"wanted {wanted.dtype}, found {found.dtype}"
    np.testing.assert_array_equal(found, wanted)


@contextmanager
def _raises(kind: type[BaseException]) -> Generator[list[BaseException]]:
    """Like `pytest.raises`, without pytest."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"wanted {kind.__name__}, nothing was raised"
