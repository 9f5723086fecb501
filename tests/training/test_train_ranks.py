"""Processes that share a run: the same global batches, and the losses of one process."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from headrace.training.log import read_log
from headrace.training.loop import train
from headrace.training.options import write_options

pytestmark = pytest.mark.extended
torch.set_num_threads(1)
COMMAND = ("-m", "headrace", "train")
SCRIPT = """
import os
import sys
from pathlib import Path

from headrace.errors import TrainingError
from headrace.training.loop import train
from headrace.training.options import read_options

error = None
try:
    train(read_options(Path(sys.argv[1])), sys.argv[2])
except TrainingError as caught:
    error = caught
names = [Path(task.path, "comm").read_text() for task in os.scandir("/proc/self/task")]
sys.exit(f"{error}; of gloo: {sum('gloo' in name for name in names)}")
"""
"""Says what was refused, and how many threads of the process group were left, on stderr."""
SIGNALLED = """
import os
import sys
from pathlib import Path

from headrace.training.log import StepRecord
from headrace.training.loop import train
from headrace.training.options import read_options

def look(event):
    if isinstance(event, StepRecord) and event.step == 7:
        os.kill(os.getpid(), int(sys.argv[3]))

train(read_options(Path(sys.argv[1])), sys.argv[2], on_event=look)
"""
"""Rank 0 sends itself a signal behind its eighth step."""
ENVIRONMENT = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def run_group(free_port):
    """Run the command in some processes, as torchrun starts them; returns each one's exit code and stderr."""

    def call(size, *arguments, program=COMMAND) -> list[tuple[int, str]]:
        group = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", *program, *map(str, arguments)],
                env={**ENVIRONMENT, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            told = [process.communicate(timeout=500)[1] for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [(process.returncode, text) for process, text in zip(processes, told, strict=True)]

    return call


@pytest.fixture
def options(make_options):
    """Of a run in which ranks have different numbers of targets."""
    return make_options(
        steps=12, checkpoint_every=5, dropout=0.0, accumulate=2, boundary_loss="both", documents_apart=True
    )


def asked(options, folder):
    """Write the options to a run file; returns arguments that name it."""
    folder.mkdir()
    write_options(options, folder)
    (folder / "config.json").write_text(options.config_file.read_text())
    return "--run", folder / "run.toml"


def figures(rows, run) -> list[list[float]]:
    """Losses and norms of the gradients."""
    return [[float(row[name]) for row in rows(run)] for name in ("loss", "grad_l2_pre_clip", "grad_l2_post_clip")]


def assert_close(found, wanted) -> None:
    """Whether figures differ by rounding alone."""
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_processes_takes_the_same_steps(options, tmp_path, rows, run_group, size):
    """Losses and norms are those of one process, within rounding, where masks leave the ranks different numbers of targets."""
    train(options, tmp_path / "one")
    ended = run_group(size, *asked(options, tmp_path / "options"), "-o", tmp_path / "many")
    assert [code for code, _ in ended] == [0] * size, ended
    assert_close(figures(rows, tmp_path / "many"), figures(rows, tmp_path / "one"))
    assert len(rows(tmp_path / "many")) == 12
    assert [path.name for path in sorted((tmp_path / "many/checkpoints").iterdir())] == [
        "step-00000005",
        "step-00000010",
        "step-00000012",
    ]


def test_a_run_goes_on_with_other_processes(options, tmp_path, rows, run_group):
    """What two processes began, one goes on with, and four end."""
    train(options, tmp_path / "one")
    words = asked(options, tmp_path / "options")
    run_group(2, *words, "-o", tmp_path / "many", "--steps", 5, "--schedule-steps", 12)
    run_group(1, "-o", tmp_path / "many", "--resume", "--steps", 9)
    ended = run_group(4, "-o", tmp_path / "many", "--resume", "--steps", 12, "--accumulate", 1)
    assert [code for code, _ in ended] == [0] * 4, ended
    assert_close(figures(rows, tmp_path / "many"), figures(rows, tmp_path / "one"))
    assert [line["step"] for line in read_log(tmp_path / "many") if line["event"] == "resumed"] == [5, 9]


def test_torchrun(options, tmp_path, rows):
    """Torchrun starts the command as it is."""
    train(options, tmp_path / "one")
    words = ["--run-file", asked(options, tmp_path / "options")[1], "-o", tmp_path / "many"]
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "headrace",
            "train",
            *map(str, words),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("checkpoint  ") == 1  # one of them reports
    assert_close(figures(rows, tmp_path / "many"), figures(rows, tmp_path / "one"))


def test_what_one_process_refuses_ends_all(options, tmp_path, run_group):
    """A folder that holds a run: one process says so, and none is left waiting."""
    train(options, tmp_path / "one")
    ended = run_group(2, *asked(options, tmp_path / "options"), "-o", tmp_path / "one")
    assert [code for code, _ in ended] == [1, 1]
    assert "holds a run: give --resume" in ended[0][1]
    assert "rank 1 ends, for rank 0 was stopped by a TrainingError" in ended[1][1]


def test_one_process_dies(options, tmp_path, run_group):
    """Where one is killed at its work, the others end, and say in words that it was another one."""
    run_file = asked(options, tmp_path / "options")[1]
    ended = run_group(4, run_file, tmp_path / "run", int(signal.SIGKILL), program=("-c", SIGNALLED))
    assert [code for code, _ in ended] == [-signal.SIGKILL, 1, 1, 1]
    for rank, (_, text) in enumerate(ended[1:], 1):
        assert f"TrainingError: rank {rank} ends, for another process of the run has ended or does not answer" in text


def test_one_process_is_told_to_stop(options, tmp_path, run_group):
    """The step is ended and kept, and the signal does in every process what it would have done: none ends as if it was done."""
    run_file = asked(options, tmp_path / "options")[1]
    ended = run_group(2, run_file, tmp_path / "run", int(signal.SIGTERM), program=("-c", SIGNALLED))
    assert [code for code, _ in ended] == [-signal.SIGTERM] * 2, ended
    assert (tmp_path / "run/checkpoints/step-00000008").is_dir()


def test_no_thread_of_the_group_is_left(options, tmp_path, run_group):
    """One that is there when the interpreter ends may abort it: after a run, and after one that was refused."""
    run_file = asked(options, tmp_path / "options")[1]
    for said in (["None", "None"], ["holds a run", "rank 1 ends"]):
        ended = run_group(2, run_file, tmp_path / "run", program=("-c", SCRIPT))
        for (_, text), error in zip(ended, said, strict=True):
            assert error in text
            assert text.endswith("; of gloo: 0\n"), text
