"""Batches for frameworks: `torch` (also `headrace.torch`), `huggingface` (its `Trainer`), `jax`.

Nothing else in the package imports one of them.
"""
