"""A worker process of a build: `python -P -m headrace.building.worker JOBS RESULTS LIFE MODULE...`.

The first three are inherited descriptors, the others what to import beforehand.

Started as a fresh program, not forked, so that no library's threads or locks are copied, and no `__main__` guard is
asked of the user. It ends when the parent does.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from headrace.building.job import Hooks, Job
from headrace.building.processes import Equipment
from headrace.building.tally import Tally
from headrace.children import collect_rarely
from headrace.errors import BuildError, HeadraceError, TokenizerError

if TYPE_CHECKING:
    from headrace.tokenizers.base import BatchTokenizer

__all__ = ["main"]


def main(jobs: "Connection[Any, Any]", results: "Connection[Any, Any]") -> None:
    """Receive jobs, before those that encode the equipment for them, until the pipe closes; send `(kind, value)` pairs."""
    with suppress(EOFError, OSError):  # the parent is done, or gone, perhaps in the middle of a message
        _work(jobs, results)


def _not_loaded(error: Exception) -> str:
    return (
        f"a worker process cannot load the tokenizer: {type(error).__name__}: {error}. Its class must be in a module that "
        "can be imported, not in a script; else build with workers=1"
    )


def _work(jobs: "Connection[Any, Any]", results: "Connection[Any, Any]") -> None:
    sending = Lock()  # shards are opened on a second thread, and the sample is checked on a third

    def send(kind: str, value: object) -> None:
        with sending:
            results.send((kind, value))

    def report(tally: Tally) -> None:
        send("progress", (tally.input_bytes, tally.documents, tally.tokens, tally.text_bytes))

    hooks = Hooks(report=report, opened=partial(send, "opened"), at=partial(send, "at"))
    tokenizer: BatchTokenizer | None = None
    while True:
        given: Equipment | Job[Any] = jobs.recv()
        try:
            if isinstance(given, Equipment):
                tokenizer = _equipped(given, send)
            else:
                send("outcome", given.run(tokenizer, hooks))
        except BrokenPipeError:
            return
        except Exception as error:  # noqa: BLE001  # the parent raises it
            send("error", _portable(error))


def _equipped(given: Equipment, send: Callable[[str, object], None]) -> "BatchTokenizer":
    sys.path[:] = given.path
    try:
        tokenizer = cast("BatchTokenizer", pickle.loads(given.tokenizer))  # noqa: S301  # from the parent process
    except Exception as error:  # whatever its modules raise
        raise TokenizerError(_not_loaded(error)) from error
    if given.sample is not None:
        threading.Thread(target=_check, args=(tokenizer, given.sample, send), daemon=True).start()
    return tokenizer


def _check(tokenizer: "BatchTokenizer", sample: Sequence[bytes], send: Callable[[str, object], None]) -> None:
    try:
        tokenizer.check(sample)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        send("error", _portable(error))
    else:
        send("checked", None)


def _portable(error: Exception) -> Exception:
    """The error as the parent can have it; of an unexpected one, with where it came from."""
    if not isinstance(error, HeadraceError | OSError):
        error.add_note("in a worker process:\n" + traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    except Exception:  # noqa: BLE001  # whatever its class raises
        return BuildError(f"{type(error).__name__}: {error}")
    return error


def _die_with_parent(life: int) -> None:
    """Nothing is ever written to this pipe: reading returns when the parent is gone, however it went."""
    os.read(life, 1)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the parent sees to it
    collect_rarely()
    jobs_fd, results_fd, life_fd = map(int, sys.argv[1:4])
    threading.Thread(target=_die_with_parent, args=(life_fd,), daemon=True).start()
    for module in sys.argv[4:]:
        with suppress(ImportError):
            import_module(module)
    main(Connection(jobs_fd, writable=False), Connection(results_fd, readable=False))
