"""The page matrix once more, with the oldest Lance that the pins allow."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.extended
def test_the_matrix_holds_with_the_oldest_lance(tmp_path):
    """Its data sets are read as those of the newest are: it writes other pages, and tells of them in other words."""
    oldest = re.search(r'"pylance>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[1]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, f"pylance=={oldest}.*"]
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    installed = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"pip cannot install it here: {installed.stderr[-200:]}")
    environment["PYTHONPATH"] = str(tmp_path)
    version = [sys.executable, "-c", "import lance; print(lance.__version__)"]
    found = subprocess.run(version, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(oldest)
    matrix = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not extended"]
    ran = subprocess.run(
        [*matrix, Path(__file__).with_name("test_lance_pages.py")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert " passed" in ran.stdout
