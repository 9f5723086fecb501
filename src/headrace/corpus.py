"""`headrace.open(path)`: a corpus as one line of tokens."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from headrace.documents import Documents, Location
from headrace.errors import CorruptShardError, FormatError, MissingShardError, OutOfRangeError
from headrace.in_progress import BUILDING_NAME
from headrace.manifest import (
    INDEX_NAME,
    Fingerprint,
    Manifest,
    ShardEntry,
    is_sha256,
    read_manifest,
)
from headrace.storage.hdf5_corpus import checked_layout, open_line
from headrace.storage.loose import entry_of, line_of, made_up_manifest, stat_fingerprint
from headrace.storage.token_line import Io, TokenLine, WindowBlock
from headrace.storage.versions import read_version

if TYPE_CHECKING:
    from headrace.live import LiveCorpus
    from headrace.verify import ShardReport

__all__ = ["Corpus", "MmapTokenStore", "open_corpus", "open_index"]

Verify = Literal["full", "quick", "off"]

_LONGEST_STRIDE = 64
"""Longest step of a slice that is read whole; beyond it, tokens are read one by one."""


class Corpus:
    """A corpus opened for reading.

    `corpus[a:b]` follows Python's slice rules, `get_slice` raises outside; both give a new array of the file's dtype.
    Safe for threads; picklable (it reopens by its path, at its version); maps open lazily in each process. A context
    manager. Once open, it goes on serving its version, whatever is appended.
    """

    def __init__(
        self,
        line: TokenLine,
        manifest: Manifest,
        entries: Sequence[ShardEntry],
        *,
        path: Path,
        fingerprint: Fingerprint,
        documents: Documents,
        reopen: dict[str, Any],
    ) -> None:
        self._line = line
        self._reopen = reopen
        self.path = path
        """The index or the file that was opened; of an earlier version too, that of the newest."""
        self.manifest = manifest
        """As stored; for a single file, made up from it."""
        self.entries = tuple(entries)
        """Its shards, with absolute paths."""
        self.fingerprint = fingerprint
        """Identity of the content: `.hex`, `.kind`; `str()` is the hex."""
        self.documents = documents
        """`documents[i]`: its tokens, boundary included."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, {**self._reopen, "version": self.fingerprint.hex})

    def __repr__(self) -> str:
        return f"<Corpus {str(self.path)!r}: {self.token_count} tokens, {len(self.entries)} shards, {self.dtype}>"

    def __len__(self) -> int:
        return self.token_count

    @property
    def token_count(self) -> int:
        """Tokens of the corpus, boundaries included."""
        return self._line.token_count

    @property
    def total_tokens(self) -> int:
        """The same as `token_count`."""
        return self._line.token_count

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the stored tokens."""
        return self._line.dtype

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1; where the corpus does not say, what `open` was told, else all that its dtype holds."""
        return self.manifest.vocab_size

    def get_slice(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens [start, stop) as a new array of the file's dtype.

        Raises:
            OutOfRangeError: (a ValueError and IndexError) unless 0 <= start <= stop <= token_count.
        """
        return self._line.get_slice(start, stop)

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  # an array for a slice, a scalar for an integer
        if isinstance(key, slice):
            return self._slice(range(*key.indices(self.token_count)))
        position = index(key)
        if not -self.token_count <= position < self.token_count:
            raise OutOfRangeError(f"position {position} is outside the corpus of {self.token_count} tokens")
        position += self.token_count if position < 0 else 0
        return self._line.get_slice(position, position + 1)[0]

    def _slice(self, wanted: range) -> NDArray[Any]:
        if wanted.step < 0:
            return self._slice(wanted[::-1])[::-1]
        if not wanted:
            return self._line.get_slice(0, 0)
        if wanted.step <= _LONGEST_STRIDE:
            return self._line.get_slice(wanted.start, wanted[-1] + 1)[:: wanted.step]
        starts = np.arange(wanted.start, wanted.stop, wanted.step, dtype=np.int64)[None]
        out = np.empty((starts.size, 1), dtype=self.dtype)
        self._line.windows(starts, 1).gather_into(0, out)
        return out[:, 0]

    def windows(self, starts: NDArray[np.int64], length: int) -> WindowBlock:
        """Work out where the windows of many steps lie; `WindowBlock.gather_into(step, out)` then reads one step.

        Args:
            starts: corpus positions, integers, shape (steps, rows).
            length: tokens a window, at least 1.

        Raises:
            OutOfRangeError: a window that does not lie in the corpus.
            TypeError, ValueError: no integers, or of another shape.
        """
        return self._line.windows(starts, length)

    def locate(self, position: int) -> Location:
        """Shard, document, source file, line and byte of the token at a corpus position.

        Raises:
            OutOfRangeError: (an IndexError) no such position.
            NoDocumentsError: the corpus stores no document index.
        """
        return self.documents.locate(position)

    def verify(self, *, quick: bool = False) -> list["ShardReport"]:
        """Compare every shard's bytes with the manifest, in parallel; all are judged before it returns.

        Args:
            quick: sizes, stored digests, first and last chunk of each shard only.
        """
        from headrace.verify import verify_shards  # noqa: PLC0415  # not needed to read

        stored = self.path.suffix == ".json"  # else the manifest is made up from what is to be verified
        return verify_shards(self.entries, quick=quick, manifest=self.manifest if stored else None)

    def close(self) -> None:
        """Drop all maps. A later read opens them again."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
    """Open a corpus folder, its `shards.json`, or one HDF5 file with a `tokens` data set. Writes nothing into it.

    Args:
        path: what to open.
        dtype: what the caller expects; one that contradicts the files is an error. The files say it by themselves.
        vocab_size: likewise; version 1 and foreign files do not say it, so there it is taken.
        version: fingerprint of the corpus as it is wanted, or at least 8 of its first digits: what it was before it was
            appended to is kept. By default the newest.
        live: follow a build that is at work, or was killed: what is returned is a `LiveCorpus`, whose `refresh` sees what
            was added. A finished corpus may be opened so, too.
        io: `mmap`, or `pread` to read without maps (network file systems).
        verify: `full` checks every byte now; `quick` checks sizes now, and each shard's stored digest and its first and
            last chunk when it is first touched; `off` checks sizes only.

    Raises:
        MissingShardError, FormatError, ManifestError, CorruptShardError, UnreadableShardError: naming the files.
        MissingShardError: (a FileNotFoundError) also where there is no such version; the known ones are named.
    """
    path = Path(path)
    if io not in {"mmap", "pread"}:
        raise ValueError(f"io is 'mmap' or 'pread', not {io!r}")
    if verify not in {"full", "quick", "off"}:
        raise ValueError(f"verify is 'full', 'quick' or 'off', not {verify!r}")
    # A folder that does not exist may be about to: there a build is expected.
    folder = path.is_dir() or (live and not path.is_file() and path.suffix != ".json")
    place = (path / INDEX_NAME if folder else path).absolute()
    # What was checked in full here needs no such check in every process that the corpus is sent to.
    options: dict[str, Any] = {"io": io, "verify": "off" if verify == "off" else "quick", "vocab_size": vocab_size}
    wanted = None if version is None else str(version)
    opener = open_index if folder or path.suffix == ".json" else _open_file
    corpus = _open_live(opener, place, options, wanted) if live else opener(place, options, wanted)
    if dtype is not None and np.dtype(dtype) != corpus.dtype:
        raise FormatError(
            f"{corpus.path}: holds {corpus.dtype}, not {np.dtype(dtype)}; leave dtype out: the file says it"
        )
    if verify == "full":
        _require_sound(corpus)
    return corpus


def _open_live(
    opener: Callable[[Path, dict[str, Any], str | None], Corpus],
    path: Path,
    options: dict[str, Any],
    version: str | None,
) -> "LiveCorpus":
    from headrace.live import LiveCorpus, open_live  # noqa: PLC0415  # it builds on this module

    if version is not None:
        raise ValueError("a version does not grow: give live=True or a version, not both")
    if opener is not open_index:
        return LiveCorpus(opener(path, options, None), None)
    corpus = open_live(path, options)
    if not corpus.finished:
        _with_vocabulary(path, corpus.manifest, corpus.dtype, options["vocab_size"], known=True)
    return corpus


def _reopen(path: Path, options: dict[str, Any]) -> Corpus:
    return open_corpus(path, **options)


def open_index(path: Path, options: dict[str, Any], version: str | None = None) -> Corpus:
    """Open a published corpus by its index.

    Args:
        path: absolute, of `shards.json`.
        options: `io`, `verify` and `vocab_size` of `open_corpus`.
        version: a fingerprint, or the first digits of one.
    """
    manifest = _read_index(path, version)
    known = manifest.version != 1
    manifest = _with_vocabulary(path, manifest, np.dtype(manifest.dtype), options["vocab_size"], known=known)
    line, entries = open_line(path, manifest, io=options["io"], verify=options["verify"] != "off")
    return Corpus(
        line,
        manifest,
        entries,
        path=path,
        fingerprint=manifest.fingerprint,
        documents=Documents(line, manifest, entries),
        reopen=options,
    )


def _read_index(path: Path, version: str | None) -> Manifest:
    try:
        return read_manifest(path) if version is None else read_version(path, version)
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

    if not path.exists():
        raise MissingShardError(f"{path}: no such file; wanted a corpus folder, its {INDEX_NAME}, or one .h5 file")
    layout = inspect_shard(path)
    entry = entry_of(path, layout)
    has_documents = bool(layout.documents_sha256)
    known = "vocab_size" in layout.attributes
    manifest = made_up_manifest([layout], (entry,))
    manifest = _with_vocabulary(path, manifest, layout.dtype, options["vocab_size"], known=known)
    line = line_of([layout], [entry], io=options["io"], verify=options["verify"] != "off")
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
    )


def _with_vocabulary(
    path: Path, manifest: Manifest, dtype: np.dtype[Any], vocab_size: int | None, *, known: bool
) -> Manifest:
    """The manifest with the vocabulary's size that the caller says, where the corpus says none."""
    if vocab_size is None:
        return manifest
    if known and vocab_size != manifest.vocab_size:
        raise FormatError(f"{path}: was written for a vocabulary of {manifest.vocab_size} ids, not {vocab_size}")
    if not 1 <= vocab_size <= int(np.iinfo(dtype).max) + 1:
        raise FormatError(f"{path}: holds {dtype}, which a vocabulary of {vocab_size} ids does not fit")
    return replace(manifest, vocab_size=vocab_size)


def _require_sound(corpus: Corpus) -> None:
    problems = [report.fault for report in corpus.verify() if not report.ok]
    if problems:
        raise CorruptShardError(f"{corpus.path}: {len(problems)} shards failed verification", problems=problems)


class MmapTokenStore(Corpus):
    """Read access to shards by their entries, as `load_index` or `write_corpus` return them.

    The corpus is the entries in the order given, so they may be a selection; their `global_start` is not used.

    Args:
        entries: with paths of existing HDF5 shards.
        io, verify: as for `headrace.open`.

    Raises:
        ValueError: no entries.
        MissingShardError, CorruptShardError, FormatError: naming the shard.
    """

    def __init__(self, entries: Sequence[ShardEntry], *, io: Io = "mmap", verify: Verify = "quick") -> None:
        if not entries:
            raise ValueError("wanted at least one shard entry, found none")
        self._entries_given = tuple(entries)
        layouts = [checked_layout(Path(entry.path), entry) for entry in entries]
        dtypes = {layout.dtype for layout in layouts}
        if len(dtypes) > 1:
            raise FormatError(f"shards of one store have one dtype, found {', '.join(map(str, dtypes))}")
        starts = np.cumsum([0, *(entry.token_count for entry in entries)]).tolist()
        placed = [replace(entry, global_start=start) for entry, start in zip(entries, starts, strict=False)]
        manifest = made_up_manifest(layouts, tuple(placed))
        line = line_of(layouts, entries, io=io, verify=verify != "off")
        options = {"io": io, "verify": "off" if verify == "off" else "quick"}
        super().__init__(
            line,
            manifest,
            placed,
            path=Path(entries[0].path).parent,
            fingerprint=manifest.fingerprint,
            documents=Documents(line, manifest, placed),
            reopen=options,
        )
        if verify == "full":
            _require_sound(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_store, (self._entries_given, self._reopen)


def _reopen_store(entries: tuple[ShardEntry, ...], options: dict[str, Any]) -> MmapTokenStore:
    return MmapTokenStore(entries, **options)
