"""`headrace train`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.cli.paths import given_path
from headrace.cli.terminal import JsonLines, settings
from headrace.errors import MissingExtraError

__all__ = ["train"]

Order = Literal["blocks", "random", "documents"]
BoundaryLoss = Literal["keep", "target", "after", "both"]
Precision = Literal["fp32", "bf16", "fp16"]
VerifyMode = Literal["auto", "full", "quick", "off"]
_EXTRA = {"torch", "transformers", "safetensors", "tqdm", "matplotlib", "tomli_w"}
"""Modules of the extra `train`."""


def train(
    corpus: Annotated[
        str | None, typer.Argument(metavar="[CORPUS]", help="A corpus; may be left out where a run file names it.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="RUN", parser=given_path, help="The run's folder, to be made."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            "--run-file",  # torchrun's own parser refuses --run, wherever it stands, as short for two of its options
            metavar="FILE",
            parser=given_path,
            help="A run file (TOML), such as RUN/run.toml; flags win. Under torchrun say --run-file.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in RUN, from its last checkpoint.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="With --resume: from the last checkpoint that is whole.")
    ] = False,
    vocab_size: Annotated[
        int | None, typer.Option(metavar="N", help="Highest id + 1, where the corpus, made by others, does not say it.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="gpt2|tiny|FILE",
            help="Random weights: GPT-2 (124M, the default), a small one, or a config.json of transformers.",
        ),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(metavar="NAME|FOLDER", help="Trained weights: a folder, or what the hub's cache has here."),
    ] = None,
    allow_download: Annotated[
        bool | None, typer.Option("--allow-download", help="Let --pretrained fetch from the hub.")
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Dropout; by default 0 for gpt2 and tiny, else what the model's configuration says."
        ),
    ] = None,
    window: Annotated[int | None, typer.Option(metavar="T", help="Input tokens of a row; 1024 by default.")] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="ROWS", help="Rows of a step, over all processes and parts; 8 by default.")
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(
            metavar="PARTS", help="Micro-batches in which each process computes its rows of a step; 1 by default."
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(metavar="X", help="Passes over the corpus; 1 by default.")] = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Optimizer steps, in place of --epochs.")] = None,
    order: Annotated[
        Order | None, typer.Option(help="Order of the windows, as for headrace.Plan; blocks by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="SEED", help="Seed of order, weights and dropout; 0 by default.")
    ] = None,
    boundary_loss: Annotated[
        BoundaryLoss | None, typer.Option(help="Which predictions at borders of documents count; keep: all.")
    ] = None,
    documents_apart: Annotated[
        bool | None, typer.Option("--documents-apart", help="A token sees those of its own document only.")
    ] = None,
    lr: Annotated[float | None, typer.Option(metavar="RATE", help="Highest learning rate; 3e-4 by default.")] = None,
    warmup: Annotated[
        str | None, typer.Option(metavar="N|FRACTION", help="Steps (100) or a share of them (0.01, the default).")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(metavar="RATE", help="Learning rate at the end; a tenth of --lr by default.")
    ] = None,
    schedule_steps: Annotated[
        int | None, typer.Option(metavar="N", help="Where the floor is reached; by default at the run's end.")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(metavar="X", help="Weight decay of matrices; 0.1 by default.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(metavar="NORM", help="Largest global L2 norm of the gradients; 1.0 by default.")
    ] = None,
    precision: Annotated[Precision | None, typer.Option(help="Precision of the forward pass; fp32 by default.")] = None,
    evaluate: Annotated[
        str | None, typer.Option(metavar="CORPUS", help="Perplexity on this corpus, after each epoch and at the end.")
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(metavar="N", help="Evaluate every N steps, too.")] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", help="Stride of the evaluation's windows; they overlap if it is below --window."
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(metavar="N", help="Write a checkpoint every N steps, 1000 by default, and at the end.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Number of last checkpoints that are kept; 3 by default.")
    ] = None,
    verify: Annotated[
        VerifyMode | None,
        typer.Option(help="Verify the corpus before the first step; auto: full below 10 GB, else quick."),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT", help="Fingerprint that the corpus must have, or its first digits, at least 8."
        ),
    ] = None,
    compile: Annotated[  # noqa: A002  # the option's name
        bool | None, typer.Option("--compile", help="Compile the model (torch.compile).")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="auto (the default: a GPU if there is one), cpu, cuda, cuda:1.")
    ] = None,
    stop_on_skips: Annotated[
        bool | None,
        typer.Option("--stop-on-skips", help="Stop where over 5 % of 1,000 steps were skipped, for 100 steps on end."),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Write events to stdout as JSON lines.")] = False,
    max_reported: Annotated[int, typer.Option(metavar="N", min=0, help="Most places that are listed.")] = 20,
) -> None:
    """Train a GPT-2, or another causal language model of transformers, on a corpus.

    All that decides the run is in RUN/run.toml before the first step; --run RUN/run.toml repeats it. After a kill or ^C,
    --resume goes on: on a CPU the losses are the same to the bit. Under torchrun, processes share each batch. Needs the
    extra train.
    """
    values = locals()
    if output is None:
        raise typer.BadParameter("say where the run's folder is to be", param_hint="-o")
    if skip_damaged and not resume:
        raise typer.BadParameter("is of --resume: give that, too", param_hint="--skip-damaged")
    settings.max_reported = max_reported
    if missing := sorted(name.replace("_", "-") for name in _EXTRA if find_spec(name) is None):
        raise MissingExtraError(f"not installed: {', '.join(missing)}: pip install 'headrace[train]'")
    try:
        from headrace.cli.training_display import TrainingDisplay, print_run  # noqa: PLC0415  # heavy; not for --help
        from headrace.training.loop import train as train_model  # noqa: PLC0415
        from headrace.training.options import RUN_NAME, RunOptions, read_options  # noqa: PLC0415
        from headrace.training.resume import check_folder  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise MissingExtraError(f"{error.name} is not installed: pip install 'headrace[train]'") from error

    known = RunOptions.__dataclass_fields__
    given = {name: value for name, value in values.items() if name in known and value is not None}
    if warmup is not None:
        given["warmup"] = _number(warmup)
    if run is None and resume and ((output / RUN_NAME).exists() or corpus is None):
        run = output / RUN_NAME
        check_folder(output, resume=True)
    if run is None and corpus is None:
        raise typer.BadParameter("give a corpus, or a run file with --run", param_hint="CORPUS")
    options = RunOptions(**given) if run is None else read_options(run, given)
    with TrainingDisplay() as display:
        report = train_model(
            options,
            output,
            resume=resume,
            skip_damaged=skip_damaged,
            on_event=JsonLines() if json_lines else display,
        )
    if not json_lines and report.rank == 0:
        print_run(report)


def _number(text: str) -> int | float:
    """Read a number of steps, or a fraction of them."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise typer.BadParameter(f"wanted a number of steps or a fraction of them, found {text!r}", param_hint="--warmup")
