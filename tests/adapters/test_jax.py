"""JAX: global arrays over eight devices of one process, and over two processes."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import warnings; warnings.simplefilter("error")
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec
import headrace
from headrace.adapters.jax import JaxBatches, as_arrays, data_parallel
from headrace.errors import PlanError

corpus = headrace.open(sys.argv[1])
for targets in ("next", "inside"):
    plan = headrace.Plan(order="blocks", token_count=len(corpus), window=16, batch_size=16, targets=targets)
    options = {"document_ids": True, "position_ids": True, "boundary_loss": "both"}
    for shape, names, axes in (((8,), ("data",), "data"), ((4, 2), ("data", "model"), "data"), ((2, 2, 2), ("a", "m", "b"), ("a", "b"))):
        mesh = Mesh(np.array(jax.devices()).reshape(shape), names)
        assert data_parallel(mesh, axes) == (0, 1)
        loader = headrace.Loader(corpus, plan, **options, dtype=corpus.dtype if targets == "inside" else np.int64)
        loader.step = 5
        seen = 0
        for arrays in JaxBatches(loader, mesh, axes, of=2):
            batch = loader.batch(5 + seen // 2, micro=seen % 2, of=2)
            seen += 1
            for name in ("input_ids", "targets", "labels", "loss_mask", "document_ids", "position_ids"):
                wanted = getattr(batch, name)
                assert (name in arrays) == (wanted is not None), name
                if wanted is not None:
                    array = arrays[name]
                    assert array.shape == wanted.shape and array.dtype in (np.int32, np.bool_)
                    np.testing.assert_array_equal(np.asarray(array), wanted)
                    parts = shape[0] * (shape[2] if len(shape) == 3 else 1)
                    assert {shard.data.shape for shard in array.addressable_shards} == {(8 // parts, 16)}
            assert loader.step == 5 + seen // 2
            if seen == 5:
                break
    loss = jax.jit(lambda ids: ids.sum())(arrays["input_ids"])
    assert int(loss) == batch.input_ids.sum()
for axes in ("nothing", ()):
    try:
        data_parallel(mesh, axes)
    except PlanError as error:
        assert "the mesh has the axes a, m, b" in str(error)
    else:
        raise AssertionError(axes)
try:
    JaxBatches(headrace.Loader(corpus, plan, rank=1, world_size=2), mesh, ("a", "b"))
except PlanError as error:
    assert "part 1 of 2" in str(error)
else:
    raise AssertionError
eight = Mesh(np.array(jax.devices()), ("data",))
odd = headrace.Loader(corpus, headrace.Plan(order="blocks", token_count=len(corpus), window=16, batch_size=12))
for wrong, wanted, call in (
    (TypeError, "wanted a jax.sharding.Mesh, found NoneType", lambda: data_parallel(None)),
    (TypeError, "axes: wanted a name", lambda: data_parallel(eight, None)),
    (TypeError, "wanted a headrace.Loader, found NoneType", lambda: JaxBatches(None, eight)),
    (PlanError, "rows for each of 8 devices along data, found 12", lambda: next(iter(JaxBatches(odd, eight)))),
    (PlanError, "found 1", lambda: next(iter(JaxBatches(loader, eight, of=16)))),
):
    try:
        call()
    except wrong as error:
        assert wanted in str(error), error
    else:
        raise AssertionError(wanted)
"""

RANKED = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
from jax.sharding import Mesh
folder, port, rank = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
import headrace
from headrace.adapters.jax import JaxBatches, data_parallel
from headrace.errors import PlanError

corpus = headrace.open(folder)
plan = headrace.Plan(order="blocks", token_count=len(corpus), window=16, batch_size=16)
devices = np.array(jax.devices())
assert devices.size == 8
whole = headrace.Loader(corpus, plan)
rank = int(rank)
# Rows split over all; over the processes; over the devices of each, the processes being replicas; across, which no part is.
for shape, axis, expected in (((8, 1), 0, (rank, 2)), ((2, 4), 0, (rank, 2)), ((2, 4), 1, (0, 1))):
    mesh = Mesh(devices.reshape(shape), ("data", "model") if axis == 0 else ("model", "data"))
    ranks = data_parallel(mesh)
    assert ranks == expected, (shape, ranks)
    batches = iter(JaxBatches(headrace.Loader(corpus, plan, **ranks._asdict()), mesh))
    for step in range(3):
        arrays = next(batches)
        wanted = whole.batch(step).input_ids
        assert arrays["input_ids"].shape == wanted.shape
        for shard in arrays["input_ids"].addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), wanted[shard.index])
crossed = Mesh(devices.reshape(2, 4).T.reshape(8), ("data",))
try:
    data_parallel(crossed)
except PlanError as error:
    assert "side by side" in str(error)
else:
    raise AssertionError
"""


def run(*commands) -> None:
    """Run programs side by side; all must end well."""
    processes = [
        subprocess.Popen([sys.executable, "-P", "-c", *map(str, words)], stderr=subprocess.PIPE, text=True)
        for words in commands
    ]
    try:
        ended = [(process.communicate(timeout=500)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [code for _, code in ended] == [0] * len(ended), ended


def test_eight_devices(folder):
    """Each array is the loader's batch, split by rows over the data axes and repeated over the others; others are refused."""
    run((PROGRAM, folder))


@pytest.mark.extended
def test_two_processes_of_four_devices(folder, free_port):
    """Each process makes the rows of its own devices; replicas across processes make the same; a mesh that mixes is refused."""
    port = free_port()
    run(*((RANKED, folder, port, rank) for rank in range(2)))
