"""What happens during a long job, as frozen values.

A job takes `on_event`, a callable that receives them; a progress bar, JSON lines and a test are three subscribers. This
module imports nothing of the package.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BuildFinished",
    "BuildStarted",
    "Event",
    "FirstPass",
    "Notice",
    "Progress",
    "ShardVerified",
    "ShardWritten",
    "SplitFinished",
    "SplitPart",
    "SplitStarted",
    "Subscriber",
    "ignore",
    "json_values",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStarted:
    """The inputs are listed and checked; work begins."""

    output: str
    source_shards: int
    input_bytes: int
    """Bytes on disk of all inputs."""
    workers: int
    tokenizer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """How far the first of two passes over the sources is, before the build's own work begins."""

    input_bytes: int
    """Bytes of input read, as they lie on disk, of ..."""
    total_bytes: int
    """... this."""
    documents: int
    """Documents read, but for those that are dropped."""
    seconds: float
    """Since it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Work done since the start of the build, summed over workers."""

    input_bytes: int
    """Bytes of input consumed, as they lie on disk. Where documents are put in a random order, half of it is consumed when
    they are read, and the other half when they are written; the counts below begin again then."""
    documents: int
    """Documents kept."""
    tokens: int
    text_bytes: int
    """UTF-8 bytes of the documents kept."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWritten:
    """A shard is whole under its final name."""

    shard_id: str
    tokens: int
    documents: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardVerified:
    """A shard was judged."""

    shard_id: str
    status: str
    """`ok`, `corrupt`, `missing`, `unreadable` or `growing`."""
    reason: str
    """Empty where `status` is `ok`."""
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something a user should know that is no error (a file left out, a duplicate path)."""

    kind: str
    """A short machine-readable word: `skipped`, `duplicate`, `dropped`, `resumed`, `kept`, ..."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFinished:
    """The corpus is published. The closing report, all counts exact, of what this command has added to the corpus."""

    output: str
    fingerprint: str
    shards: int
    documents_in: int
    documents: int
    """Documents kept."""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Documents not kept, by reason."""
    replaced: int = 0
    """Documents in which an invalid byte or a lone surrogate became U+FFFD."""
    cut_tokens: int = 0
    """Tokens removed by `max_document_tokens`."""
    tokens: int = 0
    """Boundary tokens included."""
    boundary_tokens: int = 0
    text_bytes: int = 0
    """UTF-8 bytes of the documents kept; 0 where they came as ids."""
    seconds: float = 0.0
    """Of this run."""
    resumed: int = 0
    """Source shards, or parts of a random order, that an earlier run of the same command had finished."""
    total_tokens: int = 0
    """Of the whole corpus; more than `tokens` where sources were appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStarted:
    """The output is looked at; documents begin to be copied. `Progress` is then of the corpus that is split."""

    output: str
    parts: tuple[str, ...]
    """Names of those that are made."""
    shards: int
    """Of the corpus."""
    input_bytes: int
    """Bytes of all its tokens."""
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """One part of a split, which is a corpus."""

    name: str
    path: str
    fingerprint: str
    fraction: str
    """What was asked for: a decimal; empty for the rest."""
    documents: int
    tokens: int
    """Boundary tokens included."""
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFinished:
    """All parts are published. The closing report of a split."""

    output: str
    base: str
    """Fingerprint of the corpus that was split."""
    seed: int
    by: str
    """Of what the hash was that decided where a document went: `text` or `tokens`."""
    parts: tuple[SplitPart, ...]
    """In order, the rest last."""
    kept: int = 0
    """Parts that an earlier run of the same command had made."""
    seconds: float = 0.0
    """Of this run."""


Event = (
    BuildStarted
    | FirstPass
    | Progress
    | ShardWritten
    | ShardVerified
    | Notice
    | BuildFinished
    | SplitStarted
    | SplitFinished
)
Subscriber = Callable[[Event], None]


def ignore(event: Event, /) -> None:
    """Subscribe to nothing: the default of every `on_event`."""


def json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of an event as JSON holds them: numbers that it does not know are the texts `nan`, `inf` and `-inf`."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
