"""Steps of the reference trainer fed by a loader, against the same steps fed from a tensor in memory; and its checkpoints.

By default a tiny GPT-2 on the CPU, rows of 256 tokens out of a corpus in the page cache, read in the process that trains.
With `--device cuda --config gpt2 --precision bf16 --window 1024` it is GPT-2 (124M) on a GPU; there it is also measured what
batches cost that are not pinned, and which share of the time the GPU computes.
"""

import argparse
import math
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
from checks import Check, print_checks, print_table, records
from harness import interleave, save, summary
from torch import Tensor
from windows import TOUCHED, built

import headrace
from corpus import OUT, Corpus, collect
from headrace.torch import PinnedBatches, as_tensors
from headrace.training import checkpoint
from headrace.training.model import configure, fields_of, make_model
from headrace.training.ranks import Ranks
from headrace.training.step import TrainStep, adamw

Batches = Iterator[dict[str, Tensor]]
LR = 1e-4
MOST_WAITING = 0.01
LEAST_OF_MEMORY = 0.95
T_95 = 2.045
"""Student's t, two-sided 95 %, for 30 values."""
SAVES = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """Some steps of one contestant."""

    seconds: float
    waited: float
    """Of these, until the batches were there."""


def turn(step: TrainStep, batches: Batches, steps: int, targets: int) -> Callable[[], Turn]:
    """Return a contestant: takes steps as the trainer's loop does, and says how long it took and waited."""

    def run() -> Turn:
        waited, began = 0.0, time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            parts = [next(batches)]
            waited += time.perf_counter() - asked
            step(parts, LR, targets)  # reads the loss, and so waits for the device
        return Turn(time.perf_counter() - began, waited)

    return run


def lower_bound(values: Sequence[float]) -> float:
    """Return the lower end of the 95 % interval of the mean of values."""
    return statistics.mean(values) - T_95 * statistics.stdev(values) / math.sqrt(len(values))


def unpinned(loader: headrace.Loader, device: torch.device) -> Batches:
    """Yield batches that are copied to the device only when they are asked for, from memory that is not pinned."""
    for batch in loader:
        yield {name: tensor.to(device) for name, tensor in as_tensors(batch).items()}


def busy_share(run: Callable[[], Turn]) -> float:
    """Return which share of a turn a GPU spends in kernels."""
    from torch.profiler import ProfilerActivity, profile

    run()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        found = run()
    kernels = sum(event.self_device_time_total for event in profiled.key_averages())
    return kernels / 1e6 / found.seconds


def checkpoint_seconds(model: Any, step: TrainStep, loader: headrace.Loader) -> dict[str, Any]:
    """Save checkpoints as the loop does, to disk; seconds each, and their size."""
    folder = OUT / "train"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = {"loader": loader.state_dict(), "model": fields_of(model.config)}
    seconds = []
    for number in range(SAVES):
        began = time.perf_counter()
        path = checkpoint.save(folder, number, model, step.state_dict(), state, keep=1)
        seconds.append(time.perf_counter() - began)
    size = sum(file.stat().st_size for file in path.iterdir())
    shutil.rmtree(folder)
    return {"seconds": summary(seconds), "bytes": size}


def measure(text: Corpus, options: argparse.Namespace) -> tuple[list[Check], dict[str, object]]:
    """Let the contestants take turns with one model; then save checkpoints of it."""
    device, window, batch = torch.device(options.device), options.window, options.batch
    corpus = headrace.open(built(text, 1))
    for start in range(0, len(corpus), TOUCHED):
        corpus.get_slice(start, min(start + TOUCHED, len(corpus)))
    fingerprint = str(corpus.fingerprint)
    plan = headrace.Plan(order="blocks", token_count=len(corpus), window=window, batch_size=batch, corpus=fingerprint)
    loader = partial(headrace.Loader, corpus, plan, dtype=corpus.dtype)
    model = make_model(configure(corpus, window=window, config=options.config)).to(device)
    step = TrainStep(model, adamw(model, weight_decay=0.1), Ranks(device), precision=options.precision)
    in_memory = list(islice(PinnedBatches(loader(), device), options.steps))
    feeds: dict[str, Batches] = {"loader": iter(PinnedBatches(loader(), device)), "memory": cycle(in_memory)}
    if device.type == "cuda":
        feeds["loader, not pinned"] = unpinned(loader(), device)
    contestants = {name: turn(step, batches, options.steps, batch * window) for name, batches in feeds.items()}
    turns = interleave(contestants, rounds=options.pairs)
    busy = {feed: busy_share(run) for feed, run in contestants.items()} if device.type == "cuda" else {}
    saved = checkpoint_seconds(model, step, loader())
    print_turns(turns, options.steps * batch * window)
    for feed, share in busy.items():
        print(f"the GPU computes {share:.1%} of the time, fed by: {feed}")
    print(f"a checkpoint of {saved['bytes'] / 1e6:,.1f} MB: {saved['seconds']['median']:.2f} s, fsync included")
    name = f"train: {options.config}, {device.type}, {options.precision}"
    speeds = [one.seconds / other.seconds for one, other in zip(turns["memory"], turns["loader"], strict=True)]
    bound = f"lower 95 % bound of {len(speeds)} pairs"
    checks = [
        Check(f"{name}: share of the steps spent waiting for data", waiting(turns["loader"]), MOST_WAITING, "at most"),
        Check(f"{name}: tokens/s / fed from memory, {bound}", lower_bound(speeds), LEAST_OF_MEMORY, "at least"),
    ]
    return checks, {
        "checks": records(checks),
        "steps": {"config": options.config, "window": window, "batch": batch, "a_turn": options.steps},
        "ratios": summary(speeds),
        "seconds_a_turn": {feed: summary([one.seconds for one in found]) for feed, found in turns.items()},
        "waiting": {feed: waiting(found) for feed, found in turns.items()},
        "gpu_busy": busy,
        "checkpoint": saved,
    }


def waiting(turns: Sequence[Turn]) -> float:
    """Return which share of the time it was waited for batches."""
    return sum(one.waited for one in turns) / sum(one.seconds for one in turns)


def print_turns(turns: dict[str, list[Turn]], tokens: int) -> None:
    """Print the rates; a turn is so many tokens."""
    rows: list[tuple[str, ...]] = []
    for feed, found in turns.items():
        rate = summary([tokens / one.seconds for one in found])
        rates = (f"{rate[key]:,.0f}" for key in ("median", "lowest", "highest"))
        rows.append((feed, *rates, f"{waiting(found):.3%}"))
    print_table(("fed by", "tokens/s", "lowest", "highest", "waiting"), rows)


def main() -> int:
    """Measure, print, save; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Compare steps fed by a loader with steps fed from memory.")
    parser.add_argument("--megabytes", type=int, default=200, help="text, in 10**6 bytes; a token a byte")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--config", default="tiny", help="tiny or gpt2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    text = collect(options.megabytes)
    checks, numbers = measure(text, options)
    print_checks(checks)
    save("train" if options.config == "tiny" else f"train_{options.config}_{options.device}", numbers, corpus=text)
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
