"""`shards.json`: the source of truth of a corpus, as frozen values.

The trainer reads it once at the start and never lists the folder. Version 2 keeps the keys of version 1 (`version
chunk_size total_tokens shards[]: shard_id path token_count document_count sha256 global_start`) and adds its own beside
them. Every problem of a manifest is reported at once.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headrace.errors import ManifestError, MissingShardError, UnreadableShardError
from headrace.shards import NO_HASH, ShardEntry, column, counts, digests

__all__ = [
    "INDEX_NAME",
    "LOCAL",
    "MAX_UINT16_VOCAB",
    "NO_HASH",
    "PRIVATE",
    "Append",
    "By",
    "CutEntry",
    "Fingerprint",
    "LanceVersions",
    "Manifest",
    "ShardEntry",
    "SourceEntry",
    "Split",
    "Store",
    "TokenizerRef",
    "dtype_name_for",
    "index_path",
    "read_index",
    "read_manifest",
]

INDEX_NAME = "shards.json"
PRIVATE = ".headrace"
"""Folder in a corpus for what can be derived again, or concerns a build or a machine."""
LOCAL = "local.json"
"""Of these, what concerns this machine only."""
FORMAT_VERSION = 2
MAX_UINT16_VOCAB = 65536
"""Largest `vocab_size` whose ids (0 to 65,535) all fit uint16."""
_HEX64 = re.compile(r"[0-9a-f]{64}")
_SURROGATE = re.compile("[\ud800-\udfff]")
Store = Literal["hdf5", "lance"]
"""What the shards of a corpus are files of."""
By = Literal["text", "tokens"]
"""Of what the hash is by which a corpus is split."""


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
    """`bytes`, `huggingface`, `tiktoken`, `sentencepiece`, `own` or `none`."""
    name: str
    """A label for people; no absolute path."""
    sha256: str
    """Identity, 64 hex digits: of what decides the ids, not of file formatting."""
    vocab_size: int
    """Highest token id + 1, added tokens included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutEntry:
    """A part of a large input file, which was read by itself."""

    start: int
    """Bytes of the file: first, and ..."""
    stop: int
    """... after the last."""
    sha256: str
    """Of these bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """One input file of a build."""

    path: str
    """Relative to the inputs' common root, with `/`."""
    size: int
    """Bytes on disk."""
    sha256: str
    """SHA-256 of the file as it lies on disk; empty where `cuts` have theirs, or it was not read to its end, for no more
    documents were wanted."""
    documents: int
    """Documents kept."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Documents not kept, by reason."""
    cuts: tuple[CutEntry, ...] = ()
    """Of a file that was read in several places at once: they cover what was read of it to the end, in order."""

    @property
    def whole(self) -> bool:
        """Whether the file was read to its end."""
        return bool(self.sha256) or (bool(self.cuts) and self.cuts[-1].stop == self.size)

    def row(self) -> dict[str, Any]:
        """As it stands in `shards.json`."""
        row = {**asdict(self), "dropped": dict(self.dropped)}
        if not self.cuts:
            del row["cuts"]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Sources that were added to a corpus."""

    base: str
    """Fingerprint of the corpus before, under which its index is kept (see `docs/format.md`)."""
    sources: int
    """Sources before: the index of the first one added."""
    shards: int
    """Shards before."""
    options: Mapping[str, Any]
    """The build options of what was added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split that a corpus is a part of."""

    base: str
    """Fingerprint of the corpus that was split."""
    part: str
    """Which part of it this is."""
    seed: int
    by: By
    """Of what the hash is that decides where a document goes."""
    fractions: tuple[tuple[str, str], ...]
    """Name and fraction, a decimal, of each part but the rest, in order."""
    rest: str
    """Name of the part that has what the others have not; empty where nothing was left."""
    appends: tuple[Append, ...] = ()
    """Those of the corpus that was split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceVersions:
    """Which versions of its data sets a Lance corpus is."""

    tokens: int
    """Of `tokens.lance`."""
    docs: int
    """Of `docs.lance`."""
    data_storage_version: str
    """Of the data files."""
    loss_mask: int = 0
    """Of `loss_mask.lance`; 0 where there is no loss mask."""

    def row(self) -> dict[str, Any]:
        """As it stands in `shards.json`."""
        row = asdict(self)
        if not self.loss_mask:
            del row["loss_mask"]
        return row


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identity of a corpus.

    `content` covers (dtype, tokenizer, boundary, ordered shard hashes and counts): two corpora with equal fingerprints
    serve equal tokens and documents, whatever their paths or storage format. It changes when documents are sharded
    differently. `stat` covers sizes and sampled pages of foreign files, whose hashing on open would take hours. `live`
    is that of a corpus that is being built, as far as it was seen.
    """

    hex: str
    kind: Literal["content", "stat", "live"]

    def __str__(self) -> str:
        return self.hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A parsed `shards.json`."""

    chunk_size: int
    """Tokens a chunk."""
    shards: Sequence[ShardEntry]
    dtype: Literal["uint16", "uint32"] = "uint16"
    vocab_size: int = MAX_UINT16_VOCAB
    boundary_token_id: int = 0
    tokenizer: TokenizerRef | None = None
    """None in version 1, which does not say."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The build options that decide the content; of what was appended, see `appends`."""
    sources: Sequence[SourceEntry] = ()
    appends: tuple[Append, ...] = ()
    """In order; empty for a corpus that was built at once."""
    splits: tuple[Split, ...] = ()
    """In order; empty for a corpus that is no part of another one."""
    version: int = FORMAT_VERSION
    store: Store = "hdf5"
    lance: LanceVersions | None = None
    """Of a corpus whose store is Lance."""
    _known: list[Fingerprint] = field(default_factory=list[Fingerprint], init=False, repr=False, compare=False)
    """The fingerprint, once it was worked out."""

    @property
    def total_tokens(self) -> int:
        """Tokens of all shards, boundaries included."""
        return self.shards[-1].global_stop if self.shards else 0

    @property
    def total_documents(self) -> int:
        """Documents of all shards."""
        return sum(column(self.shards, "document_count"))

    @property
    def has_loss_mask(self) -> bool:
        """Whether it is stored of each token whether it counts in the loss."""
        return any(column(self.shards, "loss_mask_sha256"))

    @property
    def fingerprint(self) -> Fingerprint:
        """The `content` fingerprint (see `docs/format.md` for the bytes that are hashed)."""
        if not self._known:
            self._known.append(self._fingerprint())
        return self._known[0]

    def take_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Have what was worked out before: it needs every shard."""
        self._known[:] = [fingerprint]

    def _fingerprint(self) -> Fingerprint:
        masked = self.has_loss_mask
        head = [
            "headrace corpus 1",
            self.dtype,
            self.tokenizer.sha256 if self.tokenizer else "",
            self.boundary_token_id,
            len(self.shards),
            *(["loss_mask"] if masked else []),
        ]
        digest = hashlib.sha256(json.dumps(head, separators=(",", ":")).encode())
        totals = (counts(self.shards, name).astype("<i8") for name in ("token_count", "document_count"))
        columns = [digests(self.shards, "sha256"), digests(self.shards, "documents_sha256")]
        columns += [total.view(np.uint8).reshape(-1, 8) for total in totals]
        columns += [digests(self.shards, "loss_mask_sha256")] if masked else []
        digest.update(np.hstack(columns).tobytes())
        return Fingerprint(digest.hexdigest(), "content")

    def to_json(self) -> bytes:
        """`shards.json` as bytes: sorted keys, no clock, no host, so equal corpora give equal bytes."""
        body: dict[str, Any] = {
            "version": self.version,
            "store": self.store,
            "chunk_size": self.chunk_size,
            "dtype": self.dtype,
            "vocab_size": self.vocab_size,
            "boundary_token_id": self.boundary_token_id,
            "tokenizer": None if self.tokenizer is None else asdict(self.tokenizer),
            "options": dict(self.options),
            "sources": [source.row() for source in self.sources],
            "total_tokens": self.total_tokens,
            "total_documents": self.total_documents,
            "shards": [shard.row() for shard in self.shards],
        }
        if self.appends:
            body["appends"] = [asdict(append) for append in self.appends]
        if self.lance is not None:
            body["lance"] = self.lance.row()
        if self.splits:
            body["splits"] = [asdict(split) for split in self.splits]
        body["checksum"] = checksum_of(body)
        return _canonical(body)

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
        except (ValueError, RecursionError) as error:  # digits without end, brackets without end
            raise ManifestError(f"{name}: no corpus index: {error}") from error
        from headrace.manifest_checks import ManifestChecker  # noqa: PLC0415  # it imports the values of this module

        check = ManifestChecker(name)
        manifest = check.manifest(body)
        if manifest is None or check.problems:
            count = len(check.problems)
            raise ManifestError(
                f"{name}: not a usable corpus index ({count} problem{'s' * (count != 1)})", problems=check.problems
            )
        return manifest


def checksum_of(body: Mapping[str, Any]) -> str:
    """SHA-256, hex, of a decoded `shards.json` as it is written, but for its `checksum`: so that no byte of it can change."""
    return hashlib.sha256(_canonical({key: body[key] for key in body if key != "checksum"})).hexdigest()


def _canonical(body: Mapping[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    # A file name that is no UTF-8 reaches us with lone surrogates, which JSON can escape but UTF-8 cannot hold.
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def is_sha256(text: str) -> bool:
    """Whether it is 64 lower-case hex digits."""
    return _HEX64.fullmatch(text) is not None


def index_path(path: str | os.PathLike[str]) -> Path:
    """The index file of a corpus folder, or the path itself where it is a file."""
    path = Path(path)
    return path / INDEX_NAME if path.is_dir() else path


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read a corpus folder's (or file's) manifest; shard paths stay as they are stored.

    Raises:
        MissingShardError: a FileNotFoundError; there is no index.
        UnreadableShardError: an OSError; it cannot be read.
        ManifestError: it is damaged.
    """
    index = index_path(path)
    return Manifest.from_json(read_index(index), name=str(index))


def read_index(index: Path) -> bytes:
    """The bytes of an index; errors as of `read_manifest`."""
    try:
        return index.read_bytes()
    except FileNotFoundError as error:
        raise MissingShardError(
            f"{index}: no such file; a corpus is a folder with {INDEX_NAME} in it (`headrace build` makes one, and `headrace status` tells of one that is being made)"
        ) from error
    except OSError as error:
        raise UnreadableShardError(f"{index}: cannot be read: {error.strerror}") from error
