"""gigatoken: what encodes wherever it can. It loads at first use."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.tokenizers.reference import rust_errors

if TYPE_CHECKING:
    import gigatoken

__all__ = ["ENCODING_MODULES", "MAX_CACHE_BYTES", "Gigatoken"]

ENCODING_MODULES = ("gigatoken", "awkward")
"""What the first encoding imports, in 0.3 s."""
MAX_CACHE_BYTES = 256 << 20
"""How far gigatoken's cache of encoded words may grow, in bytes, before it is dropped."""


class Gigatoken:
    """Encodes with gigatoken, on the calling thread, without the GIL.

    Args:
        make_json: gives a tokenizer.json without special tokens, called when it is loaded first. What gigatoken does not
            know as special, it encodes like any other text.
        label: what errors call the tokenizer.
        content: what `make_json` gives, if it is known.
        max_cache_bytes: how far the cache of encoded words may grow. gigatoken 0.10 keeps every word it met (3 GB after
            320 MB of random letters), and offers no bound: so it is loaded anew after a batch that went beyond.
    """

    def __init__(
        self,
        make_json: Callable[[], bytes],
        label: str,
        max_cache_bytes: int = MAX_CACHE_BYTES,
        *,
        content: bytes | None = None,
    ) -> None:
        self.content = content
        self._make_json = make_json
        self._label = label
        self._max_cache_bytes = max_cache_bytes
        self._cache_floor = 0
        self.loaded: gigatoken.Tokenizer | None = None

    def load(self) -> "gigatoken.Tokenizer":
        """Load it, if it is not loaded yet.

        Raises:
            TokenizerError: gigatoken does not support this tokenizer.
        """
        if self.loaded is None:
            import gigatoken  # noqa: PLC0415  # loads awkward arrays: 0.3 s

            if self.content is None:
                self.content = self._make_json()
            with rust_errors(f"{self._label} is not supported by gigatoken; it says"):
                self.loaded = gigatoken.Tokenizer.from_json(self.content)
            self._cache_floor = _anonymous_bytes()
        return self.loaded

    def encode(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Ids, uint32, (total,), and the exclusive end of each document, (len(texts),).

        Args:
            texts: valid UTF-8 each.

        Raises:
            TokenizerError: gigatoken does not support this tokenizer, or lost a document.
        """
        encoder = self.load()
        # A list of bytes is as fast as one joined buffer with a separator (161-172 MB/s both on source code in batches
        # of 1 to 4 MiB), and keeps empty documents.
        with rust_errors(f"{self._label}: gigatoken cannot encode the text"):
            layout: Any = encoder.encode_batch(list(texts), parallel=False).layout
        offsets: NDArray[np.int64] = np.asarray(layout.offsets.data, dtype=np.int64)
        if len(offsets) != len(texts) + 1:
            raise TokenizerError(f"gigatoken returned {len(offsets) - 1} documents for {len(texts)}")
        ids: NDArray[np.uint32] = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        if _anonymous_bytes() - self._cache_floor > self._max_cache_bytes:
            self.loaded = None
        return ids, offsets[1:] - offsets[0]


def _anonymous_bytes() -> int:
    """Memory of this process that is no file's, in bytes; 0 where the system does not say (other than Linux)."""
    try:
        fields = Path("/proc/self/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
