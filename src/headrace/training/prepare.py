"""What a run needs, made out of its options: plan, loader, model, optimizer, schedule; from scratch or a checkpoint."""

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from headrace.errors import TrainingError
from headrace.loading import Loader
from headrace.reading import Corpus
from headrace.sampling import Plan
from headrace.training.checkpoint import Checkpoint
from headrace.training.model import check_apart, check_causal, configure, fields_of, make_model, stored
from headrace.training.options import CONFIG_NAME, RunOptions
from headrace.training.ranks import Ranks
from headrace.training.resume import go_on
from headrace.training.schedule import WarmupCosine
from headrace.training.step import TrainStep, adamw

__all__ = ["Prepared", "prepare", "steps_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All of it."""

    loader: Loader
    """At the step from which the run goes on."""
    steps: int
    """Of the whole run."""
    schedule: WarmupCosine
    model: Any
    """Of transformers: for evaluations and checkpoints."""
    step: TrainStep
    """Trains the same weights."""
    masked: bool
    """Whether some targets may not count."""


def prepare(
    options: RunOptions, corpus: Corpus, ranks: Ranks, output: Path, *, resume: bool, checkpoint: Checkpoint | None
) -> Prepared:
    """Make all of it, or go on from a checkpoint; nothing is written.

    Raises:
        TrainingError: the options do not fit the corpus, the machine or, when resuming, the run that is there.
        PlanError, NoDocumentsError, TokenIdError: they do not fit the corpus.
    """
    state = None if checkpoint is None else checkpoint.state
    plan = _plan(options, corpus)
    loader = _loader(options, corpus, plan, ranks)
    local = not options.allow_download
    config = None
    if checkpoint is None or options.pretrained is None:
        config = configure(
            corpus,
            window=options.window,
            config=options.config,
            pretrained=options.pretrained,
            local=local,
            dropout=options.dropout,
        )
    steps = steps_of(options, plan.windows)
    if resume:
        begun = fields_of(stored("config", str(output / CONFIG_NAME))) if state is None else state["model"]
        go_on(output, options, loader, model=None if config is None else fields_of(config), begun=begun, state=state)
    if loader.step > steps:
        raise TrainingError(f"{output}: wanted at least the {loader.step:,} steps that were taken, found {steps:,}")
    length = options.schedule_steps or (steps if state is None else state["schedule_steps"])
    schedule = WarmupCosine.of(options.lr, options.warmup, length, options.floor)
    if checkpoint is None:
        model = make_model(config, seed=options.seed, pretrained=options.pretrained, local=local)
        check_causal(model)
        if options.documents_apart:
            check_apart(model)
    else:
        model = checkpoint.model()
    model.to(ranks.device)
    if options.compile:
        model.compile()
    inner: Any = model
    if ranks.world_size > 1:
        inner = DistributedDataParallel(model, device_ids=[ranks.device] if ranks.device.type == "cuda" else None)
    step = TrainStep(
        inner,
        adamw(model, weight_decay=options.weight_decay),
        ranks,
        precision=options.precision,
        max_norm=options.clip,
    )
    if checkpoint is not None:
        step.load_state_dict(checkpoint.optimizer())
    masked = options.boundary_loss != "keep" or options.order == "documents" or corpus.has_loss_mask
    return Prepared(loader=loader, steps=steps, schedule=schedule, model=model, step=step, masked=masked)


def steps_of(options: RunOptions, windows: int) -> int:
    """Return the steps of a run on so many windows, the last one whole."""
    # As the decimal number says: 1.1 epochs of 10 steps are 11, though 1.1 * 10 is more than that in floats.
    return options.steps or math.ceil(Fraction(str(options.epochs or 1)) * windows / options.batch)


def _plan(options: RunOptions, corpus: Corpus) -> Plan:
    return Plan(
        order=options.order,
        token_count=len(corpus),
        window=options.window,
        batch_size=options.batch,
        seed=options.seed,
        documents=len(corpus.documents) if options.order == "documents" else None,
        corpus=str(corpus.fingerprint),
    )


def _loader(options: RunOptions, corpus: Corpus, plan: Plan, ranks: Ranks) -> Loader:
    parts = ranks.world_size * options.accumulate
    if options.batch % parts:
        raise TrainingError(
            f"batch: wanted a multiple of {parts}, the {ranks.world_size} processes x {options.accumulate} parts of accumulate, "
            f"found {options.batch}: take {max(1, round(options.batch / parts)) * parts}"
        )
    return Loader(
        corpus,
        plan,
        rank=ranks.rank,
        world_size=ranks.world_size,
        dtype=corpus.dtype,
        document_ids=options.documents_apart,
        position_ids=options.documents_apart,
        boundary_loss=options.boundary_loss,
    )
