"""Training batches out of a corpus.

`source` (what a corpus must offer) -> `rows` (where the rows of many steps lie), `document_rows` (rows of one document
each), `marks` (documents, places, what counts), `ahead` and `prefetch` (what is asked for early) -> `loader` (plan +
corpus -> `batch`), its `state` and `stats`; `sliding` (the loader in its simplest form).
"""

from headrace.loading.batch import Batch
from headrace.loading.loader import Loader
from headrace.loading.sliding import SlidingWindowDataloader

__all__ = ["Batch", "Loader", "SlidingWindowDataloader"]
