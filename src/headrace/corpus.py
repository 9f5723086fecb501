"""`headrace.open(path)`: a corpus as one line of tokens."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from headrace.documents import Documents
from headrace.errors import FormatError, HeadraceError, MissingShardError
from headrace.in_progress import BUILDING_NAME, file_mark
from headrace.manifest import (
    INDEX_NAME,
    Fingerprint,
    Manifest,
    ShardEntry,
    is_sha256,
)
from headrace.reading import Corpus
from headrace.shard_paths import require_there
from headrace.storage.hdf5_corpus import checked_layout, open_line, open_mask_line
from headrace.storage.id_range import id_limit
from headrace.storage.index_sidecar import open_manifest
from headrace.storage.lance_open import split_version
from headrace.storage.loose import entry_of, line_of, made_up_manifest, mask_opener, stat_fingerprint
from headrace.storage.token_line import Io
from headrace.storage.versions import read_version
from headrace.verdicts import Verify, checked_verify, require_ok

if TYPE_CHECKING:
    from headrace.live import LiveCorpus

__all__ = ["Corpus", "MmapTokenStore", "open_corpus", "open_index", "reopen"]

_Opener = Callable[[Path, dict[str, Any], str | None], Corpus]
"""Opens a path with options, at a version or the newest."""


@overload
def open_corpus(
    path: str | os.PathLike[str],
    *,
    dtype: str | np.dtype[Any] | None = None,
    vocab_size: int | None = None,
    version: str | Fingerprint | None = None,
    live: Literal[False] = False,
    io: Io = "mmap",
    verify: Verify = "quick",
) -> Corpus: ...
@overload
def open_corpus(
    path: str | os.PathLike[str],
    *,
    dtype: str | np.dtype[Any] | None = None,
    vocab_size: int | None = None,
    version: None = None,
    live: Literal[True],
    io: Io = "mmap",
    verify: Verify = "quick",
) -> "LiveCorpus": ...
def open_corpus(
    path: str | os.PathLike[str],
    *,
    dtype: str | np.dtype[Any] | None = None,
    vocab_size: int | None = None,
    version: str | Fingerprint | None = None,
    live: bool = False,
    io: Io = "mmap",
    verify: Verify = "quick",
) -> Corpus:
    """Open a corpus folder, its `shards.json`, an HDF5 file with a `tokens` data set, or a Lance data set. Writes nothing into it.

    Args:
        path: what to open; a Lance data set as `data.lance`, `data.lance@v3` or `data.lance@tag`, whoever wrote it: a column
            of tokens, of lists of them (documents), or of blocks, `input_ids` or the only one.
        dtype: what the caller expects; one that contradicts the files is an error. The files say it by themselves.
        vocab_size: likewise; version 1 and foreign files do not say it, so there it is taken, and reading other ids is a
            `TokenIdError`, as are negative ones and those of more than 32 bits in any case.
        version: fingerprint of the corpus as it is wanted, or at least 8 of its first digits: what it was before it was
            appended to is kept. By default the newest.
        live: follow a build that is at work, or was killed, and whatever is appended later: what is returned is a
            `LiveCorpus`, whose `refresh` sees what was added.
        io: `mmap`, or `pread` to read without maps (network file systems).
        verify: `full` checks every byte now; `quick` checks sizes now, and each shard's stored digest and its first and
            last chunk when it is first touched; `off` checks sizes only.

    Raises:
        MissingShardError, FormatError, ManifestError, CorruptShardError, UnreadableShardError: naming the files.
        MissingShardError: (a FileNotFoundError) also where there is no such version; the known ones are named.
    """
    if not os.fspath(path):
        raise MissingShardError(
            "the path is empty; wanted a corpus folder, its shards.json, one .h5 file, or a Lance data set"
        )
    lance = split_version(path)
    path = Path(path)
    if io not in {"mmap", "pread"}:
        raise ValueError(f"io is 'mmap' or 'pread', not {io!r}")
    checked_verify(verify)
    # A folder that does not exist may be about to: there a build is expected.
    folder = path.is_dir() or (live and not path.is_file() and path.suffix != ".json")
    place = (path / INDEX_NAME if folder else path).absolute()
    # What was checked in full here needs no such check in every process that the corpus is sent to.
    options: dict[str, Any] = {"io": io, "verify": "off" if verify == "off" else "quick", "vocab_size": vocab_size}
    wanted = None if version is None else str(version)
    opener: _Opener = open_index if folder or path.suffix == ".json" else _open_file
    if lance is not None:
        place, opener = lance[0].absolute(), partial(_open_lance, lance[1])
    corpus = _open_live(opener, place, options, wanted) if live else opener(place, options, wanted)
    if dtype is not None and np.dtype(dtype) != corpus.dtype:
        raise FormatError(
            f"{corpus.path}: holds {corpus.dtype}, not {np.dtype(dtype)}; leave dtype out: the file says it"
        )
    if verify == "full":
        require_ok(corpus.verify(), where=f"{corpus.path}: ")
    return corpus


def _open_lance(asked: str | None, path: Path, options: dict[str, Any], version: str | None) -> Corpus:
    from headrace.lance_data import open_lance  # noqa: PLC0415  # few corpora need it

    return open_lance(path, asked, options, version)


def _open_live(
    opener: _Opener,
    path: Path,
    options: dict[str, Any],
    version: str | None,
) -> "LiveCorpus":
    from headrace.live import never_grows, open_live  # noqa: PLC0415  # it builds on this module

    if version is not None:
        raise ValueError("a version does not grow: give live=True or a version, not both")
    if opener is not open_index:
        return never_grows(opener(path, options, None))
    corpus = open_live(path, options)
    if not corpus.finished:
        _with_vocabulary(path, corpus.manifest, corpus.dtype, options["vocab_size"], known=True)
    return corpus


def reopen(path: Path, options: dict[str, Any]) -> Corpus:
    """A pickled corpus."""
    return open_corpus(path, **options)


def open_index(path: Path, options: dict[str, Any], version: str | None = None) -> Corpus:
    """Open a published corpus by its index.

    Args:
        path: absolute, of `shards.json`.
        options: `io`, `verify` and `vocab_size` of `open_corpus`.
        version: a fingerprint, or the first digits of one.
    """
    while True:
        mark = file_mark(path)
        try:
            corpus = _open_index(path, options, version)
        except HeadraceError:
            if file_mark(path) == mark:
                raise
        else:
            if file_mark(path) == mark:
                return corpus
        # Since its index was read, the corpus was replaced, and perhaps its shards have other names now.


def _open_index(path: Path, options: dict[str, Any], version: str | None) -> Corpus:
    manifest = _read_index(path, version)
    known = manifest.version != 1
    how: Any = {"io": options["io"], "verify": options["verify"] != "off"}
    line, entries = open_line(path, manifest, vocab_size=None if known else options["vocab_size"], **how)
    manifest = _with_vocabulary(path, manifest, line.dtype, options["vocab_size"], known=known)
    return Corpus(
        line,
        manifest,
        entries,
        path=path,
        fingerprint=manifest.fingerprint,
        documents=Documents(line, manifest, entries),
        reopen=options,
        open_mask=partial(open_mask_line, path, manifest, **how) if manifest.has_loss_mask else None,
    )


def _read_index(path: Path, version: str | None) -> Manifest:
    try:
        return open_manifest(path) if version is None else read_version(path, version, open_manifest)
    except MissingShardError as error:
        if path.exists() or not (path.parent / BUILDING_NAME).exists():
            raise
        raise MissingShardError(
            f"{path.parent}: holds a build that is not finished ({BUILDING_NAME}, but no {path.name}): `headrace status "
            f"{path.parent}` says how far it is; open it with live=True to read what is whole; if no build is at work, "
            "repeat its command, which goes on from there"
        ) from error


def _open_file(path: Path, options: dict[str, Any], version: str | None) -> Corpus:
    """One HDF5 file: its layout is read from the file itself, each time."""
    from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

    require_there(path)
    layout = inspect_shard(path)
    entry = entry_of(path, layout)
    has_documents = bool(layout.documents_sha256)
    known = "vocab_size" in layout.attributes
    manifest = made_up_manifest([layout], (entry,))
    manifest = _with_vocabulary(path, manifest, layout.dtype, options["vocab_size"], known=known)
    how: Any = {"io": options["io"], "verify": options["verify"] != "off"}
    line = line_of([layout], [entry], vocab_size=None if known else options["vocab_size"], **how)
    hashed = is_sha256(layout.sha256) and (not has_documents or is_sha256(layout.documents_sha256))
    fingerprint = manifest.fingerprint if hashed else stat_fingerprint(path)
    if version is not None and not fingerprint.hex.startswith(version):
        raise MissingShardError(f"{path}: is {fingerprint}, not version {version}: the file was replaced")
    return Corpus(
        line,
        manifest,
        [entry],
        path=path,
        fingerprint=fingerprint,
        documents=Documents(line, manifest, [entry], known=has_documents),
        reopen=options,
        open_mask=mask_opener([layout], [entry], **how),
    )


def _with_vocabulary(
    path: Path, manifest: Manifest, dtype: np.dtype[Any], vocab_size: int | None, *, known: bool
) -> Manifest:
    """The manifest with the vocabulary's size that the caller says, where the corpus says none."""
    if vocab_size is None:
        return manifest if known else replace(manifest, vocab_size=id_limit(dtype))
    if known and vocab_size != manifest.vocab_size:
        raise FormatError(f"{path}: was written for a vocabulary of {manifest.vocab_size} ids, not {vocab_size}")
    if not 1 <= vocab_size <= id_limit(dtype):
        raise FormatError(f"{path}: holds {dtype}, which a vocabulary of {vocab_size} ids does not fit")
    return replace(manifest, vocab_size=vocab_size)


class MmapTokenStore(Corpus):
    """Read access to shards by their entries, as `load_index` or `write_corpus` return them.

    The corpus is the entries in the order given, so they may be a selection; their `global_start` is not used.

    Args:
        entries: with paths of existing HDF5 shards.
        io, verify: as for `headrace.open`.

    Raises:
        ValueError: no entries.
        TypeError: what is given are no entries, but a path, for instance.
        MissingShardError, CorruptShardError, FormatError: naming the shard.
    """

    def __init__(self, entries: Sequence[ShardEntry], *, io: Io = "mmap", verify: Verify = "quick") -> None:
        if not entries:
            raise ValueError("wanted at least one shard entry, found none")
        first: Any = entries if isinstance(entries, str | os.PathLike) else entries[0]
        if not isinstance(first, ShardEntry):
            raise TypeError(
                f"wanted shard entries, as headrace.load_index(path) returns them, found {first!r}; a path is for headrace.open"
            )
        checked_verify(verify)
        self._entries_given = tuple(entries)
        layouts = [checked_layout(Path(entry.path), entry) for entry in entries]
        dtypes = {layout.dtype for layout in layouts}
        if len(dtypes) > 1:
            raise FormatError(f"shards of one store have one dtype, found {', '.join(map(str, dtypes))}")
        starts = np.cumsum([0, *(entry.token_count for entry in entries)]).tolist()
        placed = [replace(entry, global_start=start) for entry, start in zip(entries, starts, strict=False)]
        manifest = made_up_manifest(layouts, tuple(placed))
        how: Any = {"io": io, "verify": verify != "off"}
        line = line_of(layouts, placed, **how)
        options = {"io": io, "verify": "off" if verify == "off" else "quick"}
        super().__init__(
            line,
            manifest,
            placed,
            path=Path(entries[0].path).parent,
            fingerprint=manifest.fingerprint,
            documents=Documents(line, manifest, placed),
            reopen=options,
            open_mask=mask_opener(layouts, entries, **how),
        )
        if verify == "full":
            require_ok(self.verify(), where=f"{self.path}: ")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_store, (self._entries_given, self._reopen)


def _reopen_store(entries: tuple[ShardEntry, ...], options: dict[str, Any]) -> MmapTokenStore:
    return MmapTokenStore(entries, **options)
