"""Text files: one document a file, its bytes as they are."""

from collections.abc import Iterator, Sequence

import numpy as np

from headrace.sources.compressed import open_stream
from headrace.sources.documents import MOST_DROPS, WHOLE_FILE, BadInput, BatchBuilder, DocumentBatch, Drop
from headrace.sources.files import SourceFile
from headrace.sources.rawfile import Observer
from headrace.sources.utf8 import BOM, first_invalid_utf8, unmarked_wide_encoding, wide_encoding

__all__ = ["read_text"]

READ_BYTES = 1024 * 1024
BATCH_BYTES = 1024 * 1024


def read_text(
    files: Sequence[SourceFile],
    *,
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    batch_bytes: int = BATCH_BYTES,
    observe: Observer | None = None,
) -> Iterator[DocumentBatch]:
    """Yield the documents of files, in order, as batches; small files share one. `files` of a batch indexes `files`.

    A byte order mark is not part of a text; line ends are. A file that is not valid UTF-8 is one drop (`row` is
    `WHOLE_FILE`), or under `replace` a text with U+FFFD in it; one in UTF-16 or UTF-32 is a drop in any case.

    Args:
        files: listed files.
        on_bad_input: only `replace` makes a difference here, see `BadInput`.
        keep_empty: deliver empty texts instead of dropping them as `empty`.
        batch_bytes: a batch ends with the first file that reaches this many decompressed bytes, or `MOST_DROPS`.
        observe: receives the files' bytes as they lie on disk.

    Raises:
        SourceError: a file ends early, is damaged or has changed since it was listed.
    """
    replace = BadInput(on_bad_input) is BadInput.REPLACE
    builder = BatchBuilder()
    consumed = 0
    for index, file in enumerate(files):
        with open_stream(file, observe) as stream:
            data = b"".join(iter(lambda stream=stream: stream.read(READ_BYTES), b""))
            consumed += stream.consumed
        builder.stream_bytes += len(data)
        text, drop = _document(file, data, replace=replace, keep_empty=keep_empty)
        if drop is None:
            start = len(BOM) if data.startswith(BOM) else 0
            if replace and first_invalid_utf8(data) >= 0:
                builder.was_replaced()
            builder.add([text], np.zeros(1, np.uint64), np.array([start], np.uint64), index)
        else:
            builder.drops.append(drop)
        if builder.stream_bytes >= batch_bytes or len(builder.drops) >= MOST_DROPS:
            yield builder.take(consumed)
            consumed = 0
    if builder.texts or builder.drops or consumed:
        yield builder.take(consumed)


def _document(file: SourceFile, data: bytes, *, replace: bool, keep_empty: bool) -> tuple[bytes, Drop | None]:
    if encoding := wide_encoding(data):
        return b"", Drop(file.label, WHOLE_FILE, 0, f"invalid UTF-8 (the file is {encoding})")
    if encoding := unmarked_wide_encoding(data):
        return b"", Drop(file.label, WHOLE_FILE, 0, f"invalid UTF-8 (the file looks like {encoding})")
    invalid = first_invalid_utf8(data)
    if invalid >= 0 and not replace:
        return b"", Drop(file.label, WHOLE_FILE, invalid, "invalid UTF-8")
    text = data.removeprefix(BOM)
    if not text and not keep_empty:
        return b"", Drop(file.label, WHOLE_FILE, 0, "empty")
    return text.decode(errors="replace").encode() if invalid >= 0 else text, None
