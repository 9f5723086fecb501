"""The `headrace` command: parse, call the library once, print."""
