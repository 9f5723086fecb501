"""`JSONLSource`: the texts of one file, by the plainest interface."""

import gzip
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources import JSONLSource

LINES = (
    b'{"text": "one"}\n\nnot JSON\n[1]\n{"body": "x"}\n{"text": 2}\n{"text": ""}\n{"text": "\xff"}\n{"text": "two"}\n'
)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a"])
def test_texts_and_dropped_lines(tmp_path: Path, name: str) -> None:
    """Good lines come out as text, in order; all others but blank ones are counted, anew for each iteration."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(LINES) if name.endswith("gz") else LINES)
    source = JSONLSource(str(path))
    assert source.dropped_lines == 0
    for _ in range(2):
        assert list(source) == ["one", "two"]
        assert source.dropped_lines == 6
    assert list(pickle.loads(pickle.dumps(source))) == ["one", "two"]  # noqa: S301 -- our own bytes


def test_text_field(tmp_path: Path) -> None:
    """The field can be chosen, and may be dotted; a nameless one is refused at once."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": {"b": "x"}, "text": "y"}\n')
    assert list(JSONLSource(path, text_field="a.b")) == ["x"]
    with pytest.raises(ValueError, match="name of the field"):
        JSONLSource(path, text_field="")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """What is missing, no file, or a JSON array is an error that names it, also for those who catch built-ins."""
    with pytest.raises(FileNotFoundError, match=r"missing.jsonl: does not exist"):
        list(JSONLSource(tmp_path / "missing.jsonl"))
    with pytest.raises(SourceError, match="wanted a file") as caught:
        list(JSONLSource(tmp_path))
    assert not isinstance(caught.value, SourceNotFoundError)
    array = tmp_path / "a.json"
    array.write_bytes(b'[{"text": "a"},\n {"text": "b"}]')
    with pytest.raises(ValueError, match=r"a.json:1: a JSON array"):
        list(JSONLSource(array))


def test_imports_stay_light() -> None:
    """Importing the readers loads neither the JSON parser nor zstandard: they come with the first file that needs them."""
    code = "import sys, headrace.sources; print([m for m in ('msgspec', 'zstandard', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
