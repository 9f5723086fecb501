"""What a Lance corpus names its data sets and their files. Imports nothing heavy."""

import re
from importlib.util import find_spec
from pathlib import Path

from headrace.errors import MissingExtraError
from headrace.in_progress import SHARD_NAME

__all__ = [
    "COLUMN",
    "DATA_FILE",
    "DATA_SETS",
    "DOCS",
    "LANCE_MODULES",
    "MASKS",
    "TOKENS",
    "data_name",
    "docs_path",
    "is_lance",
    "mask_path",
    "require_lance",
    "token_path",
]

TOKENS = "tokens.lance"
"""In the corpus folder: the data set of the tokens, one a row, ..."""
DOCS = "docs.lance"
"""... that of the documents, one a row, ..."""
MASKS = "loss_mask.lance"
"""... and, where there is a loss mask, its, a token a row. All have one data file for each shard, of the same name."""
DATA_SETS = (DOCS, MASKS, TOKENS)
"""In the order in which they are written down: who finds the tokens of a shard finds all of it."""
COLUMN = "input_ids"
LANCE_MODULES = ("lance", "lance.file")
"""What a process imports that writes them."""
DATA_FILE = re.compile(rf"{SHARD_NAME}-[0-9a-f]{{12}}\.lance")
"""Names of data files: the shard's, and what no other attempt has."""


def require_lance(wanted: str) -> None:
    """See to it that pylance is there, without importing it.

    Raises:
        MissingExtraError: (an ImportError) it is not.
    """
    if find_spec("lance") is None:
        raise MissingExtraError(f"{wanted} needs pylance: pip install 'headrace[lance]'")


def is_lance(path: str | Path) -> bool:
    """Whether the file of a shard is a Lance data file."""
    return str(path).endswith(".lance")


def data_name(shard_id: str, token: str) -> str:
    """The name of a shard's data files; `token` is 12 hex digits."""
    return f"{shard_id}-{token}.lance"


def token_path(folder: Path, name: str) -> Path:
    """Where the tokens of a shard lie in the folder of a corpus."""
    return folder / TOKENS / "data" / name


def docs_path(path: Path) -> Path:
    """Where the documents of a shard lie, whose tokens lie at `path`."""
    return path.parents[2] / DOCS / "data" / path.name


def mask_path(path: Path) -> Path:
    """Likewise its loss mask, if it has one."""
    return path.parents[2] / MASKS / "data" / path.name
