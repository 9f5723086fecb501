"""Worker processes: killed, orphaned, interrupted, or unable to load what they are sent."""

import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import headrace
from headrace.building.engine import Engine, Listener, PoolEngine, SerialEngine
from headrace.building.job import ContentOptions, ShardJob
from headrace.building.limits import default_workers
from headrace.errors import BuildError, HeadraceError, TokenizerError
from headrace.events import Notice
from headrace.sources import discover
from headrace.tokenizers.bytes import Tokenizer

comparable = runpy.run_path(str(Path(__file__).with_name("corpus_files.py")))["comparable"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """Two sources of some MB."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).write_bytes((b'{"text": "' + b"x" * 990 + b'"}\n') * 5000)
    return folder


@pytest.fixture(params=["hdf5", pytest.param("lance", marks=pytest.mark.extended)])
def store(request) -> str:
    """Of the corpora that are built."""
    if request.param == "lance":
        pytest.importorskip("lance")
    return request.param


@pytest.fixture
def start(sources, halted, until, children, tmp_path, store):
    """Start a build in a process group of its own, whose workers have written a shard each, and wait to publish it."""
    started = []
    arguments = ["build", sources, "-o", tmp_path / "c", "--workers", "2", "--store", store]

    def begin() -> tuple["subprocess.Popen[bytes]", list[int]]:
        build = subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=halted("0*.[hl]*").environment,
        )
        started.append(build)
        until(lambda: len(partials(tmp_path / "c")) == 2 or build.poll() is not None)
        assert build.poll() is None, build.stderr.read()
        return build, children(build.pid)

    yield begin
    for build in started:
        build.kill()
        build.communicate()


def partials(output: Path) -> list[str]:
    """Names of the shards that are being written."""
    try:
        found = [*output.glob(".0*.partial"), *output.glob(".headrace/writing/.0*/docs.lance/data/0*.lance")]
    except FileNotFoundError:  # a folder in which it would have looked has just gone
        return []
    return [path.relative_to(output).parts[2 * (path.suffix == ".lance")] for path in found]


def test_a_killed_worker(start, until, children, running, tmp_path):
    """A worker that is killed is replaced, the other goes on; the second death of one source is exit code 1, and says so.

    Nothing is left of the shard that the first one wrote, nor of the build.
    """
    build, workers = start()
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: len(names := partials(tmp_path / "c")) == 2 and not any(f".{workers[0]}." in name for name in names))
    second = [process for process in children(build.pid) if process not in workers]
    assert len(second) == 1
    assert running(workers[1])
    os.kill(second[0], signal.SIGKILL)
    out, err = build.communicate()
    assert build.returncode == 1
    assert b"a worker died twice (signal 9: Killed) while it read " in err
    assert b".jsonl" in err
    assert b"Traceback" not in err
    assert out == b""
    assert not (tmp_path / "c").exists()
    assert not any(map(running, workers))


@pytest.mark.parametrize("which", ["the parent", "all"])
def test_a_killed_build(start, sources, store, until, running, tmp_path, which):
    """Workers end with their parent, however it went; no corpus opens, and the same command gives the same bytes."""
    build, workers = start()
    build.kill()
    for worker in workers if which == "all" else ():
        os.kill(worker, signal.SIGKILL)
    until(lambda: not any(map(running, workers)))
    _, err = build.communicate()
    assert b"Traceback" not in err
    with pytest.raises(FileNotFoundError):
        headrace.open(tmp_path / "c")
    headrace.build(sources, tmp_path / "c", workers=1, store=store)
    headrace.build(sources, tmp_path / "again", workers=2, store=store)
    files, wanted = (comparable(tmp_path / name) for name in ("c", "again"))
    journal = ".headrace/journal.jsonl"  # in the order in which they ended
    assert {**files, journal: ""} == {**wanted, journal: ""}


def ignores(process: int, what: signal.Signals) -> bool:
    """Whether a signal means nothing to a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.split("SigIgn:")[1].split()[0], 16) >> what - 1 & 1)


def test_ctrl_c(start, running, tmp_path):
    """Ctrl-C, which reaches the workers as well, ends with exit code 130, one line, and nothing left."""
    build, workers = start()
    assert all(ignores(worker, signal.SIGINT) for worker in workers)  # none decides by itself, or tells of it
    os.killpg(build.pid, signal.SIGINT)
    for worker in workers:
        with suppress(ProcessLookupError):  # it is gone already
            os.kill(worker, signal.SIGINT)
    out, err = build.communicate()
    assert build.returncode == 130
    assert err.decode().splitlines()[-1] == "headrace: interrupted"
    assert b"Traceback" not in err
    assert out == b""
    assert not (tmp_path / "c").exists()
    assert not any(map(running, workers))


def test_two_builds_at_once(start, sources, run_process, running, tmp_path):
    """The second of two builds into one folder fails at once and says why; the first goes on."""
    build, workers = start()
    second = run_process("build", sources, "-o", tmp_path / "c")
    assert second.code == 1
    assert "another build is at work there" in second.err
    assert build.poll() is None
    assert all(map(running, workers))


class Unpicklable(Tokenizer):
    """Holds what cannot be sent to another process."""

    def __init__(self) -> None:
        self.function = lambda: None


class Unknown(Tokenizer):
    """Is unpickled by a name that only this process knows."""

    def __reduce__(self) -> tuple[type, tuple]:
        return Unknown, ()


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Unpicklable(), "Unpicklable cannot be sent to worker processes"),
        (Unknown(), "a worker process cannot load the tokenizer: ModuleNotFoundError"),
    ],
)
def test_a_tokenizer_that_workers_cannot_have(sources, tmp_path, capfd, tokenizer, message):
    """It is an error that says why and what to do, without a traceback of any process; alone it builds."""
    Unknown.__module__ = "no_such_module"
    sys.modules["no_such_module"] = sys.modules[__name__]
    try:
        with pytest.raises(TokenizerError, match=f"{message}.*workers=1"):
            headrace.build(sources, tmp_path / "c", tokenizer=tokenizer, workers=2)
    finally:
        del sys.modules["no_such_module"]
    assert not (tmp_path / "c").exists()
    assert capfd.readouterr().err == ""
    headrace.build(sources / "a.jsonl", tmp_path / "c", tokenizer=tokenizer, workers=1)


def test_an_unexpected_error_of_a_worker(sources, tmp_path, monkeypatch):
    """An error that is no library's own reaches the caller as what it is, with the worker's traceback as a note."""
    (tmp_path / "broken_tokenizer.py").write_text(
        "from headrace import Tokenizer\n"
        "class Broken(Tokenizer):\n"
        "    def encode_documents(self, texts):\n"
        "        raise ZeroDivisionError('in the tokenizer')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)  # as for a module beside the caller's script
    import broken_tokenizer

    with pytest.raises(ZeroDivisionError, match="in the tokenizer") as caught:
        headrace.build(sources, tmp_path / "c", tokenizer=broken_tokenizer.Broken(), workers=2)
    assert "encode_documents" in caught.value.__notes__[0]
    assert not (tmp_path / "c").exists()


def test_an_interpreter_that_does_not_start(sources, tmp_path, monkeypatch):
    """Workers that end before they read anything are a build error, not a broken pipe; so is one that is not there."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BuildError, match=r"a worker died twice \(exit code 1\) before it read [ab]\.jsonl"):
        headrace.build(sources, tmp_path / "c", workers=2)
    monkeypatch.setattr(sys, "executable", "/bin/no-such-file")
    with pytest.raises(BuildError, match=r"no worker process can be started: No such file .* fewer --workers"):
        headrace.build(sources, tmp_path / "c", workers=2)
    assert not (tmp_path / "c").exists()


def test_no_descriptors_are_left(sources, descriptors, tmp_path):
    """A build, also one that fails, closes all pipes and locks that it opened."""
    headrace.build(sources, tmp_path / "first", workers=2)
    before = descriptors()
    headrace.build(sources, tmp_path / "c", workers=2)
    with pytest.raises(BuildError):
        headrace.build(sources, tmp_path / "c", workers=2, keep_empty=True)
    with pytest.raises(TokenizerError):
        PoolEngine(Unpicklable(), 2)
    assert descriptors() <= before


def test_no_more_workers_than_sources(sources, tmp_path):
    """A build starts no process that would have nothing to do, and none for one source."""
    told = []
    headrace.build(sources, tmp_path / "two", workers=64, on_event=told.append)
    headrace.build(sources / "a.jsonl", tmp_path / "one", workers=64, on_event=told.append)
    assert [event.workers for event in told if type(event).__name__ == "BuildStarted"] == [2, 1]


@pytest.mark.parametrize("engine", [SerialEngine(Tokenizer()), PoolEngine(Tokenizer(), 2)])
def test_shards_that_are_begun_are_told(sources, tmp_path, engine: Engine):
    """Each shard of each source is told of once, in order, before its outcome, with where it then grows."""
    found = discover([str(sources)])
    options = ContentOptions(boundary_token_id=0, shard_tokens=2_000_000)
    jobs = [ShardJob(shard=shard, source=shard.index, options=options, output=tmp_path) for shard in found.shards]
    told: dict[int, list[object]] = {0: [], 1: []}
    done: dict[int, list[str]] = {}
    engine.run(
        jobs,
        Listener(
            outcome=lambda outcome: done.update({outcome.index: [entry.path for entry in outcome.entries]}),
            opened=lambda shard: (
                told[shard.index].append(shard) if shard.index not in done else pytest.fail("told too late")
            ),
        ),
    )
    for index, paths in done.items():
        assert [shard.roll for shard in told[index]] == [0, 1, 2]
        assert paths == [f"{index:06d}-0000-{roll:04d}.h5" for roll in range(3)]
        assert all(shard.path.startswith(f".{path}.") for path, shard in zip(paths, told[index], strict=True))


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 1000),
        ({"job/cpu.max": "350000 100000"}, 3),
        ({"job/cpu.max": "max 100000", "job/memory.max": "max"}, 1000),
        ({"job/cpu.max": "50000 100000"}, 1),
        ({"job/memory.max": "5999999999"}, 5),
        ({"job/memory.max": "1000"}, 1),
        ({"cpu.max": "200000 100000", "job/cpu.max": "700000 100000"}, 2),
        ({"cpu/job/cpu.cfs_quota_us": "400000", "cpu/job/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, 1000),
        ({"memory/job/memory.limit_in_bytes": "9223372036854771712"}, 1000),
        ({"memory/memory.limit_in_bytes": "7000000000"}, 7),
        ({"job/cpu.max": "nonsense\n"}, 1000),
    ],
)
def test_default_workers(tmp_path, monkeypatch, files, wanted):
    """The least of affinity, CPU quota and memory / 1 GB, of this cgroup and all above it, versions 1 and 2; never 0."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1000))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    membership = tmp_path / "self"
    membership.write_text("9:name=systemd:/job\n4:memory:/job\n1:cpu:/job\n0::/job\n")
    assert default_workers(tmp_path, membership) == wanted
    assert default_workers(tmp_path, tmp_path / "absent") == 1000


def test_default_workers_here():
    """On this machine: at least one, and no more than the CPUs this process may use."""
    assert 1 <= default_workers() <= len(os.sched_getaffinity(0))


def test_a_failure_ends_all_workers_first(halted, children, monkeypatch, tmp_path):
    """When a build that failed clears up what is half done, no worker is left that could write more of it."""
    halt = halted("000000-*.h5")
    for name, value in halt.variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "in").mkdir()
    for name, lines in (("a", 3000), ("b", 300), ("c", 3)):  # the largest is begun first, and waits to be published
        (tmp_path / "in" / f"{name}.jsonl").write_text('{"text": "x"}\n' * lines + "no JSON\n" * (name == "c"))
    alive = []

    def look(event):
        if isinstance(event, Notice) and event.kind == "kept":
            found = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children(os.getpid())]
            alive.append([line for line in found if b"headrace.building.worker" in line])

    with pytest.raises(HeadraceError, match=r"c\.jsonl:4|1 bad document"):
        headrace.build(tmp_path / "in", tmp_path / "c", workers=2, on_event=look)
    assert alive == [[]]
    assert sorted(path.name for path in (tmp_path / "c").glob("*.h5*")) == ["000001-0000-0000.h5"]
