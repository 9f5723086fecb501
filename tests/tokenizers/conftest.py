"""Tokenizers and texts that several tests use."""

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.testing.gpt2 import write_gpt2
from headrace.testing.vocabularies import Vocabulary
from headrace.tokenizers.gigatoken import GigatokenTokenizer
from headrace.tokenizers.load import load_tokenizer

INPUTS = Path(__file__).parent.parent / "data" / "inputs" / "jsonl"


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory) -> Path:
    """A folder with GPT-2's tokenizer.json and tokenizer_config.json; do not write into it."""
    return write_gpt2(tmp_path_factory.mktemp("tokenizer") / "gpt2")


@pytest.fixture(scope="session")
def gpt2(gpt2_folder) -> GigatokenTokenizer:
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
