"""Train a GPT-2 of random weights with the Trainer of transformers, and resume it from a checkpoint.

Usage: trainer.py [CORPUS]
"""

import sys
import tempfile

import texts
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import headrace
from headrace.adapters.huggingface import HeadraceTrainerMixin

WINDOW, ROWS, PARTS, STEPS = 64, 4, 2, 8


class PlannedTrainer(HeadraceTrainerMixin, Trainer):
    """A Trainer whose batches are those of a plan."""


def trainer(corpus: headrace.Corpus, output: str) -> PlannedTrainer:
    """Make a Trainer; a step of the plan is one of its optimizer steps."""
    arguments = TrainingArguments(
        output_dir=output,
        max_steps=STEPS,
        per_device_train_batch_size=ROWS,
        gradient_accumulation_steps=PARTS,
        save_steps=STEPS // 2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    plan = headrace.Plan(
        order="blocks",
        token_count=len(corpus),
        window=WINDOW,
        targets="inside",  # the model shifts its labels itself
        batch_size=arguments.train_batch_size * PARTS * arguments.world_size,
        corpus=str(corpus.fingerprint),
    )
    config = GPT2Config(
        vocab_size=corpus.vocab_size,
        n_positions=WINDOW,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=corpus.manifest.boundary_token_id,
        eos_token_id=corpus.manifest.boundary_token_id,
    )
    return PlannedTrainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=headrace.Loader(corpus, plan))


def main(path: str | None = None) -> int:
    """Train, then train the second half again from the checkpoint in the middle; returns the exit code."""
    with texts.corpus_of(path) as corpus, tempfile.TemporaryDirectory() as output:
        run = trainer(corpus, output)
        run.train()
        again = trainer(corpus, output)
        again.train(resume_from_checkpoint=f"{output}/checkpoint-{STEPS // 2}")
    losses, repeated = ([entry["loss"] for entry in one.state.log_history if "loss" in entry] for one in (run, again))
    print(f"the same losses after resuming: {losses == repeated}")
    return int(losses != repeated)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
