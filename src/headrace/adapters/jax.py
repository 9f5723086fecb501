"""Global batches as arrays of JAX, each process giving the rows of its own devices."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.adapters.part import DataParallel, require_loader
from headrace.errors import PlanError, TokenIdError
from headrace.loading import Batch, Loader
from headrace.sampling.checks import checked_int

try:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
except ModuleNotFoundError as error:
    from headrace.errors import MissingExtraError

    raise MissingExtraError("JAX is not installed: pip install 'headrace[jax]'") from error

__all__ = ["DataParallel", "JaxBatches", "as_arrays", "data_parallel"]

_NAMES = ("input_ids", "targets", "labels", "loss_mask", "document_ids", "position_ids")


def data_parallel(mesh: Mesh, axes: str | tuple[str, ...] = "data") -> DataParallel:
    """Say which rows of every batch the devices of this process need, where rows are split along some axes of a mesh.

    Processes that differ along the other axes alone get the same rows.

    Args:
        mesh: of all devices of the job.
        axes: along which the rows are split.

    Raises:
        PlanError: the mesh has no such axis, or the rows of a process' devices are no part of equal size: arrange the mesh
            so that each process has devices side by side along them.
    """
    names = _names_of(mesh, axes)
    unknown = [name for name in names if name not in mesh.shape]
    if unknown or not names:
        raise PlanError(f"axes: the mesh has the axes {', '.join(mesh.shape)}, found {axes!r}")
    parts = int(np.prod([mesh.shape[name] for name in names]))
    sharding = NamedSharding(mesh, PartitionSpec(names))
    here = sharding.addressable_devices_indices_map((parts,))
    rows = sorted({row for slices in here.values() if slices for row in range(parts)[slices[0]]})
    if not rows:
        raise PlanError("mesh: this process has no device in it")
    rank, rest = divmod(rows[0], len(rows))
    if rest or parts % len(rows) or rows != list(range(rows[0], rows[0] + len(rows))):
        raise PlanError(
            f"mesh: of {parts} parts along {', '.join(names)} the devices of this process need {rows}, which is no part of equal "
            "size: arrange the devices so that those of a process lie side by side along them"
        )
    return DataParallel(rank, parts // len(rows))


def as_arrays(batch: Batch, mesh: Mesh, axes: str | tuple[str, ...] = "data") -> dict[str, jax.Array]:
    """Return the global batch of which `batch` is this process' part, split along axes of a mesh by rows.

    Args:
        batch: of the rank that `data_parallel` says.
        mesh: of all devices of the job.
        axes: along which the rows are split.

    Returns:
        `input_ids`, `targets` or `labels`, `loss_mask`, `document_ids`, `position_ids`, where the batch has them; integers
        as int32, or as int64 where JAX has 64 bits enabled.

    Raises:
        TokenIdError: an id or number is too large for int32.
        PlanError: the devices do not divide the rows.
    """
    integer = jax.dtypes.canonicalize_dtype(np.int64)  # int32, unless 64 bits are enabled
    sharding = NamedSharding(mesh, PartitionSpec(_names_of(mesh, axes)))
    parts = data_parallel(mesh, axes).world_size
    rows, devices = parts * len(batch.input_ids), int(np.prod([mesh.shape[name] for name in _names_of(mesh, axes)]))
    if rows % devices:
        raise PlanError(
            f"batch: wanted rows for each of {devices} devices along {', '.join(_names_of(mesh, axes))}, found {rows}: make the plan's "
            "batch size, divided by the parts of a step, a multiple of them"
        )
    made: dict[str, jax.Array] = {}
    for name in _NAMES:
        values: Any = getattr(batch, name)
        if values is None:
            continue
        if name == "labels":
            made[name] = made["input_ids"]
            continue
        if values.dtype != np.bool_:
            if values.size and values.max() > np.iinfo(integer).max:
                raise TokenIdError(f"{name}: {values.max()} does not fit int32: set jax_enable_x64")
            values = values.astype(integer)
        shape = (parts * values.shape[0], *values.shape[1:])
        made[name] = jax.make_array_from_process_local_data(sharding, np.ascontiguousarray(values), shape)
    return made


def _names_of(mesh: object, axes: object) -> tuple[str, ...]:
    """Return the axes' names."""
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh: wanted a jax.sharding.Mesh, found {type(mesh).__name__}")
    names: Any = (axes,) if isinstance(axes, str) else axes
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"axes: wanted a name of an axis of the mesh, or several, found {axes!r}")
    return tuple(names)


class JaxBatches:
    """Iterates over a loader's steps as global arrays.

    Iteration goes on from `loader.step` and moves it before a batch is handed out, so `loader.state_dict()` says what was
    taken. The loader is that of this process' rank: `Loader(corpus, plan, **data_parallel(mesh)._asdict())`.

    Args:
        loader: makes this process' rows.
        mesh: of all devices of the job.
        axes: along which the rows are split.
        of: parts of a step that are batches of their own; `loader.step` counts steps of which all were handed out.

    Raises:
        PlanError: the loader serves other rows than the devices of this process need.
    """

    def __init__(self, loader: Loader, mesh: Mesh, axes: str | tuple[str, ...] = "data", *, of: int = 1) -> None:
        loader = require_loader(loader)
        ranks = data_parallel(mesh, axes)
        if (loader.rank, loader.world_size) != ranks:
            raise PlanError(
                f"loader: serves part {loader.rank} of {loader.world_size}, the devices of this process need part {ranks.rank} of "
                f"{ranks.world_size}: Loader(corpus, plan, **data_parallel(mesh)._asdict())"
            )
        self.loader = loader
        self.mesh = mesh
        self.axes = axes
        self.of = checked_int("of", of, least=1)

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        if self.loader.step == self.loader.plan.step_limit:
            self.loader.step = 0
        while self.loader.step < self.loader.plan.step_limit:
            step = self.loader.step
            for micro in range(self.of):
                arrays = as_arrays(self.loader.batch(step, micro=micro, of=self.of), self.mesh, self.axes)
                if micro == self.of - 1:
                    self.loader.step = step + 1
                yield arrays
                if self.loader.step != step + (micro == self.of - 1):  # set by whoever iterates
                    break
