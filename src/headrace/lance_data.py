"""Opening a Lance data set of tokens, whoever wrote it, as a corpus."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.documents import Documents
from headrace.errors import FormatError, MissingShardError
from headrace.manifest import Manifest, ShardEntry
from headrace.reading import Corpus
from headrace.storage.id_range import id_limit, ids_below
from headrace.storage.lance_apart import call
from headrace.storage.lance_corpus import lance_fingerprint, lance_line
from headrace.storage.lance_pages import PageTable, page_table
from headrace.storage.lance_pieces import FlatPiece
from headrace.storage.token_line import TokenLine

if TYPE_CHECKING:
    from headrace.storage.hdf5_reader import DocumentColumns
    from headrace.verdicts import ShardReport

__all__ = ["LanceCorpus", "open_lance"]


class LanceCorpus(Corpus):
    """A Lance data set that no `shards.json` describes; its fragments are the shards."""

    def __init__(self, table: PageTable, line: TokenLine, manifest: Manifest, reopen: dict[str, Any]) -> None:
        super().__init__(
            line,
            manifest,
            manifest.shards,
            path=table.path,
            fingerprint=manifest.fingerprint,
            documents=_ListDocuments(line, manifest, table),
            reopen=reopen,
        )
        self.lance_version = table.version
        """Of the data set, to which it is pinned."""
        self.column = table.column.name
        """That holds the tokens."""
        self.flat = all(isinstance(piece, FlatPiece) for piece in table.pieces)
        """Whether all tokens lie in the files as they are."""

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, (path, options) = super().__reduce__()
        return reopen, (Path(f"{path}@v{self.lance_version}"), options)

    def verify(self, *, quick: bool = False) -> list["ShardReport"]:
        """See `Corpus.verify`: what can be judged is whether the data files are there, whole, and can be read.

        Raises:
            FormatError: nothing was found wrong, but Lance stores no checksums by which tokens could be judged.
        """
        from headrace.lance_check import check_lance  # noqa: PLC0415  # not needed to read

        return check_lance(self, quick=quick)


class _ListDocuments(Documents):
    """The lists of a data set; where a row is no list, none are known."""

    def __init__(self, line: TokenLine, manifest: Manifest, table: PageTable) -> None:
        super().__init__(line, manifest, manifest.shards, known=table.ends is not None)
        self._table = table

    @property
    def ends(self) -> NDArray[np.int64]:
        self._require()
        assert self._table.ends is not None  # noqa: S101  # that is what was asked
        return self._table.ends

    def _read(self, shard: int) -> "DocumentColumns":
        from headrace.storage.hdf5_reader import DocumentColumns  # noqa: PLC0415  # imports h5py

        fragment = self._table.fragments[shard]
        ends = self.ends[fragment.first_row : fragment.first_row + fragment.rows] - fragment.first
        nothing = np.empty(0, np.uint64)
        return DocumentColumns(ends.astype(np.uint64), nothing, nothing, np.empty(0, np.uint32), ())


def open_lance(path: Path, asked: str | None, options: Mapping[str, Any], version: str | None) -> LanceCorpus:
    """Open a data set, pinned to a version.

    Args:
        path: its folder, absolute.
        asked: a version as it stands behind the `@` of a path: `v` and a number, or a tag; None for the newest.
        options: `io`, `verify` and `vocab_size` of `open_corpus`.
        version: a fingerprint that it must have, or the first digits of one.

    Raises:
        FormatError, MissingShardError, CorruptShardError, UnreadableShardError, MissingExtraError: see `page_table`.
    """
    table = call(page_table, path, asked)
    vocab_size = options["vocab_size"]
    limit = id_limit(table.dtype)
    if vocab_size is not None and not 1 <= vocab_size <= limit:
        raise FormatError(f"{path}: holds {table.dtype}, which a vocabulary of {vocab_size} ids does not fit")
    written = _said(table, "vocab_size", limit)
    if None not in {written, vocab_size} and written != vocab_size:
        raise FormatError(f"{path}: was written for a vocabulary of {written} ids, not {vocab_size}")
    line = lance_line(table, io=options["io"], below=ids_below(table.dtype, vocab_size))
    corpus = LanceCorpus(table, line, _manifest(table, vocab_size or written or limit), dict(options))
    if version is not None and not corpus.fingerprint.hex.startswith(version):
        raise MissingShardError(
            f"{path}: is {corpus.fingerprint}, not {version}: the data set was replaced, or has grown; Lance's own "
            f"versions are part of the path, as in {path.name}@v1"
        )
    return corpus


def _manifest(table: PageTable, vocab_size: int) -> Manifest:
    """What the data set says of itself."""
    manifest = Manifest(
        chunk_size=1,
        shards=tuple(_entries(table)),
        dtype="uint16" if table.dtype.itemsize <= np.dtype(np.uint16).itemsize else "uint32",
        vocab_size=vocab_size,
        boundary_token_id=_said(table, "boundary_token_id", vocab_size - 1) or 0,
        store="lance",
    )
    manifest.take_fingerprint(lance_fingerprint(table))
    return manifest


def _said(table: PageTable, name: str, most: int) -> int | None:
    """A number that `headrace build` has left in the schema of a data set of its own."""
    text = table.metadata.get(f"headrace.{name}".encode(), b"")
    return int(text) if text.isdigit() and int(text) <= most else None


def _entries(table: PageTable) -> Sequence[ShardEntry]:
    return [
        ShardEntry(
            shard_id=f"fragment-{fragment.number}",
            path=fragment.file,
            token_count=fragment.count,
            document_count=0 if table.ends is None else fragment.rows,
            sha256="",
            global_start=fragment.first,
        )
        for fragment in table.fragments
    ]
