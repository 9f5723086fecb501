"""Documents, tokenizers and looks at what lies on disk, for the tests of the build."""

import gzip
import hashlib
import json
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from headrace.testing.gpt2 import write_gpt2
from headrace.tokenizers.bytes import Tokenizer
from headrace.tokenizers.load import load_tokenizer
from headrace.tokenizers.tokenizer_json import JsonTokenizer

DYING = runpy.run_path(str(Path(__file__).with_name("dying_builds.py")))


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


@pytest.fixture(scope="session")
def builder(tmp_path_factory):
    """Has corpora built in processes that die where they are told to; one for all tests."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    with DYING["Builder"]() as started:
        started.ask(folder, folder / "c", {"compression": "zstd:3"}, warm=True)
        yield started


@pytest.fixture
def build(builder, tmp_path):
    """Build of some words, one a file and each with a bad line, in `tmp_path / "c"`."""

    def ask(*words: str, fault: dict | None = None, **options: object) -> dict:
        inputs = tmp_path / "-".join(words)
        inputs.mkdir(exist_ok=True)
        for word in words:
            (inputs / f"{word}.jsonl").write_text(json.dumps({"text": word}) + "\nbad\n")
        answer = builder.ask(inputs, tmp_path / "c", {"on_bad_input": "skip", "max_bad": 1, **options}, fault=fault)
        assert answer["ended"] == ("killed" if fault else "done")
        return answer.get("report", {})

    return ask
