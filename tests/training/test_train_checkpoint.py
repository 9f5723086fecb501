"""Checkpoints: whole or not there, and damage is named."""

import resource
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from headrace.errors import TrainingError
from headrace.training.checkpoint import newest, save
from headrace.training.model import configure, make_model
from headrace.training.ranks import Ranks
from headrace.training.step import TrainStep, adamw

torch.set_num_threads(1)


@pytest.fixture
def step(corpus, config_file, make_batches):
    """A model and its optimizer, one step old."""
    model = make_model(configure(corpus, window=16, config=str(config_file)))
    step = TrainStep(model, adamw(model, weight_decay=0.1), Ranks(torch.device("cpu")), precision="fp16")
    step([next(iter(make_batches()))], 0.01, 128)
    return step


@pytest.fixture
def run(tmp_path, step):
    """A folder with checkpoints of the steps 10, 20 and 30, the last two of which were kept."""
    for number in (10, 20, 30):
        save(tmp_path, number, step.model, step.state_dict(), {"loader": {"step": number}, "loss": 0.1 + 0.2}, keep=2)
    return tmp_path


def names(run) -> list[str]:
    """What is in the folder of checkpoints."""
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_all_of_it_comes_back(run, step):
    """The state, the weights and the optimizer's state are as they were, to the bit; older ones are gone."""
    assert names(run) == ["step-00000020", "step-00000030"]
    found = newest(run)
    assert found is not None
    assert (found.step, found.state["loader"], found.state["loss"]) == (30, {"step": 30}, 0.1 + 0.2)
    assert all(torch.equal(a, b) for a, b in zip(step.model.parameters(), found.model().parameters(), strict=True))
    kept, there = step.state_dict(), found.optimizer()
    assert there["scaler"] == kept["scaler"]
    assert there["optimizer"]["param_groups"] == kept["optimizer"]["param_groups"]
    for number, values in kept["optimizer"]["state"].items():
        assert all(torch.equal(value, there["optimizer"]["state"][number][name]) for name, value in values.items())


def test_transformers_opens_it(run, step):
    """`from_pretrained` takes the folder as a model."""
    model = AutoModelForCausalLM.from_pretrained(run / "checkpoints/step-00000030")
    assert all(torch.equal(a, b) for a, b in zip(step.model.parameters(), model.parameters(), strict=True))


def test_a_folder_without_any_has_none(tmp_path):
    """A run that had no time for a checkpoint has none, and that is no error."""
    assert newest(tmp_path) is None


def test_what_was_not_finished_is_not_seen_and_goes(run, step):
    """A checkpoint that a killed run had begun is hidden, never taken for one, and removed when the next one is written."""
    folder = run / "checkpoints"
    shutil.copytree(folder / "step-00000030", folder / ".step-00000040.123.abcd")
    found = newest(run)
    assert found is not None
    assert found.step == 30
    save(run, 40, step.model, step.state_dict(), {}, keep=2)
    assert names(run) == ["step-00000030", "step-00000040"]


def test_the_one_that_was_just_written_stays(run, step):
    """Once a run went on from a checkpoint before the damaged ones, those go, and not the new one in their place."""
    damaged = run / "checkpoints/step-00000030/state.json"
    damaged.write_text("{}")
    written = save(run, 25, step.model, step.state_dict(), {}, keep=1)
    assert names(run) == ["step-00000025"]
    found = newest(run)
    assert found is not None
    assert found.path == written


@pytest.mark.parametrize("room", [10_000, 200_000])
def test_a_full_disk(run, step, room):
    """What cannot be written is said in words, whichever file it is; the checkpoints that are there stay, and no part of it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(TrainingError, match="step-00000040: the checkpoint cannot be written"):
            save(run, 40, step.model, step.state_dict(), {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(run) == ["step-00000020", "step-00000030"]


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "model.safetensors", "optimizer.pt", "state.json"]
)
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damage_is_named(run, name, harm):
    """A flipped byte, a cut or a missing file: the file is named, the last whole checkpoint is taken only if asked for."""
    path = run / "checkpoints/step-00000030" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(data if harm == "flip" else data[:-1])
    with pytest.raises(TrainingError, match="--skip-damaged to go on from step 20") as caught:
        newest(run)
    assert [problem.place for problem in caught.value.problems] == [str(path)]
    found = newest(run, skip_damaged=True)
    assert found is not None
    assert found.step == 20


def test_nothing_whole_is_left(run):
    """Where all are damaged, all are named, and there is nothing to go on from."""
    for path in (run / "checkpoints").glob("step-*/state.json"):
        path.write_text("{}")
    with pytest.raises(TrainingError, match=r"all checkpoints of .* are damaged") as caught:
        newest(run, skip_damaged=True)
    assert len(caught.value.problems) == 2
