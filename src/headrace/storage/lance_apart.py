"""Calls that use Lance, made where Lance may be used.

Lance runs threads of its own, which a fork does not copy: in the child of a process that has used it, a handle of the
parent hangs, and even one that the child opens crashes at times. So there the calls are made by a program of their own,
started when the first is made, and ended when the child is.
"""

import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, ParamSpec, TypeVar

from headrace.children import child_command, child_environment
from headrace.errors import UnreadableShardError

__all__ = ["call", "on_fork"]

P = ParamSpec("P")
R = TypeVar("R")
_SIZE = struct.Struct("<Q")


class _Place:
    """Where this process makes its calls."""

    def __init__(self) -> None:
        self.apart = False
        """Whether a parent may have used Lance before it was forked."""
        self.lock = threading.Lock()
        self.helper: subprocess.Popen[bytes] | None = None
        self.kept: list[object] = []
        """What the parent had of Lance: letting go of it would run code of Lance."""


_place = _Place()
_at_fork: list[Callable[[], object]] = []


def on_fork(take: Callable[[], object]) -> None:
    """Let a function give up, in the child of every fork, the handles of Lance that its module has."""
    _at_fork.append(take)


def call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of a module of this package, here or in a program of its own; all that it takes and gives is pickled.

    Raises:
        UnreadableShardError: the program has ended. Others as of the function.
    """
    if not _place.apart:
        return function(*args, **kwargs)
    with _place.lock:
        helper = _place.helper = _place.helper or _start()
        assert helper.stdin is not None  # noqa: S101  # pipes, both
        assert helper.stdout is not None  # noqa: S101
        try:
            _send(helper.stdin, (function, args, kwargs))
            result, error = _receive(helper.stdout)
        except (EOFError, BrokenPipeError) as fault:
            _place.helper = None
            raise UnreadableShardError(f"the program that reads Lance data sets has ended: {helper.wait()}") from fault
    if error is not None:
        raise error
    return result


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        child_command(__name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
        process_group=0,  # Ctrl-C is for who asks, with whom this one ends
    )


def _send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=5)
    stream.write(_SIZE.pack(len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:  # noqa: ANN401  # what was sent
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    data = stream.read(*_SIZE.unpack(head))
    return pickle.loads(data)  # noqa: S301  # of a program of ours


def _forked() -> None:
    place = _Place()
    place.apart = _place.apart or "lance" in sys.modules
    place.kept = [_place.kept, *(take() for take in _at_fork)]
    helper = _place.helper
    if helper is not None:  # it is the parent's, and ends with the parent's end of the pipe alone
        for stream in (helper.stdin, helper.stdout):
            if stream is not None:
                os.close(stream.fileno())
        place.kept.append(helper)
    globals()["_place"] = place


os.register_at_fork(after_in_child=_forked)


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Make calls until nobody asks any more."""
    while True:
        try:
            function, args, kwargs = _receive(requests)
        except EOFError:
            return
        try:
            reply = function(*args, **kwargs), None
        except Exception as error:  # noqa: BLE001  # raised where it was asked for
            reply = None, error
        _send(replies, reply)


if __name__ == "__main__":
    _replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever Lance prints is no reply
    _serve(sys.stdin.buffer, _replies)
