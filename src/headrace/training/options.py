"""Everything that decides a run: given by flags, or by a run file in TOML; each run writes the one that repeats it."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from headrace import __version__
from headrace.errors import MissingExtraError, Problem, TrainingError
from headrace.loading.marks import BoundaryLoss
from headrace.storage.atomic import write_bytes

__all__ = ["CONFIG_NAME", "RUN_NAME", "RunOptions", "read_options", "settled", "write_options"]

RUN_NAME = "run.toml"
NAMED = ("gpt2", "tiny")
CONFIG_NAME = "config.json"
"""In the folder of a run: the configuration of its model."""
Order = Literal["blocks", "random", "documents"]
Precision = Literal["fp32", "bf16", "fp16"]
VerifyMode = Literal["auto", "full", "quick", "off"]
_LEAST: dict[str, float] = {
    **dict.fromkeys(("vocab_size", "window", "batch", "accumulate", "steps", "schedule_steps", "stride", "keep"), 1),
    **dict.fromkeys(("evaluate_every", "checkpoint_every"), 1),
    **dict.fromkeys(("warmup", "weight_decay", "seed", "dropout", "floor"), 0),
}
_ABOVE_ZERO = ("epochs", "lr", "clip")
_FINITE = ("epochs", "lr", "weight_decay")
_PATHS = ("corpus", "evaluate", "config", "pretrained")
_NAMES = {("config", name) for name in NAMED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """A run; in a run file the names have dashes, as the flags.

    Raises:
        TrainingError: naming every field that is wrong.
    """

    corpus: str
    vocab_size: int | None = None
    """Highest id + 1, where the corpus (and the one held out) does not say it: Lance data sets and HDF5 files of others."""
    config: str | None = None
    """`gpt2` (the default), `tiny`, or a `config.json` of transformers: random weights."""
    pretrained: str | None = None
    """In its place: a folder of weights, or a name in the hub's cache."""
    allow_download: bool = False
    dropout: float | None = None
    window: int = 1024
    """In tokens."""
    batch: int = 8
    """Rows of a step, over all processes and parts."""
    accumulate: int = 1
    """Parts in which each process computes its rows of a step."""
    epochs: float | None = None
    """Passes over the corpus; 1 unless `steps` is given. As many steps as the decimal number says, the last one whole."""
    steps: int | None = None
    order: Order = "blocks"
    seed: int = 0
    """Of the order, the weights and the dropout."""
    boundary_loss: BoundaryLoss = "keep"
    documents_apart: bool = False
    lr: float = 3e-4
    """The highest, at the end of the warm-up."""
    warmup: float = 0.01
    """Steps (an int), or a fraction of them (a float)."""
    floor: float | None = None
    """Learning rate at the end; a tenth of `lr` by default."""
    schedule_steps: int | None = None
    """Where the learning rate reaches the floor; by default where the run ends."""
    weight_decay: float = 0.1
    """Of matrices."""
    clip: float = 1.0
    """Most that the global L2 norm of the gradients may be."""
    precision: Precision = "fp32"
    evaluate: str | None = None
    """Corpus of held-out text."""
    evaluate_every: int | None = None
    """In steps, besides the ends of epochs and of the run."""
    stride: int | None = None
    """Of the windows of the evaluation, in tokens: below `window`, each target has more to go by."""
    checkpoint_every: int = 1000
    """In steps."""
    keep: int = 3
    """Checkpoints that stay."""
    verify: VerifyMode = "auto"
    expect: str | None = None
    """Fingerprint that the corpus must have."""
    compile: bool = False
    device: str = "auto"
    stop_on_skips: bool = False

    def __post_init__(self) -> None:
        problems = [
            *_wrong_types(self),
            *_both(self, "config", "pretrained"),
            *_both(self, "steps", "epochs"),
        ] or _out_of_range(self)
        if self.order == "random" and self.epochs is not None:
            problems.append(Problem("epochs", "windows drawn at random have none: say how many steps"))
        if self.order == "random" and self.epochs is None and self.steps is None:
            problems.append(Problem("steps", "windows drawn at random have no epochs: say how many steps"))
        for name in ("stride", "evaluate_every"):
            if getattr(self, name) is not None and self.evaluate is None:
                problems.append(Problem(name, "is of the evaluation: say of what, with evaluate"))
        if problems:
            raise TrainingError("no run can be made of these options", problems=problems, usage=True)

    @property
    def config_file(self) -> Path | None:
        """The `config.json` of the model, where it is one."""
        return None if self.config in {None, *NAMED} else Path(str(self.config))


def read_options(path: Path, given: Mapping[str, Any] | None = None) -> RunOptions:
    """Read a run file; paths in it count from its folder.

    Args:
        path: of the file.
        given: fields that take the place of those in the file, as flags do.

    Raises:
        TrainingError: it is not TOML, or not of a run; every field that is wrong is named.
        FileNotFoundError: it is not there.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TrainingError(f"{path}: not TOML: {error}") from error
    values = {name.replace("-", "_"): value for name, value in found.items()}
    known = {field.name for field in fields(RunOptions)}
    problems = [Problem(name.replace("_", "-"), _unknown(name, known)) for name in sorted(values.keys() - known)]
    if problems:
        raise TrainingError(f"{path}: unknown fields", problems=problems)
    if twice := sorted(name for name in found if "_" in name and name.replace("_", "-") in found):
        raise TrainingError(f"{path}: {', '.join(twice)}: given twice, with dashes and without")
    for name in _PATHS:
        if isinstance(value := values.get(name), str) and value and _is_path(name, value, path.parent):
            values[name] = str(path.parent / value)
    given = dict(given or {})
    for one, other in (("steps", "epochs"), ("epochs", "steps"), ("config", "pretrained"), ("pretrained", "config")):
        if one in given:
            values.pop(other, None)
    if "corpus" not in values | given:
        raise TrainingError(f"{path}: names no corpus: add corpus = '...', or give it beside the file")
    return RunOptions(**values | given)


def write_options(options: RunOptions, folder: Path) -> None:
    """Write the run file that repeats a run, of which the model's configuration lies beside it if it came from a file."""
    try:
        import tomli_w  # noqa: PLC0415  # only who trains needs it
    except ModuleNotFoundError as error:
        raise MissingExtraError("tomli-w is not installed: pip install 'headrace[train]'") from error

    values = {name.replace("_", "-"): value for name, value in asdict(settled(options)).items() if value is not None}
    if options.config_file is not None:
        values["config"] = CONFIG_NAME
    head = f"# Headrace {__version__}: `headrace train --run {RUN_NAME} -o FOLDER` does it again.\n"
    for leftover in folder.glob(f".{RUN_NAME}.*"):  # of a process that was killed here
        leftover.unlink(missing_ok=True)
    write_bytes(folder / RUN_NAME, (head + tomli_w.dumps(values)).encode())


def settled(options: RunOptions) -> RunOptions:
    """Return the options with paths that mean the same from any folder."""
    paths = {name: getattr(options, name) for name in _PATHS}
    return replace(
        options,
        **{
            name: str(Path(value).absolute())
            for name, value in paths.items()
            if value is not None and _is_path(name, value, Path())
        },
    )


def _is_path(name: str, value: str, folder: Path) -> bool:
    """Return whether a field says a path, which counts from the folder: not the name of a model."""
    if name == "pretrained":
        return (folder / value).exists()
    return (name, value) not in _NAMES


def _wrong_types(options: RunOptions) -> list[Problem]:
    problems = list[Problem]()
    for name, hint in get_type_hints(RunOptions).items():
        value = getattr(options, name)
        choices = [choice for choice in get_args(hint) if isinstance(choice, str)]
        types = tuple(part for part in get_args(hint) or (hint,) if isinstance(part, type))
        if choices:
            fits, wanted = value in choices, f"one of {', '.join(choices)}"
        else:
            number = isinstance(value, int) and not isinstance(value, bool) and float in types
            fits = number or (isinstance(value, types) and isinstance(value, bool) <= (bool in types))
            wanted = " or ".join(kind.__name__ for kind in types if kind is not type(None))
        if not fits:
            problems.append(Problem(name, f"wanted {wanted}, found {value!r}"))
    return problems


def _out_of_range(options: RunOptions) -> list[Problem]:
    values = {name: value for name, value in asdict(options).items() if value is not None}
    problems = [
        Problem(name, f"wanted at least {least}, found {values[name]}")
        for name, least in _LEAST.items()
        if name in values and not values[name] >= least
    ]
    problems += [
        Problem(name, f"wanted a number above 0, found {values[name]}")
        for name in _ABOVE_ZERO
        if name in values and not values[name] > 0
    ]
    problems += [Problem(name, "wanted a finite number, found inf") for name in _FINITE if values.get(name) == math.inf]
    problems += [
        Problem(name, "wanted a name or a path, found an empty one") for name in _PATHS if values.get(name) == ""
    ]
    if options.stride is not None and options.stride > options.window:
        problems.append(
            Problem("stride", f"wanted at most the window, which is {options.window}, found {options.stride}")
        )
    if isinstance(options.warmup, float) and options.warmup > 1:
        problems.append(
            Problem("warmup", f"wanted a whole number of steps, or a fraction of them, found {options.warmup}")
        )
    if options.floor is not None and options.floor > options.lr:
        problems.append(Problem("floor", f"wanted at most lr, which is {options.lr}, found {options.floor}"))
    if options.dropout is not None and options.dropout >= 1:
        problems.append(Problem("dropout", f"wanted a share below 1, found {options.dropout}"))
    return problems


def _both(options: RunOptions, one: str, other: str) -> list[Problem]:
    if getattr(options, one) is None or getattr(options, other) is None:
        return []
    return [Problem(one, f"excludes {other}; give one of the two")]


def _unknown(name: str, known: set[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"no such field{f'; did you mean {close[0]}?' if close else ''}".replace("_", "-")
