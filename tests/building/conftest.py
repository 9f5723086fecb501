"""Documents, tokenizers and looks at what lies on disk, for the tests of the build."""

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from headrace.testing.gpt2 import write_gpt2
from headrace.tokenizers.bytes import Tokenizer
from headrace.tokenizers.load import load_tokenizer
from headrace.tokenizers.tokenizer_json import JsonTokenizer


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory) -> Path:
    """A folder with GPT-2's tokenizer.json and tokenizer_config.json; do not write into it."""
    return write_gpt2(tmp_path_factory.mktemp("tokenizer") / "gpt2")


@pytest.fixture(scope="session")
def gpt2(gpt2_folder) -> JsonTokenizer:
    """GPT-2, loaded once."""
    return load_tokenizer(gpt2_folder)


class BytesWithBos(Tokenizer):
    """The byte tokenizer with a BOS token: the byte 0x02, which no test's text holds."""

    def named_token(self, role: Literal["bos", "eos"]) -> str | None:
        """Both ends have one."""
        return "<0x02>" if role == "bos" else super().named_token(role)


@pytest.fixture
def bytes_with_bos() -> Tokenizer:
    """A byte tokenizer that has a BOS token, id 3."""
    return BytesWithBos()


@pytest.fixture
def write_jsonl() -> Callable[..., Path]:
    """Write texts as JSON lines, compressed if the name ends in `.gz`; returns the path."""

    def write(path: Path, texts: Sequence[str]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        path.write_bytes(gzip.compress(lines, mtime=0) if path.suffix == ".gz" else lines)
        return path

    return write


@pytest.fixture
def published() -> Callable[[Path], dict[str, str]]:
    """SHA-256 of each file of a corpus by its path in it; what concerns one machine only is left out."""

    def hashes(corpus: Path) -> dict[str, str]:
        private = {"lock", "local.json", "journal.jsonl"}  # the last one knows when sources were modified
        files = [path for path in corpus.rglob("*") if path.is_file() and path.name not in private]
        return {str(path.relative_to(corpus)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    return hashes
