"""Models of a run: their weights, their vocabulary, and documents that are kept apart."""

import json
import socket

import pytest
import torch

from headrace.errors import TokenIdError, TrainingError
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training.loss import logits_of
from headrace.training.model import (
    check_apart,
    check_causal,
    configure,
    fields_of,
    make_model,
    save_weights,
    weights_of,
)

torch.set_num_threads(1)
KINDS = [
    {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2},
    {
        "model_type": "gemma2",
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 32,
    },
    {"model_type": "gpt_neo", "num_layers": 2, "hidden_size": 32, "num_heads": 2, "attention_types": [[["global"], 2]]},
]
"""Configurations, of which the last two have the attention that transformers calls eager."""


def test_the_seed_decides_the_weights(corpus, config_file):
    """Equal seeds give equal weights, whatever torch has drawn before; another seed gives others."""
    config = configure(corpus, window=16, config=str(config_file))
    one = make_model(config, seed=3)
    torch.rand(7)
    same, other = make_model(config, seed=3), make_model(config, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(("name", "millions"), [("gpt2", 124), ("tiny", 0.5)])
def test_named_models(tmp_path, name, millions):
    """`gpt2` has 124 million weights on GPT-2's vocabulary, `tiny` half a million; both end documents as the corpus does."""
    import headrace

    vocab_size = 50257 if name == "gpt2" else 257
    folder = small_corpus(tmp_path, random_documents(1, [3]), vocab_size=vocab_size, boundary_token_id=256)
    with headrace.open(folder) as corpus:
        config = configure(corpus, window=1024, config=name)
        with torch.device("meta"):
            model = make_model(config)
    assert sum(weight.numel() for weight in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.13)
    assert (config.vocab_size, config.eos_token_id, config.resid_pdrop) == (vocab_size, 256, 0)


def test_what_does_not_fit_is_refused(corpus, config_file, tmp_path):
    """Too few ids, too few positions, no such file, no model: each in words, before any weight is made."""
    with pytest.raises(TrainingError, match="32 positions, found a window of 33"):
        configure(corpus, window=33, config=str(config_file))
    with pytest.raises(TrainingError, match=r"wanted gpt2, tiny or a config.json.*found no file nowhere.json"):
        configure(corpus, window=16, config="nowhere.json")
    small = tmp_path / "small.json"
    small.write_text(json.dumps({**json.loads(config_file.read_text()), "vocab_size": 256}))
    with pytest.raises(TokenIdError, match="knows the ids 0 to 255"):
        configure(corpus, window=16, config=str(small))
    for wrong in ('{"vocab_size": 300}', '{"model_type": "gpt2", "n_layer": "two"}'):
        small.write_text(wrong)
        with pytest.raises(TrainingError, match="config: no model of transformers at"):
            configure(corpus, window=16, config=str(small))
    small.write_text('{"model_type": "vit"}')
    with pytest.raises(TrainingError, match="config: a vit is no language model"):
        configure(corpus, window=16, config=str(small))


@pytest.mark.parametrize("wrong", [{"n_embd": 15}, {"n_embd": -16}, {"n_head": 0}, {"activation_function": "none"}])
def test_nonsense_in_a_configuration_is_told(corpus, config_file, tmp_path, wrong):
    """What transformers or torch raise, whatever it is, becomes words that name the option."""
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({**json.loads(config_file.read_text()), **wrong}))
    config = configure(corpus, window=16, config=str(path))
    with pytest.raises(TrainingError, match="config: no causal language model can be made of it: "):
        make_model(config)


def test_a_configuration_that_only_fails_at_work_is_told(corpus, tmp_path):
    """A model may be made of more heads of keys than of queries; it cannot work, which is said before the run."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**KINDS[1], "vocab_size": 257, "num_key_value_heads": 8}))
    with pytest.raises(TrainingError, match="the gemma2 that was made of its configuration cannot work: The size of"):
        check_causal(make_model(configure(corpus, window=16, config=str(path))))


def test_damaged_weights_are_told(corpus, config_file, tmp_path):
    """Weights that are cut, or not there, are refused in words."""
    save_weights(make_model(configure(corpus, window=16, config=str(config_file))), tmp_path)
    weights = tmp_path / "model.safetensors"
    for harm in (lambda: weights.write_bytes(weights.read_bytes()[:100]), weights.unlink):
        harm()
        config = configure(corpus, window=16, pretrained=str(tmp_path))
        with pytest.raises(TrainingError, match="pretrained: no causal language model can be made of it"):
            make_model(config, pretrained=str(tmp_path))


def test_a_model_that_looks_ahead_is_refused():
    """A BERT sees both sides of a token and would learn to copy the next one; as a decoder, it is causal."""
    from transformers import BertConfig

    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    check_causal(make_model(BertConfig(is_decoder=True, **sizes)))
    with pytest.raises(TrainingError, match="the bert sees the tokens that it is to predict"):
        check_causal(make_model(BertConfig(**sizes)))


def test_no_hub_is_reached_unless_asked(corpus, monkeypatch):
    """A name that is not on this machine is refused without a connection, and the message says how to ask for one."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(
        TrainingError, match=r"nobody/has-this.*nothing is fetched from the hub unless --allow-download"
    ):
        configure(corpus, window=16, pretrained="nobody/has-this")


def test_trained_weights_come_back(corpus, config_file, tmp_path):
    """A folder that was saved gives the same configuration and weights, to the bit; dropout can be another one."""
    config = configure(corpus, window=16, config=str(config_file))
    model = make_model(config, seed=3)
    save_weights(model, tmp_path)
    again = configure(corpus, window=16, pretrained=str(tmp_path))
    assert fields_of(again) == fields_of(config)
    loaded = make_model(again, pretrained=str(tmp_path))
    assert loaded.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    other = configure(corpus, window=16, pretrained=str(tmp_path), dropout=0.5)
    dropped = make_model(other, pretrained=str(tmp_path))
    assert {part.p for part in dropped.modules() if isinstance(part, torch.nn.Dropout)} == {0.5}
    assert weights_of(tmp_path).dtype == torch.float32


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: fields["model_type"])
def test_documents_that_are_kept_apart_do_not_see_each_other(corpus, tmp_path, make_batches, fields):
    """A token's scores are those of its document alone, and change with no token of another one; whatever the attention."""
    (tmp_path / "config.json").write_text(json.dumps({**fields, "vocab_size": 257}))
    model = make_model(configure(corpus, window=16, config=str(tmp_path / "config.json")))
    check_apart(model)
    model.eval()
    batch = next(iter(make_batches(document_ids=True, position_ids=True)))
    rows = [row for row, ids in enumerate(batch["document_ids"]) if len(ids.unique()) > 1]
    assert rows
    scores = logits_of(model, batch)
    together = logits_of(model, {"input_ids": batch["input_ids"]})
    for row in rows:
        for document in batch["document_ids"][row].unique():
            mine = batch["document_ids"][row] == document
            alone = logits_of(model, {"input_ids": batch["input_ids"][row, mine][None]})
            torch.testing.assert_close(scores[row, mine], alone[0], rtol=1e-3, atol=1e-5)
            changed = dict(batch, input_ids=torch.where(mine, batch["input_ids"], 7))
            torch.testing.assert_close(logits_of(model, changed)[row, mine], scores[row, mine], rtol=1e-3, atol=1e-5)
    assert not torch.allclose(scores, together, atol=1e-3)


@pytest.mark.parametrize("kind", ["mamba", "rwkv", "bloom"])
def test_a_model_that_cannot_keep_documents_apart_is_refused(corpus, tmp_path, kind):
    """What carries a state from token to token, or takes no such mask, says so before the run and not by its losses."""
    sizes = {"vocab_size": 257, "hidden_size": 32, "n_head": 2, "state_size": 4}
    layers = {"num_hidden_layers": 2, "n_layer": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **sizes, **layers}))
    model = make_model(configure(corpus, window=16, config=str(tmp_path / "config.json")))
    check_causal(model)
    with pytest.raises(TrainingError, match=f"documents_apart: a {kind} does not keep the documents of a window apart"):
        check_apart(model)
