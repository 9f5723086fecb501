"""Training batches out of a corpus: `batch` (the value), `loader` (plan + corpus), `sliding` (the simple loader)."""

from headrace.loading.batch import Batch
from headrace.loading.loader import Loader
from headrace.loading.sliding import SlidingWindowDataloader

__all__ = ["Batch", "Loader", "SlidingWindowDataloader"]
