"""Builds and splits in processes that die where they are told to: before, within or after one of their writes.

`Builder` starts this file as a program, which is asked for them in lines of JSON, and answers each with a line. It has
one thread, so it can fork: every one runs in a child that may kill itself.

A fault is `{"when", "index"}`, or `{"when", "name", "nth", "publishing"}`: the index among all calls of `POINTS`, or the
n-th call of one of them, counted from 0, perhaps from where publishing begins. `when` is `before`, `within` (a part of it
is done: half of the bytes, a longer data set without its values) or `after`.

The dead leave what they gave to the kernel, so `os.fsync` does nothing here: only a crash of the machine shows what it
does. What HDF5 holds back dies with the process, unless it happens to have written it; so a death within or after one
of HDF5's writes makes it write, and one before leaves it.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Self

import h5py  # numpy comes with it

import headrace
from headrace.building import build as command
from headrace.building import making as build_module
from headrace.storage import swmr
from headrace.storage.hdf5_layout import Column, Scalar

POINTS = (
    *(
        "os.mkdir",
        "os.replace",
        "os.link",
        "os.unlink",
        "os.rmdir",
        "shutil.copyfile",
        "Path.write_bytes",
        "file.write",
    ),
    *("SwmrFile.create_dataset", "SwmrFile.create_group", "SwmrFile.create_attribute", "SwmrFile.start"),
    *("SwmrFile.flush", "SwmrFile.close", "Column.append", "Scalar.set"),
)
"""Every call by which a build that succeeds changes its output. `file.write` is of files that `Path.open` opened."""
LANCE_POINTS = ("LanceFileWriter.write_batch", "LanceFileWriter.close", "LanceDataset.commit", "Tags.create")
"""Likewise of Lance, whose own writes nobody sees."""
CHANGES = {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate"}
"""Python's audit events of such calls, beside `open`."""
Call = Callable[..., Any]


class Builder:
    """Has corpora built in processes of their own. A context manager."""

    def __enter__(self) -> Self:
        # Without the setting, numpy starts threads.
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, inputs: Path, output: Path, options: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Build, without worker processes.

        Args:
            inputs: of the build, like ...
            output: ... this, and ...
            options: ... these.
            more: `fault` is where to die. `split` makes it a split, whose inputs are a corpus. `links`, if false, makes the
                file system one without hard links. `cut_bytes` is where files are cut, and `part_bytes` how large
                parts of a random order are. `lance` has Lance imported, without which none of its builds can be asked for;
                nothing of it may be used before a fork. `warm` is no build, but a first one, so that no later one imports anything.

        Returns:
            `ended`: `killed`, `done`, the name of the error, or a traceback. If done, `report`, `points`, the calls that were
            made of them, and `missed`, changes of the output that no point made; if failed, `message`.
        """
        asked = {"inputs": str(inputs), "output": str(output), "options": options, **more}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Fault:
    """Where to die. Counts the calls of all points, by several threads."""

    def __init__(self, fault: dict[str, Any] | None) -> None:
        self.fault = fault or {}
        self.reached: list[str] = []
        """The points that were called."""
        self.publishing = 0
        """How many of them before publishing began."""
        self.missed: list[str] = []
        """Changes that were made by other calls."""
        self._calling = threading.RLock()
        self._local = threading.local()

    def point(self, name: str, whole: Call, part: Call | None = None, after: Call | None = None) -> Call:
        """The function `whole`, but for the process' death at one of its calls.

        Args:
            name: of the point.
            whole: does all.
            part: does a part; None where there is none.
            after: called after `whole` before a death: makes what was done be seen.
        """

        def call(*args: Any, **kwargs: Any) -> Any:  # anything
            with self._calling:
                # What a point calls in turn is no point of its own.
                if self.inside() or not self._reach(name):
                    return self.run(whole, args, kwargs)
                self._local.inside = True
                try:
                    if self.fault["when"] == "within" and part is not None:
                        part(*args, **kwargs)
                    elif self.fault["when"] != "before":
                        whole(*args, **kwargs)
                        if after is not None:
                            after(*args)
                finally:  # whether it was done or could not be
                    os.kill(os.getpid(), signal.SIGKILL)
                raise AssertionError

        return call

    def run(self, whole: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # anything
        """Call it as a part of a point."""
        before, self._local.inside = self.inside(), True
        try:
            return whole(*args, **kwargs)
        finally:
            self._local.inside = before

    def inside(self) -> bool:
        """Whether this thread is in a call of a point."""
        return getattr(self._local, "inside", False)

    def watch(self, output: str) -> None:
        """Record changes of the output by other calls, but for its lock."""

        def hook(event: str, args: tuple[Any, ...]) -> None:
            change = event in CHANGES or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR))
            if change and not self.inside() and str(args[0]).startswith(output) and not str(args[0]).endswith("lock"):
                self.missed.append(f"{event} {args[0]}")

        sys.addaudithook(hook)

    def _reach(self, name: str) -> bool:
        """Count a call; whether it is the last."""
        index = len(self.reached)
        self.reached.append(name)
        if "index" in self.fault:
            return index == self.fault["index"]
        if self.fault.get("name") != name:
            return False
        counted = self.reached
        if self.fault["publishing"]:
            counted = self.reached[self.publishing :] if self.publishing else []
        return counted.count(name) == self.fault["nth"] + 1

    def begin_publishing(self) -> None:
        """What comes from now on publishes the corpus."""
        self.publishing = len(self.reached)


def arm(fault: Fault) -> None:
    """Make every point of this process deadly."""
    for name in ("mkdir", "replace", "link", "unlink", "rmdir"):
        setattr(os, name, fault.point(f"os.{name}", getattr(os, name)))
    os.fsync = lambda _: None
    shutil.copyfile = fault.point("shutil.copyfile", shutil.copyfile, half_a_copy)
    Path.write_bytes = fault.point("Path.write_bytes", Path.write_bytes, half_of_bytes)
    opening = Path.open

    def open_path(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # a file
        file = fault.run(opening, (path, mode, *args), kwargs)
        return file if mode in {"r", "rb"} else Written(file, fault)

    Path.open = open_path
    for name in ("create_dataset", "create_group", "create_attribute", "start", "flush", "close"):
        method = getattr(swmr.SwmrFile, name)
        setattr(swmr.SwmrFile, name, fault.point(f"SwmrFile.{name}", method, after=flushed_file))
    Column.append = fault.point("Column.append", Column.append, longer, flushed)
    Scalar.set = fault.point("Scalar.set", Scalar.set, after=flushed)
    if "lance" in sys.modules:
        arm_lance(fault)
    publish = build_module.publish

    def publish_from_now_on(*args: Any) -> Any:  # as the other one
        fault.begin_publishing()
        return publish(*args)

    build_module.publish = publish_from_now_on


def arm_lance(fault: Fault) -> None:
    """Make the calls of Lance deadly that change something."""
    import lance
    from lance.dataset import Tags
    from lance.file import LanceFileWriter

    for owner, name in ((LanceFileWriter, "write_batch"), (LanceFileWriter, "close"), (Tags, "create")):
        setattr(owner, name, fault.point(f"{owner.__name__}.{name}", getattr(owner, name)))
    lance.LanceDataset.commit = staticmethod(fault.point("LanceDataset.commit", lance.LanceDataset.commit))


def no_link(*_: object) -> None:
    """Fail as on FAT."""
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def half_a_copy(source: str, target: str, **_: object) -> None:
    """Copy the first half."""
    data = Path(source).read_bytes()
    Path(target).write_bytes(data[: len(data) // 2])


def half_of_bytes(path: Path, data: bytes) -> None:
    """Write the first half."""
    path.write_bytes(data[: len(data) // 2])


def longer(column: Any, values: Any) -> None:  # a Column; an array
    """Lengthen a data set on disk, its values still to come."""
    column._id.set_extent((column.length + len(values),))
    flushed(column)


def flushed(owner: Any, *_: object) -> None:  # a Column or a Scalar
    """Write down what HDF5 holds back."""
    h5py.h5f.flush(h5py.h5i.get_file_id(owner._id))


def flushed_file(file: Any, *_: object) -> None:  # a SwmrFile
    """The same, unless it was closed."""
    if file._file:
        h5py.h5f.flush(file._file.id)


class Written:
    """A file open for writing, each write of which is a point; the rest of a file is as it was."""

    def __init__(self, file: IO[Any], fault: Fault) -> None:
        self._file = file

        def part(data: Any) -> None:  # str or bytes
            file.write(data[: len(data) // 2])
            file.flush()

        self.write = fault.point("file.write", file.write, part, lambda _: file.flush())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:  # anything
        return getattr(self._file, name)


def build(asked: dict[str, Any]) -> dict[str, Any]:
    """Build in this process; how it ended, unless it dies."""
    fault = Fault(asked.get("fault"))
    fault.watch(asked["output"])
    if not asked.get("links", True):
        os.link = no_link
    command.CUT_BYTES = asked.get("cut_bytes") or command.CUT_BYTES
    command.PART_BYTES = asked.get("part_bytes") or command.PART_BYTES
    arm(fault)
    answer: dict[str, Any] = {"ended": "done", "points": fault.reached, "missed": fault.missed}
    try:
        run = headrace.split if asked.get("split") else headrace.build
        report = run(asked["inputs"], asked["output"], workers=1, **asked["options"])
    except headrace.HeadraceError as error:
        return {**answer, "ended": type(error).__name__, "message": str(error)}
    return {**answer, "report": asdict(report)}


def in_a_child(asked: dict[str, Any]) -> dict[str, Any]:
    """Build in a child; `ended` is `killed` if it died as it was told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = build(asked)
        except BaseException:  # noqa: BLE001  # whoever asked is to see it, and this process must not go on
            told = {"ended": traceback.format_exc()}
        with open(writing, "w", encoding="utf-8") as answer:  # noqa: PTH123  # a descriptor
            json.dump(told, answer)
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:  # noqa: PTH123  # a descriptor
        told = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"ended": "killed"} if code == -signal.SIGKILL else json.loads(told)


def main() -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "warm" in asked:  # so that no child imports anything
            headrace.build(asked["inputs"], asked["output"], workers=1, **asked["options"])
            headrace.split  # noqa: B018  # it loads at its first use
            shutil.rmtree(asked["output"])
            answer = {}
        elif "lance" in asked:
            import lance.file  # noqa: F401

            warnings.filterwarnings("ignore", "lance is not fork-safe")
            answer = {}
        else:
            answer = in_a_child(asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
