"""Batches for PyTorch; `headrace.torch` is the same."""

try:
    import torch as _torch  # noqa: F401  # pyright: ignore[reportUnusedImport]  # only whether it is there
except ModuleNotFoundError as error:
    from headrace.errors import MissingExtraError

    raise MissingExtraError("PyTorch is not installed: pip install 'headrace[torch]'") from error

from headrace.adapters.torch.lance_samples import LanceDataset, LanceSampler
from headrace.adapters.torch.pinned import PinnedBatches
from headrace.adapters.torch.ranks import DataParallel, data_parallel
from headrace.adapters.torch.samples import SampleDataset, StepSampler
from headrace.adapters.torch.step_loader import StepDataLoader
from headrace.adapters.torch.stream import BatchStream
from headrace.adapters.torch.tensors import as_tensors
from headrace.adapters.vocabulary import check_vocabulary

__all__ = [
    "BatchStream",
    "DataParallel",
    "LanceDataset",
    "LanceSampler",
    "PinnedBatches",
    "SampleDataset",
    "StepDataLoader",
    "StepSampler",
    "as_tensors",
    "check_vocabulary",
    "data_parallel",
]
