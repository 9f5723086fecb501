"""`headrace train`: what it prints and writes, its exit codes, and what stops it."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from headrace.testing.corpora import random_documents, small_corpus

torch.set_num_threads(1)
SMALL = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}


@pytest.fixture
def asked(tmp_path):
    """Arguments of a short run."""
    corpus = small_corpus(tmp_path / "corpus", random_documents(5, [40, 30]))
    config = tmp_path / "small.json"
    config.write_text(json.dumps(SMALL))
    return [corpus, "--config", config, "--window", 16, "--steps", 12, "--warmup", 3, "--checkpoint-every", 5]


def losses(run) -> list[str]:
    """Of each step."""
    return [line.split(",")[4] for line in (run / "log.csv").read_text().splitlines()[1:]]


def test_a_run(headrace, asked, tmp_path):
    """Exit code 0; lines on stderr, a report on stdout; the run file does it again, and flags win over it."""
    ran = headrace("train", *asked, "-o", tmp_path / "run")
    assert ran.code == 0, ran.err
    rows = [line.split("  ", 1)[0] for line in ran.out.splitlines()]
    assert rows == ["run", "steps", "loss", "time", "checkpoint"]
    assert "every byte compared" in ran.err
    assert "12 steps of 128 tokens" in ran.err
    again = headrace("train", "--run", tmp_path / "run/run.toml", "-o", tmp_path / "again")
    assert again.code == 0, again.err
    assert losses(tmp_path / "again") == losses(tmp_path / "run")
    other = headrace("train", "--run", tmp_path / "run/run.toml", "-o", tmp_path / "other", "--seed", 1, "--epochs", 1)
    assert other.code == 0, other.err
    assert losses(tmp_path / "other") != losses(tmp_path / "run")


def test_events_as_json_lines(headrace, asked, tmp_path):
    """With --json, stdout is one event a line, the report last."""
    ran = headrace("train", *asked, "-o", tmp_path / "run", "--json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("StepRecord") == 12
    assert kinds.count("CheckpointSaved") == 3
    assert kinds[-1] == "RunReport"
    assert events[-1]["step"] == 12


def test_a_run_goes_on(headrace, asked, tmp_path):
    """--resume needs the folder alone; what differs from the run there is refused by name."""
    assert headrace("train", *asked, "-o", tmp_path / "run").code == 0
    refused = headrace("train", "-o", tmp_path / "run", "--resume", "--window", 8, "--precision", "bf16")
    assert refused.code == 1
    assert "  window: the run has 16, found 8\n" in refused.err
    assert "  precision: the run has fp32, found bf16\n" in refused.err
    assert headrace("train", *asked, "-o", tmp_path / "run").err.count("give --resume") == 1
    ran = headrace("train", "-o", tmp_path / "run", "--resume", "--steps", 14)
    assert ran.code == 0, ran.err
    assert "from step 12 on" in ran.err
    assert len(losses(tmp_path / "run")) == 14


def test_wrong_usage(headrace, asked, tmp_path):
    """Exit code 2 where the arguments are wrong whatever they are applied to, else 1; all faults at once."""
    assert headrace("train", *asked).code == 2
    assert headrace("train", "-o", tmp_path / "run").code == 2
    assert headrace("train", *asked, "-o", tmp_path / "run", "--warmup", "some").code == 2
    assert headrace("train", *asked, "-o", tmp_path / "run", "--precision", "fp8").code == 2
    ran = headrace("train", *asked, "-o", tmp_path / "run", "--batch", 0, "--keep", 0)
    assert ran.code == 2
    assert "  batch: wanted at least 1, found 0\n  keep: wanted at least 1, found 0\n" in ran.err
    assert headrace("train", *asked, "-o", tmp_path / "run", "--skip-damaged").code == 2
    ran = headrace("train", *asked, "-o", tmp_path / "run", "--warmup", "1.5", "--floor", 1)
    assert ran.code == 2
    assert (
        "  warmup: wanted a whole number of steps, or a fraction of them, found 1.5\n  floor: wanted at most lr"
        in ran.err
    )
    ran = headrace("train", *asked, "-o", tmp_path / "run", "--device", "meta")
    assert ran.code == 1
    assert "device: wanted auto, cpu or a GPU" in ran.err
    ran = headrace("train", "-o", tmp_path / "run", "--resume")
    assert ran.code == 1
    assert "no run to resume" in ran.err
    assert headrace("train", tmp_path / "none", "-o", tmp_path / "run").code == 1
    assert not (tmp_path / "run").exists()


def test_damage_stops_a_run(headrace, asked, tmp_path):
    """One flipped byte: exit code 1, with shard and tokens, and nothing is written; so does another fingerprint."""
    shard = tmp_path / "corpus/000001-0000-0000.h5"
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    ran = headrace("train", *asked, "-o", tmp_path / "run")
    assert ran.code == 1
    assert "000001-0000-0000" in ran.err
    assert "tokens" in ran.err
    ran = headrace("train", *asked, "-o", tmp_path / "run", "--verify", "off", "--expect", "0123456789")
    assert ran.code == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.extended
def test_interrupted(asked, tmp_path, until):
    """Ctrl-C: exit code 130 and a checkpoint, from which the run goes on."""
    run = tmp_path / "run"
    words = [*map(str, asked), "--steps", "100000", "-o", str(run)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace", "train", *words], stderr=subprocess.PIPE, env=environment
    )
    try:
        until(lambda: (run / "checkpoints").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert b"headrace: interrupted" in err
    assert b"Traceback" not in err
    newest = max((run / "checkpoints").glob("step-*"))
    assert int(newest.name.removeprefix("step-")) == len(losses(run))


def test_the_extra_is_named(run_process, tmp_path):
    """Without torch, the command says what to install; --help works."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module', name='torch')")
    environment = {"PYTHONPATH": str(tmp_path)}
    ran = run_process("train", "corpus", "-o", "run", env=environment)
    assert (ran.code, ran.err.count("pip install 'headrace[train]'")) == (1, 1)
    assert run_process("train", "--help", env=environment).code == 0


def test_missing_parts_of_the_extra_are_named_at_once(run_process, tmp_path):
    """What only a later part of a run needs is missed before anything is read; all that is missing is named."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(dict.fromkeys(('matplotlib', 'tomli_w')))\n"
    )
    ran = run_process("train", "corpus", "-o", "run", env={"PYTHONPATH": str(tmp_path)})
    assert (ran.code, ran.err) == (
        1,
        "headrace: not installed: matplotlib, tomli-w: pip install 'headrace[train]'\n",
    )
