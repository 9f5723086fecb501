"""Tokenizers and texts that several tests use."""

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.testing.gpt2 import write_gpt2
from headrace.testing.vocabularies import Vocabulary
from headrace.tokenizers.load import load_tokenizer
from headrace.tokenizers.tokenizer_json import JsonTokenizer

INPUTS = Path(__file__).parent.parent / "data" / "inputs" / "jsonl"

HARD = [
    "",
    " ",
    "  two  spaces \t\tand tabs  \n\n\r\n and lines\n ",
    "a\rb\r\rc\r\nd",
    "e\u0301 cafe\u0301 a\u0323\u0307 o\u0307\u0323 \u212b \u1e9b\u0323 " + "z" + "\u0301" * 50,
    "中文字。日本語のかな、カタカナ。한국어 문장입니다",
    "\u304b\u3099 \uff76\uff9e \uac00 \u1100\u1161",
    "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪🇫🇷 1\ufe0f\u20e3",
    "שלום עולם العربية \u200fRTL\u200e \u202eabc\u202c \u0661\u0662\u0663",
    "nul\x00nul\x00\x00 \x01\x1f\x7f\x85",
    "\ufffd \ufffd\ufffda\ufffd \ufeffx \ufffe",
    "\u2028\u2029\u00a0\u3000\u2003\u200b\u00ad x",
    "ﬁ ﬂ Ｆｕｌｌ ß ẞ İ ı ſ ½ ² Ⅷ ㎏",  # noqa: RUF001  # on purpose
    "𝕏 𐍈 \U0010ffff \ue000 \u0378 \U0003fffd",  # noqa: RUF001  # on purpose
    "हिन्दी ไทย ខ្មែរ አማርኛ",
    "it's IT'S don’t we'LL 'S ſ's 1234567 1,000.00 0x1F __init__(self) --- ... !!!???",  # noqa: RUF001  # on purpose
    "<s> </s> <unk> <pad> <0x0A> [CLS] [SEP] [MASK] [INST] <|endoftext|><|im_start|>x<|im_end|> <|extra_0|>",
    "▁a ▁▁ b▁ Ġa Ċ ##ing </w>",
    "^" * 100_000,
    "abcdefghij" * 10_000,
    "語" * 5_000,
    " " * 5_000 + "x" + "\n" * 3_000,
]
"""What is not empty, or long, is short: combining marks, scripts without spaces, joined emoji, control characters, line
ends, replacement characters, spellings of special tokens, 100,000 characters without a space."""


@pytest.fixture(scope="session")
def hard() -> list[str]:
    """Texts on which tokenizers go wrong."""
    return HARD


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory) -> Path:
    """A folder with GPT-2's tokenizer.json and tokenizer_config.json; do not write into it."""
    return write_gpt2(tmp_path_factory.mktemp("tokenizer") / "gpt2")


@pytest.fixture(scope="session")
def gpt2(gpt2_folder) -> JsonTokenizer:
    """GPT-2, loaded once."""
    return load_tokenizer(gpt2_folder)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Some 600 KB: source files of the standard library, many scripts, emoji, spellings of special tokens."""
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_text(encoding="utf-8") for path in sorted(library.glob("[a-c]*.py"))]
    lines = [
        json.loads(line)["text"]
        for name in ("scripts_and_emoji.jsonl", "special_literals.jsonl")
        for line in (INPUTS / name).read_text(encoding="utf-8").splitlines()
    ]
    return [*lines, "", *sources][:60]


def byte_level_json(extra: dict[str, int] | None = None, merges: list[list[str]] | None = None, **changes) -> dict:
    """A minimal byte-level tokenizer.json: the 256 bytes, then what `extra` and `merges` add."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE",
        "vocab": {spelling[byte]: byte for byte in range(256)} | (extra or {}),
        "merges": merges or [],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    } | changes


@pytest.fixture
def write_json(tmp_path):
    """Write a tokenizer.json into a folder of its own; returns its path."""

    def write(document: dict | str, name: str = "made") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        path = folder / "tokenizer.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return path

    return write


@pytest.fixture
def byte_level():
    """Makes a minimal byte-level tokenizer.json."""
    return byte_level_json


def added(token_id: int, content: str, **flags) -> dict:
    """An entry of `added_tokens`."""
    return (
        {"id": token_id, "content": content}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        | flags
    )


@pytest.fixture
def added_token():
    """Makes an entry of `added_tokens`."""
    return added


@pytest.fixture(scope="session")
def real() -> Callable[[Vocabulary], Path]:
    """Finds a real vocabulary's file; skips where its package is not installed."""

    def find(vocabulary: Vocabulary) -> Path:
        try:
            return vocabulary.path()
        except FileNotFoundError as error:
            pytest.skip(f"could not import the vocabulary: {error}")

    return find
