"""gigatoken's BPE trainer, in a process of its own.

There, because the trainer prints to stdout, and a panic in it would be ours; and its memory, which grows with the number
of different words, goes with the process.
"""

import mmap
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

from headrace.children import child_command, child_environment
from headrace.errors import TokenizerError
from headrace.tokenizers.bpe_file import BYTE_TOKENS, Merge, byte_level_bpe, to_json

__all__ = ["SEPARATOR", "train_merges"]

SEPARATOR = b"\xff"
"""Between two documents of the file to train on; no UTF-8 text holds it."""
_PIECE = 16 << 20
"""Bytes of text encoded at a time, in search of the last token that is used."""


def train_merges(text: IO[bytes], count: int) -> list[Merge]:
    """The merges of a byte-level BPE, in order: those of Hugging Face's `BpeTrainer`, for any number of threads.

    They can differ where the two libraries know other versions of Unicode: what is a letter in one decides where words
    are cut.

    Args:
        text: a file of documents with `SEPARATOR` between them, flushed and not empty.
        count: merges wanted; fewer come back where the text has no more pairs.

    Raises:
        TokenizerError: the trainer failed, with what it said last.
    """
    done = subprocess.run(
        [*child_command(__name__), str(text.fileno()), str(count)],
        capture_output=True,
        pass_fds=(text.fileno(),),
        env=child_environment(),
        process_group=0,  # Ctrl-C is for the parent, which ends this one
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TokenizerError(f"the BPE trainer of gigatoken failed ({done.returncode}): {said or 'it was killed'}")
    return pickle.loads(done.stdout)  # noqa: S301  # by our own process


def _main() -> None:
    """The process of `train_merges`: descriptor and count as arguments, the pickled merges on stdout."""
    import gigatoken  # noqa: PLC0415  # not in the parent

    descriptor, count = map(int, sys.argv[1:])
    answer = os.dup(1)
    os.dup2(2, 1)  # gigatoken prints how far it is
    source = gigatoken.TextFileSource([f"/dev/fd/{descriptor}"], separator=SEPARATOR)
    merges = gigatoken.train_bpe(source, BYTE_TOKENS + count, [])[1]
    merges = _that_occur(merges, descriptor)
    with os.fdopen(answer, "wb") as stdout:
        stdout.write(pickle.dumps(merges))


def _that_occur(merges: list[Merge], descriptor: int) -> list[Merge]:
    """The merges without those at the end that no text asked for.

    gigatoken 0.10 goes on with pairs that are no longer there once all pairs of the text are used up. The last token of
    a true merge is part of no other, so it occurs when the text is encoded; nothing behind it does.
    """
    import gigatoken  # noqa: PLC0415  # as above
    import numpy as np  # noqa: PLC0415  # not in the parent

    document = byte_level_bpe(merges, [])
    vocab: dict[str, int] = document["model"]["vocab"]
    encoder = gigatoken.Tokenizer.from_json(to_json(document))
    last = 0
    for piece in _pieces(descriptor):
        encoded = encoder.encode_batch(gigatoken.BytesSource([piece], separator=SEPARATOR), parallel=True)
        ids = np.asarray(encoded.layout.content.data)  # pyright: ignore[reportAttributeAccessIssue]  # awkward's types
        last = max(last, int(ids.max(initial=0)))
        if last == len(vocab) - 1:
            return merges
    rules: list[str] = document["model"]["merges"]
    unused = (place for place, rule in enumerate(rules) if vocab[rule.replace(" ", "")] > last)
    return merges[: next(unused, len(merges))]


def _pieces(descriptor: int) -> Iterator[bytes]:
    """The text, cut between documents."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as text:
        start = 0
        while start < len(text):
            stop = text.rfind(SEPARATOR, start + 1, start + _PIECE) if start + _PIECE < len(text) else len(text)
            if stop < 0:  # one document is larger
                stop = text.find(SEPARATOR, start + _PIECE)
            stop = stop if stop >= 0 else len(text)
            yield text[start:stop]
            start = stop


if __name__ == "__main__":
    _main()
