"""What is read of a shard's file, of whichever store it is: its name says which. Imports a store's library when called."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.storage.lance_names import docs_path, is_lance, mask_path
from headrace.storage.layout import LOSS_MASK, crc_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.storage.document_columns import DocumentColumns
    from headrace.storage.layout import ShardLayout

__all__ = [
    "file_with",
    "files_of",
    "inspect_shard",
    "read_documents",
    "read_documents_in_pieces",
    "stored_crcs",
    "stores_text_hashes",
]


def files_of(path: Path, *, loss_mask: bool) -> tuple[Path, ...]:
    """The files of a shard: the one that holds its tokens, first, and what lies beside that."""
    if not is_lance(path):
        return (path,)
    return (path, docs_path(path), *([mask_path(path)] if loss_mask else []))


def file_with(path: Path, name: str) -> Path:
    """The file of a shard that has one of its data sets, `tokens` or `loss_mask`."""
    return mask_path(path) if name == LOSS_MASK and is_lance(path) else path


def inspect_shard(path: Path) -> "ShardLayout":
    """The layout of a finished shard: see `hdf5_inspect.inspect_shard` and `lance_shard.inspect_lance_shard`."""
    if is_lance(path):
        from headrace.storage.lance_shard import inspect_lance_shard  # noqa: PLC0415  # not needed where a sidecar is

        return inspect_lance_shard(path)
    from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

    return inspect_shard(path)


def read_documents(path: Path, document_count: int) -> "DocumentColumns":
    """The document index of a shard, whole.

    Raises:
        NoDocumentsError: the file has none.
        CorruptShardError: it does not have `document_count` rows, or columns of another kind than the format says.
    """
    if is_lance(path):
        from headrace.storage.lance_shard import read_lance_documents  # noqa: PLC0415  # likewise

        return read_lance_documents(path, document_count)
    from headrace.storage.hdf5_reader import read_documents  # noqa: PLC0415  # imports h5py

    return read_documents(path, document_count)


def read_documents_in_pieces(path: Path, document_count: int, rows: int) -> "Iterator[DocumentColumns]":
    """The document index of a shard, at most `rows` documents at a time; what the ends say is not looked at before."""
    if is_lance(path):
        from headrace.storage.lance_shard import read_lance_documents_in_pieces  # noqa: PLC0415  # likewise

        return read_lance_documents_in_pieces(path, document_count, rows)
    from headrace.storage.hdf5_reader import read_documents_in_pieces  # noqa: PLC0415  # imports h5py

    return read_documents_in_pieces(path, document_count, rows)


def stores_text_hashes(path: Path) -> bool:
    """Whether a shard has the hashes of its documents' texts."""
    if is_lance(path):
        from headrace.storage.lance_shard import lance_text_hashes  # noqa: PLC0415  # likewise

        return lance_text_hashes(path)
    from headrace.storage.hdf5_reader import stores_text_hashes  # noqa: PLC0415  # imports h5py

    return stores_text_hashes(path)


def stored_crcs(path: Path, name: str) -> NDArray[np.uint32]:
    """The checksums of the chunks of a data set of a shard, as they are stored; `path` is of the file that has it.

    Raises:
        CorruptShardError: they cannot be read.
    """
    if is_lance(path):
        from headrace.storage.lance_shard import lance_crcs  # noqa: PLC0415  # likewise

        return lance_crcs(path, name)
    from headrace.storage.hdf5_open import open_shard  # noqa: PLC0415  # imports h5py

    with open_shard(path) as file:
        return file[crc_name(name)][:]
