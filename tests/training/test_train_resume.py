"""Runs that were killed, interrupted, or begun with other options: what goes on, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

import headrace
from headrace.errors import TrainingError
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training import loop, signals
from headrace.training.log import StepRecord, read_log
from headrace.training.loop import train
from headrace.training.loss import summed_loss
from headrace.training.model import configure, make_model, save_weights
from headrace.training.options import read_options, write_options
from headrace.training.report import RunStarted

torch.set_num_threads(1)

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import headrace.training.checkpoint as checkpoint
from headrace.training.loop import train
from headrace.training.options import read_options

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def live(run, what, number, resume):
    left = number

    def look(event):
        if type(event).__name__ == what and event.step == number:
            die()

    def counted(call):
        def hooked(path):
            nonlocal left
            left -= 1
            if left < 0:
                die()
            return call(path)
        return hooked

    if what == "fsync":
        checkpoint.fsync_file, checkpoint.fsync_folder = counted(checkpoint.fsync_file), counted(checkpoint.fsync_folder)
    train(read_options(Path(sys.argv[1]) / "run.toml"), run, resume=resume, on_event=look)

for number, (what, step) in enumerate(json.loads(sys.argv[3])):
    child = os.fork()  # torch is loaded, and has computed nothing yet
    if not child:
        live(sys.argv[2], what, step, number > 0)
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def killed(tmp_path):
    """Run options in processes of their own, one after the other, each of which kills itself at some place and time.

    A place is the kind of an event, of a step, or `fsync`, the n-th one of checkpoints.
    """
    folder = tmp_path / "options"
    folder.mkdir()

    def call(options, run, *places) -> None:
        write_options(options, folder)
        (folder / "config.json").write_text(options.config_file.read_text())
        words = [str(folder), str(run), json.dumps(places)]
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, *words], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [str(int(signal.SIGKILL))] * len(places), done.stderr

    return call


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("StepRecord", 17), ("StepRecord", 26)),
        pytest.param(("StepRecord", 3), ("CheckpointSaved", 10), marks=pytest.mark.extended),
        pytest.param(("fsync", 3), ("fsync", 9), marks=pytest.mark.extended),
        pytest.param(("fsync", 12), ("StepRecord", 39), marks=pytest.mark.extended),
        pytest.param(("RunStarted", 0), ("EpochEnded", 49), marks=pytest.mark.extended),
    ],
)
def test_a_run_that_was_killed_twice_is_the_run(make_options, tmp_path, rows, killed, first, second):
    """Losses, norms and all else of every step are those of a straight run, to the bit; with dropout and a scaler."""
    options = make_options(steps=52, accumulate=2, precision="bf16")
    straight, run = tmp_path / "straight", tmp_path / "run"
    train(options, straight)
    killed(options, run, first, second)
    began: list[int] = []

    def note(event: object) -> None:
        if isinstance(event, RunStarted):
            began.append(event.step)

    train(options, run, resume=True, on_event=note)
    assert began[0] % 10 == 0
    assert rows(run) == rows(straight)
    weights = [(folder / "checkpoints/step-00000052/model.safetensors").read_bytes() for folder in (run, straight)]
    assert weights[0] == weights[1]
    perplexities = [
        [line["train_perplexity"] for line in read_log(folder) if line["event"] == "epoch"]
        for folder in (run, straight)
    ]
    assert perplexities[0] == perplexities[1] != []


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_in_parts_in_one_process(make_options, tmp_path, rows, precision):
    """Stopped by an error at any step and resumed, a run is the straight one; the scaler's scale goes on, too."""
    options = make_options(precision=precision, steps=30)
    train(options, tmp_path / "straight")

    class Stopped(Exception):  # noqa: N818  # not one of ours
        pass

    for at in (14, 21):

        def stop(event: object, at: int = at) -> None:
            if isinstance(event, StepRecord) and event.step == at:
                raise Stopped

        with pytest.raises(Stopped):
            train(options, tmp_path / "run", resume=at != 14, on_event=stop)
    train(options, tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")


def test_what_differs_is_named(make_options, tmp_path):
    """Another corpus, window, order, seed, model, precision: all are refused at once, by name, and nothing is touched."""
    run = tmp_path / "run"
    train(make_options(steps=12), run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    other = small_corpus(tmp_path / "other", random_documents(7, [90]))
    asked = make_options(
        corpus=str(other), window=15, seed=1, order="documents", config="tiny", precision="bf16", lr=0.1, steps=12
    )
    with pytest.raises(TrainingError, match="holds another run") as caught:
        train(asked, run, resume=True)
    reasons = {problem.place: problem.reason for problem in caught.value.problems}
    assert {"corpus", "window", "seed", "order", "precision", "lr", "model.n_embd", "token_count"} <= reasons.keys()
    assert reasons["window"] == "the run has 16, found 15"
    assert reasons["model.n_embd"] == "the run has 32, found 128"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_differs_is_named_before_the_first_checkpoint(make_options, tmp_path, rows):
    """A run that was killed that early is what its folder says, too: what it began with goes on, else nothing is touched."""
    options = make_options(steps=3)
    train(options, tmp_path / "straight")
    run = tmp_path / "run"

    class Stopped(Exception):  # noqa: N818  # not one of ours
        pass

    def stop(event: object) -> None:
        if isinstance(event, StepRecord):
            raise Stopped

    with pytest.raises(Stopped):
        train(options, run, on_event=stop)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    other = small_corpus(tmp_path / "other", random_documents(7, [90]))
    for fields, wrong in (({"config": "tiny"}, "model.n_embd"), ({"corpus": str(other)}, "corpus")):
        with pytest.raises(TrainingError, match="holds another run") as caught:
            train(replace(options, **fields), run, resume=True)
        assert wrong in {problem.place for problem in caught.value.problems}
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    train(options, run, resume=True)
    assert rows(run) == rows(tmp_path / "straight")


def test_one_step_of_warm_up_is_not_all_of_them(make_options, tmp_path):
    """A run that was begun with a step of warm-up is not one whose steps are all of it, though 1 == 1.0."""
    options = make_options(steps=3, warmup=1)
    train(options, tmp_path / "run")
    with pytest.raises(TrainingError) as raised:
        train(replace(options, warmup=1.0, steps=5), tmp_path / "run", resume=True)
    assert [str(problem) for problem in raised.value.problems] == ["warmup: the run has 1, found 1.0"]


def test_another_tokenizer_is_named(make_options, tmp_path):
    """A corpus with the same tokens of another tokenizer is another one."""
    from headrace.manifest import TokenizerRef

    documents = random_documents(7, [90])
    one, other = (
        small_corpus(
            tmp_path / name, documents, tokenizer=TokenizerRef(kind="bytes", name="t", sha256=name * 64, vocab_size=257)
        )
        for name in "ab"
    )
    train(make_options(corpus=str(one), steps=2, verify="off"), tmp_path / "run")
    with pytest.raises(TrainingError) as caught:
        train(make_options(corpus=str(other), steps=2, verify="off"), tmp_path / "run", resume=True)
    assert {"tokenizer", "corpus"} <= {problem.place for problem in caught.value.problems}


def test_a_corpus_may_be_elsewhere(make_options, tmp_path, rows, corpus_folder):
    """It is known by its content: a copy of it goes on."""
    import shutil

    train(make_options(steps=12), tmp_path / "straight")
    train(make_options(steps=12, checkpoint_every=5), tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000012")
    shutil.copytree(corpus_folder, tmp_path / "moved")
    train(make_options(corpus=str(tmp_path / "moved"), steps=12), tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")


@pytest.mark.parametrize("store", ["hdf5", "lance"])
def test_a_corpus_that_grew(make_options, tmp_path, rows, store):
    """What was appended meanwhile is not seen: a run goes on, and is done again, on the corpus that it began with."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text that says a thing, and another\n" * 60)
    corpus = tmp_path / "grows"
    headrace.build(tmp_path / "a.txt", corpus, workers=1, store=store)
    options = make_options(corpus=str(corpus), steps=4, schedule_steps=8)
    train(replace(options, steps=8), tmp_path / "straight")
    train(options, tmp_path / "run")
    headrace.build(tmp_path / "b.txt", corpus, workers=1, store=store, append=True)
    train(replace(read_options(tmp_path / "run/run.toml"), steps=8), tmp_path / "run", resume=True)
    train(read_options(tmp_path / "straight/run.toml"), tmp_path / "again")
    assert rows(tmp_path / "run") == rows(tmp_path / "straight") == rows(tmp_path / "again")


def test_a_corpus_that_grows_while_it_is_opened(make_options, tmp_path, rows, monkeypatch):
    """Every process reads what rank 0 has found there."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text that says a thing, and another\n" * 60)
    corpus = tmp_path / "grows"
    fingerprint = headrace.build(tmp_path / "a.txt", corpus, workers=1).fingerprint
    options = make_options(corpus=str(corpus), steps=4)
    train(options, tmp_path / "straight")
    version_of = loop.version_of

    def append_once_found(*arguments: object) -> str:
        found = version_of(*arguments)
        headrace.build(tmp_path / "b.txt", corpus, workers=1, append=True)
        return found

    monkeypatch.setattr(loop, "version_of", append_once_found)
    train(options, tmp_path / "run")
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")
    assert fingerprint in read_options(tmp_path / "run/run.toml").expect


def test_more_steps_are_taken_at_the_floor(make_options, tmp_path, rows, caplog):
    """A finished run goes on with more steps; the schedule stays, one warning says so, and the run file does it again."""
    options = make_options(steps=10, dropout=0.0)
    train(options, tmp_path / "run")
    report = train(replace(options, steps=14), tmp_path / "run", resume=True)
    assert report.step == 14
    assert [float(row["lr"]) for row in rows(tmp_path / "run")[10:]] == pytest.approx([0.001] * 4)
    assert sum("past the schedule's 10" in message for message in caplog.messages) == 1
    again = read_options(tmp_path / "run/run.toml")
    assert (again.steps, again.schedule_steps) == (14, 10)
    train(again, tmp_path / "again")
    assert rows(tmp_path / "again") == rows(tmp_path / "run")
    nothing = train(again, tmp_path / "run", resume=True)
    assert (nothing.step, nothing.loss) == (14, None)
    assert nothing.checkpoint.endswith("step-00000014")
    told = (tmp_path / "run/run.toml").read_bytes()
    with pytest.raises(TrainingError, match="wanted at least the 14 steps that were taken, found 13"):
        train(replace(again, steps=13), tmp_path / "run", resume=True)
    assert (tmp_path / "run/run.toml").read_bytes() == told


def test_trained_weights_are_not_needed_twice(make_options, tmp_path, rows, corpus, config_file):
    """A run of pretrained weights goes on from its checkpoint, when those are no longer there."""
    config = configure(corpus, window=16, config=str(config_file))
    for folder in ("kept", "lost"):
        save_weights(make_model(config, seed=5), tmp_path / folder)
    options = make_options(config=None, pretrained=str(tmp_path / "kept"), steps=12)
    train(options, tmp_path / "straight")
    train(replace(options, pretrained=str(tmp_path / "lost"), checkpoint_every=5), tmp_path / "run")
    import shutil

    shutil.rmtree(tmp_path / "run/checkpoints/step-00000012")
    (tmp_path / "lost/model.safetensors").unlink()
    train(read_options(tmp_path / "run/run.toml"), tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_a_checkpoint(make_options, tmp_path, rows, monkeypatch, number):
    """On Ctrl-C and SIGTERM the step is ended and kept; then the signal does what it always does, and the run can go on."""
    monkeypatch.setattr(signals, "AGAIN", 240)  # the second signal is the first one's, however late it comes
    options = make_options(steps=12)
    train(options, tmp_path / "straight")

    def interrupt(event: object) -> None:
        if isinstance(event, StepRecord) and event.step == 4:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)  # torchrun passes it on to those that have it from the terminal

    class Ended(BaseException):
        pass

    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(number, end)
    try:
        with pytest.raises(Ended):
            train(options, tmp_path / "run", on_event=interrupt)
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000005"]
    train(options, tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_signals_do_not_wait_for_an_evaluation(make_options, tmp_path, rows, monkeypatch, batches):
    """One that comes during an evaluation, or just before its end, leaves it to the run that goes on: the log is the same."""
    held_out = small_corpus(tmp_path / "held-out", random_documents(6, [20]))
    options = make_options(steps=6, evaluate=str(held_out), evaluate_every=4, batch=64)
    train(options, tmp_path / "straight")
    count = 0

    def counted(*arguments: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        if count == batches + 1:  # one batch is read to see whether it can be
            os.kill(os.getpid(), signal.SIGTERM)
        return summed_loss(*arguments)

    class Ended(BaseException):
        pass

    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    try:
        monkeypatch.setattr("headrace.training.evaluate.summed_loss", counted)
        with pytest.raises(Ended):
            train(options, tmp_path / "run")
    finally:
        signal.signal(signal.SIGTERM, before)
        monkeypatch.undo()
    assert count == batches + 1  # at once
    for _ in range(2):
        train(options, tmp_path / "run", resume=True)
        assert rows(tmp_path / "run") == rows(tmp_path / "straight")
        found, wanted = (
            [(line["step"], line["perplexity"]) for line in read_log(run) if line["event"] == "evaluated"]
            for run in (tmp_path / "run", tmp_path / "straight")
        )
        assert found == wanted
        assert [step for step, _ in found] == [4, 6]


@pytest.mark.extended
def test_skips_before_a_kill_count(make_options, tmp_path, rows):
    """The alarm of a run that was resumed is raised when that of a straight one is."""
    options = make_options(steps=170, lr=1e30, warmup=0, stop_on_skips=True, checkpoint_every=30)
    with pytest.raises(TrainingError, match="the run stops"):
        train(options, tmp_path / "straight")

    def stop(event: object) -> None:
        if isinstance(event, StepRecord) and event.step == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(options, tmp_path / "run", on_event=stop)
    with pytest.raises(TrainingError, match="the run stops"):
        train(options, tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")


def test_one_process_at_a_time(make_options, tmp_path):
    """Where a process trains, another one is refused, and so it is once more for a new run; then the folder is free."""
    run = tmp_path / "run"
    train(make_options(steps=2), run)
    refused: list[str] = []

    def again(event: object) -> None:
        if isinstance(event, RunStarted):
            with pytest.raises(TrainingError, match="another process trains there") as caught:
                train(make_options(steps=3), run, resume=True)
            refused.append(str(caught.value))

    train(make_options(steps=3), run, resume=True, on_event=again)
    assert len(refused) == 1
    assert train(make_options(steps=4), run, resume=True).step == 4


def test_what_a_killed_start_leaves_is_no_run(make_options, tmp_path, rows):
    """Before the run file is there, no run has begun: the same command begins it."""
    train(make_options(steps=2), tmp_path / "one")
    (tmp_path / "run").mkdir()
    for name, source in (
        (".lock", ".lock"),
        ("config.json",) * 2,
        ("schedule.svg",) * 2,
        (".run.toml.12.ab12cd34", "run.toml"),
    ):
        (tmp_path / "run" / name).write_bytes((tmp_path / "one" / source).read_bytes()[:10])
    train(make_options(steps=2), tmp_path / "run")
    assert rows(tmp_path / "run") == rows(tmp_path / "one")
    assert not list((tmp_path / "run").glob(".run.toml*"))
