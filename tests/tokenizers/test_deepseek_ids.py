"""A real tokenizer.json of 129,280 ids through gigatoken: the ids of Hugging Face `tokenizers`."""

import numpy as np
import pytest
import tokenizers

from headrace.testing.vocabularies import DEEPSEEK
from headrace.tokenizers.load import load_tokenizer, resolve_bos, resolve_boundary


@pytest.fixture(scope="module")
def path(real):
    """Its tokenizer.json."""
    return real(DEEPSEEK)


def test_ids_equal_hugging_face(path, texts, hard):
    """Hard texts and many scripts, 32-bit ids; decoded they are the texts."""
    loaded = load_tokenizer(path)
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    drawn = [*hard, *texts[:20]]
    ids, ends = loaded.encode_documents([text.encode() for text in drawn])
    parts = [part.tolist() for part in np.split(ids, ends[:-1])]
    assert parts == [reference.encode(text, add_special_tokens=False).ids for text in drawn]
    assert (loaded.by_library, loaded.vocab_size, ids.dtype) == (False, 129_280, np.uint32)
    assert [loaded.decode(part) for part in parts] == drawn
    assert (resolve_bos(loaded, "auto"), resolve_boundary(loaded)) == (0, 1)
