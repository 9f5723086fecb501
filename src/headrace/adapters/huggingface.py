"""The `Trainer` of transformers, fed by a loader: `class MyTrainer(HeadraceTrainerMixin, Trainer)`."""

import inspect
import json
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

try:
    import torch
    from torch.utils.data import DataLoader
    from transformers import TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
except ModuleNotFoundError as error:
    from headrace.errors import MissingExtraError

    raise MissingExtraError(f"{error.name} is not installed: pip install 'headrace[transformers]'") from error

from headrace.adapters.torch.ranks import DataParallel, data_parallel
from headrace.adapters.torch.stream import BatchStream
from headrace.adapters.torch.tensors import WholeBatch
from headrace.adapters.vocabulary import check_vocabulary
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.storage.atomic import write_bytes

__all__ = ["STATE_NAME", "HeadraceTrainerMixin"]

STATE_NAME = "headrace_state.json"
"""The loader's state, in the folder of each checkpoint."""
IGNORED = -100
"""Label of a prediction that does not count, for the models of transformers."""

_log = logging.getLogger(__name__)


class HeadraceTrainerMixin:
    """Lets a `Trainer` train on a plan: `train_dataset` is a `headrace.Loader` with `targets="inside"`.

    A step of the plan is an optimizer step: its batch is `per_device_train_batch_size` x `gradient_accumulation_steps` x the
    data-parallel processes. Each process gets its part of it, in the parts that are accumulated; nothing is sharded or
    skipped by accelerate. A run that resumes from the checkpoint of step n gets the batches from step n on at once, also
    with other numbers of processes and accumulated parts. The loader's state lies beside each checkpoint (`STATE_NAME`), and
    another corpus or plan is refused.

    What of the plan may differ from a checkpoint's is said by the class, as after `plan.skip`: `headrace_allow = ("skipped",)`;
    see `allow` of `Loader.load_state_dict`.

    `max_steps` must be set: a plan has no epochs of the Trainer's kind. `state.epoch` is corrected to the passes over the
    windows (for random windows: to the share of `max_steps`). Predictions that do not count have the label -100.
    """

    args: Any
    state: Any
    model: Any
    accelerator: Any
    train_dataset: Any
    headrace_allow: Collection[str] = ()
    """Names of fields that may differ from the state beside a checkpoint."""
    _checkpoint: str | None = None

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, FBT001  # as there
        """Train as `Trainer.train` does, and compare the state beside a checkpoint with this run's.

        Raises:
            PlanError: the checkpoint is of another corpus or plan, or what lies beside it is damaged.
        """
        found = resume_from_checkpoint
        if found is True:
            found = get_last_checkpoint(self.args.output_dir)
        self._checkpoint = found or None
        return super().train(resume_from_checkpoint, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # Trainer's

    def get_train_dataloader(self) -> DataLoader[WholeBatch]:
        """Return this process' batches, from the step on at which the Trainer is when it begins to iterate.

        Raises:
            PlanError: the plan does not fit the arguments.
            TokenIdError: the model does not know all ids of the corpus.
        """
        given = self.train_dataset
        if not isinstance(given, Loader):
            raise PlanError(f"train_dataset: wanted a headrace.Loader, found {type(given).__name__}")
        loader = self._own(given)
        self._check(loader)
        # What was taken is known from the step. Skipping would make all batches before it, to drop them.
        self.args.ignore_data_skip = True
        stream = BatchStream(loader, of=self.args.gradient_accumulation_steps, ignore_index=IGNORED)
        callback = _Beside(stream)
        for old in [found for found in self.callback_handler.callbacks if isinstance(found, _Beside)]:  # pyright: ignore[reportAttributeAccessIssue]  # Trainer's
            self.remove_callback(old)  # pyright: ignore[reportAttributeAccessIssue]  # Trainer's
        self.add_callback(callback)  # pyright: ignore[reportAttributeAccessIssue]  # Trainer's
        workers = self.args.dataloader_num_workers
        return _FromTheTrainersStep(
            self,
            stream,
            num_workers=workers,
            prefetch_factor=self.args.dataloader_prefetch_factor if workers else None,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            persistent_workers=self.args.dataloader_persistent_workers and workers > 0,
            collate_fn=self._wanted_columns(),
        )

    def _own(self, loader: Loader) -> Loader:
        """Return the loader of this process' part."""
        ranks = self._ranks()
        if loader.world_size != 1 and (loader.rank, loader.world_size) != ranks:
            raise PlanError(
                f"train_dataset: the loader serves part {loader.rank} of {loader.world_size}, this process is data-parallel "
                f"rank {ranks.rank} of {ranks.world_size}: leave rank and world_size out, they are set here"
            )
        return loader.on_rank(*ranks)

    def _ranks(self) -> DataParallel:
        mesh = getattr(self.accelerator, "torch_device_mesh", None)
        if mesh is not None:
            names = mesh.mesh_dim_names or ()
            return data_parallel(mesh, [name for name in names if name in {"dp_replicate", "dp_shard"}])
        return DataParallel(self.args.process_index, self.args.world_size)

    def _check(self, loader: Loader) -> None:
        plan, args = loader.plan, self.args
        if plan.targets != "inside":
            raise PlanError(
                "targets: the models of transformers shift labels themselves: make the plan with targets='inside'"
            )
        if not 0 < args.max_steps <= plan.step_limit:
            raise PlanError(f"max_steps: wanted 1 to {plan.step_limit}, the steps of the plan, found {args.max_steps}")
        size = args.train_batch_size * args.gradient_accumulation_steps * loader.world_size
        if isinstance(plan.batch_size, int) and plan.batch_size != size:
            raise PlanError(
                f"batch_size: the plan's is {plan.batch_size}, the arguments make {size}: {args.train_batch_size} rows a process "
                f"(per_device_train_batch_size) x {args.gradient_accumulation_steps} gradient_accumulation_steps x "
                f"{loader.world_size} data-parallel processes"
            )
        check_vocabulary(self.model, loader.corpus)  # pyright: ignore[reportArgumentType]  # any corpus; it says if not
        path = Path(self._checkpoint or "") / STATE_NAME
        if self._checkpoint and path.exists():
            loader.load_state_dict(_read_state(path), allow=self.headrace_allow)
        elif self._checkpoint:
            _log.info("%s: no such file; going on from the Trainer's own step", path)
        self._check_schedule(loader)

    def _check_schedule(self, loader: Loader) -> None:
        """Refuse, before anything is trained, a later batch size that cannot be cut into what is accumulated."""
        plan, step, parts = loader.plan, loader.step, loader.world_size * self.args.gradient_accumulation_steps
        while step < self.args.max_steps:
            size = plan.batch_size_at(step)
            if size % parts:
                raise PlanError(
                    f"batch_size: from step {step} on the plan has {size} rows, which {loader.world_size} data-parallel processes x "
                    f"{self.args.gradient_accumulation_steps} gradient_accumulation_steps do not divide"
                )
            step = plan.steps_alike(step).stop

    def _wanted_columns(self) -> "_Columns":
        known = inspect.signature(self.model.forward).parameters
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()):
            return _Columns({"input_ids", "labels", "position_ids"})
        return _Columns({"input_ids", "labels", "position_ids", "document_ids"} & known.keys())


def _read_state(path: Path) -> Any:  # noqa: ANN401  # whatever is there; the loader checks it
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise PlanError(
            f"{path}: wanted what state_dict() returned, as JSON; {error}. Take another checkpoint, or remove the file: the run "
            "then goes on from the Trainer's own step, and nothing says whether it is of this plan"
        ) from error


class _Columns:
    """What the model takes of a batch."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __call__(self, batch: WholeBatch) -> WholeBatch:
        return WholeBatch({name: tensor for name, tensor in batch.items() if name in self._names})


class _FromTheTrainersStep(DataLoader[WholeBatch]):
    """Begins at the step at which the Trainer is."""

    def __init__(self, trainer: HeadraceTrainerMixin, stream: BatchStream, **options: Any) -> None:  # noqa: ANN401  # torch's
        # A generator of its own: else each iterator takes a number from torch's, and dropout would not be as it was.
        super().__init__(stream, batch_size=None, generator=torch.Generator(), **options)
        self._trainer = trainer
        self._stream = stream
        self._stated = stream.step

    def __iter__(self) -> Iterator[WholeBatch]:  # pyright: ignore[reportIncompatibleMethodOverride]  # torch's is private
        step = self._trainer.state.global_step
        if self._stated not in {0, step}:
            raise PlanError(f"the loader, or {STATE_NAME}, is at step {self._stated}, the Trainer at step {step}")
        self._stream.set_step(step)
        return super().__iter__()


class _Beside(TrainerCallback):
    """Saves the loader's state with each checkpoint, and says how far in epochs the run is."""

    def __init__(self, stream: BatchStream) -> None:
        self._loader = stream.loader

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002  # transformers' form
        """Correct the epoch: the Trainer counts from where it resumed."""
        plan, step = self._loader.plan, state.global_step
        state.epoch = step / args.max_steps if plan.order == "random" else plan.first_sample(step) / plan.windows

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002  # transformers' form
        """Write the state of the process that saves."""
        if not args.should_save:
            return
        self._loader.step = state.global_step
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        write_bytes(folder / STATE_NAME, json.dumps(self._loader.state_dict(), indent=1).encode())
