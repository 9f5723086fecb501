"""One step of the optimizer: its arithmetic, its parts, and the steps that are skipped."""

import copy
import math
from itertools import islice

import pytest
import torch

from headrace.training.model import configure, make_model
from headrace.training.ranks import Ranks
from headrace.training.step import TrainStep, adamw

CPU = Ranks(torch.device("cpu"))
torch.set_num_threads(1)


@pytest.fixture
def model(corpus, config_file):
    """A small model without dropout."""
    return make_model(configure(corpus, window=16, config=str(config_file), dropout=0.0))


def step_of(model, **options) -> TrainStep:
    """A step for a model."""
    return TrainStep(model, adamw(model, weight_decay=0.1), CPU, **options)


def weights(model) -> list[torch.Tensor]:
    """A copy of the weights."""
    return [weight.detach().clone() for weight in model.parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Whether all are equal to the bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def counted(parts) -> int:
    """Targets that count."""
    return sum(int((part["targets"] != -100).sum()) for part in parts)


def test_a_step_is_what_it_is_by_hand(model, make_batches):
    """Loss, gradient norms and weights are those of the textbook: mean loss, global clipping, AdamW."""
    batch = next(iter(make_batches()))
    plain = copy.deepcopy(model)
    optimizer = adamw(plain, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    logits = plain(input_ids=batch["input_ids"]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    optimizer.step()

    outcome = step_of(model, max_norm=0.5)([batch], 0.01, counted([batch]))
    assert outcome.loss == pytest.approx(loss.item(), rel=1e-5)
    assert outcome.grad_l2_pre_clip == pytest.approx(norm.item(), rel=1e-4)
    assert outcome.grad_l2_pre_clip > 0.5
    assert outcome.grad_l2_post_clip == pytest.approx(0.5, rel=1e-4)
    assert (outcome.skipped, outcome.skip_reason, outcome.scaler_scale) == (False, "", 1.0)
    for mine, by_hand in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, by_hand, rtol=1e-3, atol=1e-4)


def test_small_gradients_are_left_as_they_are(model, make_batches):
    """Below the limit, nothing is clipped, to the bit."""
    outcome = step_of(model, max_norm=1e6)([next(iter(make_batches()))], 0.01, 128)
    assert outcome.grad_l2_post_clip == outcome.grad_l2_pre_clip > 0


def test_only_matrices_decay(model):
    """Biases and norms do not decay, everything else does, and nothing is left out."""
    decaying, others = adamw(model, weight_decay=0.1).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0)
    assert {weight.dim() for weight in decaying["params"]} == {2}
    assert {weight.dim() for weight in others["params"]} == {1}
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("boundary_loss", ["keep", "both"])
def test_parts_are_the_whole(model, make_batches, boundary_loss):
    """A step in parts is the step, also where masks leave the parts different numbers of targets."""
    whole = list(islice(make_batches(boundary_loss=boundary_loss), 1))
    parts = list(islice(make_batches(of=4, boundary_loss=boundary_loss), 4))
    counts = [counted([part]) for part in parts]
    assert sum(counts) == counted(whole)
    assert (len(set(counts)) > 1) == (boundary_loss == "both")
    other = copy.deepcopy(model)
    one = step_of(model)(whole, 0.01, sum(counts))
    many = step_of(other)(parts, 0.01, sum(counts))
    assert many.loss == pytest.approx(one.loss, rel=1e-5)
    assert many.grad_l2_pre_clip == pytest.approx(one.grad_l2_pre_clip, rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_loss_that_is_not_finite_is_skipped(model, make_batches, precision):
    """Weights and the optimizer's state stay as they were; with a scaler, its scale is halved all the same."""
    batch = next(iter(make_batches()))
    step = step_of(model, precision=precision)
    step([batch], 0.01, 128)
    state = copy.deepcopy(step.optimizer.state_dict()["state"])
    with torch.no_grad():
        model.get_input_embeddings().weight[batch["input_ids"][0, 0]] = math.nan
    before = weights(model)
    outcome = step([batch], 0.01, 128)
    assert (outcome.skipped, outcome.skip_reason) == (True, "loss")
    assert not math.isfinite(outcome.loss)
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(before, weights(model), strict=True))
    after = step.optimizer.state_dict()["state"]
    assert all(torch.equal(state[key]["exp_avg"], after[key]["exp_avg"]) for key in state)
    assert step.scaler.get_scale() == (outcome.scaler_scale / 2 if precision == "fp16" else 1)


def test_gradients_that_overflow_are_skipped_until_the_scale_fits(model, make_batches):
    """With too large a scale steps are skipped and the scale halves, until one is taken."""
    batch = next(iter(make_batches()))
    step = step_of(model, precision="fp16")
    step.scaler.load_state_dict({**step.scaler.state_dict(), "scale": 2.0**24})
    before = weights(model)
    outcomes = []
    while not outcomes or outcomes[-1].skipped:
        outcomes.append(step([batch], 0.01, 128))
        assert equal(before, weights(model)) == outcomes[-1].skipped
        assert len(outcomes) < 24
    assert len(outcomes) > 1
    assert {outcome.skip_reason for outcome in outcomes[:-1]} == {"gradient"}
    assert [outcome.scaler_scale for outcome in outcomes] == [2.0 ** (24 - n) for n in range(len(outcomes))]
    assert all(math.isfinite(outcome.loss) for outcome in outcomes)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_precision_is_of_the_forward_pass_alone(model, make_batches, precision):
    """The loss is near the exact one and not it; weights and what the optimizer keeps are float32."""
    batch = next(iter(make_batches()))
    exact = step_of(copy.deepcopy(model))([batch], 0.01, 128)
    step = step_of(model, precision=precision)
    narrow = step([batch], 0.01, 128)
    assert narrow.loss != exact.loss
    assert narrow.loss == pytest.approx(exact.loss, rel=1e-2)
    assert narrow.grad_l2_pre_clip == pytest.approx(exact.grad_l2_pre_clip, rel=5e-2)
    kept = [value for state in step.optimizer.state.values() for value in state.values()]
    assert {tensor.dtype for tensor in [*model.parameters(), *kept]} == {torch.float32}


def test_a_step_without_targets_moves_no_weight_towards_anything(model, make_batches):
    """Where no target counts, loss and gradients are 0, not nan."""
    batch = next(iter(make_batches()))
    outcome = step_of(model)([{**batch, "targets": torch.full_like(batch["targets"], -100)}], 0.01, 0)
    assert (outcome.loss, outcome.grad_l2_pre_clip, outcome.skipped) == (0, 0, False)
