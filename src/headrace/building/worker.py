"""A worker process of a build: `python -P -m headrace.building.worker JOBS RESULTS LIFE`, three inherited descriptors.

Started as a fresh program, not forked, so that no library's threads or locks are copied, and no `__main__` guard is
asked of the user. It ends when the parent does.
"""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, cast

from headrace.building.job import ShardJob, Tally, run_job
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.tokenizers.base import BatchTokenizer

__all__ = ["main"]


def main(jobs: "Connection[Any, Any]", results: "Connection[Any, Any]") -> None:
    """Receive a tokenizer, then jobs until the pipe closes; send `(kind, value)` pairs."""
    tokenizer = cast("BatchTokenizer", jobs.recv())

    def report(tally: Tally) -> None:
        results.send(("progress", (tally.input_bytes, tally.documents, tally.tokens, tally.text_bytes)))

    while True:
        try:
            job: ShardJob = jobs.recv()
        except EOFError:
            return
        try:
            results.send(("outcome", run_job(job, tokenizer, report)))
        except (HeadraceError, OSError) as error:
            results.send(("error", error))


def _die_with_parent(life: int) -> None:
    """Nothing is ever written to this pipe: reading returns when the parent is gone, however it went."""
    os.read(life, 1)
    os._exit(1)


if __name__ == "__main__":
    jobs_fd, results_fd, life_fd = map(int, sys.argv[1:])
    threading.Thread(target=_die_with_parent, args=(life_fd,), daemon=True).start()
    main(Connection(jobs_fd, writable=False), Connection(results_fd, readable=False))
