"""Settings of all tests, and how they run the command."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[1]


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
    """Keep what Headrace derives of foreign corpora out of the user's cache folder, in child processes too."""
    cache = tempfile.TemporaryDirectory(prefix="headrace-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name


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
