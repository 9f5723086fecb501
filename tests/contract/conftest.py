"""Folders for stores that are tested against the contract."""

from pathlib import Path

import pytest


@pytest.fixture(scope="class")
def folder(tmp_path_factory) -> Path:
    """A folder for one class."""
    return tmp_path_factory.mktemp("store")
