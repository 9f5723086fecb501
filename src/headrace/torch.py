"""Batches for PyTorch: data sets, data loaders, pinned memory, and whose part of a batch a process serves."""

from headrace.adapters.torch import (
    BatchStream,
    DataParallel,
    LanceDataset,
    LanceSampler,
    PinnedBatches,
    SampleDataset,
    StepDataLoader,
    StepSampler,
    as_tensors,
    check_vocabulary,
    data_parallel,
)

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
