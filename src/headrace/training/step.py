"""One step of the optimizer: autocast, scale, backward, unscale, clip, step, update; or a skip, with its reason."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headrace.training.loss import Precision, summed_loss
from headrace.training.ranks import Ranks

__all__ = ["Outcome", "TrainStep", "adamw"]

BETAS = 0.9, 0.95


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step came to; the fields are those of a `StepRecord`."""

    loss: float
    grad_l2_pre_clip: float
    grad_l2_post_clip: float
    skipped: bool
    skip_reason: str
    """`loss` or `gradient`, whichever was found not to be finite first; empty where the step was taken."""
    scaler_scale: float


class TrainStep:
    """Takes steps. The loss is the sum over the targets that count, divided by their number in the whole step.

    So neither the number of parts nor that of the ranks changes what is minimised, also where masks leave the parts
    different numbers of targets. Weights stay float32; with `bf16` and `fp16` the forward pass runs in autocast.

    Args:
        model: gives `.logits`; may be a `DistributedDataParallel`.
        optimizer: of its parameters; the learning rate is set at each step.
        ranks: with whom the step is shared.
        precision: `fp16` scales losses by a `GradScaler`, which is `scaler`.
        max_norm: gradients are clipped to this global L2 norm.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401  # of transformers, perhaps wrapped
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        *,
        precision: Precision = "fp32",
        max_norm: float = 1.0,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.ranks = ranks
        self.precision: Precision = precision
        self.max_norm = max_norm
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=precision == "fp16")
        self._parameters = [weight for weight in model.parameters() if weight.requires_grad]

    def __call__(self, parts: Sequence[dict[str, Tensor]], lr: float, targets: int) -> Outcome:
        """Take a step, or leave the weights alone if its loss or a gradient is not finite.

        Args:
            parts: this rank's micro-batches: `input_ids` and `targets`, int64 `(B, T)`, -100 where a target does not count.
            lr: learning rate.
            targets: number of targets that count, over all parts of all ranks.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        scale = self.scaler.get_scale()
        total = torch.zeros((), device=self.ranks.device)
        for number, part in enumerate(parts):
            with self._exchanging(last=number == len(parts) - 1):
                loss = summed_loss(self.model, part, self.precision) / max(targets, 1)
                # DistributedDataParallel takes the mean over ranks; the loss is a sum over them.
                self.scaler.scale(loss * self.ranks.world_size).backward()
            total += loss.detach()
        loss = self.ranks.total(total).item()
        self.scaler.unscale_(self.optimizer)
        before, after = self._clip()
        reason = "" if math.isfinite(before) else "gradient"
        if not math.isfinite(loss):
            reason = "loss"
        if not reason:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return Outcome(loss, before, after, bool(reason), reason, scale)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the weights."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])

    def _exchanging(self, *, last: bool) -> Any:  # noqa: ANN401  # a context manager
        """Let ranks add up their gradients in the last backward pass of a step only."""
        alone = last or not isinstance(self.model, DistributedDataParallel)
        return nullcontext() if alone else self.model.no_sync()

    def _clip(self) -> tuple[float, float]:
        """Clip the gradients; returns their norm before and after."""
        gradients = [weight.grad for weight in self._parameters if weight.grad is not None]
        before = nn.utils.get_total_norm(gradients)
        nn.utils.clip_grads_with_norm_(self._parameters, self.max_norm, before)
        return before.item(), nn.utils.get_total_norm(gradients).item()


def adamw(model: nn.Module, *, weight_decay: float) -> torch.optim.AdamW:
    """Make the optimizer: matrices decay, biases and norms do not."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=BETAS, fused=weights[0].device.type == "cuda")
