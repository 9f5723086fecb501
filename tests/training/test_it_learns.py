"""A tiny GPT-2 learns real text in about a minute; and not where its targets are shuffled."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

import headrace
from headrace.testing.corpora import small_corpus
from headrace.training.loop import train
from headrace.training.options import RunOptions

torch.set_num_threads(1)
MOST = 0.6
"""Of the unigram perplexity."""
MODULES = ("argparse.py", "ast.py", "calendar.py", "datetime.py", "doctest.py", "inspect.py", "mailbox.py", "pathlib.py",
           "pdb.py", "pickle.py", "statistics.py", "tarfile.py", "threading.py", "typing.py", "uuid.py", "zipfile.py")  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Path:
    """Paragraphs of Python's own modules as bytes: `train` and `val`, which share none; and `shuffled`, the former in disorder."""
    folder = tmp_path_factory.mktemp("learn")
    library = Path(sysconfig.get_paths()["stdlib"])
    text = "\n\n".join((library / name).read_text(encoding="utf-8") for name in MODULES if (library / name).exists())
    headrace.build(headrace.Documents(text.split("\n\n"), name="library"), folder / "all")
    headrace.split(folder / "all", folder, {"val": 0.05}, workers=1)
    with headrace.open(folder / "train") as corpus:
        tokens = np.random.default_rng(0).permutation(corpus[:])
    small_corpus(folder / "shuffled", [[tokens.astype(np.int64)]], chunk_size=4096)
    return folder


def unigram_perplexity(train: headrace.Corpus, held_out: headrace.Corpus) -> float:
    """Of a model that knows how frequent each token is, and nothing else."""
    counts = np.bincount(train[:], minlength=train.vocab_size) + 1.0
    return float(np.exp(-np.log(counts / counts.sum())[held_out[1:]].mean()))


@pytest.mark.extended
@pytest.mark.parametrize("name", ["train", "shuffled"])
def test_it_learns(parts, tmp_path, name):
    """On held-out text at most 0.6 of the unigram perplexity; out of the same tokens in disorder, nothing can be learned."""
    options = RunOptions(
        corpus=str(parts / name), config="tiny", window=128, batch=16, steps=250, lr=3e-3, warmup=20,
        evaluate=str(parts / "val"), checkpoint_every=1000,
    )  # fmt: skip
    report = train(options, tmp_path / "run")
    with headrace.open(parts / "train") as corpus, headrace.open(parts / "val") as held_out:
        ratio = report.perplexity / unigram_perplexity(corpus, held_out)
    assert (ratio <= MOST) == (name == "train"), ratio
    if name == "shuffled":
        assert ratio == pytest.approx(1, abs=0.2)
