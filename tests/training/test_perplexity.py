"""Perplexity: of every target once, by a plain loop; and nothing is left changed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

import headrace
from headrace.errors import PlanError
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training.evaluate import Perplexity, perplexity

WINDOW, VOCABULARY = 16, 40


class Bigram(torch.nn.Module):
    """Predicts from the last token alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = torch.nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, input_ids, **_):
        """What a model of transformers gives."""
        return type("Output", (), {"logits": self.scores(input_ids)})


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are no work for several; on a busy machine these would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Some 500 tokens in two shards."""
    documents = random_documents(3, [9, 10], vocab_size=VOCABULARY)
    with headrace.open(small_corpus(tmp_path_factory.mktemp("held") / "c", documents, vocab_size=VOCABULARY)) as opened:
        yield opened


@pytest.fixture
def model():
    """A GPT-2 of next to nothing, with dropout."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=WINDOW, n_embd=8, n_layer=2, n_head=2))


def plain(model, tokens: np.ndarray, window: int, stride: int) -> Perplexity:
    """One window after the other; each counts the targets that none before it did."""
    line = torch.tensor(tokens.astype(np.int64))
    losses, counted, start = [], 1, 0
    model = model.eval()
    while counted < len(line):
        start = min(start, len(line) - 1 - window)
        with torch.no_grad():
            logits = model(input_ids=line[None, start : start + window], use_cache=False).logits[0]
        first = counted - start - 1
        targets = line[start + 1 : start + 1 + window]
        losses += torch.nn.functional.cross_entropy(logits[first:], targets[first:], reduction="none").tolist()
        counted, start = start + 1 + window, start + stride
    return Perplexity(math.fsum(losses) / len(losses), len(losses))


@settings(max_examples=40)
@given(st.integers(1, 600), st.data())
def test_every_target_once(corpus, window, data):
    """Whatever the window, the stride and the batch: all tokens but the first, and the mean of a plain loop."""
    stride = data.draw(st.none() | st.integers(1, window))
    model = Bigram()
    found = perplexity(model, corpus, window, stride=stride, batch=data.draw(st.integers(1, 9)))
    assert found.targets == len(corpus) - 1
    line = torch.tensor(corpus[:].astype(np.int64))
    wanted = torch.nn.functional.cross_entropy(model.scores(line[:-1]), line[1:]).item()
    assert found.mean_loss == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("stride", "batch"), [(None, 1), (None, 7), (1, 7), (5, 3), (15, 1), (WINDOW, 7)])
def test_a_plain_loop_over_windows(corpus, model, stride, batch):
    """With a model that looks at all that comes before, each target is predicted from the window that should count it."""
    found = perplexity(model, corpus, WINDOW, stride=stride, batch=batch)
    wanted = plain(model, corpus[:], WINDOW, stride or WINDOW)
    assert found.targets == wanted.targets
    assert found.mean_loss == pytest.approx(wanted.mean_loss, rel=1e-5)
    assert found.value == pytest.approx(math.exp(wanted.mean_loss), rel=1e-4)


def test_what_does_not_count(tmp_path, model):
    """A loss mask of the corpus and the borders of documents are left out, in the tail too."""
    documents = random_documents(4, [12], vocab_size=VOCABULARY)
    masks = [[np.arange(len(document) + 1) % 3 > 0 for document in documents[0]]]
    with headrace.open(small_corpus(tmp_path / "c", documents, vocab_size=VOCABULARY, masks=masks)) as corpus:
        counts = np.concatenate(masks[0])[1:]
        for window in range(1, WINDOW + 1):
            assert perplexity(model, corpus, window, batch=4).targets == counts.sum()
        boundaries = corpus[1:] == 0
        found = perplexity(model, corpus, 7, batch=4, boundary_loss="target")
        assert found.targets == (counts & ~boundaries).sum()


def test_documents_apart(tmp_path, model):
    """What was kept apart in training is kept apart here: each document has the loss that it has alone."""
    documents = random_documents(6, [7], longest=WINDOW - 2, vocab_size=VOCABULARY)[0]
    total = 0.0
    with headrace.open(small_corpus(tmp_path / "c", [documents], vocab_size=VOCABULARY)) as corpus:
        model.config.n_positions = len(corpus)
        torch.manual_seed(1)
        model = GPT2LMHeadModel(model.config)
        whole = perplexity(model, corpus, len(corpus) - 1, batch=1, documents_apart=True, boundary_loss="after")
    for document in documents:
        with headrace.open(small_corpus(tmp_path / f"d{total}", [[document]], vocab_size=VOCABULARY)) as alone:
            found = perplexity(model, alone, 500, batch=1)
            total += found.mean_loss * found.targets
    assert whole.mean_loss * whole.targets == pytest.approx(total, rel=1e-5)


def test_nothing_is_left_changed(corpus, model):
    """Modes of all parts, gradients and the random generator are as before; dropout is off meanwhile."""
    model.train()
    model.transformer.h[1].eval()
    modes = [part.training for part in model.modules()]
    before = torch.get_rng_state()
    first, second = (perplexity(model, corpus, WINDOW, batch=5) for _ in range(2))
    assert first == second
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in model.parameters())
    model.lm_head.register_forward_hook(_fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        perplexity(model, corpus, WINDOW, batch=5)
    assert [part.training for part in model.modules()] == modes


def _fail(*_) -> None:
    raise RuntimeError("on purpose")


def test_a_limit(corpus, model):
    """So many batches from the front, the tail among them where they reach it."""
    whole = perplexity(model, corpus, WINDOW, batch=2)
    assert perplexity(model, corpus, WINDOW, batch=2, limit=3).targets == 3 * 2 * WINDOW
    assert perplexity(model, corpus, WINDOW, batch=2, limit=1000) == whole


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(corpus, model, precision):
    """Close to the value in full precision, and not it."""
    whole = perplexity(model, corpus, WINDOW, batch=4)
    half = perplexity(model, corpus, WINDOW, batch=4, precision=precision)
    assert half.mean_loss != whole.mean_loss
    assert half.mean_loss == pytest.approx(whole.mean_loss, rel=1e-2)


@pytest.mark.parametrize(
    ("mean", "value"), [(0.0, 1.0), (709.0, math.exp(709)), (710.0, math.inf), (math.inf, math.inf)]
)
def test_overflow(mean, value):
    """A mean loss whose exponential no float holds is an infinite perplexity, not an error."""
    assert Perplexity(mean, 1).value == value


def test_an_overflow_of_a_model(corpus):
    """So it is where the model is that bad."""
    model = Bigram()
    with torch.no_grad():
        model.scores.weight.mul_(1e6)
    assert perplexity(model, corpus, WINDOW, batch=4).value == math.inf


def test_what_cannot_be(corpus, model, tmp_path):
    """A stride that leaves out targets, and a corpus without any."""
    with pytest.raises(PlanError, match="stride: wanted at most the window of 4"):
        perplexity(model, corpus, 4, batch=1, stride=5)
    with headrace.open(small_corpus(tmp_path / "one", [[[]]], vocab_size=VOCABULARY)) as one, pytest.raises(PlanError):
        perplexity(model, one, 4, batch=1)
