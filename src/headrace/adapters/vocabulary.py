"""Whether a model has a row for every id that a corpus may hold."""

from typing import Any, Protocol

import numpy as np

from headrace.errors import TokenIdError

__all__ = ["check_vocabulary"]


class _HasVocabulary(Protocol):
    @property
    def vocab_size(self) -> int: ...


def check_vocabulary(model: Any, corpus: _HasVocabulary) -> None:  # noqa: ANN401  # any framework's
    """Refuse a model that knows fewer ids than a corpus may hold: on a GPU that is an assertion far from its cause, or none.

    Args:
        model: the number of ids; or an embedding, or a model with `get_input_embeddings()`, as those of transformers, or
            with a `config` that says `vocab_size`.
        corpus: what is to be served.

    Raises:
        TokenIdError: (a ValueError) the corpus' vocabulary is the larger one.
        TypeError: the model does not say how many ids it knows.
    """
    known = _ids_of(model)
    if corpus.vocab_size > known:
        raise TokenIdError(
            f"the model knows the ids 0 to {known - 1}, the corpus' vocabulary has {corpus.vocab_size} of them: train with the "
            "corpus' own tokenizer, or enlarge the model's embedding (resize_token_embeddings). Where the corpus does not "
            "say its vocabulary, tell it: headrace.open(path, vocab_size=...)"
        )


def _ids_of(model: Any) -> int:  # noqa: ANN401  # as above
    if isinstance(model, int | np.integer) and not isinstance(model, bool):
        return int(model)
    embeddings: Any = getattr(model, "get_input_embeddings", None)
    count = getattr(embeddings() if callable(embeddings) else model, "num_embeddings", None)
    if count is None:
        count = getattr(getattr(model, "config", None), "vocab_size", None)
    if not isinstance(count, int):
        raise TypeError(f"{type(model).__name__} does not say how many ids it knows: give the number in its place")
    return count
