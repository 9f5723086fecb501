"""What decides a run: checked all at once, written down, read again."""

from dataclasses import asdict
from math import inf

import pytest

from headrace.errors import TrainingError
from headrace.training.options import RunOptions, read_options, settled, write_options


def test_a_run_file_gives_the_options_again(tmp_path, monkeypatch):
    """What was written is read as it was, paths made absolute, from any working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    options = RunOptions(
        corpus="corpus",
        evaluate="held/out",
        pretrained="weights",
        steps=7,
        warmup=3,
        lr=0.1,
        floor=0.0,
        order="documents",
        documents_apart=True,
        stride=4,
    )
    run = tmp_path / "run"
    run.mkdir()
    write_options(options, run)
    monkeypatch.chdir("/")
    found = read_options(run / "run.toml")
    assert found == settled(found)
    assert asdict(found) == asdict(options) | {
        name: str(tmp_path / path)
        for name, path in (("corpus", "corpus"), ("evaluate", "held/out"), ("pretrained", "weights"))
    }
    assert isinstance(found.warmup, int)  # steps, not a fraction


@pytest.mark.parametrize("place", ["gpt2", "models/gpt2", "tiny"])
def test_weights_in_a_folder_called_as_a_model(tmp_path, monkeypatch, place):
    """A folder of weights is a path, whatever it is called; the name of a model is one only where there is no such folder."""
    monkeypatch.chdir(tmp_path)
    options = RunOptions(corpus="corpus", pretrained=place)
    assert settled(options).pretrained == place
    (tmp_path / place).mkdir(parents=True)
    write_options(options, tmp_path)
    monkeypatch.chdir("/")
    assert read_options(tmp_path / "run.toml").pretrained == str(tmp_path / place)
    assert settled(RunOptions(corpus="corpus", config="tiny")).config == "tiny"


def test_a_configuration_counts_from_the_run_file_alone(tmp_path, monkeypatch):
    """One that is not there is not looked for in the working folder, where another may lie."""
    (tmp_path / "small.json").touch()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs/run.toml"
    path.parent.mkdir()
    path.write_text('corpus = "c"\nconfig = "small.json"\n')
    assert read_options(path).config == str(tmp_path / "runs/small.json")


def test_flags_win(tmp_path):
    """What is given takes the place of what the file says, and of what would exclude it."""
    path = tmp_path / "run.toml"
    path.write_text('corpus = "c"\nepochs = 2\nconfig = "tiny"\nlr = 0.1\nboundary-loss = "after"\n')
    found = read_options(path, {"steps": 5, "pretrained": "gpt2", "lr": 0.2})
    assert (found.steps, found.epochs, found.pretrained, found.config, found.lr) == (5, None, "gpt2", None, 0.2)
    assert found.boundary_loss == "after"
    assert found.corpus == str(tmp_path / "c")


def test_everything_wrong_is_named_at_once(tmp_path):
    """Wrong types, values out of range, unknown fields: all are listed, with what was wanted."""
    with pytest.raises(TrainingError) as caught:
        RunOptions(corpus="c", window="16", precision="fp8", seed=True, lr=None)  # pyright: ignore[reportArgumentType]
    assert {problem.place: problem.reason for problem in caught.value.problems} == {
        "window": "wanted int, found '16'",
        "precision": "wanted one of fp32, bf16, fp16, found 'fp8'",
        "seed": "wanted int, found True",
        "lr": "wanted float, found None",
    }
    with pytest.raises(TrainingError) as caught:
        RunOptions(corpus="c", window=0, lr=-1.0, dropout=1.0, floor=float("nan"))
    assert [problem.place for problem in caught.value.problems] == ["window", "floor", "lr", "dropout"]
    assert caught.value.usage
    with pytest.raises(TrainingError) as caught:
        RunOptions(corpus="", epochs=inf, lr=inf, weight_decay=inf, clip=inf)
    assert [problem.place for problem in caught.value.problems] == ["epochs", "lr", "weight_decay", "corpus"]
    path = tmp_path / "run.toml"
    path.write_text('corpus = "c"\nwindows = 16\nzzz = 1\n')
    with pytest.raises(TrainingError, match="unknown fields") as caught:
        read_options(path)
    assert [str(problem) for problem in caught.value.problems] == [
        "windows: no such field; did you mean window?",
        "zzz: no such field",
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"steps": 3, "epochs": 1.0}, "steps"),
        ({"config": "tiny", "pretrained": "gpt2"}, "config"),
        ({"order": "random", "epochs": 1.0}, "epochs"),
        ({"order": "random"}, "steps"),
        ({"stride": 8}, "stride"),
        ({"stride": 17, "window": 16, "evaluate": "d"}, "stride"),
        ({"evaluate_every": 8}, "evaluate_every"),
    ],
)
def test_what_excludes_each_other_is_refused(fields, place):
    """Fields that say two different things, or that need another one, are named."""
    with pytest.raises(TrainingError) as caught:
        RunOptions(corpus="c", **fields)
    assert place in {problem.place for problem in caught.value.problems}


def test_no_toml(tmp_path):
    """A file that is not TOML, or names no corpus, is named."""
    path = tmp_path / "run.toml"
    path.write_text("corpus = ")
    with pytest.raises(TrainingError, match=r"run.toml: not TOML"):
        read_options(path)
    path.write_text("window = 3")
    with pytest.raises(TrainingError, match="names no corpus"):
        read_options(path)
    path.write_text('corpus = ""')
    with pytest.raises(TrainingError, match="corpus: wanted a name or a path"):
        read_options(path)
    path.write_text('corpus = "c"\nweight-decay = 0.1\nweight_decay = 0.2')
    with pytest.raises(TrainingError, match="weight_decay: given twice"):
        read_options(path)
