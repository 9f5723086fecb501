"""The loss of a language model: summed over the targets that count, for steps and for evaluations."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = ["IGNORED", "Precision", "logits_of", "summed_loss"]

IGNORED = -100
"""Target that does not count."""
Precision = Literal["fp32", "bf16", "fp16"]
"""Of the forward pass; the weights are float32."""
_DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def summed_loss(model: Any, part: dict[str, Tensor], precision: Precision = "fp32") -> Tensor:  # noqa: ANN401  # any model of transformers
    """Return the cross entropy of the targets that count, summed: float32, `()`.

    Args:
        model: as for `logits_of`.
        part: as there, and `targets`, int64 `(B, T)`, `IGNORED` where one does not count.
        precision: all but `fp32` is done by autocast.
    """
    dtype = _DTYPES[precision]
    with torch.autocast(part["input_ids"].device.type, dtype, enabled=precision != "fp32"):
        logits = logits_of(model, part)
    return nn.functional.cross_entropy(
        logits.float().flatten(0, 1), part["targets"].flatten(), ignore_index=IGNORED, reduction="sum"
    )


def logits_of(model: Any, part: dict[str, Tensor]) -> Tensor:  # noqa: ANN401  # as above
    """Return the scores of the next tokens, `(B, T, ids)`.

    Args:
        model: of transformers; may be wrapped for several processes.
        part: `input_ids`, int64 `(B, T)`. Where it says whose document each token is (`document_ids`, with `position_ids`),
            a token sees those before it in its own document alone.
    """
    kept_apart: dict[str, Tensor] = {}
    if (documents := part.get("document_ids")) is not None:
        seen = (documents[:, None, :, None] == documents[:, None, None, :]).tril()
        config = getattr(getattr(model, "module", model), "config", None)
        if getattr(config, "_attn_implementation", None) == "eager":
            # Such an attention adds the mask to its scores: True would be 1, and a token would see all others.
            seen = torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, torch.finfo(torch.float32).min)
        kept_apart = {"attention_mask": seen, "position_ids": part["position_ids"]}
    return model(input_ids=part["input_ids"], use_cache=False, **kept_apart).logits
