"""Helpers for tests of code that uses Headrace: in-memory twins and test vocabularies. Import the module you need."""
