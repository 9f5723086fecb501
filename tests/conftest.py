"""Settings of all tests, and how they run the command."""

import contextlib
import ctypes
import gc
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[1]
PATIENCE = 240
"""Seconds within which what must happen does, however busy the machine is. Only what never happens takes so long."""
HALTING = Path(__file__).with_name("halting")
"""Holds a `sitecustomize.py`; see `halted`."""


# Timing is not what the property tests are about, and these machines are shared. In CI a red run must be red again.
settings.register_profile(
    "headrace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("headrace")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what Headrace derives of foreign corpora out of the user's cache folder, in child processes too.

    Nor do the user's settings count.
    """
    cache = tempfile.TemporaryDirectory(prefix="headrace-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name
    for name in ("COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        os.environ.pop(name, None)  # what decides how a terminal is written to


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """With HEADRACE_ALL_EXTRAS set, a test that is skipped because something is not installed fails."""
    if os.environ.get("HEADRACE_ALL_EXTRAS") and call.excinfo is not None:
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception) and "could not import" in str(error):
            raise AssertionError(f"{item.nodeid}: an extra is missing: {error}")


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def data() -> Path:
    """The stored test data; do not write into it."""
    return DATA


@pytest.fixture
def headrace(monkeypatch) -> Iterator[Callable[..., Ran]]:
    """Run the command in this process, as its entry point does; returns exit code, stdout and stderr."""
    from headrace.cli.main import run

    handler = signal.getsignal(signal.SIGINT)

    def call(*arguments: object) -> Ran:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            run()
        written = []
        for stream in (out, err):
            stream.flush()
            written.append(stream.buffer.getvalue().decode())
        return Ran(ended.value.code or 0, *written)

    yield call
    signal.signal(signal.SIGINT, handler)


def command(*arguments: object) -> list[str]:
    """The command as a process, whatever is installed."""
    return [sys.executable, "-P", "-m", "headrace", *map(str, arguments)]


@pytest.fixture
def run_process() -> Callable[..., Ran]:
    """Run the command as a process of its own; keywords go to `subprocess.run`."""

    def call(*arguments: object, env: dict[str, str] | None = None, **options) -> Ran:
        done = subprocess.run(
            command(*arguments), capture_output=True, check=False, env={**os.environ, **(env or {})}, **options
        )
        return Ran(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())

    return call


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], object]:
    """Wait until a function gives something true; returns that."""

    def wait(condition: Callable[[], object]) -> object:
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.01)
        return found

    return wait


@dataclass(frozen=True)
class Halted:
    """Programs that wait before they give a file its name."""

    variables: dict[str, str]
    """What their environment has besides."""
    go: Path
    """They go on, and wait no more, once this is there."""

    @property
    def environment(self) -> dict[str, str]:
        """Of such a program."""
        return {**os.environ, **self.variables}


@pytest.fixture
def halted(tmp_path_factory) -> Callable[[str], Halted]:
    """Have Python programs wait before they give a file a name of that pattern, so that no test depends on their speed."""

    def halt(pattern: str) -> Halted:
        go = tmp_path_factory.mktemp("halted") / "go"
        path = os.pathsep.join(filter(None, (str(HALTING), os.environ.get("PYTHONPATH"))))
        return Halted({"PYTHONPATH": path, "HALT_BEFORE": pattern, "HALT_UNTIL": str(go)}, go)

    return halt


@pytest.fixture(scope="session")
def children() -> Callable[[int], list[int]]:
    """Processes that a process has started and that still run."""

    def of(process: int) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                state, parent = _state(entry)
            except (OSError, IndexError):
                continue
            if int(parent) == process and state != "Z":
                found.append(int(entry.name))
        return found

    return of


@pytest.fixture(scope="session")
def running() -> Callable[[int], bool]:
    """Whether a process is there and no zombie."""

    def is_running(process: int) -> bool:
        try:
            return _state(Path(f"/proc/{process}"))[0] != "Z"
        except OSError:
            return False

    return is_running


def _state(process: Path) -> list[str]:
    """State, and parent, of a folder of /proc."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()[:2]


OVER_MODES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: root's rights to pass over the modes of files."""


@pytest.fixture(scope="session")
def bound_by_modes() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A context in which modes of files count for this thread, also for root."""
    libc = ctypes.CDLL(None, use_errno=True)

    @contextlib.contextmanager
    def bound() -> Iterator[None]:
        header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # the third version; this thread
        assert libc.capget(header, held) == 0
        fewer = (ctypes.c_uint32 * 6)(*held)
        fewer[0] &= ~sum(1 << capability for capability in OVER_MODES)  # effective ones
        assert libc.capset(header, fewer) == 0
        try:
            yield
        finally:
            assert libc.capset(header, held) == 0

    return bound


@pytest.fixture(scope="session")
def bind_by_modes() -> Callable[[], None]:
    """The same for a program that is started, for good: a `preexec_fn`."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def bind() -> None:
        for capability in OVER_MODES if os.geteuid() == 0 else ():
            if prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "a capability cannot be given up")

    return bind


@pytest.fixture(scope="session")
def descriptors() -> Callable[[], set[tuple[str, str]]]:
    """The open descriptors of this process, each with what it is of; but for garbage that is not collected yet."""

    def opened() -> set[tuple[str, str]]:
        gc.collect()
        found = set()
        for number in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the listing is gone
                found.add((number.name, str(number.readlink())))
        return found

    return opened


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nobody listens at, and that the system gives nobody who asks for any."""

    def find() -> int:
        stop = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        while True:
            port = random.SystemRandom().randrange(stop // 2, stop)
            with socket.socket() as free:
                try:
                    free.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port

    return find
