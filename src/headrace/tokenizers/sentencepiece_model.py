"""A sentencepiece model file: the parts of its protobuf that decide ids and text, read without a library."""

import hashlib
import json
import struct
from dataclasses import dataclass
from enum import IntEnum

from headrace import protobuf
from headrace.errors import TokenizerError

__all__ = ["Kind", "Model", "looks_like_model", "parse_model"]

_VERSION = b"headrace sentencepiece identity 1\n"
_BPE = 2
_MODELS = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}


class Kind(IntEnum):
    """What a piece is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model, as `sentencepiece_model.proto` has it; defaults are the proto's."""

    pieces: list[tuple[str, float, int]]
    """Piece, score, `Kind`, by id."""
    model_type: int = 1
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    unk_surface: str = " \u2047 "
    bos_piece: str = "<s>"
    eos_piece: str = "</s>"
    charsmap: bytes = b""
    dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True

    def identity_sha256(self) -> str:
        """Hash of what decides the ids of a text: pieces, scores, kinds, model type, normalizer; 64 hex digits."""
        decisive = [
            _MODELS.get(self.model_type, str(self.model_type)),
            [self.byte_fallback, self.whitespace_as_suffix],
            [self.dummy_prefix, self.remove_extra_whitespaces, self.escape_whitespaces],
            hashlib.sha256(self.charsmap).hexdigest(),
            [[piece, struct.pack("<f", score).hex(), kind] for piece, score, kind in self.pieces],
        ]
        canonical = json.dumps(decisive, ensure_ascii=False, separators=(",", ":")).encode()
        return hashlib.sha256(_VERSION + canonical).hexdigest()

    def to_tokenizer_json(self, label: str) -> bytes:
        """The same as a tokenizer.json for gigatoken, without special tokens.

        Control, unknown and byte pieces are no result of a merge: no text yields one by its spelling.

        Raises:
            TokenizerError: no BPE with byte fallback, or with what merges alone do not express.
        """
        kinds = {kind for _, _, kind in self.pieces}
        refused = {
            f"a {_MODELS.get(self.model_type, 'new')} model": self.model_type != _BPE,
            "a model without byte fallback": not self.byte_fallback,
            "user-defined pieces": Kind.USER_DEFINED in kinds,
            "unused pieces": Kind.UNUSED in kinds,
            "white space as a suffix": self.whitespace_as_suffix,
            "white space that is not escaped": not self.escape_whitespaces,
            # gigatoken 0.10 has such steps, but strips control characters too, and composes marks that stay apart here.
            "removal of extra white space": self.remove_extra_whitespaces,
            "a table of characters": bool(self.charsmap),
        }
        if reasons := [reason for reason, found in refused.items() if found]:
            raise TokenizerError(f"{label} is not supported by gigatoken: {', '.join(reasons)}")
        bar = "\u2581"
        prefix = [{"type": "Prepend", "prepend": bar}] if self.dummy_prefix else []
        escape = {"type": "Replace", "pattern": {"String": " "}, "content": bar}
        document = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": [*prefix, escape]},
            "pre_tokenizer": None,
            "model": {
                "type": "BPE",
                "unk_token": next((piece for piece, _, kind in self.pieces if kind == Kind.UNKNOWN), None),
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": {piece: piece_id for piece_id, (piece, _, _) in enumerate(self.pieces)},
                "merges": self._merges(),
            },
        }
        return json.dumps(document, ensure_ascii=False).encode()

    def _merges(self) -> list[tuple[str, str]]:
        """Each way to cut a piece into two, the best score first."""
        ids = {piece: piece_id for piece_id, (piece, _, kind) in enumerate(self.pieces) if kind == Kind.NORMAL}
        found = [
            (-self.pieces[piece_id][1], piece_id, cut, piece)
            for piece, piece_id in ids.items()
            for cut in range(1, len(piece))
            if piece[:cut] in ids and piece[cut:] in ids
        ]
        return [(piece[:cut], piece[cut:]) for _, _, cut, piece in sorted(found)]


def looks_like_model(data: bytes) -> bool:
    """Whether a file begins like a list of pieces, which no text file does."""
    return data[:1] == b"\n" and data[2:3] == b"\n" and not data.lstrip().startswith((b"{", b"["))


def parse_model(data: bytes, label: str) -> Model:
    """Read a model.

    Raises:
        TokenizerError: no protobuf, or no pieces in it.
    """
    try:
        fields = list(protobuf.fields(data))
        pieces = [_piece(value) for field, value in fields if field == 1 and isinstance(value, bytes)]
        trainer = _message(fields, 2)
        normalizer = _message(fields, 3)
        model = Model(
            pieces=pieces,
            model_type=_number(trainer, 3, 1),
            byte_fallback=bool(_number(trainer, 35, 0)),
            whitespace_as_suffix=bool(_number(trainer, 24, 0)),
            unk_surface=_text(trainer, 44, " \u2047 "),
            bos_piece=_text(trainer, 46, "<s>"),
            eos_piece=_text(trainer, 47, "</s>"),
            charsmap=_bytes(normalizer, 2),
            dummy_prefix=bool(_number(normalizer, 3, 1)),
            remove_extra_whitespaces=bool(_number(normalizer, 4, 1)),
            escape_whitespaces=bool(_number(normalizer, 5, 1)),
        )
    except (ValueError, IndexError, struct.error) as error:
        raise TokenizerError(f"{label} is no sentencepiece model, or a damaged one: {error}") from None
    if not pieces:
        raise TokenizerError(f"{label} is no sentencepiece model: it has no pieces")
    return model


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = dict(protobuf.fields(data))
    score: float = struct.unpack("<f", _bytes(fields, 2, bytes(4)))[0]
    return _text(fields, 1, ""), score, _number(fields, 3, Kind.NORMAL)


def _message(fields: list[tuple[int, int | bytes]], number: int) -> dict[int, int | bytes]:
    """The last value of each field of a message inside; one that stands twice is one."""
    return dict(
        field
        for found, value in fields
        if found == number and isinstance(value, bytes)
        for field in protobuf.fields(value)
    )


def _number(fields: dict[int, int | bytes], number: int, default: int) -> int:
    value = fields.get(number, default)
    return value if isinstance(value, int) else default


def _bytes(fields: dict[int, int | bytes], number: int, default: bytes = b"") -> bytes:
    value = fields.get(number, default)
    return value if isinstance(value, bytes) else default


def _text(fields: dict[int, int | bytes], number: int, default: str) -> str:
    return _bytes(fields, number, default.encode()).decode()
