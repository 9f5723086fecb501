"""A tiktoken file, encoded by gigatoken, or by the `tiktoken` library, with which gigatoken is compared."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal

from numpy.typing import NDArray

from headrace.errors import MissingExtraError, TokenizerError
from headrace.tokenizers.base import checked_ids
from headrace.tokenizers.bpe_file import byte_spellings
from headrace.tokenizers.file_tokenizer import FileTokenizer, read_file
from headrace.tokenizers.ranks import GPT2_PATTERN, Scheme, canonical_ranks, known_scheme, parse_ranks, parse_scheme
from headrace.tokenizers.reference import PROBE, rust_errors

__all__ = ["TiktokenTokenizer"]

_VERSION = b"headrace tiktoken identity 1\n"


class TiktokenTokenizer(FileTokenizer):
    """Byte-pair ranks of a tiktoken file.

    How texts are cut, and which special tokens there are, is known for OpenAI's and Qwen's files; for another a file
    `NAME.tiktoken.json` beside it says so (see `parse_scheme`), which goes before what is known.
    """

    kind = "tiktoken"
    library = "tiktoken"
    usual_name = "tokenizer.tiktoken"
    _at_first_use = ("_library_encoding", "_tokens")

    def _read(self) -> tuple[str, int]:
        self._ranks = parse_ranks(self._data, str(self.path))
        ranks_sha256 = hashlib.sha256(canonical_ranks(self._ranks)).hexdigest()
        self._scheme = self._find_scheme(ranks_sha256)
        self._library_encoding: Any = None
        self._tokens: dict[int, bytes] | None = None
        decisive = {
            "normalizer": self._scheme.normalizer,
            "pattern": self._scheme.pattern,
            "ranks": ranks_sha256,
            "special_tokens": dict(self._scheme.special_tokens),
        }
        canonical = json.dumps(decisive, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        highest = max(*self._ranks.values(), *self._scheme.special_tokens.values())
        return hashlib.sha256(_VERSION + canonical).hexdigest(), highest + 1

    def _find_scheme(self, ranks_sha256: str) -> Scheme:
        beside = self.path.with_name(self.path.name + ".json")
        if beside.is_file():
            return parse_scheme(read_file(beside), self._ranks, str(beside))
        known = known_scheme(ranks_sha256)
        if known is None:
            raise TokenizerError(
                f"{self.path} is a tiktoken file of {len(self._ranks)} ranks that is not known here, and such a file does "
                f"not say how texts are cut: put a file {beside.name} beside it, with the fields "
                '{"pattern": "a regular expression", "special_tokens": {"<|endoftext|>": ID}, '
                '"eos_token": "<|endoftext|>", "normalizer": null}'
            )
        return known

    def _gigatoken_json(self) -> bytes:
        import msgspec  # noqa: PLC0415  # only where documents are encoded

        # tiktoken merges any two neighbours that are a token together, lowest rank first: each way to cut a token into
        # two is a merge. A piece that is a token as a whole is taken as it is (`ignore_merges`).
        spelled = str.maketrans({chr(byte): spelling for byte, spelling in enumerate(byte_spellings())})
        vocab = {token.decode("latin-1").translate(spelled): rank for token, rank in self._ranks.items()}
        merges = [
            (token[:cut], token[cut:])
            for token in vocab
            for cut in range(1, len(token))
            if token[:cut] in vocab and token[cut:] in vocab
        ]
        split = {"type": "Split", "pattern": {"Regex": self._scheme.pattern}, "behavior": "Isolated", "invert": False}
        gpt2 = self._scheme.pattern == GPT2_PATTERN
        as_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": gpt2}
        document = {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": self._scheme.normalizer} if self._scheme.normalizer else None,
            "pre_tokenizer": as_bytes if gpt2 else {"type": "Sequence", "pretokenizers": [split, as_bytes]},
            "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": True, "vocab": vocab, "merges": merges},
        }
        return msgspec.json.encode(document)

    def _require_library(self) -> None:
        if find_spec("tiktoken") is None:
            raise MissingExtraError(
                f"{self.path} is a tiktoken file; its ids are compared with the tiktoken library's, which is not "
                "installed: pip install 'headrace[tiktoken]'"
            )

    def _load_library(self) -> Any:  # noqa: ANN401  # imported here only
        if self._library_encoding is None:
            self._require_library()
            import tiktoken  # noqa: PLC0415  # an extra

            with rust_errors(f"{self.path} is refused by the tiktoken library"):
                made = tiktoken.Encoding(
                    self._ref.name, pat_str=self._scheme.pattern, mergeable_ranks=self._ranks, special_tokens={}
                )
                (probe,) = self._normalized([PROBE])
                kept = made.decode(made.encode_ordinary(probe)) == probe
            if not kept:
                raise TokenizerError(
                    f"{self.path}: its pattern {self._scheme.pattern!r} does not match all of a text, and what it does not "
                    "match would be lost; add an alternative for that, such as |[\\s\\S]"
                )
            self._library_encoding = made
        return self._library_encoding

    def _normalized(self, texts: list[str]) -> list[str]:
        if not self._scheme.normalizer:
            return texts
        from tokenizers.normalizers import NFC  # noqa: PLC0415  # the same tables whatever Python's version

        compose = NFC().normalize_str
        return [text if text.isascii() else compose(text) for text in texts]

    def _library_ids(self, texts: list[str]) -> list[list[int]]:
        encoding, texts = self._load_library(), self._normalized(texts)
        with rust_errors(f"{self.path}: the tiktoken library cannot encode the text"):
            return [encoding.encode_ordinary(text) for text in texts]

    def _companions(self) -> dict[str, bytes]:
        return {f"{self.usual_name}.json": self._scheme.to_json()}

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Special tokens and their ids, by id."""
        return self._scheme.special_tokens

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """`<|endoftext|>` as EOS of the known files; else what the file beside the ranks says."""
        return self._scheme.bos_token if role == "bos" else self._scheme.eos_token

    def _entries(self) -> dict[int, bytes]:
        if self._tokens is None:
            self._tokens = {rank: token for token, rank in self._ranks.items()}
            self._tokens |= {token_id: token.encode() for token, token_id in self.special_tokens.items()}
        return self._tokens

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of any ids, special tokens spelled out; a cut inside a character becomes U+FFFD.

        Raises:
            TokenIdError: an id is negative or not below `vocab_size`.
        """
        entries = self._entries()
        return b"".join(entries.get(i, b"") for i in checked_ids(ids, self.vocab_size).tolist()).decode(
            errors="replace"
        )

    def token_id(self, token: str) -> int | None:
        """Id of a special token, or of the token that is this text in UTF-8; None if there is none."""
        special = self.special_tokens.get(token)
        return self._ranks.get(token.encode(errors="surrogatepass")) if special is None else special

    def id_to_token(self, token_id: int) -> str | None:
        r"""Text of a token, other bytes than UTF-8 written like `\xe4`; None if there is none."""
        token = self._entries().get(token_id)
        return None if token is None else token.decode(errors="backslashreplace")
