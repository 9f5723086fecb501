"""Print the requirements of a dependency group of pyproject.toml, one a line (pip learned `--group` only in 25.1)."""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
groups = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["dependency-groups"]
sys.stdout.write("\n".join(groups[sys.argv[1]]) + "\n")
