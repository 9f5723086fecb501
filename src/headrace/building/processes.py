"""The worker processes of a build, as the parent sees them: started, given jobs, replaced when they die."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from headrace.building.job import Job
from headrace.building.place import Place
from headrace.children import child_command, child_environment
from headrace.errors import BuildError, SourceError
from headrace.sources.cuts import first_row

__all__ = ["Equipment", "Worker", "Workers"]

_ENDING_SECONDS = 10
"""After its pipe has closed, a worker has this long to end by itself."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a worker is given before jobs that encode."""

    tokenizer: bytes
    """Pickled."""
    path: Sequence[str]
    """`sys.path`, where its module may lie."""
    sample: Sequence[bytes] | None = None
    """What this worker checks it with, and then says `checked`."""


@dataclass(slots=True)
class Worker:
    """One process."""

    process: "subprocess.Popen[bytes]"
    jobs: "Connection[Any, Any]"
    results: "Connection[Any, Any]"
    job: Job[Any] | None = None
    """What it is at work on."""
    at: Place | None = None
    """Where in that job it said it was; None before it has begun."""

    def start(self, job: Job[Any]) -> None:
        """Give it a job."""
        self.job = job
        self.at = None
        # A worker that is gone is found when its answer is awaited, with all that it still had to say.
        with suppress(BrokenPipeError):
            self.jobs.send(job)

    def receive(self) -> tuple[str, Any]:
        """The next message, `("died", how)` after the last of a process that is gone."""
        try:
            return self.results.recv()
        except (EOFError, OSError):
            return "died", self._death()

    def _death(self) -> str:
        """How it died, and where it was."""
        try:
            code = self.process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        how = f"signal {-code}: {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
        if self.job is None:
            return f"({how}) while it checked the tokenizer"
        shard = self.job.shard
        if self.at is None:
            return f"({how}) before it read {shard.files[0].label}"
        base = 0
        with suppress(SourceError):  # which another worker meets, too
            base = first_row(shard)
        return f"({how}) while it read {self.at.told(base)}"

    def end(self) -> None:
        """Wait until it has ended, and close what it is reached by."""
        self.jobs.close()
        self.process.wait()
        self.results.close()


class Workers:
    """The processes; leaving the context ends them all.

    They take half a second to begin with, and need nothing for it: so they may be started before it is known what they
    are to do.

    Args:
        inherit: descriptors that they keep open.
    """

    def __init__(self, inherit: tuple[int, ...] = ()) -> None:
        self.all: list[Worker] = []
        self._inherit = inherit
        self._equipment: Equipment | None = None
        self._checking: Worker | None = None
        """Which one compares the sample."""
        self._life: tuple[int, int] = (-1, -1)

    def __enter__(self) -> Self:
        self._life = os.pipe()  # held open here and nowhere else: its end tells the workers that we are gone
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.start(0)
        for descriptor in self._life:
            os.close(descriptor)

    def start(self, count: int, imports: Sequence[str] = ()) -> None:
        """Let there be so many: new ones, before they are equipped, or fewer, once those that go have ended.

        Args:
            count: how many.
            imports: modules that new ones load while they wait for the tokenizer, if they are there.

        Raises:
            BuildError: the system starts no more processes.
        """
        while len(self.all) < count:
            self.all.append(self._spawn(imports))
        surplus = self.all[count:]
        for worker in surplus:
            worker.process.kill()  # what it did is on disk, and the interpreter's own end takes a fifth of a second
        for worker in surplus:
            worker.end()
        del self.all[count:]

    def equip(self, tokenizer: bytes, sample: list[bytes] | None) -> None:
        """Give all of them the tokenizer, pickled; and one a sample, of which it says `checked` if the tokenizer is right."""
        self._equipment = Equipment(tokenizer, sys.path, sample)
        for worker in self.all:
            self._equip(worker)

    def replace(self, dead: Worker) -> Worker:
        """Start a new process in the place of one that has died."""
        dead.end()
        self.all.remove(dead)
        if self._checking is dead:
            self._checking = None
        worker = self._spawn()
        self.all.append(worker)
        self._equip(worker)
        return worker

    def _equip(self, worker: Worker) -> None:
        if self._equipment is None:
            return
        given = replace(self._equipment, sample=None) if self._checking else self._equipment
        with suppress(BrokenPipeError):  # as in `Worker.start`
            worker.jobs.send(given)
        self._checking = self._checking or worker

    def _spawn(self, imports: Sequence[str] = ()) -> Worker:
        job_reader, job_writer = os.pipe()
        result_reader, result_writer = os.pipe()
        life = self._life[0]
        try:
            process = subprocess.Popen(
                child_command("headrace.building.worker")
                + [str(descriptor) for descriptor in (job_reader, result_writer, life)]
                + [*imports],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the parent, which ends the workers
                pass_fds=(job_reader, result_writer, life, *self._inherit),
                env=child_environment(),
            )
        except OSError as error:
            os.close(job_writer)
            os.close(result_reader)
            raise BuildError(
                f"no worker process can be started: {error.strerror} ({sys.executable}); build with fewer --workers"
            ) from error
        finally:
            os.close(job_reader)
            os.close(result_writer)
        return Worker(process, Connection(job_writer, readable=False), Connection(result_reader, writable=False))
