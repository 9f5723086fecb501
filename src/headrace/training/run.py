"""The training loop: batches in, steps, evaluations and checkpoints out."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headrace import __version__
from headrace.adapters.torch import PinnedBatches
from headrace.errors import TrainingError
from headrace.events import Notice
from headrace.reading import Corpus
from headrace.training.checkpoint import Checkpoint, save
from headrace.training.evaluate import Perplexity, perplexity
from headrace.training.log import RunLog, SkipAlarm, StepRecord, read_log
from headrace.training.loss import IGNORED
from headrace.training.model import fields_of, seed_torch
from headrace.training.options import RunOptions
from headrace.training.prepare import Prepared
from headrace.training.ranks import Ranks
from headrace.training.report import CheckpointSaved, EpochEnded, Evaluated, RunReport, RunStarted, Watcher
from headrace.training.signals import Stop

__all__ = ["Run", "evaluate"]

STEPS = 1
"""What is seeded: the steps; see `model.WEIGHTS`."""
LOOKED_BACK = 1100
"""Steps on which the alarm depends: its window, and for how long it waits."""


def evaluate(
    options: RunOptions,
    model: Any,  # noqa: ANN401  # any model of transformers
    held_out: Corpus,
    ranks: Ranks,
    *,
    limit: int | None = None,
    before_batch: Callable[[], object] | None = None,
) -> Perplexity:
    """Take the perplexity of a model as its run asks for it; of `limit` batches, or of all."""
    return perplexity(
        model,
        held_out,
        options.window,
        batch=options.batch // ranks.world_size // options.accumulate,
        stride=options.stride,
        device=ranks.device,
        precision=options.precision,
        limit=limit,
        documents_apart=options.documents_apart,
        boundary_loss=options.boundary_loss,
        before_batch=before_batch,
    )


@dataclass(slots=True)
class EpochLosses:
    """Of the steps of an epoch that were taken and not skipped."""

    total: float = 0.0
    steps: int = 0


class _Stopped(Exception):  # noqa: N818  # no error: an evaluation that is left to --resume
    pass


class Run:
    """A run under way, all of it made; `loop.train` makes it."""

    def __init__(
        self,
        *,
        options: RunOptions,
        output: Path,
        made: Prepared,
        ranks: Ranks,
        held_out: Corpus | None,
        watch: Watcher,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._options = options
        self._output = output
        self._made = made
        self._ranks = ranks
        self._held_out = held_out
        self._watch = watch
        self._log: RunLog | None = None
        self._epoch = EpochLosses() if checkpoint is None else EpochLosses(**checkpoint.state["epoch"])
        self._alarm = SkipAlarm()
        self._alarmed = False
        self._skips: list[int] = [] if checkpoint is None else checkpoint.state["skips"]
        for step in range(max(0, made.loader.step - LOOKED_BACK), made.loader.step):
            self._alarmed = self._alarm.add(step in self._skips)
        self._last: StepRecord | None = None
        self._perplexity: float | None = None
        self._tokens = self._skipped = 0
        self._waited = 0.0
        self._saved = "" if checkpoint is None else str(checkpoint.path)

    def go(self, stop: Stop) -> RunReport:
        """Take the steps that are left, or those until it is to stop."""
        made, loader = self._made, self._made.loader
        first, began = loader.step, time.perf_counter()
        with ExitStack() as stack:
            if self._ranks.rank == 0:
                self._log = stack.enter_context(RunLog(self._output, first))
            self._start(first)
            batches = iter(PinnedBatches(loader, self._ranks.device, of=self._options.accumulate, ignore_index=IGNORED))
            stopping = self._is_due(first) and self._evaluate(first, stop)
            while loader.step < made.steps and not stopping:
                self._take(batches)
                stopping = self._after(loader.step, stop)
        return RunReport(
            output=str(self._output),
            step=loader.step,
            loss=None if self._last is None else self._last.loss,
            perplexity=self._perplexity,
            tokens=self._tokens,
            skipped=self._skipped,
            seconds=time.perf_counter() - began,
            data_wait_s=self._waited,
            checkpoint=self._saved,
            rank=self._ranks.rank,
        )

    def _told_to(self, stop: Stop) -> bool:
        """Return whether the run is to stop: what one process was told, all were."""
        if told := self._ranks.most(stop.received or 0):
            stop.received = told
        return bool(told)

    def _start(self, step: int) -> None:
        made, plan = self._made, self._made.loader.plan
        if self._log is not None and step:
            self._log.event("resumed", step)
        self._watch(
            RunStarted(
                output=str(self._output),
                step=step,
                steps=made.steps,
                schedule_steps=made.schedule.steps,
                parameters=sum(weight.numel() for weight in made.model.parameters()),
                device=str(self._ranks.device),
                processes=self._ranks.world_size,
                step_tokens=self._options.batch * plan.window,
                epoch_steps=None if plan.order == "random" else plan.windows / self._options.batch,
            )
        )

    def _take(self, batches: Iterator[dict[str, Tensor]]) -> None:
        """Take one step."""
        options, made = self._options, self._made
        step = made.loader.step
        asked = time.perf_counter()
        parts = list(islice(batches, options.accumulate))
        targets = self._targets(parts)
        waited = time.perf_counter() - asked
        # All that dropout draws is a function of seed, step and rank: nothing is remembered, as for batches.
        seed_torch(options.seed, STEPS, step, self._ranks.rank)
        lr = made.schedule.lr(step)
        outcome = made.step(parts, lr, targets)
        tokens = options.batch * options.window
        record = StepRecord(step=step, lr=lr, **asdict(outcome), tokens=tokens, data_wait_s=waited)
        self._last = record
        self._tokens += tokens
        self._waited += waited
        if outcome.skipped:
            self._skipped += 1
        else:
            self._epoch.total += outcome.loss
            self._epoch.steps += 1
        if self._log is not None:
            self._log.write(record)
        self._watch(record)

    def _targets(self, parts: Sequence[dict[str, Tensor]]) -> int:
        """Count the targets of the whole step that count."""
        if not self._made.masked:
            return self._options.batch * self._options.window
        counts = torch.stack([(part["targets"] != IGNORED).sum() for part in parts])
        return int(self._ranks.total(counts.sum()))

    def _after(self, step: int, stop: Stop) -> bool:
        """Do what is due once `step` steps were taken; returns whether the run is to stop."""
        self._look_at_skips(step)
        if epoch := self._ended(step):
            self._end_epoch(step, epoch)
        stopping = self._evaluate(step, stop) if self._evaluated_at(step) else self._told_to(stop)
        if stopping or step == self._made.steps or step % self._options.checkpoint_every == 0:
            self._save(step)
        return stopping

    def _ended(self, step: int) -> int:
        """Return the number of passes over the corpus, where the last of so many steps ended one; else 0."""
        plan = self._made.loader.plan
        if plan.order == "random":
            return 0
        before, epochs = (plan.first_sample(number) // plan.windows for number in (step - 1, step))
        return epochs if epochs > before else 0

    def _evaluated_at(self, step: int) -> bool:
        """Return whether an evaluation comes after so many steps."""
        every = self._options.evaluate_every
        due = self._ended(step) or step == self._made.steps or (every and step % every == 0)
        return self._held_out is not None and bool(due)

    def _is_due(self, step: int) -> bool:
        """Return whether the evaluation after so many steps is still to come, for the run was stopped before its end."""
        if not step or not self._evaluated_at(step):
            return False
        done = self._log is None or any(
            line["event"] == "evaluated" and line["step"] == step for line in read_log(self._output)
        )
        return bool(self._ranks.most(not done))

    def _look_at_skips(self, step: int) -> None:
        skipped = self._last is not None and self._last.skipped
        self._skips = [other for other in self._skips if other >= step - LOOKED_BACK] + [step - 1] * skipped
        too_many = self._alarm.add(skipped)
        if too_many and not self._alarmed:
            text = f"by step {step}, more than 5 % of the last 1,000 steps have been skipped for 100 steps"
            if self._log is not None:
                self._log.event("skip-alarm", step)
            self._watch(Notice(kind="warning", message=text))
            if self._options.stop_on_skips:
                raise TrainingError(
                    f"{text}: the run stops. Losses or gradients are not finite; {self._output}/log.csv says which: begin again with "
                    "a lower lr, more warmup or precision bf16"
                )
        self._alarmed = too_many

    def _end_epoch(self, step: int, epoch: int) -> None:
        losses, self._epoch = self._epoch, EpochLosses()
        mean = losses.total / losses.steps if losses.steps else math.nan
        value = Perplexity(mean, losses.steps).value
        self._tell("epoch", EpochEnded(step=step, epoch=epoch, train_perplexity=value))

    def _evaluate(self, step: int, stop: Stop) -> bool:
        """Evaluate, unless the run is to stop, or is told to meanwhile; returns whether it is."""
        assert self._held_out is not None  # noqa: S101

        def look() -> None:
            if self._told_to(stop):
                raise _Stopped

        try:
            # Every rank reads all of it, in as many batches.
            found = evaluate(self._options, self._made.model, self._held_out, self._ranks, before_batch=look)
        except _Stopped:
            return True
        self._perplexity = found.value
        self._tell(
            "evaluated",
            Evaluated(step=step, perplexity=found.value, mean_loss=found.mean_loss, targets=found.targets),
        )
        return self._told_to(stop)

    def _save(self, step: int) -> None:
        if self._log is None:
            return
        began = time.perf_counter()
        self._log.sync()
        made = self._made
        state = {
            "loader": made.loader.state_dict(),
            "model": fields_of(made.model.config),
            "schedule_steps": made.schedule.steps,
            "epoch": asdict(self._epoch),
            "skips": self._skips,
            "headrace": __version__,
            "torch": torch.__version__,
        }
        path = save(self._output, step, made.model, made.step.state_dict(), state, keep=self._options.keep)
        self._saved = str(path)
        self._watch(CheckpointSaved(step=step, path=str(path), seconds=time.perf_counter() - began))

    def _tell(self, kind: str, event: EpochEnded | Evaluated) -> None:
        if self._log is not None:
            self._log.event(kind, **asdict(event))
        self._watch(event)
