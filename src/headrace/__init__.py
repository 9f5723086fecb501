"""Headrace: raw documents -> a verified, sharded token corpus -> training batches."""

from headrace._version import __version__

__all__ = ["__version__"]
