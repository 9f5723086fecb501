"""Train a small model with JAX, its batches split over all devices; then the second half again from a checkpoint.

Usage: jax_loop.py [CORPUS]
"""

import sys
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import texts
from jax.sharding import Mesh

import headrace
from headrace.adapters.jax import JaxBatches, data_parallel

WINDOW, BATCH, STEPS, WIDTH, RATE = 64, 16, 20, 64, 0.5


def scores(weights: dict[str, jax.Array], ids: jax.Array) -> jax.Array:
    """Predict each token from the last two."""
    near = weights["embedding"][ids]
    far = jnp.pad(near, ((0, 0), (1, 0), (0, 0)))[:, :-1] @ weights["past"]
    return jnp.tanh(near + far) @ weights["head"]


def loss_of(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Mean over the predictions that count."""
    logs = jax.nn.log_softmax(scores(weights, batch["input_ids"]))
    each = -jnp.take_along_axis(logs, batch["targets"][..., None], axis=-1)[..., 0]
    return (each * batch["loss_mask"]).sum() / batch["loss_mask"].sum()


@jax.jit
def step_of(weights: dict[str, jax.Array], batch: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
    """One step of gradient descent."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch)
    return {name: weights[name] - RATE * slopes[name] for name in weights}, loss


def train(
    corpus: headrace.Corpus, steps: int, checkpoint: dict[str, Any] | None = None
) -> tuple[list[float], dict[str, Any]]:
    """Take some steps, from a checkpoint if there is one; returns the losses and a new checkpoint."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    plan = headrace.Plan(
        order="blocks", token_count=len(corpus), window=WINDOW, batch_size=BATCH, corpus=str(corpus.fingerprint)
    )
    loader = headrace.Loader(corpus, plan, **data_parallel(mesh)._asdict(), boundary_loss="after")
    if checkpoint is None:
        keys = jax.random.split(jax.random.key(0), 3)
        shapes = {"embedding": (corpus.vocab_size, WIDTH), "past": (WIDTH, WIDTH), "head": (WIDTH, corpus.vocab_size)}
        weights = {name: 0.1 * jax.random.normal(key, shapes[name]) for name, key in zip(shapes, keys, strict=True)}
    else:
        weights = checkpoint["weights"]
        loader.load_state_dict(checkpoint["data"])
    losses: list[float] = []
    for batch in islice(JaxBatches(loader, mesh), steps):
        weights, loss = step_of(weights, batch)
        losses.append(float(loss))
    return losses, {"weights": weights, "data": loader.state_dict()}


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
