"""The data set and the sampler of the published recipe for training on Lance text data, over any corpus."""

import os
from collections.abc import Iterator, Mapping, Sequence, Sized
from operator import index
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from headrace.adapters.torch.tensors import Row, Rows
from headrace.corpus import open_corpus
from headrace.errors import OutOfRangeError, PlanError
from headrace.reading import Corpus
from headrace.sampling.checks import checked_int
from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import ROUNDS, permute

__all__ = ["LanceDataset", "LanceSampler"]

_AT_ONCE = 4096
"""Starts of a sampler worked out together."""


class LanceDataset(Dataset[Row]):
    """Map-style: sample `idx` is the tokens `[idx, idx + block_size)`, as `input_ids` and as `labels`, int64.

    `len()` is rows - block_size, as in the recipe. A DataLoader's batch is read in one call. With workers of any kind and
    number the batches are the same, whatever of Lance is open in the process that starts them.

    Args:
        dataset_path: of a Lance data set (`data.lance`, `data.lance@v3`), or of any corpus that `headrace.open` opens; or
            such a corpus, open.
        block_size: tokens a sample.

    Raises:
        PlanError: the data set has fewer tokens than a block.
        FormatError, MissingShardError and others: as of `headrace.open`.
    """

    def __init__(self, dataset_path: str | os.PathLike[str] | Corpus, block_size: int) -> None:
        super().__init__()
        self.block_size = checked_int("block_size", block_size, least=1)
        self.corpus = open_corpus(dataset_path) if isinstance(dataset_path, str | os.PathLike) else dataset_path
        if len(self.corpus) < self.block_size:
            raise PlanError(
                f"{self.corpus.path}: holds {len(self.corpus)} tokens, fewer than one block of {self.block_size}: make "
                "block_size smaller, or the data set larger"
            )

    def __len__(self) -> int:
        return len(self.corpus) - self.block_size

    def __getitem__(self, idx: int) -> Row:
        """Return one sample, both tensors `(block_size,)`.

        Raises:
            OutOfRangeError: (an IndexError) `idx` is not within `[0, len)`.
        """
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        """Return samples that were read together; arguments and errors as for one."""
        wanted = [index(idx) for idx in indices]
        if wanted and not (min(wanted) >= 0 and max(wanted) < len(self)):
            raise OutOfRangeError(
                f"samples {min(wanted)} to {max(wanted)}: the data set has those from 0 to {len(self) - 1}"
            )
        starts = np.array([wanted], np.int64)
        out = np.empty((starts.size, self.block_size), np.int64)
        self.corpus.windows(starts, self.block_size).gather_into(0, out)
        ids = torch.from_numpy(out)
        return Rows({"input_ids": ids, "labels": ids.clone()})


class LanceSampler(Sampler[int]):
    """The starts `range(0, len(data_source), block_size)`, shuffled: no two samples of an epoch overlap.

    The order is a function of (seed, epoch) alone, and no list is kept. It lives in the main process: its state says which
    start comes next, and torchdata's `StatefulDataLoader` keeps how far it was when the batch that was consumed last was
    asked for. A plain DataLoader with workers asks ahead: there, load `state_at(samples that were trained on)`.

    Args:
        data_source: the `LanceDataset`, or whatever has its length.
        block_size: tokens a sample.
        seed: of the order.
        epoch: of the order, too: `set_epoch` before each one, or the next has the same.

    Raises:
        PlanError: a number is out of its range.
    """

    def __init__(self, data_source: Sized, block_size: int = 512, *, seed: int = 0, epoch: int = 0) -> None:
        super().__init__()
        self.data_source = data_source
        self.block_size = checked_int("block_size", block_size, least=1)
        self.seed = checked_int("seed", seed, least=0)
        self.epoch = checked_int("epoch", epoch, least=0)
        self._begin = self._next = 0

    def __len__(self) -> int:
        """Return the samples of an epoch, wherever iteration begins."""
        return (len(self.data_source) + self.block_size - 1) // self.block_size

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be that of an epoch, from its first sample on."""
        self.epoch = checked_int("epoch", epoch, least=0)
        self._begin = self._next = 0

    def __iter__(self) -> Iterator[int]:
        count, begin = len(self), self._begin
        self._begin, self._next = 0, begin
        if begin >= count:
            return
        key = key_words(self.seed, self.epoch, Stream.BLOCKS, ROUNDS)
        for first in range(begin, count, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, count))
            for block in permute(numbers, length=count, key=key).tolist():
                self._next += 1
                yield block * self.block_size

    def state_at(self, samples: int) -> dict[str, int]:
        """Return the state after so many samples of the epoch."""
        samples = checked_int("samples", samples, least=0, below=len(self) + 1)
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "block_size": self.block_size,
            "length": len(self.data_source),
            "next": samples,
        }

    def state_dict(self) -> dict[str, int]:
        """Return which sample comes next, and of what."""
        return self.state_at(self._next)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where the state was taken, in its epoch.

        Raises:
            PlanError: it is no such state, or of another seed, block size or data set.
        """
        own = self.state_at(0)
        if not isinstance(state, Mapping) or state.keys() != own.keys():  # pyright: ignore[reportUnnecessaryIsInstance]  # from a file
            raise PlanError(
                f"wanted what state_dict() of a LanceSampler returned, with {', '.join(own)}; found {state!r}"
            )
        for name in ("seed", "block_size", "length"):
            if state[name] != own[name]:
                raise PlanError(f"{name}: the state is of a sampler with {state[name]}, this one has {own[name]}")
        self.epoch = checked_int("epoch", state["epoch"], least=0)
        self._begin = self._next = checked_int("next", state["next"], least=0, below=len(self) + 1)
