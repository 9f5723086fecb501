"""A sentencepiece model, encoded by gigatoken, or by the `sentencepiece` library, with which gigatoken is compared."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from numpy.typing import NDArray

from headrace.errors import MissingExtraError
from headrace.tokenizers.base import checked_ids
from headrace.tokenizers.file_tokenizer import FileTokenizer
from headrace.tokenizers.reference import rust_errors
from headrace.tokenizers.sentencepiece_model import Kind, parse_model

__all__ = ["SentencePieceTokenizer"]


class SentencePieceTokenizer(FileTokenizer):
    """A `.model` file: BPE with byte fallback by gigatoken, other models by the library.

    Ids are those of `SentencePieceProcessor.encode`: its normalizer and dummy prefix, no BOS or EOS. Control pieces are
    never found in a text; user-defined ones are.
    """

    kind = "sentencepiece"
    library = "sentencepiece"
    usual_name = "tokenizer.model"
    _at_first_use = ("_processor", "_surfaces")

    def _read(self) -> tuple[str, int]:
        self._model = parse_model(self._data, str(self.path))
        self._ids = {piece: piece_id for piece_id, (piece, _, _) in enumerate(self._model.pieces)}
        self._processor: Any = None
        self._surfaces: list[bytes] | None = None
        return self._model.identity_sha256(), len(self._model.pieces)

    def _gigatoken_json(self) -> bytes:
        return self._model.to_tokenizer_json(str(self.path))

    def _require_library(self) -> None:
        if find_spec("sentencepiece") is None:
            raise MissingExtraError(
                f"{self.path} is a sentencepiece model; its ids are compared with the sentencepiece library's, which is "
                "not installed: pip install 'headrace[sentencepiece]'"
            )

    def _load_library(self) -> Any:  # noqa: ANN401  # imported here only, without types
        if self._processor is None:
            self._require_library()
            import sentencepiece  # noqa: PLC0415  # an extra

            with rust_errors(f"{self.path} is refused by the sentencepiece library"):
                self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._data)
        return self._processor

    def _library_ids(self, texts: list[str]) -> list[list[int]]:
        return self._load_library().encode(texts, num_threads=1) if texts else []

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Control pieces and their ids, by id."""
        return {piece: piece_id for piece_id, (piece, _, kind) in enumerate(self._model.pieces) if kind == Kind.CONTROL}

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """The model's BOS or EOS piece; None if it has none."""
        piece = self._model.bos_piece if role == "bos" else self._model.eos_piece
        return piece if piece in self.special_tokens else None

    def _bytes_of(self, piece: str, kind: int) -> bytes:
        if kind == Kind.BYTE:
            return bytes([int(piece[3:5], 16)])
        if kind == Kind.UNKNOWN:
            return self._model.unk_surface.encode()
        return piece.encode() if kind == Kind.CONTROL else piece.replace("\u2581", " ").encode()

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of any ids, control pieces spelled out, without the dummy prefix; cut characters become U+FFFD.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
        """
        if self._surfaces is None:
            self._surfaces = [self._bytes_of(piece, kind) for piece, _, kind in self._model.pieces]
        surfaces = self._surfaces
        checked = checked_ids(ids, self.vocab_size).tolist()
        text = b"".join(surfaces[i] for i in checked)
        return text[self._prefix_of(checked) :].decode(errors="replace")

    def _prefix_of(self, ids: list[int]) -> int:
        """How many leading spaces are no part of the text: the dummy prefix, or all if the model removes such."""
        found = 0
        for i in ids:
            piece, _, kind = self._model.pieces[i]
            if kind not in {Kind.NORMAL, Kind.USER_DEFINED}:
                break
            rest = piece.lstrip("\u2581")
            found += len(piece) - len(rest)
            if rest:
                break
        if self._model.remove_extra_whitespaces:
            return found
        return min(found, 1) if self._model.dummy_prefix else 0

    def token_id(self, token: str) -> int | None:
        """Id of a piece, as the model spells it; None if there is none."""
        return self._ids.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """The piece of an id; None if there is none."""
        return self._model.pieces[token_id][0] if 0 <= token_id < self.vocab_size else None
