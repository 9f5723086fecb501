"""Running the jobs of a build: one after another in this process, or in worker processes."""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Protocol, Self, cast

from headrace.building.job import ShardJob, ShardOutcome, Tally, run_job
from headrace.building.rolling import ignore
from headrace.children import child_command, child_environment
from headrace.errors import BuildError, TokenizerError
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["Engine", "PoolEngine", "SerialEngine"]

Counts = tuple[int, int, int, int]
"""Input bytes, documents, tokens and text bytes of one job so far."""
OnProgress = Callable[[int, Counts], None]
"""Receives a job's index and its running counts."""
OnOutcome = Callable[[ShardOutcome], None]
OnOpen = Callable[[int, int, Path], None]
"""Receives a job's index, the number of a shard of it that is begun, and where it grows, in SWMR mode."""


class Engine(Protocol):
    """Runs jobs. The outcomes do not depend on which engine runs them."""

    def run(
        self, jobs: Sequence[ShardJob], on_progress: OnProgress, on_outcome: OnOutcome, on_open: OnOpen = ignore
    ) -> None:
        """Run all jobs; the callbacks are called in this process, in any order of jobs, one at a time.

        `on_open` may be called on another thread.

        Raises:
            HeadraceError, OSError: of the first job that fails; the others are stopped.
        """
        ...


class SerialEngine:
    """One job after another, in this process: the default for one worker, and for debugging."""

    def __init__(self, tokenizer: BatchTokenizer) -> None:
        self._tokenizer = tokenizer

    def run(
        self, jobs: Sequence[ShardJob], on_progress: OnProgress, on_outcome: OnOutcome, on_open: OnOpen = ignore
    ) -> None:
        """See `Engine.run`."""
        calling = Lock()  # shards are opened on a second thread
        for job in jobs:

            def report(tally: Tally, index: int = job.shard.index) -> None:
                with calling:
                    on_progress(index, (tally.input_bytes, tally.documents, tally.tokens, tally.text_bytes))

            def opened(roll: int, path: Path, index: int = job.shard.index) -> None:
                with calling:
                    on_open(index, roll, path)

            on_outcome(run_job(job, self._tokenizer, report, opened))


class PoolEngine:
    """Worker processes, each running one job at a time, the largest first.

    Args:
        tokenizer: picklable, of a module that workers can import; sent to each worker once.
        workers: how many at most.
        inherit: descriptors that workers keep open (the lock of the output folder).

    Raises:
        TokenizerError: the tokenizer cannot be pickled.
    """

    def __init__(self, tokenizer: BatchTokenizer, workers: int, inherit: Sequence[int] = ()) -> None:
        try:
            self._tokenizer = pickle.dumps(tokenizer)
        except Exception as error:  # whatever the tokenizer's own code raises
            raise TokenizerError(
                f"{type(tokenizer).__name__} cannot be sent to worker processes ({error}); build with workers=1"
            ) from error
        self._workers = workers
        self._inherit = tuple(inherit)

    def run(
        self, jobs: Sequence[ShardJob], on_progress: OnProgress, on_outcome: OnOutcome, on_open: OnOpen = ignore
    ) -> None:
        """See `Engine.run`."""
        waiting = deque(sorted(jobs, key=lambda job: (-job.shard.size, job.shard.index)))
        with _Workers(min(self._workers, len(jobs)), self._tokenizer, self._inherit) as workers:
            for worker in workers.all:
                worker.start(waiting.popleft())
            while busy := {worker.results: worker for worker in workers.all if worker.job is not None}:
                for ready in wait(list(busy)):
                    worker = busy[cast("Connection[Any, Any]", ready)]
                    kind, value = worker.receive()
                    if kind == "progress":
                        on_progress(worker.job_index, value)
                        continue
                    if kind == "opened":
                        on_open(worker.job_index, *value)
                        continue
                    if kind == "error":
                        raise value
                    on_outcome(value)
                    worker.job = None
                    if waiting:
                        worker.start(waiting.popleft())


@dataclass(slots=True)
class _Worker:
    process: "subprocess.Popen[bytes]"
    jobs: "Connection[Any, Any]"
    results: "Connection[Any, Any]"
    job: ShardJob | None = None

    @property
    def job_index(self) -> int:
        return cast("ShardJob", self.job).shard.index

    def start(self, job: ShardJob) -> None:
        self.job = job
        # A worker that is gone is found when its answer is awaited, with all that it still had to say.
        with suppress(BrokenPipeError):
            self.jobs.send(job)

    def receive(self) -> tuple[str, Any]:
        try:
            return self.results.recv()
        except (EOFError, OSError) as error:
            code = self.process.wait()
            job = cast("ShardJob", self.job)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise BuildError(
                f"a worker died ({how}) while it read {job.shard.files[0].label}; nothing was published. "
                "If the machine ran out of memory, build with fewer --workers"
            ) from error


class _Workers:
    """The processes; leaving the context ends them all."""

    def __init__(self, count: int, tokenizer: bytes, inherit: tuple[int, ...]) -> None:
        self.all: list[_Worker] = []
        self._count = count
        self._tokenizer = tokenizer
        self._inherit = inherit
        self._life: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self._life = os.pipe()  # held open here and nowhere else: its end tells the workers that we are gone
        try:
            for _ in range(self._count):
                self.all.append(self._spawn(self._life[0]))
            for worker in self.all:
                with suppress(BrokenPipeError):  # as in `_Worker.start`
                    worker.jobs.send(sys.path)  # where the tokenizer's module may lie
                    worker.jobs.send_bytes(self._tokenizer)
        except BaseException:
            self._kill()
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._kill()
        self._end()

    def _kill(self) -> None:
        for worker in self.all:
            worker.process.kill()

    def _end(self) -> None:
        for worker in self.all:
            worker.jobs.close()
            worker.process.wait()
            worker.results.close()
        if self._life is not None:
            for descriptor in self._life:
                os.close(descriptor)

    def _spawn(self, life: int) -> _Worker:
        job_reader, job_writer = os.pipe()
        result_reader, result_writer = os.pipe()
        try:
            process = subprocess.Popen(
                child_command("headrace.building.worker")
                + [str(descriptor) for descriptor in (job_reader, result_writer, life)],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the parent, which ends the workers
                pass_fds=(job_reader, result_writer, life, *self._inherit),
                env=child_environment(),
            )
        finally:
            os.close(job_reader)
            os.close(result_writer)
        return _Worker(process, Connection(job_writer, readable=False), Connection(result_reader, writable=False))
