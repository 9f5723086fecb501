"""headrace.torch: data-parallel ranks, in real groups of processes."""

import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest

import headrace
from headrace.errors import PlanError
from headrace.torch import data_parallel

PROGRAM = """
import pickle, sys
from pathlib import Path
import torch
from torch.distributed.device_mesh import init_device_mesh
import headrace
from headrace.torch import BatchStream, StepDataLoader, data_parallel

folder, rendezvous, out, rank, size, shape, names, dims, workers = sys.argv[1:]
corpus = headrace.open(folder)
corpus.get_slice(0, 1000)  # maps are open when workers are forked
torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(size))
mesh = None
if names:
    mesh = init_device_mesh("cpu", tuple(map(int, shape.split(","))), mesh_dim_names=tuple(names.split(",")))
ranks = data_parallel(mesh, tuple(dims.split(",")) if dims else None)
plan = headrace.Plan(order="blocks", token_count=len(corpus), window=16, batch_size=8, corpus=str(corpus.fingerprint))
loader = headrace.Loader(corpus, plan, **ranks._asdict())
options = {"num_workers": int(workers), "multiprocessing_context": "fork"} if int(workers) else {}
batches = StepDataLoader(BatchStream(loader, steps=6), **options)
found = []
for batch in batches:
    total = batch["input_ids"].sum()
    torch.distributed.all_reduce(total)
    found.append((batch["input_ids"].numpy().copy(), int(total)))
Path(out).write_bytes(pickle.dumps((tuple(ranks), found)))
torch.distributed.destroy_process_group()
"""


def run_group(folder, tmp_path, size, shape=(), names=(), dims=(), workers=0):
    """Run the program in `size` processes; returns what each one found."""
    processes = []
    for rank in range(size):
        words = [folder, tmp_path / "rendezvous", tmp_path / str(rank), rank, size]
        words += [",".join(map(str, part)) for part in (shape, names, dims)] + [workers]
        processes.append(
            subprocess.Popen([sys.executable, "-P", "-c", PROGRAM, *map(str, words)], stderr=subprocess.PIPE, text=True)
        )
    try:
        ended = [(process.communicate(timeout=500)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [code for _, code in ended] == [0] * size, ended
    return [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(size)]  # noqa: S301  # our own


@pytest.mark.parametrize(
    ("size", "shape", "names", "dims", "workers", "expected"),
    [
        (2, (), (), (), 0, [(0, 2), (1, 2)]),
        pytest.param(2, (2, 1), ("tp", "dp"), (), 2, [(0, 1), (0, 1)], marks=pytest.mark.extended),
        pytest.param(4, (), (), (), 2, [(0, 4), (1, 4), (2, 4), (3, 4)], marks=pytest.mark.extended),
        pytest.param(4, (2, 2), ("dp", "tp"), (), 0, [(0, 2), (0, 2), (1, 2), (1, 2)], marks=pytest.mark.extended),
        pytest.param(4, (2, 2), ("pp", "dp"), (), 2, [(0, 2), (1, 2), (0, 2), (1, 2)], marks=pytest.mark.extended),
        pytest.param(
            4, (2, 2), ("dp_replicate", "dp_shard"), (), 0, [(0, 4), (1, 4), (2, 4), (3, 4)], marks=pytest.mark.extended
        ),
        pytest.param(
            4, (2, 2), ("left", "right"), ("right",), 0, [(0, 2), (1, 2), (0, 2), (1, 2)], marks=pytest.mark.extended
        ),
    ],
)
def test_groups_of_processes(folder, tmp_path, size, shape, names, dims, workers, expected):
    """Parts in data-parallel order are the whole batch, model-parallel replicas are equal, all serve equally many batches."""
    results = run_group(folder, tmp_path, size, shape, names, dims, workers)
    assert [ranks for ranks, _ in results] == expected
    corpus = headrace.open(folder)
    plan = headrace.Plan(order="blocks", token_count=len(corpus), window=16, batch_size=8)
    whole = headrace.Loader(corpus, plan)
    world_size = expected[0][1]
    for step in range(6):
        for (rank, _), found in results:
            assert len(found) == 6
            part = np.split(whole.batch(step).input_ids, world_size)[rank]
            np.testing.assert_array_equal(found[step][0], part)
            assert found[step][1] == whole.batch(step).input_ids.sum() * size // world_size


def test_numbers_win():
    """Explicit numbers are taken whatever else is there; one of them alone is refused, and a rank outside of the world."""
    assert data_parallel(rank=2, world_size=3) == (2, 3)
    for options in ({"rank": 1}, {"world_size": 2}, {"rank": 3, "world_size": 3}):
        with pytest.raises(PlanError, match="rank"):
            data_parallel(**options)
    with pytest.raises(PlanError, match=r"dims: \('dp',\) are of a mesh, and none was given"):
        data_parallel(None, ["dp"])


def test_without_a_group_there_is_one_part(monkeypatch):
    """A process on its own serves everything; one of several that has no group yet is refused, not taken for rank 0."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert data_parallel() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PlanError, match="init_process_group"):
        data_parallel()


@pytest.fixture
def group(tmp_path):
    """A group of one process."""
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_bare_rank_is_logged_and_dims_are_checked(caplog):
    """Without a mesh the rank among all processes is taken, and said; a mesh without such a dimension is refused by name."""
    from torch.distributed.device_mesh import init_device_mesh

    with caplog.at_level(logging.INFO, logger="headrace"):
        assert data_parallel() == (0, 1)
    assert "part 0 of 1" in caplog.text
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("tp", "pp"))
    assert data_parallel(mesh, ()) == (0, 1)
    with pytest.raises(PlanError, match="tp, pp, none of the usual names"):
        data_parallel(mesh)
    with pytest.raises(PlanError, match="no dimension dp"):
        data_parallel(mesh, ("dp",))
