"""What the engine reports, turned into events, the journal and `building.json`."""

from collections.abc import Callable
from dataclasses import replace

from headrace.building.announce import Announcer
from headrace.building.engine import Listener
from headrace.building.job import ShardOutcome
from headrace.building.journal import Journal
from headrace.building.room import RoomCheck
from headrace.building.tally import Counts, Sums
from headrace.events import Notice, Progress, ShardWritten, Subscriber
from headrace.in_progress import Key, OpenShard

__all__ = ["Teller"]


class Teller:
    """Receives the engine's calls.

    Args:
        on_event: the user's subscriber.
        journal: records what is finished before anybody hears of it.
        announcer: keeps `building.json`.
        room: looks at the disk; its findings stop the build.
        told: how much of the build's input so many bytes are that jobs have read.
    """

    def __init__(
        self,
        on_event: Subscriber,
        journal: Journal,
        announcer: Announcer,
        room: RoomCheck,
        *,
        told: Callable[[int], int] = int,
    ) -> None:
        self._tell = on_event
        self._journal = journal
        self._announcer = announcer
        self._room = room
        self._told = told
        self._sums = Sums()
        self.read = Progress(input_bytes=0, documents=0, tokens=0, text_bytes=0, seconds=0.0)
        """What all jobs together have done so far."""

    @property
    def listener(self) -> Listener[ShardOutcome]:
        """For the engine."""
        return Listener(progress=self.progress, outcome=self.outcome, opened=self.opened, retry=self.retry)

    def progress(self, key: Key, counts: Counts) -> None:
        """A source shard's running counts."""
        self.read = self._sums.add(key, counts)
        now = replace(self.read, input_bytes=self._told(self.read.input_bytes))
        self._tell(now)
        self._announcer.progress(now.input_bytes, now.documents, now.tokens, now.seconds)
        if self._room.due:
            self._room.look({key: counts[0] for key, counts in self._sums.of_jobs.items()})

    def opened(self, shard: OpenShard) -> None:
        """A shard was begun."""
        self._announcer.opened(shard)

    def outcome(self, outcome: ShardOutcome) -> None:
        """A source shard is finished."""
        self._journal.finish(outcome)
        self._announcer.finished(outcome.key)
        for entry in outcome.entries:
            self._tell(
                ShardWritten(
                    shard_id=entry.shard_id,
                    tokens=entry.token_count,
                    documents=entry.document_count,
                    sha256=entry.sha256,
                )
            )

    def retry(self, message: str) -> None:
        """A worker died, and its source shard is tried once more."""
        self._tell(Notice(kind="retried", message=message))
