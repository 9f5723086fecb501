"""A run from its options to its report; `run` has the loop itself."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from headrace.adapters.vocabulary import check_vocabulary
from headrace.corpus import open_corpus
from headrace.errors import TrainingError
from headrace.reading import Corpus
from headrace.storage.atomic import naming_file
from headrace.training.checkpoint import newest
from headrace.training.leak import check_no_leak
from headrace.training.options import CONFIG_NAME, RunOptions, write_options
from headrace.training.plot import plot_schedule
from headrace.training.prepare import Prepared, prepare
from headrace.training.ranks import Ranks, process_group
from headrace.training.report import RunReport, Watcher
from headrace.training.resume import SCHEDULE_NAME, check_folder, locked
from headrace.training.run import Run, evaluate
from headrace.training.signals import Stop
from headrace.training.trust import check, version_of

__all__ = ["train"]


def train(
    options: RunOptions,
    output: str | Path,
    *,
    resume: bool = False,
    skip_damaged: bool = False,
    on_event: Watcher | None = None,
) -> RunReport:
    """Train a model on a corpus.

    All is checked before anything is written, and `run.toml` and the schedule's plot are written before the first step.
    On Ctrl-C and SIGTERM the step is ended and a checkpoint written; then the signal does what it would have done. An
    evaluation that is due or at work then is left to `resume`. Under torchrun, every process calls this; rank 0 writes.

    Args:
        options: what to do.
        output: folder of the run.
        resume: go on from its last checkpoint, or from the beginning if it was killed before it had one. The losses are
            those of a run that was never ended: bit for bit on a CPU with as many threads, processes and parts.
        skip_damaged: if the last checkpoint is damaged, go on from the last whole one.
        on_event: receives what happens (see `report`), in rank 0.

    Raises:
        TrainingError: the run is impossible as asked, or another one than in its folder; all that differs is named.
        CorruptShardError, ManifestError: the corpus, or the one held out, is damaged, or not the one that is expected.
        PlanError, NoDocumentsError, TokenIdError, MissingShardError, FormatError: options and corpus do not fit, or there
            is none.
    """
    with _memory_in_words(), process_group(options.device) as ranks:
        watch: Watcher = on_event if on_event is not None and ranks.rank == 0 else _ignore
        return _train(options, Path(output), ranks, watch, resume=resume, skip_damaged=skip_damaged)


def _train(
    options: RunOptions, output: Path, ranks: Ranks, watch: Watcher, *, resume: bool, skip_damaged: bool
) -> RunReport:
    """Train in a group of processes, of which nothing is referred to afterwards."""
    with ExitStack() as stack:
        ranks.first(lambda: check_folder(output, resume=resume))
        if resume:
            ranks.first(lambda: stack.enter_context(locked(output)))
        held_out = None
        if options.evaluate is not None:  # opened first: that it is not there is found before a long verification
            held_out = stack.enter_context(open_corpus(options.evaluate, vocab_size=options.vocab_size))
        # Every process reads what rank 0 has found there, also where it is appended to at this moment.
        version = ranks.first(lambda: version_of(options.corpus, options.expect))
        corpus = stack.enter_context(open_corpus(options.corpus, vocab_size=options.vocab_size, version=version))
        checkpoint = ranks.first(lambda: newest(output, skip_damaged=skip_damaged)) if resume else None
        # What is impossible as asked is found before a long verification, too.
        made = prepare(options, corpus, ranks, output, resume=resume, checkpoint=checkpoint)
        if held_out is not None:
            check_vocabulary(made.model, held_out)
        ranks.first(lambda: check(options.corpus, options.verify, expect=options.expect, on_event=watch))
        if held_out is not None:  # what cannot be evaluated is to be known now, not after an epoch
            ranks.first(lambda: check(str(options.evaluate), options.verify, on_event=watch))
            ranks.first(lambda: check_no_leak(corpus, held_out, on_event=watch))
            evaluate(options, made.model, held_out, ranks, limit=1)
        if not resume:
            ranks.first(lambda: stack.enter_context(locked(output)))
            ranks.first(lambda: check_folder(output, resume=False))  # another process may have been faster
        ranks.first(lambda: _write_folder(options, output, corpus, made, resume=resume))
        run = Run(
            options=options,
            output=output,
            made=made,
            ranks=ranks,
            held_out=held_out,
            watch=watch,
            checkpoint=checkpoint,
        )
        with Stop() as stop:
            report = run.go(stop)
        watch(report)
        stop.deliver()
        return report


@contextmanager
def _memory_in_words() -> Generator[None]:
    """Say what to do where torch finds no room, on the device or in memory."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        told = str(error).partition("\n")[0]
        raise TrainingError(
            f"not enough memory: take more parts (accumulate), a smaller batch or window, or a smaller model. Torch says: {told}"
        ) from error


def _ignore(event: object, /) -> None:
    """Subscribe to nothing."""


def _write_folder(options: RunOptions, output: Path, corpus: Corpus, made: Prepared, *, resume: bool) -> None:
    """Write down what decides the run, and how its learning rate goes."""
    length = made.schedule.steps
    if not resume:
        with naming_file(output / CONFIG_NAME):
            made.model.config.to_json_file(output / CONFIG_NAME)
    plot_schedule(made.schedule, output / SCHEDULE_NAME)
    write_options(
        replace(options, expect=str(corpus.fingerprint), schedule_steps=None if length == made.steps else length),
        output,
    )
