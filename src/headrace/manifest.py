"""`shards.json`: the source of truth of a corpus, as frozen values.

The trainer reads it once at the start and never lists the folder. Version 2 keeps the keys of version 1 (`version
chunk_size total_tokens shards[]: shard_id path token_count document_count sha256 global_start`) and adds its own beside
them. Every problem of a manifest is reported at once.
"""

import hashlib
import json
import os
import re
import reprlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from headrace.errors import ManifestError, MissingShardError, Problem

__all__ = [
    "INDEX_NAME",
    "MAX_UINT16_VOCAB",
    "Fingerprint",
    "Manifest",
    "ShardEntry",
    "SourceEntry",
    "TokenizerRef",
    "dtype_name_for",
    "index_path",
    "load_index",
    "read_manifest",
]

INDEX_NAME = "shards.json"
FORMAT_VERSION = 2
MAX_UINT16_VOCAB = 65536
"""Largest `vocab_size` whose ids (0 to 65,535) all fit uint16."""
_HEX64 = re.compile(r"[0-9a-f]{64}")
_NO_HASH = "0" * 64


def dtype_name_for(vocab_size: int) -> Literal["uint16", "uint32"]:
    """The stored dtype of a vocabulary: uint16 for at most 65,536 ids, else uint32.

    Args:
        vocab_size: highest token id + 1, added tokens included.

    Raises:
        ValueError: for a size below 1 or above 2**32.
    """
    if not 1 <= vocab_size <= 1 << 32:
        raise ValueError(f"a vocabulary has 1 to 2**32 ids, not {vocab_size}")
    return "uint16" if vocab_size <= MAX_UINT16_VOCAB else "uint32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerRef:
    """Which tokenizer wrote a corpus."""

    kind: str
    """`bytes` or `huggingface`."""
    name: str
    """A label for people; no absolute path."""
    sha256: str
    """Identity, 64 hex digits: of what decides the ids, not of file formatting."""
    vocab_size: int
    """Highest token id + 1, added tokens included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard of a corpus."""

    shard_id: str
    path: str
    """Path of the file: absolute where it comes from `load_index` or a pipeline, relative in `shards.json`."""
    token_count: int
    document_count: int
    sha256: str
    """SHA-256 over the little-endian token bytes, 64 hex digits."""
    global_start: int = 0
    """Position of the shard's first token in the corpus."""
    documents_sha256: str = ""
    """SHA-256 over `/documents/end` as little-endian uint64; empty in version 1."""
    source: int = 0
    """Index of its first file in the manifest's `sources`."""
    row_base: int = 0
    """0-based line, in its source file, of row 0 of this shard's cut."""

    @property
    def global_stop(self) -> int:
        """Position after the shard's last token (exclusive)."""
        return self.global_start + self.token_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """One input file of a build."""

    path: str
    """Relative to the inputs' common root, with `/`."""
    size: int
    """Bytes on disk."""
    sha256: str
    """SHA-256 of the file as it lies on disk."""
    documents: int
    """Documents kept."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Documents not kept, by reason."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of a corpus.

    `content` covers (dtype, tokenizer, boundary, ordered shard hashes and counts): two corpora with equal fingerprints
    serve equal tokens and documents, whatever their paths or storage format. It changes when documents are sharded
    differently. `stat` covers sizes and sampled pages of foreign files, whose hashing on open would take hours.
    """

    hex: str
    kind: Literal["content", "stat"]

    def __str__(self) -> str:
        return self.hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A parsed `shards.json`."""

    chunk_size: int
    """Tokens a chunk."""
    shards: tuple[ShardEntry, ...]
    dtype: Literal["uint16", "uint32"] = "uint16"
    vocab_size: int = MAX_UINT16_VOCAB
    boundary_token_id: int = 0
    tokenizer: TokenizerRef | None = None
    """None in version 1, which does not say."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The build options that decide the content."""
    sources: tuple[SourceEntry, ...] = ()
    version: int = FORMAT_VERSION
    store: str = "hdf5"

    @property
    def total_tokens(self) -> int:
        """Tokens of all shards, boundaries included."""
        return self.shards[-1].global_stop if self.shards else 0

    @property
    def total_documents(self) -> int:
        """Documents of all shards."""
        return sum(shard.document_count for shard in self.shards)

    @property
    def fingerprint(self) -> Fingerprint:
        """The `content` fingerprint (see `docs/format.md` for the bytes that are hashed)."""
        head = [
            "headrace corpus 1",
            self.dtype,
            self.tokenizer.sha256 if self.tokenizer else "",
            self.boundary_token_id,
            len(self.shards),
        ]
        digest = hashlib.sha256(json.dumps(head, separators=(",", ":")).encode())
        pack = struct.Struct("<32s32sQQ").pack
        for shard in self.shards:
            documents = bytes.fromhex(shard.documents_sha256 or _NO_HASH)
            digest.update(pack(bytes.fromhex(shard.sha256), documents, shard.token_count, shard.document_count))
        return Fingerprint(digest.hexdigest(), "content")

    def to_json(self) -> bytes:
        """`shards.json` as bytes: sorted keys, no clock, no host, so equal corpora give equal bytes."""
        body = {
            "version": self.version,
            "store": self.store,
            "chunk_size": self.chunk_size,
            "dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "boundary_token_id": self.boundary_token_id,
            "tokenizer": None if self.tokenizer is None else asdict(self.tokenizer),
            "options": dict(self.options),
            "sources": [{**asdict(source), "dropped": dict(source.dropped)} for source in self.sources],
            "total_tokens": self.total_tokens,
            "total_documents": self.total_documents,
            "shards": [asdict(shard) for shard in self.shards],
        }
        return (json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, *, name: str = INDEX_NAME) -> "Manifest":
        """Parse and check a manifest of version 1 or 2.

        Args:
            data: the file's bytes.
            name: what to call the file in messages.

        Raises:
            ManifestError: with every problem found; JSON errors name line and column.
        """
        try:
            body: Any = json.loads(data.decode("utf-8"))
        except json.JSONDecodeError as error:
            place = f"{name}: line {error.lineno} column {error.colno}"
            raise ManifestError(f"{place}: not valid JSON ({error.msg}); the file is damaged or cut short") from error
        except UnicodeDecodeError as error:
            raise ManifestError(f"{name}: byte {error.start}: not UTF-8; the file is damaged") from error
        check = _Checker(name)
        manifest = check.manifest(body)
        if manifest is None or check.problems:
            count = len(check.problems)
            raise ManifestError(
                f"{name}: not a usable corpus index ({count} problem{'s' * (count != 1)})", problems=check.problems
            )
        return manifest


class _Checker:
    """Reads a decoded manifest, collecting every problem."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def problem(self, place: str, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def integer(self, row: Mapping[str, Any], key: str, place: str, *, low: int = 0, default: int | None = None) -> int:
        value = row.get(key, default)
        if type(value) is not int or value < low or value >= 1 << 63:
            self.problem(f"{place}{key}", f"wanted an integer from {low}, found {_found(row, key)}")
            return low
        return value

    def text(self, row: Mapping[str, Any], key: str, place: str, *, default: str | None = None) -> str:
        value = row.get(key, default)
        if not isinstance(value, str):
            self.problem(f"{place}{key}", f"wanted a string, found {_found(row, key)}")
            return ""
        return value

    def sha(self, row: Mapping[str, Any], key: str, place: str, *, default: str | None = None) -> str:
        value = self.text(row, key, place, default=default)
        if value != default and not _HEX64.fullmatch(value):
            self.problem(f"{place}{key}", f"wanted 64 lower-case hex digits, found {value[:80]!r}")
            return _NO_HASH
        return value

    def manifest(self, body: object) -> Manifest | None:
        if not isinstance(body, dict):
            self.problem(self.name, f"wanted a JSON object, found {type(body).__name__}")
            return None
        body = cast("dict[str, Any]", body)
        version = body.get("version")
        if version not in {1, FORMAT_VERSION} or isinstance(version, bool):
            self.problem("version", f"wanted 1 or {FORMAT_VERSION}, found {_found(body, 'version')}")
            return None
        rows = body.get("shards")
        if not isinstance(rows, list):
            self.problem("shards", f"wanted a list, found {_found(body, 'shards')}")
            return None
        shards = tuple(self.shards(cast("list[Any]", rows), version))
        total = self.integer(body, "total_tokens", "")
        manifest = Manifest(
            version=version,
            chunk_size=self.integer(body, "chunk_size", "", low=1),
            shards=shards,
            **(self.version_2(body) if version == FORMAT_VERSION else {}),
        )
        if not self.problems and total != manifest.total_tokens:
            self.problem("total_tokens", f"says {total}, but the shards add up to {manifest.total_tokens}")
        return manifest

    def version_2(self, body: Mapping[str, Any]) -> dict[str, Any]:
        vocab_size = self.integer(body, "vocab_size", "", low=1)
        dtype = self.text(body, "dtype", "")
        boundary = self.integer(body, "boundary_token_id", "")
        if vocab_size > 1 << 32:
            self.problem("vocab_size", f"wanted at most 2**32, found {vocab_size}")
        elif dtype != dtype_name_for(vocab_size):
            self.problem(
                "dtype", f"a vocabulary of {vocab_size} is stored as {dtype_name_for(vocab_size)}, not {dtype!r}"
            )
        if boundary >= vocab_size:
            self.problem("boundary_token_id", f"{boundary} is not below vocab_size {vocab_size}")
        store = self.text(body, "store", "")
        if store != "hdf5":
            self.problem("store", f"this version reads 'hdf5', found {store!r}")
        options = body.get("options", {})
        if not isinstance(options, dict):
            self.problem("options", f"wanted an object, found {_found(body, 'options')}")
        return {
            "dtype": dtype,
            "vocab_size": vocab_size,
            "boundary_token_id": boundary,
            "tokenizer": self.tokenizer(body.get("tokenizer")),
            "options": options,
            "sources": tuple(self.sources(body.get("sources", []))),
            "store": store,
        }

    def tokenizer(self, row: object) -> TokenizerRef | None:
        if row is None:
            return None
        if not isinstance(row, dict):
            self.problem("tokenizer", f"wanted an object, found {type(row).__name__}")
            return None
        row = cast("dict[str, Any]", row)
        return TokenizerRef(
            kind=self.text(row, "kind", "tokenizer."),
            name=self.text(row, "name", "tokenizer."),
            sha256=self.sha(row, "sha256", "tokenizer."),
            vocab_size=self.integer(row, "vocab_size", "tokenizer.", low=1),
        )

    def sources(self, rows: object) -> Iterator[SourceEntry]:
        if not isinstance(rows, list):
            self.problem("sources", f"wanted a list, found {type(rows).__name__}")
            return
        for number, row in enumerate(cast("list[Any]", rows)):
            place = f"sources[{number}]."
            if not isinstance(row, dict):
                self.problem(place[:-1], f"wanted an object, found {type(row).__name__}")
                continue
            row = cast("dict[str, Any]", row)
            dropped = row.get("dropped", {})
            if not isinstance(dropped, dict) or not all(
                type(count) is int for count in cast("dict[str, Any]", dropped).values()
            ):
                self.problem(f"{place}dropped", "wanted an object of counts")
                dropped = {}
            yield SourceEntry(
                path=self.text(row, "path", place),
                size=self.integer(row, "size", place),
                sha256=self.sha(row, "sha256", place),
                documents=self.integer(row, "documents", place),
                dropped=cast("dict[str, int]", dropped),
            )

    def shards(self, rows: list[Any], version: int) -> Iterator[ShardEntry]:
        start = 0
        names: set[str] = set()
        for number, row in enumerate(rows):
            place = f"shards[{number}]."
            if not isinstance(row, dict):
                self.problem(place[:-1], f"wanted an object, found {type(row).__name__}")
                continue
            shard = self.shard(cast("dict[str, Any]", row), place, version)
            if shard.shard_id in names:
                self.problem(f"{place}shard_id", f"{shard.shard_id!r} is listed twice")
            if shard.global_start != start:
                self.problem(
                    f"{place}global_start", f"says {shard.global_start}, but the shards before it hold {start}"
                )
            names.add(shard.shard_id)
            start += shard.token_count
            yield shard

    def shard(self, row: Mapping[str, Any], place: str, version: int) -> ShardEntry:
        path = self.text(row, "path", place)
        if not path or "\0" in path:
            self.problem(f"{place}path", f"wanted a path, found {_found(row, 'path')}")
        elif version != 1 and (PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts):
            self.problem(f"{place}path", f"{path!r} leaves the index's folder")
        return ShardEntry(
            shard_id=self.text(row, "shard_id", place),
            path=path,
            token_count=self.integer(row, "token_count", place),
            document_count=self.integer(row, "document_count", place, default=0 if version == 1 else None),
            sha256=self.sha(row, "sha256", place),
            global_start=self.integer(row, "global_start", place),
            documents_sha256=self.sha(row, "documents_sha256", place, default="" if version == 1 else None),
            source=self.integer(row, "source", place, default=0),
            row_base=self.integer(row, "row_base", place, default=0),
        )


def _found(row: Mapping[str, Any], key: str) -> str:
    if key not in row:
        return "nothing"
    return reprlib.repr(row[key])


def index_path(path: str | os.PathLike[str]) -> Path:
    """The index file of a corpus folder, or the path itself where it is a file."""
    path = Path(path)
    return path / INDEX_NAME if path.is_dir() else path


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read a corpus folder's (or file's) manifest; shard paths stay as they are stored.

    Raises:
        MissingShardError: a FileNotFoundError; there is no index.
        ManifestError: it is damaged.
    """
    index = index_path(path)
    try:
        data = index.read_bytes()
    except FileNotFoundError as error:
        raise MissingShardError(
            f"{index}: no such file; a corpus is a folder with {INDEX_NAME} in it (make one with `headrace build`)"
        ) from error
    return Manifest.from_json(data, name=index.name)


def shard_candidates(index: Path, manifest: Manifest, entry: ShardEntry) -> Sequence[Path]:
    """Where a shard may lie, in order of trial; never the working directory.

    Version 2 has one place. Version 1 wrote paths relative to the folder its writer ran in: tried are the index's
    folder, its parent, and the bare file name beside the index.
    """
    folder = index.parent
    if manifest.version != 1:
        return (folder / entry.path,)
    return tuple(dict.fromkeys((folder / entry.path, folder.parent / entry.path, folder / Path(entry.path).name)))


def load_index(path: str | os.PathLike[str]) -> list[ShardEntry]:
    """Read `shards.json` (or the folder that holds it) into entries with absolute paths.

    Version 1 paths are tried as index folder/path, its parent/path and index folder/basename; the first file that
    exists is taken here (`headrace.open` also compares its counts).

    Returns:
        The entries in corpus order.

    Raises:
        ManifestError, MissingShardError: as `read_manifest`, and for shards that are not there, all of them named.
    """
    index = index_path(path).absolute()
    manifest = read_manifest(index)
    return resolve_shards(index, manifest)


def locate_shards(index: Path, manifest: Manifest) -> list[ShardEntry]:
    """Entries with absolute paths: of the first candidate that exists, else of the first candidate."""
    located: list[ShardEntry] = []
    for entry in manifest.shards:
        candidates = shard_candidates(index, manifest, entry)
        path = next((candidate for candidate in candidates if candidate.is_file()), candidates[0])
        located.append(replace(entry, path=str(path)))
    return located


def resolve_shards(index: Path, manifest: Manifest) -> list[ShardEntry]:
    """Entries with absolute paths of existing files.

    Raises:
        MissingShardError: some are not there; all are named.
    """
    located = locate_shards(index, manifest)
    missing = [
        Problem(entry.path, f"no such file (shard {entry.shard_id}, {entry.token_count} tokens)")
        for entry in located
        if not Path(entry.path).is_file()
    ]
    if missing:
        raise MissingShardError(
            f"{index}: {len(missing)} of {len(manifest.shards)} shards are missing; copy them back or build again",
            problems=missing,
        )
    return located
