"""Train a GPT-2 from random weights on a Lance data set of tokens, as the Lance documentation does; perplexity of each epoch.

Usage: lance_train.py [DATASET] [--config gpt2|tiny] [--block-size T] [--epochs N] ...

DATASET is what `lance_create.py` wrote, any Lance data set of tokens (`data.lance`, `data.lance@v3`), or any corpus; without
one, a small one is made. For runs that can be resumed, are verified, and use several GPUs, there is `headrace train`.
"""

import argparse
import math
import sys

import texts
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM, GPT2Config

from headrace.torch import LanceDataset, LanceSampler, check_vocabulary

MOST_IDS = 1_000_000
"""A data set of bare int64 may hold more; no vocabulary does."""
TINY = {"n_layer": 2, "n_head": 4, "n_embd": 128}


def perplexity_of(mean_loss: float) -> float:
    """Return exp(mean loss), infinite where no float holds it."""
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def main() -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser(description="Train a GPT-2 on a Lance data set of tokens.")
    parser.add_argument("dataset", nargs="?", help="Lance data set or corpus; by default a small one is made")
    parser.add_argument("--config", choices=["gpt2", "tiny"], default="gpt2", help="124 million parameters, or 0.4")
    parser.add_argument("--vocab-size", type=int, help="where the data set does not say it")
    parser.add_argument("--block-size", type=int, default=1024, help="tokens of a sample")
    parser.add_argument("--batch-size", type=int, default=8, help="samples of a step")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1337, help="of weights and order")
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    corpus = texts.corpus_of(options.dataset, store="lance", vocab_size=options.vocab_size)
    if corpus.vocab_size > MOST_IDS:
        parser.error("the data set does not say how many ids its tokenizer has: give --vocab-size (50257 for GPT-2's)")
    dataset = LanceDataset(corpus, options.block_size)
    sampler = LanceSampler(dataset, options.block_size, seed=options.seed)
    loader = DataLoader(
        dataset, shuffle=False, batch_size=options.batch_size, sampler=sampler, pin_memory=device == "cuda"
    )
    smaller = TINY if options.config == "tiny" else {}
    config = GPT2Config(vocab_size=corpus.vocab_size, n_positions=options.block_size, **smaller)
    model = AutoModelForCausalLM.from_config(config).to(device)
    check_vocabulary(model, corpus)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = 0.0
        bar = tqdm(loader, desc=f"epoch {epoch + 1}", disable=None)
        for batch in bar:
            optimizer.zero_grad(set_to_none=True)
            loss = model(**{name: ids.to(device, non_blocking=True) for name, ids in batch.items()}).loss
            loss.backward()
            optimizer.step()
            total += loss.item()
            bar.set_postfix(loss=f"{loss.item():.4f}")
        print(f"epoch={epoch + 1} perplexity={perplexity_of(total / len(loader)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
