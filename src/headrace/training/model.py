"""Causal language models through transformers: a GPT-2 of random weights, any configuration, or trained weights."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config
from transformers.utils import logging

from headrace.adapters.vocabulary import check_vocabulary
from headrace.corpus import Corpus
from headrace.errors import TrainingError
from headrace.training.loss import logits_of

__all__ = [
    "check_apart",
    "check_causal",
    "configure",
    "fields_of",
    "make_model",
    "save_weights",
    "seed_torch",
    "stored",
    "weights_of",
]

NAMED: dict[str, dict[str, Any]] = {"gpt2": {}, "tiny": {"n_layer": 2, "n_head": 4, "n_embd": 128}}
"""GPT-2 (124 million parameters) and a small one, as far as they differ from `GPT2Config`."""
DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout", "residual_dropout")
"""Names under which configurations have it."""
UNIMPORTANT = ("transformers_version", "architectures", "dtype", "_name_or_path")
"""Of a configuration: what says nothing of the model."""
_NO_MODEL = (
    *(OSError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError),
    *(SafetensorError, StrictDataclassError),
)
"""What transformers, and the models in it, raise where a configuration says nonsense or weights are damaged."""
WEIGHTS = 0
"""What is seeded; the steps are others."""


def configure(
    corpus: Corpus,
    *,
    window: int,
    config: str | None = None,
    pretrained: str | None = None,
    local: bool = True,
    dropout: float | None = None,
) -> Any:  # noqa: ANN401  # any configuration of transformers
    """Say what the model is to be.

    Args:
        corpus: says the vocabulary of `gpt2` and `tiny`; any other model must have a row for each of its ids.
        window: in tokens; the model must have as many positions.
        config: `gpt2` (the default), `tiny`, or a `config.json` of transformers.
        pretrained: in its place, a folder of weights, or a name that the hub's cache on this machine has.
        local: fetch nothing from the hub.
        dropout: by default 0 for `gpt2` and `tiny`, and else what the configuration says.

    Raises:
        TrainingError: there is no such model here, or it has no vocabulary, too few positions, or no dropout to set.
        TokenIdError: it has too few ids.
    """
    option = "config" if pretrained is None else "pretrained"
    if pretrained is None and (config is None or config in NAMED):
        found = _gpt2(NAMED[config or "gpt2"], corpus)
    else:
        found = stored(option, pretrained or str(config), local=local)
    if dropout is not None:
        _set_dropout(found, dropout)
    if not isinstance(getattr(found, "vocab_size", None), int):
        raise TrainingError(
            f"{option}: a {found.model_type} is no language model with one vocabulary; wanted a causal one"
        )
    check_vocabulary(found.vocab_size, corpus)
    positions = getattr(found, "max_position_embeddings", None)
    if positions is not None and positions < window:
        raise TrainingError(
            f"window: the model has {positions} positions, found a window of {window}: take a shorter one, or a model with more"
        )
    return found


def stored(option: str, place: str, *, local: bool = True) -> Any:  # noqa: ANN401  # any configuration of transformers
    """Read a configuration; `option` is what names its place.

    Raises:
        TrainingError: there is none.
    """
    if option == "config" and not Path(place).exists():
        raise TrainingError(
            f"config: wanted {', '.join(NAMED)} or a config.json of transformers, found no file {place}"
        )
    try:
        return AutoConfig.from_pretrained(place, local_files_only=local)
    except _NO_MODEL as error:
        hint = "; nothing is fetched from the hub unless --allow-download is given"
        raise TrainingError(
            f"{option}: no model of transformers at {place}{hint if local and not Path(place).exists() else ''}: "
            f"{_first_line(error)}"
        ) from error


def make_model(config: Any, *, seed: int = 0, pretrained: str | None = None, local: bool = True) -> Any:  # noqa: ANN401  # any model of transformers
    """Make a model in float32, on the CPU: of weights that the seed decides, or that were trained.

    Raises:
        TrainingError: no model can be made so.
    """
    option = "config" if pretrained is None else "pretrained"
    seed_torch(seed, WEIGHTS)
    try:
        if pretrained is None:
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
        else:
            model = weights_of(pretrained, local=local, config=config)
    except _NO_MODEL as error:
        raise TrainingError(f"{option}: no causal language model can be made of it: {_first_line(error)}") from error
    return model


def check_causal(model: Any) -> None:  # noqa: ANN401  # as above
    """Refuse a model in which the scores behind a token change with those after it: it would learn to look.

    Raises:
        TrainingError: so it is, or the model gives no scores at all.
    """
    ids = torch.tensor([[0, 0], [0, 1]])
    try:
        first = _scores(model, {"input_ids": ids})[0][:, 0]
    except _NO_MODEL as error:
        raise TrainingError(
            f"the {model.config.model_type} that was made of its configuration cannot work: {_first_line(error)}"
        ) from error
    if not torch.allclose(first[0], first[1], rtol=1e-3, atol=1e-5):
        raise TrainingError(
            f"the {model.config.model_type} sees the tokens that it is to predict; wanted a causal model (some become one by "
            '"is_decoder": true in their config.json)'
        )


def check_apart(model: Any) -> None:  # noqa: ANN401  # as above
    """Refuse a model in which documents of a window cannot be kept apart, or not by a mask and positions alone.

    Some add the mask to their scores, ignore it, or carry a state from token to token.

    Raises:
        TrainingError: so it is.
    """
    first, second = torch.tensor([[0, 1]]), torch.tensor([[1]])
    window = {
        "input_ids": torch.cat([first, second], 1),
        "document_ids": torch.tensor([[0, 0, 1]]),
        "position_ids": torch.tensor([[0, 1, 0]]),
    }
    why = "they see each other, or have other positions than alone"
    try:
        together, *alone = _scores(model, window, {"input_ids": first}, {"input_ids": second})
        apart = torch.allclose(together, torch.cat(alone, 1), rtol=1e-3, atol=1e-5)
    except _NO_MODEL as error:
        apart, why = False, _first_line(error)
    if not apart:
        raise TrainingError(
            f"documents_apart: a {model.config.model_type} does not keep the documents of a window apart: {why}. Leave it out, "
            "or take another model"
        )


def _scores(model: Any, *parts: dict[str, Tensor]) -> list[Tensor]:  # noqa: ANN401  # as above
    """The logits of some batches, without dropout; the model is left as one that is trained."""
    model.eval()
    try:
        with torch.no_grad():
            return [logits_of(model, part) for part in parts]
    finally:
        model.train()


def weights_of(folder: str | Path, *, local: bool = True, config: Any = None) -> Any:  # noqa: ANN401  # as above
    """Load a model that was saved, in float32."""
    with _no_bars():
        model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, local_files_only=local)
    return model.train()


def save_weights(model: Any, folder: Path) -> None:  # noqa: ANN401  # as above
    """Save weights and configuration, so that `from_pretrained` of transformers opens the folder."""
    with _no_bars():
        model.save_pretrained(folder)


@contextmanager
def _no_bars() -> Generator[None]:
    """Keep the progress bars of transformers off the terminal, where the run has its own."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def fields_of(config: Any) -> dict[str, Any]:  # noqa: ANN401  # as above
    """Return what makes a model what it is, by the names of its configuration, as JSON holds it."""
    fields: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in fields.items() if name not in UNIMPORTANT}


def seed_torch(*words: int) -> None:
    """Seed torch's generators, of the CPU and of GPUs, by some numbers: all that is drawn is a function of them."""
    torch.manual_seed(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]))


def _gpt2(differing: dict[str, Any], corpus: Corpus) -> GPT2Config:
    ends = corpus.manifest.boundary_token_id
    return GPT2Config(
        vocab_size=corpus.vocab_size,
        bos_token_id=ends,
        eos_token_id=ends,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **differing,
    )


def _first_line(error: Exception) -> str:
    first, *others = (str(error) or type(error).__name__).splitlines()
    return f"{first} {others[0].strip()}" if others and first.endswith(":") else first


def _set_dropout(config: Any, share: float) -> None:  # noqa: ANN401  # as above
    names = [name for name in DROPOUTS if hasattr(config, name)]
    if not names:
        raise TrainingError(f"dropout: a {config.model_type} has none; leave it out")
    for name in names:
        setattr(config, name, share)
