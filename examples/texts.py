"""A small corpus for the examples that train, where none is given."""

import tempfile
from pathlib import Path
from typing import Literal

import headrace


def corpus_of(
    path: str | None, *, store: Literal["hdf5", "lance"] = "hdf5", vocab_size: int | None = None
) -> headrace.Corpus:
    """Open a corpus, or make one of bytes in a temporary folder."""
    if path is not None:
        return headrace.open(path, vocab_size=vocab_size)
    folder = Path(tempfile.mkdtemp(prefix="headrace-example-")) / "corpus"
    texts = [f"Wheel {n} turns {7 * n % 60} times a minute and grinds what it is given." for n in range(400)]
    headrace.build(headrace.Documents(texts, name="wheels"), folder, tokenizer="bytes", store=store)
    return headrace.open(folder)
