"""What came of a verification."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from headrace.errors import CorruptShardError, Problem
from headrace.manifest import Fingerprint, Manifest

if TYPE_CHECKING:
    from headrace.events import ShardVerified

__all__ = [
    "CorpusReport",
    "ShardReport",
    "Status",
    "Verify",
    "checked_verify",
    "report_file",
    "require_ok",
    "summary",
]

Verify = Literal["full", "quick", "off"]
"""How a corpus is verified before it is served."""
Status = Literal["ok", "corrupt", "missing", "unreadable", "growing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The verdict on one shard, or on another file of a corpus."""

    shard_id: str
    """For another file its name in the corpus: `shards.json`, `.headrace/extents.bin`, `tokenizer`."""
    path: str
    status: Status
    reason: str = ""
    """What is wrong; empty where `ok`."""
    problems: tuple[Problem, ...] = ()
    """Each run of damaged chunks: its tokens in the shard and in the corpus, the documents that it touches and the lines
    that those come from; and every other fault."""
    bytes_read: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.status == "ok"

    @property
    def fault(self) -> Problem:
        """The verdict on a shard that is not ok, in one line."""
        return Problem(self.path, f"{self.status}: {self.reason.removeprefix(f'{self.path}: ')}")

    @property
    def event(self) -> "ShardVerified":
        """The verdict as subscribers receive it."""
        from headrace.events import ShardVerified  # noqa: PLC0415  # who only opens a corpus needs no events

        return ShardVerified(shard_id=self.shard_id, status=self.status, reason=self.reason, bytes_read=self.bytes_read)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReport:
    """The verdicts on a corpus."""

    path: Path
    """The index or the file."""
    manifest: Manifest
    """As read; of a single file, made up from it."""
    shards: tuple[ShardReport, ...]
    """One for each shard, in order."""
    others: tuple[ShardReport, ...]
    """One for each other file that is not as it should be."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the content, as the index says it."""
        return self.manifest.fingerprint

    @property
    def reports(self) -> list[ShardReport]:
        """All verdicts."""
        return [*self.shards, *self.others]


def checked_verify(verify: Verify) -> Verify:
    """The argument itself.

    Raises:
        ValueError: it is none of its type's.
    """
    if verify not in get_args(Verify):
        raise ValueError(f"verify is 'full', 'quick' or 'off', not {verify!r}")
    return verify


def require_ok(
    shards: Sequence[ShardReport], others: Sequence[ShardReport] = (), *, where: str = "", advice: str = ""
) -> None:
    """Refuse what did not pass.

    Args:
        shards: the verdicts on all shards of a corpus, or some.
        others: on its other files.
        where: begins the message.
        advice: ends it.

    Raises:
        CorruptShardError: with every problem.
    """
    bad = [report for report in (*shards, *others) if not report.ok]
    if not bad:
        return
    count = sum(not report.ok for report in shards)
    parts = [f"{count} of {len(shards)} shards"] if count else []
    parts += [report.shard_id for report in others if not report.ok]
    verb = "are" if count or len(parts) > 1 else "is"
    raise CorruptShardError(
        f"{where}{' and '.join(parts)} {verb} not ok{advice}",
        problems=[problem for report in bad for problem in report.problems or (report.fault,)],
    )


def report_file(path: Path, name: str, problems: Sequence[Problem]) -> ShardReport:
    """The verdict on a file beside the shards, by its faults."""
    return ShardReport(
        shard_id=name,
        path=str(path),
        status="corrupt" if problems else "ok",
        reason=summary(problems),
        problems=tuple(problems),
    )


def summary(problems: Sequence[Problem]) -> str:
    """How many there are, and the first; empty without any."""
    if not problems:
        return ""
    return f"{len(problems)} problem{'s' * (len(problems) > 1)}: {problems[0].reason}"
