"""A tokenizer that lies in a file: gigatoken encodes, or where it cannot, the library that the file belongs to."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.manifest import TokenizerRef
from headrace.tokenizers.base import REF_NAME, encode_utf8, joined_ids, ref_file
from headrace.tokenizers.gigatoken import MAX_CACHE_BYTES, Gigatoken
from headrace.tokenizers.reference import require_equal, with_probe

__all__ = ["FileTokenizer", "read_file"]


class FileTokenizer(ABC):
    """What all kinds of tokenizer files have in common.

    Text that spells a special token is ordinary text, and neither BOS nor EOS is added.

    Args:
        path: the file.
        name: label for people; by default the name of the file, or of its folder if the file has its kind's usual name.
        by_library: encode with the library that the file belongs to, not with gigatoken.
        max_cache_bytes: as for `Gigatoken`.

    Raises:
        TokenizerError: the file is missing or damaged.
    """

    kind: ClassVar[str]
    """As in `TokenizerRef`."""
    library: ClassVar[str]
    """The library that the file belongs to: the reference that gigatoken is compared with."""
    usual_name: ClassVar[str]
    """What such files are called, in a corpus too."""
    _at_first_use: ClassVar[tuple[str, ...]]
    """Attributes that are None until they are needed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        by_library: bool = False,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would leave the folder of a symlinked file
        self.by_library = by_library
        self._max_cache_bytes = max_cache_bytes
        self._data = read_file(self.path)
        sha256, vocab_size = self._read()
        self._ref = TokenizerRef(kind=self.kind, name=name or self._label(), sha256=sha256, vocab_size=vocab_size)
        self._gigatoken = Gigatoken(self._gigatoken_json, str(self.path), max_cache_bytes)

    def __getstate__(self) -> dict[str, Any]:
        """What the file said, so that nobody who gets it reads or converts the file again; not what was loaded."""
        return {**vars(self), **dict.fromkeys(self._at_first_use), "_gigatoken": self._gigatoken.content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._gigatoken = Gigatoken(
            self._gigatoken_json, str(self.path), self._max_cache_bytes, content=state["_gigatoken"]
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, name={self._ref.name!r}, by_library={self.by_library})"

    def _label(self) -> str:
        """A name without the way to it."""
        return (self.path.parent.name if self.path.name == self.usual_name else self.path.stem) or "tokenizer"

    @property
    def ref(self) -> TokenizerRef:
        """Which tokenizer this is; whoever encodes, the ids are the same."""
        return self._ref

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1, added tokens included."""
        return self._ref.vocab_size

    def run_by_library(self) -> Self:
        """The same tokenizer, encoding with `library`."""
        return type(self)(self.path, name=self._ref.name, by_library=True, max_cache_bytes=self._max_cache_bytes)

    def load_encoder(self) -> None:
        """Load what encodes, if it is not loaded yet.

        Raises:
            TokenizerError: gigatoken, or with `by_library` the library, does not support this tokenizer.
            MissingExtraError: the library is not installed, with which gigatoken is compared.
        """
        self._require_library()
        if self.by_library:
            self._load_library()
        else:
            self._gigatoken.load()

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Encode documents, without the GIL while the library works.

        Args:
            texts: valid UTF-8 each.

        Returns:
            Ids, uint16 or uint32, (total,), and the exclusive end of each document, (len(texts),).

        Raises:
            TokenizerError: this tokenizer is not supported, or a document was lost.
            TokenIdError: the library gave an id outside the vocabulary.
        """
        if not self.by_library:
            return self._gigatoken.encode(texts)
        return joined_ids(self._library_ids([text.decode() for text in texts]), self.vocab_size, str(self.path))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, as `encode_documents` gives them.

        Raises:
            TokenizerError: the text holds a lone surrogate, or this tokenizer is not supported.
        """
        return self.encode_documents([encode_utf8(text)])[0].tolist()

    encode_text = encode

    def check(self, texts: Sequence[bytes]) -> None:
        """Compare gigatoken's ids with those of `library`, for these texts and a built-in one.

        Args:
            texts: valid UTF-8; 256 KiB take about 0.2 s.

        Raises:
            TokenizerError: the first difference.
        """
        if not self.by_library:  # which would be compared with itself
            samples = with_probe(texts, self.special_tokens)
            self._compare(samples, *self.encode_documents(samples))

    def _compare(self, samples: list[bytes], ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        wanted = self._library_ids([text.decode() for text in samples])
        require_equal(np.split(ids, ends[:-1]), wanted, str(self.path), self.library)

    def files(self) -> dict[str, bytes]:
        """The file as it is, under its usual name; what goes with it; and the `TokenizerRef`."""
        reference = ref_file(self._ref, self.library if self.by_library else None)
        return {REF_NAME: reference, self.usual_name: self._data, **self._companions()}

    @abstractmethod
    def _read(self) -> tuple[str, int]:
        """Parse `self._data`; gives the identity's 64 hex digits and the size of the vocabulary."""

    @abstractmethod
    def _gigatoken_json(self) -> bytes:
        """The tokenizer.json to encode with, without special tokens.

        Raises:
            TokenizerError: it cannot be expressed as one.
        """

    def _require_library(self) -> None:  # noqa: B027  # not all libraries are extras
        """Raise a `MissingExtraError` if `library` is not installed."""

    @abstractmethod
    def _load_library(self) -> object:
        """Load the library's tokenizer, if it is not loaded yet."""

    @abstractmethod
    def _library_ids(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, as the library gives them."""

    def _companions(self) -> dict[str, bytes]:
        """Name and content of the files beside it that count."""
        return {}

    @property
    @abstractmethod
    def special_tokens(self) -> Mapping[str, int]:
        """Special tokens and their ids, by id."""

    @abstractmethod
    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """The token for a role; None if the tokenizer does not say."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of any ids, special tokens spelled out; a cut inside a character becomes U+FFFD.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
        """

    @abstractmethod
    def token_id(self, token: str) -> int | None:
        """Id of a vocabulary entry or special token, as the vocabulary spells it; None if there is none."""

    @abstractmethod
    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of an id; None if there is none."""


def read_file(path: Path) -> bytes:
    """Content of a file.

    Raises:
        TokenizerError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from error
