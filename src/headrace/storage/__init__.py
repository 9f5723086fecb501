"""Tokens on disk: writing shards, and reading them through one map from token ranges to byte ranges."""
