"""The end of `make demo`: a short training run, or one line."""

import runpy
from pathlib import Path

import pytest

from headrace.testing.corpora import random_documents, small_corpus

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def demo(monkeypatch) -> dict[str, object]:
    """The names of the program."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return runpy.run_path(str(EXAMPLES / "demo.py"))


def test_without_torch(demo, tmp_path, monkeypatch, capsys):
    """One line says what is not installed, and nothing is trained."""
    monkeypatch.setitem(demo["training"].__globals__, "find_spec", lambda name: None if name == "torch" else name)
    demo["training"]("corpus", str(tmp_path))
    assert capsys.readouterr().out == (
        "\nNo training run: torch not installed (pip install 'headrace[train]', or make test)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
def test_with_torch(demo, tmp_path, capfd):
    """The command is shown, and trains; it ends with its report."""
    corpus = small_corpus(tmp_path / "corpus", random_documents(5, [70]))
    demo["training"](str(corpus), str(tmp_path))
    out = capfd.readouterr().out
    assert out.startswith("\n$ headrace train ")
    assert "\nsteps       40, of which 0 were skipped\n" in out
    assert (tmp_path / "run" / "checkpoints" / "step-00000040" / "model.safetensors").exists()
