"""Random windows of a token store as `(inputs, targets)` pairs: the loader in its plainest form."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from headrace.loading.loader import Loader
from headrace.loading.source import WindowBlock, verify_store
from headrace.sampling import Plan
from headrace.sampling.checks import checked_int
from headrace.verdicts import Verify

__all__ = ["SlidingWindowDataloader", "TokenStore"]

Pair = tuple[NDArray[Any], NDArray[Any]]


class TokenStore(Protocol):
    """What `SlidingWindowDataloader` needs of a store."""

    @property
    def total_tokens(self) -> int:
        """Tokens of all shards together."""
        ...

    def get_slice(self, start: int, stop: int, /) -> NDArray[Any]:
        """Return the tokens `[start, stop)` in the file's dtype."""
        ...

    def windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        """Locate windows of `length` tokens at `starts`, int64 `(S, B)`."""
        ...


class SlidingWindowDataloader:
    """Serves batches of windows from random places, for ever: `tokens[:-1]` as inputs, `tokens[1:]` as targets.

    A window may straddle documents; the boundary token between them is part of the text. Two loaders made alike serve
    the same batches. The position is the loader's own: each `take`, and each iteration, goes on where the last one
    stopped.

    Args:
        store: what holds the tokens; `MmapTokenStore` is one.
        window_size: tokens of an input row; a row reads one more for its targets.
        batch_size: rows of a batch.
        seed: any integer >= 0.
        verify: `full`, `quick` or `off`, as for `Loader`.

    Raises:
        PlanError: (a `ValueError`) the store holds fewer than `window_size + 1` tokens, or a number is out of range.
        TypeError: it is no store.
        CorruptShardError, ValueError, TypeError: see `verify` of `Loader`.
    """

    def __init__(
        self, store: TokenStore, window_size: int, batch_size: int, seed: int = 0, *, verify: Verify = "quick"
    ) -> None:
        lacking = [name for name in ("total_tokens", "get_slice", "windows") if not hasattr(store, name)]
        if lacking:
            raise TypeError(
                f"store: wanted a headrace.MmapTokenStore or a corpus, found {type(store).__name__}, which has no "
                f"{', '.join(lacking)}"
            )
        plan = Plan(
            order="random", token_count=store.total_tokens, window=window_size, batch_size=batch_size, seed=seed
        )
        verify_store(store, verify)
        self._loader = Loader(_Line(store), plan, dtype=store.get_slice(0, 1).dtype)

    def __iter__(self) -> Iterator[Pair]:
        for batch in self._loader:
            yield batch.input_ids, cast("NDArray[Any]", batch.targets)  # never None: the plan's targets are `next`

    def take(self, n: int) -> list[Pair]:
        """Return the next `n` batches as `(inputs, targets)`, each `(batch_size, window_size)` of the file's dtype."""
        pairs = iter(self)
        return [next(pairs) for _ in range(checked_int("n", n, least=0))]


@dataclass(frozen=True, slots=True)
class _Line:
    """A store under the names by which a loader knows a corpus; its content is not fingerprinted."""

    store: TokenStore
    fingerprint: str = ""

    @property
    def token_count(self) -> int:
        return self.store.total_tokens

    def windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        return self.store.windows(starts, length)
