"""Which part of every batch a process serves: its rank among those that share the data, not among all."""

import logging
import os
from collections.abc import Sequence

import torch.distributed
from torch.distributed.device_mesh import DeviceMesh

from headrace.adapters.part import DataParallel
from headrace.errors import PlanError
from headrace.sampling.checks import checked_int

__all__ = ["DATA_DIMS", "DataParallel", "data_parallel"]

DATA_DIMS = ("data", "dp", "ddp", "fsdp", "hsdp", "dp_replicate", "dp_shard", "replicate", "shard")
"""Names of mesh dimensions along which processes get different rows, unless the caller says which do."""

_log = logging.getLogger(__name__)


def data_parallel(
    mesh: DeviceMesh | None = None,
    dims: Sequence[str] | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
) -> DataParallel:
    """Say which part of every batch this process serves.

    Args:
        mesh: of the whole job. Processes that differ in the data dimensions alone get different rows; those that differ in
            the others (tensor, pipeline, context parallel) get the same.
        dims: names of the data dimensions; by default those of the mesh that are in `DATA_DIMS`. Empty: all processes get
            the same rows.
        rank: taken where it is given, with the world size, whatever else is.
        world_size: likewise.

    Returns:
        Without a mesh and without numbers, the rank among all processes of the default group, which is logged, since it is
        wrong where models are split over processes; without a group, part 0 of 1.

    Raises:
        PlanError: only one of the two is given, or dimensions without a mesh; the mesh has no such dimension or does not hold this process, or
            `WORLD_SIZE` says that there are more processes and no group is there yet.
    """
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            raise PlanError(f"rank and world_size: wanted both or neither, found {rank} and {world_size}")
        world_size = checked_int("world_size", world_size, least=1)
        return DataParallel(checked_int("rank", rank, least=0, below=world_size), world_size)
    if mesh is None and dims is not None:
        raise PlanError(f"dims: {tuple(dims)} are of a mesh, and none was given; without a mesh, leave them out")
    return _of_group() if mesh is None else _of_mesh(mesh, dims)


def _of_mesh(mesh: DeviceMesh, dims: Sequence[str] | None) -> DataParallel:
    names = mesh.mesh_dim_names or ()
    wanted = [name for name in names if name in DATA_DIMS] if dims is None else list(dims)
    unknown = [name for name in wanted if name not in names]
    if unknown or (dims is None and not wanted):
        what = f"no dimension {', '.join(unknown)}" if unknown else "none of the usual names"
        raise PlanError(
            f"dims: the mesh has the dimensions {', '.join(names) or 'without names'}, {what}: say along which of them "
            "processes get different rows, as dims=('dp',); dims=() where all get the same"
        )
    here = mesh.get_coordinate()
    if here is None:
        raise PlanError("mesh: this process is not in it")
    found, size = 0, 1
    for name, place, count in zip(names, here, mesh.shape, strict=True):
        if name in wanted:
            found, size = found * count + place, size * count
    return DataParallel(found, size)


def _of_group() -> DataParallel:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        found = DataParallel(torch.distributed.get_rank(), torch.distributed.get_world_size())
        _log.info(
            "no mesh was given: this process serves part %d of %d of every batch, its rank among all processes",
            found.rank,
            found.world_size,
        )
        return found
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced != "1":
        raise PlanError(
            f"WORLD_SIZE is {announced}, but there is no process group yet, so all processes would get the same rows: call "
            "torch.distributed.init_process_group() first, or give rank and world_size"
        )
    return DataParallel(0, 1)
