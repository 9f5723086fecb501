"""Running the jobs of a build: one after another in this process, or in worker processes."""

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from headrace.building.check import ReferenceCheck
from headrace.building.job import Hooks, Job
from headrace.building.processes import Worker, Workers
from headrace.building.rolling import ignore
from headrace.building.tally import Counts, Tally
from headrace.errors import BuildError, TokenizerError
from headrace.in_progress import Key, OpenShard
from headrace.tokenizers.base import BatchTokenizer

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Engine", "Listener", "PoolEngine", "SerialEngine"]

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener(Generic[Outcome]):
    """What an engine calls, in this process, in any order of jobs, one call at a time."""

    progress: Callable[[Key, Counts], None] = ignore
    """Receives the key of a job's source shard, and the running counts."""
    outcome: Callable[[Outcome], None] = ignore
    opened: Callable[[OpenShard], None] = ignore
    """Receives a shard that is begun; may be called on another thread."""
    retry: Callable[[str], None] = ignore
    """Receives how a worker died whose job is begun anew: its counts start from 0 again, and so do its shards."""


class Engine(Protocol):
    """Runs jobs. The outcomes do not depend on which engine runs them."""

    def run(self, jobs: Sequence[Job[Outcome]], listener: Listener[Outcome]) -> None:
        """Run all jobs, and check the tokenizer if there is one. A job whose worker dies is begun once more, the others go on.

        Raises:
            TokenizerError: the tokenizer disagrees with its reference.
            BuildError: two workers died of one job.
            HeadraceError, OSError: of the first job that fails; the others are stopped.
        """
        ...


class SerialEngine:
    """One job after another, in this process: the default for one worker, and for debugging.

    Args:
        tokenizer: encodes; None for jobs that only read.
        sample: texts with which it is checked meanwhile; None where it was checked before.
    """

    def __init__(self, tokenizer: BatchTokenizer | None, sample: Sequence[bytes] | None = ()) -> None:
        self._tokenizer = tokenizer
        self._sample = None if sample is None else list(sample)

    def run(self, jobs: Sequence[Job[Outcome]], listener: Listener[Outcome]) -> None:
        """See `Engine.run`."""
        calling = Lock()  # shards are opened on a second thread
        check = None
        if self._tokenizer is not None and self._sample is not None:
            check = ReferenceCheck(self._tokenizer, self._sample)
        with check or nullcontext():
            for job in jobs:

                def report(tally: Tally, key: Key = job.shard.key) -> None:
                    if check:
                        check.poll()
                    with calling:
                        listener.progress(key, (tally.input_bytes, tally.documents, tally.tokens, tally.text_bytes))

                def opened(shard: OpenShard) -> None:
                    with calling:
                        listener.opened(shard)

                listener.outcome(job.run(self._tokenizer, Hooks(report=report, opened=opened)))
            if check:
                check.finish()


class PoolEngine:
    """Worker processes, each running one job at a time.

    Args:
        tokenizer: picklable, of a module that workers can import; sent to each worker once. None for jobs that only read.
        count: workers at most.
        sample: texts with which one of them checks the tokenizer meanwhile; None where it was checked before.
        workers: they, if their context is entered already; perhaps started.
        in_order: begin the jobs in the order given; else the largest first, so that the last ones are short.

    Raises:
        TokenizerError: the tokenizer cannot be pickled.
    """

    def __init__(
        self,
        tokenizer: BatchTokenizer | None,
        count: int,
        sample: Sequence[bytes] | None = (),
        *,
        workers: Workers | None = None,
        in_order: bool = False,
    ) -> None:
        try:
            self._tokenizer = None if tokenizer is None else pickle.dumps(tokenizer)
        except Exception as error:  # whatever the tokenizer's own code raises
            raise TokenizerError(
                f"{type(tokenizer).__name__} cannot be sent to worker processes ({error}); build with workers=1"
            ) from error
        self._count = count
        self._sample = None if sample is None else list(sample)
        self._workers = workers
        self._in_order = in_order

    def run(self, jobs: Sequence[Job[Outcome]], listener: Listener[Outcome]) -> None:
        """See `Engine.run`."""
        largest_first = sorted(jobs, key=lambda job: (-job.shard.size, job.shard.key))
        order = deque(jobs if self._in_order else largest_first)
        with nullcontext(self._workers) if self._workers else Workers() as workers:
            workers.start(min(self._count, len(jobs)))
            try:
                self._run(workers, order, listener)
            except BaseException:
                workers.start(0)  # before anybody removes what they have begun: one might write more of it
                raise

    def _run(self, workers: Workers, order: deque[Job[Any]], listener: Listener[Any]) -> None:
        if self._tokenizer is not None:
            workers.equip(self._tokenizer, self._sample)
        run = _PoolRun(workers, order, listener, checked=self._tokenizer is None or self._sample is None)
        for worker in workers.all:
            worker.start(order.popleft())
        while busy := {worker.results: worker for worker in workers.all if worker.job or not run.checked}:
            for ready in wait(list(busy)):
                run.hear(busy[cast("Connection[Any, Any]", ready)])


@dataclass(slots=True)
class _PoolRun:
    """What is done with the messages of workers."""

    workers: Workers
    waiting: deque[Job[Any]]
    listener: Listener[Any]
    checked: bool
    """Whether the tokenizer was found to be right, if there is one."""
    deaths: dict[Key | None, str] = field(default_factory=dict[Key | None, str])
    """How the first worker of a job died; None for one that only checked the tokenizer."""

    def hear(self, worker: Worker) -> None:
        """Wait for a worker's next message, and act on it."""
        match worker.receive():
            case "at", place:
                worker.at = place
            case "progress", counts:
                self.listener.progress(cast("Job[Any]", worker.job).shard.key, counts)
            case "opened", shard:
                self.listener.opened(shard)
            case "outcome", outcome:
                self.listener.outcome(outcome)
                worker.job = None
                if self.waiting:
                    worker.start(self.waiting.popleft())
            case "checked", _:
                self.checked = True
            case "error", error:
                raise error
            case _, death:
                self._begin_again(worker, death)

    def _begin_again(self, worker: Worker, death: str) -> None:
        """Let a new worker begin the dead one's job anew, unless it is the second that died of it."""
        job = worker.job
        if job is not None:
            job.undo()
        key = None if job is None else job.shard.key
        if before := self.deaths.get(key):
            how = death if death == before else f"{before}, then {death}"
            raise BuildError(
                f"a worker died twice {how}. If memory ran short, build with fewer --workers; else the tokenizer may not "
                "bear what is there: look at it, or leave it out"
            )
        self.deaths[key] = death
        self.listener.retry(f"a worker died {death}; that source is begun once more")
        fresh = self.workers.replace(worker)
        if job is not None:
            fresh.start(job)
