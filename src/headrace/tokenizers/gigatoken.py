"""A Hugging Face tokenizer.json, run by gigatoken.

gigatoken encodes; the `tokenizers` library is the reference that `check` compares with, and it decodes. Both load at
first use.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenIdError, TokenizerError
from headrace.manifest import TokenizerRef, dtype_name_for
from headrace.tokenizers.base import REF_NAME, checked_ids, encode_utf8, ref_file
from headrace.tokenizers.identity import identity_sha256, parse_tokenizer_json, special_tokens, vocab_size
from headrace.tokenizers.reference import Reference, compare_elsewhere, rust_errors, with_probe

if TYPE_CHECKING:
    import gigatoken

__all__ = ["CONFIG_NAME", "MAX_CACHE_BYTES", "GigatokenTokenizer"]

CONFIG_NAME = "tokenizer_config.json"
"""The file beside a tokenizer.json that names its BOS and EOS."""
MAX_CACHE_BYTES = 256 << 20
"""How far gigatoken's cache of encoded words may grow, in bytes, before it is dropped."""


class GigatokenTokenizer:
    """A BPE tokenizer.json, byte-level or SentencePiece-style with byte fallback.

    Text that spells a special token is ordinary text, and the post-processor never runs.

    Args:
        path: the tokenizer.json.
        name: label for people; by default the name of its folder, or of the file if it is called otherwise.
        max_cache_bytes: how far the cache of encoded words may grow. gigatoken 0.10 keeps every word it met (3 GB after
            320 MB of random letters), and offers no bound: so it is loaded anew after a batch that went beyond.

    Raises:
        TokenizerError: the file is missing, damaged, or a tokenizer that gigatoken does not support.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, name: str | None = None, max_cache_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would leave the folder of a symlinked file
        self._max_cache_bytes = max_cache_bytes
        self._data = _read(self.path)
        document = parse_tokenizer_json(_text(self._data, self.path), str(self.path))
        self._ref = TokenizerRef(
            kind="huggingface",
            name=name or _label(self.path),
            sha256=identity_sha256(document),
            vocab_size=vocab_size(document),
        )
        self._added_tokens: list[dict[str, Any]] = document["added_tokens"]
        self._special_tokens = special_tokens(document)
        self._config_path = self.path.with_name(CONFIG_NAME)
        self._config = _read(self._config_path) if self._config_path.is_file() else None
        self._dtype = np.dtype(dtype_name_for(self._ref.vocab_size))
        self._encoder: gigatoken.Tokenizer | None = None
        self._reference: Reference | None = None
        self._cache_floor = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self._ref, self._max_cache_bytes)

    def __repr__(self) -> str:
        return f"GigatokenTokenizer({str(self.path)!r}, name={self._ref.name!r})"

    @property
    def ref(self) -> TokenizerRef:
        """Which tokenizer this is."""
        return self._ref

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1, added tokens included."""
        return self._ref.vocab_size

    def load_encoder(self) -> "gigatoken.Tokenizer":
        """Load gigatoken, if it is not loaded yet.

        Raises:
            TokenizerError: gigatoken does not support this tokenizer.
        """
        if self._encoder is None:
            import gigatoken  # noqa: PLC0415  # loads awkward arrays: 0.3 s
            import msgspec  # noqa: PLC0415  # only where documents are encoded

            # As ordinary text: what gigatoken does not know as special, it encodes like any other. The tokens that are
            # added without being special stay: GPT-NeoX's runs of spaces are such. The rest is passed on as it is.
            parts = msgspec.json.decode(_text(self._data, self.path), type=dict[str, msgspec.Raw])
            plain = [token for token in self._added_tokens if not token.get("special")]
            parts["added_tokens"] = msgspec.Raw(msgspec.json.encode(plain))
            with rust_errors(f"{self.path} is not supported by gigatoken; it says"):
                self._encoder = gigatoken.Tokenizer.from_json(msgspec.json.encode(parts))
            self._cache_floor = _anonymous_bytes()
        return self._encoder

    def encode_documents(self, texts: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Encode documents with gigatoken, on the calling thread, without the GIL.

        Args:
            texts: valid UTF-8 each.

        Returns:
            Ids, uint16 or uint32 by `vocab_size`, (total,), and the exclusive end of each document, (len(texts),).

        Raises:
            TokenizerError: gigatoken does not support this tokenizer, or lost a document.
            TokenIdError: it gave an id outside the vocabulary.
        """
        encoder = self.load_encoder()
        # A list of bytes is as fast as one joined buffer with a separator (161-172 MB/s both on source code in batches
        # of 1 to 4 MiB), and keeps empty documents.
        layout: Any = encoder.encode_batch(list(texts), parallel=False).layout
        offsets: NDArray[np.int64] = np.asarray(layout.offsets.data, dtype=np.int64)
        if len(offsets) != len(texts) + 1:
            raise TokenizerError(f"gigatoken returned {len(offsets) - 1} documents for {len(texts)}")
        ids: NDArray[np.uint32] = np.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        if len(ids) and (highest := int(ids.max())) >= self.vocab_size:
            raise TokenIdError(f"gigatoken gave id {highest}; the vocabulary of {self.path} has {self.vocab_size} ids")
        self._bound_cache()
        return ids.astype(self._dtype), offsets[1:] - offsets[0]

    def _bound_cache(self) -> None:
        if _anonymous_bytes() - self._cache_floor > self._max_cache_bytes:
            self._encoder = None

    def encode(self, text: str) -> list[int]:
        """Ids of a text, as `encode_documents` gives them.

        Raises:
            TokenizerError: the text holds a lone surrogate, or gigatoken does not support this tokenizer.
        """
        return self.encode_documents([encode_utf8(text)])[0].tolist()

    encode_text = encode

    def load_reference(self) -> Reference:
        """Load the `tokenizers` library's tokenizer, if it is not loaded yet.

        Raises:
            TokenizerError: it refuses the file, or reads other ids from it.
        """
        if self._reference is None:
            reference = Reference(_text(self._data, self.path), str(self.path))
            reference.require_added_ids(self._added_tokens)
            self._reference = reference
        return self._reference

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of any ids, special tokens spelled out; a cut inside a character becomes U+FFFD.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
        """
        return self.load_reference().decode(checked_ids(ids, self.vocab_size).tolist())

    def token_id(self, token: str) -> int | None:
        """Id of a vocabulary entry or added token, as the vocabulary spells it; None if there is none."""
        if self._reference is not None:
            return self._reference.token_id(token)
        for entry in self._added_tokens:
            if entry["content"] == token:
                return entry["id"]
        # Out of the file: a build asks once or twice, and need not wait for the reference to be loaded.
        document = parse_tokenizer_json(_text(self._data, self.path), str(self.path))
        return document["model"]["vocab"].get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of an id; None if there is none."""
        return self.load_reference().id_to_token(token_id) if 0 <= token_id < self.vocab_size else None

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Added tokens marked special, and their ids, by id."""
        return self._special_tokens

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """`bos_token` or `eos_token` of the tokenizer_config.json; None if there is no such file or entry.

        Raises:
            TokenizerError: the file is damaged.
        """
        if self._config is None:
            return None
        try:
            entry = json.loads(self._config).get(f"{role}_token")
            token = entry["content"] if isinstance(entry, dict) else entry
        except (ValueError, AttributeError, KeyError) as error:
            raise TokenizerError(f"{self._config_path} is damaged: {error!r}") from None
        if token is not None and not isinstance(token, str):
            raise TokenizerError(f"{self._config_path}: wanted a text as {role}_token, found {token!r}")
        return token

    def files(self) -> dict[str, bytes]:
        """The tokenizer.json and tokenizer_config.json as they are, and the `TokenizerRef`."""
        files = {REF_NAME: ref_file(self._ref), "tokenizer.json": self._data}
        if self._config is not None:
            files[CONFIG_NAME] = self._config
        return files

    def check(self, texts: Sequence[bytes]) -> None:
        """Compare gigatoken's ids with those of `tokenizers`, for these texts and a built-in one.

        Args:
            texts: valid UTF-8; 256 KiB take about 0.2 s.

        Raises:
            TokenizerError: the first difference.
        """
        samples = with_probe(texts, self._special_tokens)
        sample = (samples, *self.encode_documents(samples))
        compare_elsewhere(_text(self._data, self.path), str(self.path), self._added_tokens, sample=sample)


def _reopen(path: str, ref: TokenizerRef, max_cache_bytes: int) -> GigatokenTokenizer:
    """Load a pickled tokenizer where it is unpickled."""
    tokenizer = GigatokenTokenizer(path, name=ref.name, max_cache_bytes=max_cache_bytes)
    if tokenizer.ref != ref:
        raise TokenizerError(f"{path} has been changed since this process' parent read it; start again")
    return tokenizer


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from error


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8 (byte {error.start})") from None


def _label(path: Path) -> str:
    """A name without the way to it."""
    return (path.parent.name if path.name == "tokenizer.json" else path.stem) or "tokenizer"


def _anonymous_bytes() -> int:
    """Memory of this process that is no file's, in bytes; 0 where the system does not say (other than Linux)."""
    try:
        fields = Path("/proc/self/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
