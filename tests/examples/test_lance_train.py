"""The second of the two Lance recipes, as a program, on what the first one writes and on what anybody writes."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "lance_train.py"


def perplexities(*arguments: object) -> list[float]:
    """Of the epochs of a run with a tiny model."""
    command = [sys.executable, "-W", "error", EXAMPLE, *map(str, arguments), "--config", "tiny", "--epochs", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"(epoch=\d perplexity=[\d.]+\n){2}", ran.stdout)
    return [float(value) for value in re.findall(r"perplexity=([\d.]+)", ran.stdout)]


@pytest.mark.extended
def test_the_recipe_from_end_to_end():
    """On a Lance corpus of its own, the model learns: after two epochs it is far better than chance."""
    first, second = perplexities("--block-size", 64, "--lr", 0.003)
    assert second < first < 257
    assert second < 20


@pytest.mark.extended
def test_on_a_data_set_of_others(tmp_path):
    """A token a row, int64, as the recipe writes it: it does not say how many ids there are, so the user does."""
    from headrace.testing.lance import write_recipe

    random = np.random.default_rng(0)
    write_recipe(tmp_path / "a.lance", [random.integers(0, 5, 3000)], storage_version="2.0")
    first, second = perplexities(tmp_path / "a.lance", "--block-size", 32, "--vocab-size", 50, "--lr", 0.003)
    assert second < first < 50
    command = [sys.executable, EXAMPLE, tmp_path / "a.lance"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "give --vocab-size" in ran.stderr
