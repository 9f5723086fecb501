"""Batches of documents, cut down to some of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources import DocumentBatch, Drop


@given(st.data(), st.integers(0, 6), st.booleans())
def test_a_selection_has_all_that_belongs_to_its_documents(data, count, with_ids):
    """What `select` gives is, document by document, what the batch said of it; what is no document's stays as it is."""
    texts = [bytes([97 + number]) for number in range(count)]
    batch = DocumentBatch(
        texts=texts,
        rows=np.arange(count, dtype=np.uint64) * np.uint64(2),
        offsets=np.arange(count, dtype=np.uint64) * np.uint64(10),
        files=np.arange(count, dtype=np.uint32) // np.uint32(2),
        ids=[text.upper() for text in texts] if with_ids else [],
        drops=[Drop("a.jsonl", 1, 5, "empty")],
        consumed=17,
        replaced_texts=sorted(data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=count))) if count else [],
    )
    chosen = sorted(data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=count))) if count else []
    found = batch.select(chosen)

    assert found.texts == [texts[number] for number in chosen]
    assert found.rows.tolist() == [2 * number for number in chosen]
    assert found.rows.dtype == np.uint64
    assert found.offsets.tolist() == [10 * number for number in chosen]
    assert found.files.tolist() == [number // 2 for number in chosen]
    assert found.files.dtype == np.uint32
    assert found.ids == ([texts[number].upper() for number in chosen] if with_ids else [])
    marked = {texts[number] for number in batch.replaced_texts} & {texts[number] for number in chosen}
    assert {found.texts[number] for number in found.replaced_texts} == marked
    assert (found.drops, found.consumed) == (batch.drops, 17)
