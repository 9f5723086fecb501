"""Shared by the tests of the readers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.sources.files import SourceFile


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[..., SourceFile]:
    """Return a function that writes bytes and lists them as one source file."""

    def make(data: bytes, name: str = "a.jsonl", kind: str = "jsonl", compression: str | None = None) -> SourceFile:
        path = tmp_path / name
        path.write_bytes(data)
        return SourceFile(path, name, len(data), kind, compression)

    return make
