"""Headrace: raw documents -> a verified, sharded token corpus -> training batches.

The names below load on first use, so that `import headrace` costs little more than nothing.
"""

from typing import TYPE_CHECKING, Any

from headrace._version import __version__

if TYPE_CHECKING:
    from headrace.building.build import build
    from headrace.building.pipeline import ShardedTokenizationPipeline, pack_documents
    from headrace.corpus import Corpus, MmapTokenStore
    from headrace.corpus import open_corpus as open  # noqa: A004  # `headrace.open`, as gzip.open
    from headrace.errors import HeadraceError
    from headrace.live import LiveCorpus
    from headrace.loading import Batch, Loader, SlidingWindowDataloader
    from headrace.manifest import Manifest, ShardEntry
    from headrace.sampling import Plan
    from headrace.shard_paths import load_index
    from headrace.sources import Documents, JSONLSource
    from headrace.splitting.split import split
    from headrace.storage.hdf5_writer import HDF5ShardWriter
    from headrace.tokenizers.bytes import Tokenizer
    from headrace.verify import validate_corpus, verify_shards

__all__ = [
    "Batch",
    "Corpus",
    "Documents",
    "HDF5ShardWriter",
    "HeadraceError",
    "JSONLSource",
    "LiveCorpus",
    "Loader",
    "Manifest",
    "MmapTokenStore",
    "Plan",
    "ShardEntry",
    "ShardedTokenizationPipeline",
    "SlidingWindowDataloader",
    "Tokenizer",
    "__version__",
    "build",
    "load_index",
    "open",
    "pack_documents",
    "split",
    "validate_corpus",
    "verify_shards",
]

_HOMES = {
    "Batch": "headrace.loading",
    "Corpus": "headrace.corpus",
    "Documents": "headrace.sources",
    "HDF5ShardWriter": "headrace.storage.hdf5_writer",
    "HeadraceError": "headrace.errors",
    "JSONLSource": "headrace.sources",
    "LiveCorpus": "headrace.live",
    "Loader": "headrace.loading",
    "Manifest": "headrace.manifest",
    "MmapTokenStore": "headrace.corpus",
    "Plan": "headrace.sampling",
    "ShardEntry": "headrace.manifest",
    "ShardedTokenizationPipeline": "headrace.building.pipeline",
    "SlidingWindowDataloader": "headrace.loading",
    "Tokenizer": "headrace.tokenizers.bytes",
    "build": "headrace.building.build",
    "load_index": "headrace.shard_paths",
    "open": "headrace.corpus",
    "pack_documents": "headrace.building.pipeline",
    "split": "headrace.splitting.split",
    "validate_corpus": "headrace.verify",
    "verify_shards": "headrace.verify",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any public object
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # not needed by `import headrace`

    value = getattr(import_module(home), {"open": "open_corpus"}.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
