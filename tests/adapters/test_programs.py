"""What the guide and the examples show of training is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def snippets(name: str) -> str:
    """The code of one section of the guide, as one program."""
    section = re.search(rf"^### {name}\n.*?(?=^##|\Z)", GUIDE, re.MULTILINE | re.DOTALL).group(0)
    return "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    "name",
    [
        "PyTorch",
        *(
            pytest.param(name, marks=pytest.mark.extended)
            for name in ("The Trainer of transformers", "JAX", "The reference trainer")
        ),
    ],
)
def test_the_guide_s_code_runs(tmp_path, name):
    """The code of each section runs as it stands, on a corpus at `corpus`, in `parts`, and warns of nothing."""
    texts = [f"Wheel {n} turns {7 * n % 60} times a minute and grinds what it is given." for n in range(400)]
    headrace.build(headrace.Documents(texts, name="wheels"), tmp_path / "corpus", tokenizer="bytes")
    headrace.split(tmp_path / "corpus", tmp_path / "parts", fractions={"val": 0.1})
    code = snippets(name)
    assert code.count("import headrace") >= 1
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.extended
@pytest.mark.parametrize(
    ("example", "printed"),
    [
        ("torch_loop", "the same in two parts: True"),
        ("trainer", "the same losses after resuming: True"),
        ("jax_loop", "the same in two parts: True"),
    ],
)
def test_the_examples_run(example, printed):
    """Each example trains, resumes, and finds the same losses."""
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / f"{example}.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{printed}\n")
