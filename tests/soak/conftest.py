"""How large the soak tests are, and where their curves go."""

import os
from pathlib import Path

import pytest

RECORDS = Path(__file__).parents[2] / "bench" / "out"


@pytest.fixture(scope="session")
def scale() -> float:
    """Share of the full size to run, from HEADRACE_SOAK_SCALE; 1 by default."""
    return float(os.environ.get("HEADRACE_SOAK_SCALE", "1"))


@pytest.fixture(scope="session")
def records() -> Path:
    """Where curves of memory are kept, as JSON."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    return RECORDS
