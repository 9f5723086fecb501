"""The Trainer of transformers on a plan: which batches it takes, and that a resumed run is the run it was."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import headrace
from headrace.adapters.huggingface import STATE_NAME, HeadraceTrainerMixin
from headrace.errors import PlanError, TokenIdError

pytestmark = pytest.mark.extended
STEPS = 6
PLAN = {"plan_targets": "inside"}


class Recording(HeadraceTrainerMixin, Trainer):
    """A Trainer that keeps what it trained on."""

    def training_step(self, model, inputs, *args, **kwargs):
        """Keep the rows, then train."""
        self.__dict__.setdefault("seen", []).append({name: tensor.numpy().copy() for name, tensor in inputs.items()})
        return super().training_step(model, inputs, *args, **kwargs)

    @property
    def losses(self) -> dict[int, float]:
        """The loss logged at each step."""
        return {entry["step"]: entry["loss"] for entry in self.state.log_history if "loss" in entry}


def trainer_of(loader, output, *, ids=257, **options) -> Recording:
    """A tiny GPT-2 of random weights, dropout included, on the CPU."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=ids, n_positions=16, n_embd=8, n_layer=1, n_head=2))
    arguments = {
        "output_dir": str(output),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "save_steps": 2,
        "logging_steps": 1,
        "learning_rate": 0.01,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        **options,
    }
    return Recording(model=model, args=TrainingArguments(**arguments), train_dataset=loader)


def assert_steps(trainer, loader, steps, parts) -> None:
    """What was trained on are the parts of the steps, once each, in order."""
    assert len(trainer.seen) == len(steps) * parts
    for number, inputs in enumerate(trainer.seen):
        wanted = loader.batch(steps[number // parts], micro=number % parts, of=parts)
        np.testing.assert_array_equal(inputs["input_ids"], wanted.input_ids)


def test_a_resumed_run_is_the_run_it_was(make_loader, tmp_path):
    """Resuming from step n, and from a resume of it, takes the batches from n on at once, with the same losses to the bit."""
    straight = trainer_of(make_loader(**PLAN), tmp_path / "run")
    straight.train()
    assert_steps(straight, make_loader(**PLAN), range(STEPS), 2)
    assert list(straight.losses) == list(range(1, STEPS + 1))
    checkpoint = tmp_path / "run" / "checkpoint-2"
    assert json.loads((checkpoint / STATE_NAME).read_text())["step"] == 2
    resumed = trainer_of(make_loader(**PLAN), tmp_path / "again")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_steps(resumed, make_loader(**PLAN), range(2, STEPS), 2)
    assert {step: loss for step, loss in resumed.losses.items() if step > 2} == {
        step: loss for step, loss in straight.losses.items() if step > 2
    }
    assert resumed.state.epoch == straight.state.epoch == STEPS * 8 / make_loader(**PLAN).plan.windows
    third = trainer_of(make_loader(**PLAN), tmp_path / "again")
    (tmp_path / "again" / "checkpoint-6").rename(tmp_path / "again" / "last-6")
    third.train(resume_from_checkpoint=True)  # from checkpoint-4, the newest there is now
    assert_steps(third, make_loader(**PLAN), range(4, STEPS), 2)
    assert third.losses == straight.losses


def test_what_does_not_fit_is_refused(make_loader, tmp_path):
    """Batch size, targets, length, part, vocabulary and kind of data set: each by its name, before anything is trained."""
    for wanted, loader, options in (
        ("the plan's is 8, the arguments make 12", make_loader(**PLAN), {"gradient_accumulation_steps": 3}),
        ("targets='inside'", make_loader(), {}),
        ("part 1 of 2", make_loader(**PLAN, rank=1, world_size=2), {}),
        ("max_steps: wanted 1 to", make_loader(**PLAN, plan_order="sequential"), {"max_steps": 10**6}),
        ("wanted a headrace.Loader", [1, 2], {}),
        ("from step 3 on the plan has 9 rows", make_loader(**{**PLAN, "plan_batch_size": [(0, 8), (3, 9)]}), {}),
    ):
        with pytest.raises(PlanError, match=wanted):
            trainer_of(loader, tmp_path, **options).train()
    with pytest.raises(TokenIdError, match="0 to 255"):
        trainer_of(make_loader(**PLAN), tmp_path, ids=256).train()


def test_accumulated_parts_and_workers_may_change(make_loader, tmp_path):
    """A run that is resumed with other parts, and workers, takes the same rows a step; its losses are those of the run."""
    straight = trainer_of(make_loader(**PLAN), tmp_path / "run")
    straight.train()
    other = trainer_of(
        make_loader(**PLAN),
        tmp_path / "again",
        per_device_train_batch_size=1,
        gradient_accumulation_steps=8,
        dataloader_num_workers=2,
    )
    other.model.load_state_dict(straight.model.state_dict())
    other.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4"))
    assert_steps(other, make_loader(**PLAN), range(4, STEPS), 8)
    assert set(other.losses) == set(straight.losses)


def test_another_plan_is_refused(make_loader, tmp_path):
    """The state beside a checkpoint is of its plan and corpus: another seed is refused by name, not resumed."""
    trainer_of(make_loader(**PLAN), tmp_path, max_steps=2).train()
    with pytest.raises(PlanError, match="seed"):
        trainer_of(make_loader(**PLAN, plan_seed=2), tmp_path).train(resume_from_checkpoint=True)
    # One that may differ is named by the class.
    skipping = make_loader(**PLAN)
    skipping = headrace.Loader(skipping.corpus, skipping.plan.skip(3))
    with pytest.raises(PlanError, match="skipped"):
        trainer_of(skipping, tmp_path).train(resume_from_checkpoint=True)
    moved = trainer_of(skipping, tmp_path / "skipping")
    moved.headrace_allow = {"skipped"}
    moved.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_steps(moved, make_loader(**PLAN), [2, *range(4, STEPS + 1)], 2)
    for damaged in (b"{", b"\xff", b""):
        (tmp_path / "checkpoint-2" / STATE_NAME).write_bytes(damaged)
        with pytest.raises(PlanError, match=rf"{STATE_NAME}: wanted what state_dict\(\) returned, as JSON"):
            trainer_of(make_loader(**PLAN), tmp_path).train(resume_from_checkpoint=True)
    # A checkpoint without it goes on from the Trainer's own step.
    (tmp_path / "checkpoint-2" / STATE_NAME).unlink()
    without = trainer_of(make_loader(**PLAN), tmp_path)
    without.train(resume_from_checkpoint=True)
    assert_steps(without, make_loader(**PLAN), range(2, STEPS), 2)


@pytest.mark.parametrize("order", ["random", "documents"])
def test_masks_become_labels(make_loader, tmp_path, order):
    """Predictions that do not count have the label -100 one place further on, as the model shifts; positions are handed on."""
    options = {**PLAN, "plan_order": order, "boundary_loss": "both", "position_ids": True, "document_ids": True}
    trainer = trainer_of(make_loader(**options), tmp_path, max_steps=2)
    trainer.train()
    for number, inputs in enumerate(trainer.seen):
        batch = make_loader(**options).batch(number // 2, micro=number % 2, of=2)
        np.testing.assert_array_equal(inputs["labels"][:, 1:] != -100, batch.loss_mask[:, :-1])
        np.testing.assert_array_equal(inputs["position_ids"], batch.position_ids)
        assert "document_ids" not in inputs
        assert "loss_mask" not in inputs


RANKED = """
import pickle, runpy, sys
from pathlib import Path
import headrace
module = runpy.run_path(sys.argv[1])
folder, output, resume = sys.argv[2:]
corpus = headrace.open(folder)
plan = headrace.Plan(
    order="blocks", token_count=len(corpus), window=16, batch_size=8, seed=1, targets="inside", corpus=str(corpus.fingerprint)
)
trainer = module["trainer_of"](headrace.Loader(corpus, plan), output, per_device_train_batch_size=2)
trainer.train(resume_from_checkpoint=resume or None)
found = [inputs["input_ids"] for inputs in trainer.seen], trainer.losses
Path(f"{output}-{trainer.args.process_index}").write_bytes(pickle.dumps(found))
"""


def run_ranks(port, folder, output, resume="") -> list:
    """Train in two processes; returns rows and losses of each."""
    processes = []
    for rank in range(2):
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in ranks.items()}}
        words = [sys.executable, "-P", "-c", RANKED, __file__, str(folder), str(output), str(resume)]
        processes.append(subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        ended = [(process.communicate(timeout=500)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [code for _, code in ended] == [0, 0], ended
    return [pickle.loads(output.with_name(f"{output.name}-{rank}").read_bytes()) for rank in range(2)]  # noqa: S301  # our own


def test_two_processes_share_the_batches(make_loader, folder, free_port, tmp_path):
    """Of two gloo processes each takes its part of every step, neither sharded once more nor repeated, and so on resuming."""
    loader = make_loader(**PLAN)
    first = run_ranks(free_port(), folder, tmp_path / "run")
    second = run_ranks(free_port(), folder, tmp_path / "again", tmp_path / "run" / "checkpoint-4")
    for results, steps in ((first, range(STEPS)), (second, range(4, STEPS))):
        for rank, (seen, _) in enumerate(results):
            own = loader.on_rank(rank, 2)
            assert len(seen) == 2 * len(steps)
            for number, rows in enumerate(seen):
                np.testing.assert_array_equal(rows, own.batch(steps[number // 2], micro=number % 2, of=2).input_ids)
    assert {step: loss for step, loss in second[0][1].items() if step > 4} == {
        step: loss for step, loss in first[0][1].items() if step > 4
    }
