"""The plain-integer model of every order, shared by the sampling tests."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def model() -> ModuleType:
    """The maker of the golden values: a second implementation that imports nothing of headrace."""
    path = Path(__file__).parents[1] / "golden" / "make_orders.py"
    spec = importlib.util.spec_from_file_location("make_orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
