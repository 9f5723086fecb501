"""A run from its options to its last checkpoint."""

import math
import shutil
from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
import torch

import headrace
from headrace.errors import CorruptShardError, ManifestError, PlanError, TokenIdError, TrainingError
from headrace.events import Notice
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training.checkpoint import newest
from headrace.training.evaluate import perplexity
from headrace.training.log import COLUMNS, StepRecord, read_log
from headrace.training.loop import train
from headrace.training.options import RunOptions, read_options
from headrace.training.prepare import steps_of
from headrace.training.report import CheckpointSaved, EpochEnded, Evaluated, RunReport, RunStarted
from headrace.training.schedule import WarmupCosine

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def held_out(tmp_path_factory):
    """Another corpus of the same tokenizer."""
    return small_corpus(tmp_path_factory.mktemp("held-out") / "corpus", random_documents(6, [40]))


def test_what_a_run_leaves(make_options, tmp_path, rows):
    """Before the first step all that decides the run is written; then a row a step, and the last checkpoints."""
    run = tmp_path / "run"
    there = []

    def look(event: object) -> None:
        if isinstance(event, RunStarted):
            there.extend(sorted(path.name for path in run.iterdir() if path.stat().st_size))

    report = train(make_options(keep=2), run, on_event=look)
    assert there[:1] + there[-2:] == ["config.json", "run.toml", "schedule.svg"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000030", "step-00000040"]
    found = rows(run)
    assert [int(row["step"]) for row in found] == list(range(40))
    assert (run / "log.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    schedule = WarmupCosine(0.01, 4, 40)
    assert [float(row["lr"]) for row in found] == [schedule.lr(step) for step in range(40)]
    assert {row["tokens"] for row in found} == {"128"}
    assert report.loss == float(found[-1]["loss"]) < float(found[0]["loss"])
    assert (report.step, report.tokens, report.skipped) == (40, 40 * 128, 0)
    assert 0 < report.data_wait_s < report.seconds


def test_a_run_file_does_it_again(make_options, tmp_path, rows, corpus):
    """`run.toml` names the corpus by its fingerprint, too, and another run of it is the same to the bit."""
    train(make_options(steps=12), tmp_path / "one")
    options = read_options(tmp_path / "one/run.toml")
    assert options.expect == str(corpus.fingerprint)
    train(options, tmp_path / "other")
    assert rows(tmp_path / "one") == rows(tmp_path / "other")
    assert len(rows(tmp_path / "one")) == 12


def test_the_seed_decides_dropout_too(make_options, tmp_path, rows):
    """With all else equal, dropout changes the losses."""
    for name, dropout in (("with", 0.1), ("without", 0.0)):
        train(make_options(steps=3, dropout=dropout), tmp_path / name)
    assert rows(tmp_path / "with") != rows(tmp_path / "without")


def test_nothing_is_written_for_a_corpus_that_is_damaged(make_options, tmp_path, corpus_folder):
    """One flipped byte stops the run before it begins, with shard and tokens; so does another corpus than expected."""
    copied = tmp_path / "corpus"
    shutil.copytree(corpus_folder, copied)
    shard = copied / "000002-0000-0000.h5"
    data = bytearray(shard.read_bytes())
    with headrace.open(corpus_folder) as corpus:
        place = data.index(corpus.get_slice(len(corpus) - 400, len(corpus) - 380).tobytes())
    data[place] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptShardError, match=r"000002-0000-0000.*tokens"):
        train(make_options(corpus=str(copied)), tmp_path / "run")
    with pytest.raises(ManifestError, match="0123456789"):
        train(make_options(expect="0123456789"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"accumulate": 3},
        {"config": "none.json"},
        {"config": None, "pretrained": "none"},
        {"window": 33},
        {"warmup": 41},
        {"order": "documents", "window": 0x7FFFFFFF},
    ],
)
def test_what_is_impossible_is_found_before_a_verification(make_options, tmp_path, fields):
    """A run that cannot be is refused before a corpus of hours is read, and nothing is written."""
    told: list[object] = []
    with pytest.raises((TrainingError, PlanError)):
        train(make_options(**fields), tmp_path / "run", on_event=told.append)
    assert told == []
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_to_is_found_before_a_verification(make_options, tmp_path, monkeypatch):
    """A file where a folder should be, and a folder that may not be written to, are named."""
    told: list[object] = []
    (tmp_path / "file").touch()
    for run in ("file/run", "file/more/run"):
        with pytest.raises(TrainingError, match="file is no folder"):
            train(make_options(), tmp_path / run, on_event=told.append)
    monkeypatch.setattr("headrace.training.resume.os.access", lambda path, mode: path != tmp_path)  # noqa: ARG005
    with pytest.raises(TrainingError, match="may not be written to"):
        train(make_options(), tmp_path / "new/run", on_event=told.append)
    assert told == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_held_out_text_is_verified_too(make_options, tmp_path):
    """A flipped byte in the middle of it is named before the first step: it would be in every perplexity."""
    held_out = small_corpus(tmp_path / "held-out", random_documents(6, [400]))
    [shard] = held_out.glob("*.h5")
    with headrace.open(held_out) as opened:
        place = shard.read_bytes().index(opened.get_slice(8000, 8040).tobytes())
    data = bytearray(shard.read_bytes())
    data[place] ^= 1
    shard.write_bytes(data)
    options = make_options(steps=1, evaluate=str(held_out))
    with pytest.raises(CorruptShardError, match="held-out"):
        train(options, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_room_is_said_in_words(make_options, tmp_path, monkeypatch):
    """Where torch cannot have the memory of a step, that is said, and what to do."""

    def take(*_: object) -> None:
        torch.empty(1 << 55, dtype=torch.uint8)

    monkeypatch.setattr("headrace.training.run.Run._take", take)
    with pytest.raises(TrainingError, match="not enough memory: take more parts"):
        train(make_options(), tmp_path / "run")


def test_perplexities(make_options, tmp_path, held_out):
    """They are taken at the ends of epochs, every so often and at the end, and are those of the checkpoint's model."""
    options = make_options(steps=60, evaluate=str(held_out), evaluate_every=25, checkpoint_every=20, dropout=0.0)
    events: list[object] = []
    report = train(options, tmp_path / "run", on_event=events.append)
    epochs = [event for event in events if isinstance(event, EpochEnded)]
    losses = [event.loss for event in events if isinstance(event, StepRecord)]
    assert [(event.step, event.epoch) for event in epochs] == [(49, 1)]
    assert epochs[0].train_perplexity == pytest.approx(math.exp(sum(losses[:49]) / 49))
    assert [event.step for event in events if isinstance(event, Evaluated)] == [25, 49, 50, 60]
    lines = [line for line in read_log(tmp_path / "run") if line["event"] == "evaluated"]
    assert [line["perplexity"] for line in lines] == [e.perplexity for e in events if isinstance(e, Evaluated)]
    checkpoint = newest(tmp_path / "run")
    assert checkpoint is not None
    with headrace.open(held_out) as corpus:
        found = perplexity(checkpoint.model(), corpus, 16, batch=8)
        assert found.targets == len(corpus) - 1
    assert found.value == report.perplexity


def test_held_out_text_that_is_trained_on_is_refused(make_options, corpus_folder, tmp_path):
    """The training corpus is no held-out one."""
    with pytest.raises(TrainingError, match="the same corpus"):
        train(make_options(evaluate=str(corpus_folder)), tmp_path / "run")


def test_what_cannot_be_evaluated_is_known_at_once(make_options, tmp_path):
    """A held-out corpus of more ids than the model has rows for, or too short for a target, stops the run before it begins."""
    large = small_corpus(tmp_path / "large", random_documents(6, [40]), vocab_size=300)
    with pytest.raises(TokenIdError, match="knows the ids 0 to 256"):
        train(make_options(evaluate=str(large)), tmp_path / "run")
    short = small_corpus(tmp_path / "short", [[[]]])
    with pytest.raises(PlanError):
        train(make_options(evaluate=str(short)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_parts_train_alike(make_options, tmp_path, rows):
    """Accumulating gradients over parts changes the losses by rounding alone, with masks and documents kept apart."""
    fields = {"dropout": 0.0, "boundary_loss": "after", "documents_apart": True, "steps": 12}
    for name, parts in (("one", 1), ("four", 4)):
        train(make_options(accumulate=parts, **fields), tmp_path / name)
    one, four = ([float(row["loss"]) for row in rows(tmp_path / name)] for name in ("one", "four"))
    assert one == pytest.approx(four, rel=1e-4)


def test_files_of_others(make_options, tmp_path):
    """What does not say its vocabulary is trained on once it is told; ids beyond it end the run in words."""
    ids = np.random.default_rng(0).integers(0, 250, 4000)
    lance.write_dataset(pa.table({"input_ids": pa.array(ids, pa.int32())}), tmp_path / "others.lance")
    options = make_options(corpus=str(tmp_path / "others.lance"), steps=2)
    with pytest.raises(TokenIdError, match="the corpus' vocabulary has"):
        train(options, tmp_path / "run")
    assert train(replace(options, vocab_size=250), tmp_path / "run").step == 2
    assert train(read_options(tmp_path / "run/run.toml"), tmp_path / "again").step == 2
    with pytest.raises(TokenIdError, match="wanted token ids from 0 to 199"):
        train(replace(options, vocab_size=200), tmp_path / "other")


@pytest.mark.parametrize(("epochs", "steps"), [(1.1, 11), (1, 10), (0.01, 1), (1.11, 12), (1e-9, 1)])
def test_fractions_of_epochs_are_decimal(epochs, steps):
    """As many steps as the number says that was given, not one more for what a float cannot hold."""
    assert steps_of(RunOptions(corpus="c", batch=8, epochs=epochs), 80) == steps


@pytest.mark.parametrize(
    ("fields", "steps"), [({"order": "documents"}, 26), ({"order": "random", "steps": 3}, 3), ({"epochs": 0.5}, 25)]
)
def test_orders_and_epochs(make_options, tmp_path, rows, fields, steps):
    """A run is as many steps as its epochs need, of windows or of documents: the last one is taken whole."""
    train(make_options(**{"steps": None} | fields), tmp_path / "run")
    assert len(rows(tmp_path / "run")) == steps


def test_a_folder_that_holds_something_is_left_alone(make_options, tmp_path):
    """Neither another run nor other files are written over; nothing is resumed where nothing is."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="is not an empty folder: choose another folder"):
        train(make_options(), tmp_path)
    with pytest.raises(TrainingError, match=r"no run to resume: there is no run.toml"):
        train(make_options(), tmp_path, resume=True)
    train(make_options(steps=1), tmp_path / "run")
    with pytest.raises(TrainingError, match="holds a run: give --resume"):
        train(make_options(steps=1), tmp_path / "run")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_parts_that_do_not_divide_the_batch(make_options, tmp_path):
    """The message has the numbers, and a batch that would do."""
    with pytest.raises(TrainingError, match="multiple of 3, the 1 processes x 3 parts of accumulate, found 8: take 9"):
        train(make_options(accumulate=3), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stops", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_a_run_that_only_skips(make_options, tmp_path, rows, stops):
    """Once 5 % of a thousand steps were skipped for a hundred, it is said once, and the run stops if asked."""
    notices: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, Notice) and event.kind == "warning":
            notices.append(event.message)

    options = make_options(steps=160, lr=1e30, warmup=0, stop_on_skips=stops, checkpoint_every=1000)
    if stops:
        with pytest.raises(TrainingError, match="the run stops"):
            train(options, tmp_path / "run", on_event=note)
    else:
        train(options, tmp_path / "run", on_event=note)
    taken = [row["skip_reason"] for row in rows(tmp_path / "run")]
    first = taken.index("loss")
    assert len(taken) == (first + 150 if stops else 160)
    assert len(notices) == 1
    assert [line["step"] for line in read_log(tmp_path / "run") if line["event"] == "skip-alarm"] == [first + 150]


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:.*is deprecated. Please switch to:DeprecationWarning")  # torch's own use of it
def test_compiled(make_options, tmp_path, rows):
    """A compiled model trains alike, and its checkpoints are those of the model."""
    for name, compiled in (("plain", False), ("compiled", True)):
        train(make_options(steps=3, dropout=0.0, compile=compiled), tmp_path / name)
    plain, compiled = ([float(row["loss"]) for row in rows(tmp_path / name)] for name in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-4)
    saved = [newest(tmp_path / name) for name in ("plain", "compiled")]
    one, other = (checkpoint.model().state_dict() for checkpoint in saved if checkpoint is not None)
    assert one.keys() == other.keys()


def test_events(make_options, tmp_path):
    """A subscriber is told of the start, each step, each epoch and each checkpoint, in order."""
    events: list[object] = []
    train(make_options(steps=50, checkpoint_every=25), tmp_path / "run", on_event=events.append)
    kinds = [type(event) for event in events if not isinstance(event, StepRecord | Notice)]
    assert [kind for kind in kinds if kind.__module__.endswith("report")] == [
        RunStarted,
        CheckpointSaved,
        EpochEnded,
        CheckpointSaved,
        RunReport,
    ]
    assert sum(isinstance(event, StepRecord) for event in events) == 50
