"""Perplexity of a model on a corpus: each target once."""

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from headrace.adapters.torch import PinnedBatches, as_tensors
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.loading.marks import BoundaryLoss
from headrace.reading import Corpus
from headrace.sampling import Plan
from headrace.training.loss import IGNORED, Precision, summed_loss

__all__ = ["Perplexity", "perplexity"]


@dataclass(frozen=True, slots=True)
class Perplexity:
    """How well tokens were predicted."""

    mean_loss: float
    """Cross entropy of a target, in nats; NaN where none counts."""
    targets: int
    """How many counted."""

    @property
    def value(self) -> float:
        """`exp(mean_loss)`; infinite where no float holds it."""
        try:
            return math.exp(self.mean_loss)
        except OverflowError:
            return math.inf


def perplexity(
    model: nn.Module,
    corpus: Corpus,
    window: int,
    *,
    batch: int,
    stride: int | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "fp32",
    limit: int | None = None,
    documents_apart: bool = False,
    boundary_loss: BoundaryLoss = "keep",
    before_batch: Callable[[], object] | None = None,
) -> Perplexity:
    """Read a corpus once, in order: every token but the first is a target once, that of a shorter last window included.

    The model does not drop out meanwhile, and is put back as it was; no random generator is moved.

    Args:
        model: of transformers, on the device.
        corpus: of at least two tokens; one that is shorter than a window is one window.
        window: in tokens.
        batch: windows at once.
        stride: tokens from a window to the next. Below `window`, targets have more before them, and it takes as many times
            longer: each window counts the targets that the one before did not.
        device: where the model is.
        precision: of the forward pass.
        limit: most batches that are read, from the front; by default all.
        documents_apart: a token sees its own document alone.
        boundary_loss: which predictions at the borders of documents count, as for `Loader`.
        before_batch: called before each one; what it raises ends all.

    Raises:
        PlanError: the corpus is too short, or a number is out of range: with a stride above the window, targets would be left
            out.
    """
    if stride is not None and stride > window:
        raise PlanError(
            f"stride: wanted at most the window of {window} tokens, so that each target counts, found {stride}"
        )
    window = min(window, len(corpus) - 1)
    plan = Plan(
        order="sequential",
        token_count=len(corpus),
        window=window,
        stride=None if stride is None else min(stride, window),
        batch_size=batch,
        corpus=str(corpus.fingerprint),
    )
    loader = partial(
        Loader, corpus, document_ids=documents_apart, position_ids=documents_apart, boundary_loss=boundary_loss
    )
    total = torch.zeros((), dtype=torch.float64, device=device)
    count = torch.zeros((), dtype=torch.int64, device=device)
    with _evaluating(model), torch.no_grad():
        for part in islice(_parts(loader, plan, device), limit):
            if before_batch is not None:
                before_batch()
            total += summed_loss(model, part, precision)
            count += (part["targets"] != IGNORED).sum()
    targets = int(count)
    return Perplexity(total.item() / targets if targets else math.nan, targets)


def _parts(loader: Callable[[Plan], Loader], plan: Plan, device: torch.device | str) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of a sequential plan, and what is left behind its last window."""
    yield from PinnedBatches(loader(plan), device, ignore_index=IGNORED)
    if plan.tail_tokens:
        # With this stride, the second window ends where the corpus does; what came before the tail was served already.
        last = loader(replace(plan, stride=plan.token_count - plan.read_length)).samples(np.array([1]))
        part = as_tensors(last, IGNORED)
        part["targets"][:, : -plan.tail_tokens] = IGNORED
        yield {name: tensor.to(device) for name, tensor in part.items()}


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    """Let no part of a model drop out, and put each back as it was."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
