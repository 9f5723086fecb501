"""A Hugging Face tokenizer.json.

gigatoken encodes, or where it does not support the model, the `tokenizers` library, which is the reference otherwise,
and decodes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.tokenizers.added import require_added_as_gigatoken
from headrace.tokenizers.base import checked_ids
from headrace.tokenizers.file_tokenizer import FileTokenizer, read_file
from headrace.tokenizers.identity import (
    identity_sha256,
    parse_tokenizer_json,
    special_tokens,
    vocab_size,
    vocabulary,
    without_special_tokens,
)
from headrace.tokenizers.reference import Reference, compare_elsewhere

__all__ = ["CONFIG_NAME", "JsonTokenizer"]

CONFIG_NAME = "tokenizer_config.json"
"""The file beside a tokenizer.json that names its BOS and EOS."""


class JsonTokenizer(FileTokenizer):
    """A tokenizer.json: BPE byte-level or SentencePiece-style by gigatoken, WordPiece, WordLevel, Unigram by `tokenizers`.

    Text that spells a special token is ordinary text, and the post-processor never runs.
    """

    kind = "huggingface"
    library = "tokenizers"
    usual_name = "tokenizer.json"
    _at_first_use = ("_reference", "_library_encoder")

    def _read(self) -> tuple[str, int]:
        document = self._parse()
        self._model: str = document["model"]["type"]
        self._added_tokens: list[dict[str, Any]] = document["added_tokens"]
        self._special_tokens = special_tokens(document)
        self._config_path = self.path.with_name(CONFIG_NAME)
        self._config = read_file(self._config_path) if self._config_path.is_file() else None
        self._reference: Reference | None = None
        self._library_encoder: Reference | None = None
        return identity_sha256(document), vocab_size(document)

    def _parse(self) -> dict[str, Any]:
        return parse_tokenizer_json(_text(self._data, self.path), str(self.path))

    def _gigatoken_json(self) -> bytes:
        import msgspec  # noqa: PLC0415  # only where documents are encoded

        if self._model != "BPE":
            raise TokenizerError(f"{self.path}: a {self._model} model is not supported by gigatoken")
        # The tokens that are added without being special stay: GPT-NeoX's runs of spaces are such. The rest is passed
        # on as it is.
        parts = msgspec.json.decode(_text(self._data, self.path), type=dict[str, msgspec.Raw])
        plain = [token for token in self._added_tokens if not token.get("special")]
        around = [msgspec.json.decode(parts[name]) for name in ("normalizer", "pre_tokenizer") if name in parts]
        require_added_as_gigatoken(self._added_tokens, str(self.path), around=around)
        parts["added_tokens"] = msgspec.Raw(msgspec.json.encode(plain))
        return msgspec.json.encode(parts)

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

    def _load_library(self) -> Reference:
        if self._library_encoder is None:
            reference = self.load_reference()
            if self._model != "BPE":
                document = without_special_tokens(self._parse())
                reference = Reference(json.dumps(document), str(self.path))
                reference.require_added_ids(document["added_tokens"])
            self._library_encoder = reference
        return self._library_encoder

    def _library_ids(self, texts: list[str]) -> list[list[int]]:
        return self._load_library().encode_batch(texts)

    def _compare(self, samples: list[bytes], ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        sample = (samples, ids, ends)
        compare_elsewhere(_text(self._data, self.path), str(self.path), self._added_tokens, sample=sample)

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
        return vocabulary(self._parse()["model"]).get(token)

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
        try:
            entry = self.config().get(f"{role}_token")
            token = entry["content"] if isinstance(entry, dict) else entry
        except KeyError as error:
            raise TokenizerError(f"{self._config_path} is damaged: {error!r}") from None
        if token is not None and not isinstance(token, str):
            raise TokenizerError(f"{self._config_path}: wanted a text as {role}_token, found {token!r}")
        return token

    def config(self) -> dict[str, Any]:
        """What the tokenizer_config.json says; nothing where there is none.

        Raises:
            TokenizerError: the file is damaged.
        """
        try:
            found: Any = json.loads(self._config or b"{}")
            return dict(found.items())
        except (ValueError, AttributeError) as error:
            raise TokenizerError(f"{self._config_path} is damaged: {error!r}") from None

    @property
    def text(self) -> str:
        """The tokenizer.json."""
        return _text(self._data, self.path)

    def _companions(self) -> dict[str, bytes]:
        return {} if self._config is None else {CONFIG_NAME: self._config}


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8 (byte {error.start})") from None
