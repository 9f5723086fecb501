"""A corpus whose every document is known, for the commands that read."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace as library


@dataclass(frozen=True)
class Known:
    """A corpus and what is in it."""

    path: Path
    texts: list[str]
    origins: list[tuple[str, int]]
    """File and line, from 1, of each document."""
    starts: list[int]
    """Position of each document, and the number of tokens."""


@pytest.fixture(scope="session")
def known(tmp_path_factory) -> Known:
    """Three sources, five shards, byte tokens in chunks of 64; do not write into it."""
    folder = tmp_path_factory.mktemp("known")
    files = {
        "a.jsonl": [
            f"first file, line {row}: " + "".join(f"wörd {row}.{word} " for word in range(row)) for row in range(20)
        ],
        "b.jsonl": ["alone"],
        "c.txt": ["a text\nof two lines\n"],
    }
    (folder / "in").mkdir()
    for name, texts in files.items():
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        (folder / "in" / name).write_text(texts[0] if name == "c.txt" else "".join(lines), encoding="utf-8")
    library.build(folder / "in", folder / "corpus", workers=1, chunk_tokens=64, shard_tokens=700)
    starts = [0]
    for text in (text for texts in files.values() for text in texts):
        starts.append(starts[-1] + len(text.encode()) + 1)
    return Known(
        folder / "corpus",
        [text for texts in files.values() for text in texts],
        [(name, row + 1) for name, texts in files.items() for row in range(len(texts))],
        starts,
    )


@pytest.fixture(scope="session")
def write_lines() -> Callable[[Path, list[str]], Path]:
    """Write texts as JSON lines; returns the path."""

    def write(path: Path, texts: list[str]) -> Path:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    return write
