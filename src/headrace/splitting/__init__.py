"""A corpus -> its parts, each a corpus, that share no text: `request` -> `pieces` -> `copying` -> `place` -> `making` -> `split`."""
