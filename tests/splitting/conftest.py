"""What the tests of splits share: the model of sides, and looks at folders."""

import hashlib
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace

DYING = runpy.run_path(str(Path(__file__).parents[1] / "building" / "dying_builds.py"))
MODEL = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_sides.py"))


@pytest.fixture(scope="session")
def model() -> dict[str, Any]:
    """The names of `make_sides.py`: `side`, `of_tokens`, `of_text`."""
    return MODEL


@pytest.fixture(scope="session")
def files() -> Callable[[Path], dict[str, str]]:
    """SHA-256 of each file of a folder by its path in it, but for locks."""

    def hashes(folder: Path) -> dict[str, str]:
        found = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    return hashes


@pytest.fixture(scope="session")
def documents() -> Callable[[Path], list[list[int]]]:
    """All documents of a corpus, every byte of which is verified, the index, the sidecar and the tokenizer included."""
    from headrace.inspection import verify_all

    def read(folder: Path) -> list[list[int]]:
        assert [str(report.fault) for report in verify_all(folder).reports if not report.ok] == []
        with headrace.open(folder) as corpus:
            return [document.tolist() for document in corpus.documents]

    return read


@pytest.fixture
def small(tmp_path) -> Path:
    """A corpus of two sources, one with a bad line, in three shards; built anew for each test."""
    (tmp_path / "in").mkdir()
    lines = [f'{{"text": "{word} {number}"}}\n' for number in range(40) for word in ("wheel", "mill")]
    (tmp_path / "in" / "a.jsonl").write_text("".join(lines))
    (tmp_path / "in" / "b.jsonl").write_text("".join(lines[:3]) + "bad\n" + lines[5])
    headrace.build(
        tmp_path / "in", tmp_path / "c", chunk_tokens=32, shard_tokens=500, workers=1, on_bad_input="skip", max_bad=1
    )
    return tmp_path / "c"


@pytest.fixture(scope="session")
def builder(tmp_path_factory):
    """Has splits made in processes that die where they are told to; one for all tests."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    with DYING["Builder"]() as started:
        started.ask(folder, folder / "c", {}, warm=True)
        yield started
