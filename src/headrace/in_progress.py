"""What a build writes down while it is at work, so that others can follow it and the same command can go on.

`building.json` lies beside `shards.json` while a build is at work or after it was killed. Its `folder` says where the new
shards lie (relative to it; `.` but for `--overwrite`), and there `.headrace/journal.jsonl` lists the source shards that are
finished. Neither decides a byte of the corpus.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast

from headrace.errors import ManifestError
from headrace.manifest import PRIVATE, ShardEntry, TokenizerRef
from headrace.manifest_checks import ManifestChecker

__all__ = [
    "BUILDING_NAME",
    "JOURNAL",
    "LOCK",
    "NEXT",
    "SHARD_NAME",
    "WRITING",
    "Building",
    "Finished",
    "Key",
    "Mode",
    "OpenShard",
    "entries_of",
    "file_mark",
    "journal_rows",
    "plan_digest",
    "read_building",
    "read_finished",
    "read_plans",
    "shard_name",
]

BUILDING_NAME = "building.json"
JOURNAL = Path(PRIVATE) / "journal.jsonl"
"""JSON lines in the folder of the new shards, each an object with one key: see `journal_rows`."""
LOCK = Path(PRIVATE) / "lock"
"""Held (`flock`) by a build while it is at work in the folder."""
NEXT = Path(PRIVATE) / "next"
"""Where the shards of an `--overwrite` lie until they replace the corpus that is there."""
WRITING = Path(PRIVATE) / "writing"
"""In the folder of the new shards: where the files of Lance shards grow, in a folder each."""
FORMAT_VERSION = 1
Key = tuple[int, int]
"""Index of a source shard, and number of the cut of its file: 0 but for the cuts of a file that are read side by side."""
Mode = Literal["build", "append", "overwrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenShard:
    """A shard that is being written."""

    index: int
    """Its source shard."""
    roll: int
    """Which of its cut's shards it is, from 0; those before it lie finished under their final names."""
    path: str
    """File name in the folder of the new shards, in SWMR mode; it is renamed when the shard is whole."""
    cut: int = 0
    """Cut of the source file that it is of."""
    row_base: int = 0
    """See `ShardEntry`; without what is before the first line of the source shard."""
    first_cut: int = 0
    """Cut that its source shard begins with."""
    before: tuple[tuple[int, int, int], ...] = ()
    """Of each cut of the source shard before this one that has shards: its number, how many they are, and their `row_base`."""

    @property
    def key(self) -> Key:
        """Of its source shard."""
        return self.index, self.first_cut

    @property
    def name(self) -> str:
        """Its final name."""
        return f"{shard_name(self.index, self.roll, self.cut)}.h5"

    @property
    def finished(self) -> tuple[tuple[str, int], ...]:
        """File name and `row_base` of each of the source shard's finished shards, in order."""
        cuts = (*self.before, (self.cut, self.roll, self.row_base))
        return tuple(
            (f"{shard_name(self.index, roll, cut)}.h5", base) for cut, count, base in cuts for roll in range(count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """A parsed `building.json`."""

    mode: Mode
    folder: str
    """Where the new shards lie, relative to the folder of `building.json`."""
    base: str
    """Fingerprint of the corpus that is appended to; else empty."""
    dtype: Literal["uint16", "uint32"]
    vocab_size: int
    boundary_token_id: int
    chunk_size: int
    tokenizer: TokenizerRef
    first_index: int
    """Index of the first new source shard; above 0 only when appending."""
    source_shards: int
    """Source shards to do in all, finished ones included."""
    total_bytes: int
    """Bytes on disk of all inputs."""
    plan: str = ""
    """`plan_digest` of the journal's row: tells this build from another one in its place."""
    more_cuts: int = 0
    """Of the source shards, those that have the index of another: the cuts of a file but for its first."""
    input_bytes: int = 0
    """Of them, read so far; as of `updated`, like all counts below."""
    documents: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Since this run of the build began."""
    updated: float = 0.0
    """Seconds since 1970."""
    open: tuple[OpenShard, ...] = ()
    """The shards that workers are writing."""

    @property
    def stop_index(self) -> int:
        """Index behind the last new source shard."""
        return self.first_index + self.source_shards - self.more_cuts

    def to_json(self) -> bytes:
        """The file's bytes."""
        body = {"version": FORMAT_VERSION, **asdict(self)}
        return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, *, name: str = BUILDING_NAME) -> "Building":
        """Parse the file's bytes.

        Raises:
            ManifestError: they are no `building.json` of this version.
        """
        try:
            body: Any = json.loads(data)
            if body.pop("version") != FORMAT_VERSION:
                raise ManifestError(f"{name}: is of another version of Headrace; use the one that began this build")
            known = {field.name for field in fields(cls)}
            values = {key: value for key, value in body.items() if key in known}
            values["tokenizer"] = TokenizerRef(**values["tokenizer"])
            values["open"] = tuple(map(_open_shard, values["open"]))
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ManifestError):
                raise
            raise ManifestError(f"{name}: is damaged ({type(error).__name__}: {error})") from error


def _open_shard(row: dict[str, Any]) -> OpenShard:
    before = tuple((int(cut), int(count), int(base)) for cut, count, base in row.pop("before", ()))
    return OpenShard(**row, before=before)


SHARD_NAME = r"(\d{6,})-(\d{4,})-\d{4,}"
"""Matches the names that `shard_name` gives; its groups are the source shard's index and the cut."""


def shard_name(index: int, roll: int, cut: int = 0) -> str:
    """Name of the k-th shard of a cut, known without the other sources' and cuts' counts: source, cut, roll."""
    return f"{index:06d}-{cut:04d}-{roll:04d}"


def read_building(folder: Path) -> Building | None:
    """The `building.json` of a corpus folder; None where there is none.

    Raises:
        ManifestError: it is damaged.
        OSError: it cannot be read.
    """
    path = folder / BUILDING_NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Building.from_json(data, name=str(path))


def file_mark(path: Path) -> tuple[Path, int, int, int] | None:
    """Tells whether a file is still the same; None if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def journal_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The journal's rows as `(kind, value)`; none where there is no file.

    Kinds: `plan` (what is built: the first row), `finished` (a source shard is whole on disk) and `faulty` (labels of
    source files with bad documents). A last row that was cut by a crash is left out, and whatever follows damage.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        try:
            row: Any = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict) or len(cast("dict[str, Any]", row)) != 1:
            return
        yield from cast("dict[str, Any]", row).items()


def plan_digest(row: Mapping[str, Any]) -> str:
    """Tells a command from others: SHA-256 of its `plan` row, but for the mode (what was an overwrite ends as a build)."""
    rest = {name: value for name, value in row.items() if name != "mode"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_plans(path: Path) -> frozenset[str]:
    """The `plan_digest` of each command that a journal tells of."""
    return frozenset(plan_digest(row) for kind, row in journal_rows(path) if kind == "plan" and isinstance(row, dict))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A source shard that is whole on disk."""

    entries: tuple[ShardEntry, ...]
    """`global_start` is 0, `row_base` as the source shard's reader counts, paths relative to the new shards' folder."""
    cuts: int
    """How many cuts its file has that are read side by side."""
    rows: int
    """Lines by which those of the cuts that follow come later in the file than their readers count."""


def read_finished(path: Path) -> dict[Key, Finished]:
    """The finished source shards.

    Raises:
        ManifestError: an entry makes no sense.
    """
    found: dict[Key, Finished] = {}
    try:
        for kind, value in journal_rows(path):
            if kind == "finished":
                found[value["index"], value.get("cut", 0)] = Finished(
                    entries=entries_of(value["entries"], name=str(path)),
                    cuts=value.get("cuts", 1),
                    rows=value.get("rows", 0),
                )
    except (KeyError, TypeError) as error:
        raise ManifestError(f"{path}: is damaged ({type(error).__name__}: {error})") from error
    return found


def entries_of(rows: list[Mapping[str, Any]], *, name: str) -> tuple[ShardEntry, ...]:
    """Shard entries out of decoded JSON.

    Raises:
        ManifestError: with every problem.
    """
    check = ManifestChecker(name)
    entries = tuple(check.shard(row, f"shards[{number}].") for number, row in enumerate(rows))
    if check.problems:
        raise ManifestError(f"{name}: is damaged", problems=check.problems)
    return entries
