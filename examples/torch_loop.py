"""Train a small model with PyTorch; stop half-way, and go on from the checkpoint as if nothing had happened.

Usage: torch_loop.py [CORPUS]
"""

import sys
from itertools import islice
from typing import Any

import texts
import torch

import headrace
from headrace.torch import PinnedBatches, check_vocabulary

WINDOW, BATCH, STEPS = 64, 16, 20


class Model(torch.nn.Module):
    """Predicts each token from those before it."""

    def __init__(self, ids: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(ids, width)
        self.past = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, ids)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return scores of the next tokens, `(B, T, ids)`."""
        return self.head(self.past(self.embedding(input_ids))[0])


def train(
    corpus: headrace.Corpus, steps: int, checkpoint: dict[str, Any] | None = None
) -> tuple[list[float], dict[str, Any]]:
    """Take some steps, from a checkpoint if there is one; returns the losses and a new checkpoint."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(corpus.vocab_size).to(device)
    check_vocabulary(model.embedding.num_embeddings, corpus)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    plan = headrace.Plan(
        order="blocks", token_count=len(corpus), window=WINDOW, batch_size=BATCH, corpus=str(corpus.fingerprint)
    )
    # Stored bytes travel, and are widened on the device.
    loader = headrace.Loader(corpus, plan, dtype=corpus.dtype, boundary_loss="after")
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["data"])
    losses: list[float] = []
    for batch in islice(PinnedBatches(loader, device, ignore_index=-100), steps):
        loss = torch.nn.functional.cross_entropy(model(batch["input_ids"]).flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}


def main(path: str | None = None) -> int:
    """Train once straight through and once in two parts; returns the exit code."""
    with texts.corpus_of(path) as corpus:
        straight, _ = train(corpus, STEPS)
        first, checkpoint = train(corpus, STEPS // 2)
        second, _ = train(corpus, STEPS - STEPS // 2, checkpoint)
    for step, loss in enumerate(straight):
        print(f"step={step} loss={loss:.4f}")
    print(f"the same in two parts: {first + second == straight}")
    return int(first + second != straight)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
