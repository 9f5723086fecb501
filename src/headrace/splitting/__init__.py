"""A corpus -> its parts, each a corpus, that share no text: `request` -> `copying` -> `place` -> `split`."""
