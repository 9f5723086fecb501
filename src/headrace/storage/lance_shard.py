"""Reading a Lance shard without Lance: where its tokens and their loss mask lie, and its document index.

The data file of the documents has, besides one row a document, two global buffers: what the shard says of itself (JSON,
`Head`) and a crc32 for each chunk of its tokens; where there is a loss mask, a third one of its checksums. See
`docs/format.md`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError
from headrace.manifest import dtype_name_for, is_sha256
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.incoming import HASH_BYTES
from headrace.storage.lance_file import LanceFile, Page, read_lance_file
from headrace.storage.lance_names import docs_path, mask_path
from headrace.storage.layout import DATASET, LOSS_MASK, DataLayout, ShardLayout

__all__ = [
    "Head",
    "frame_faults",
    "frame_sha256",
    "inspect_lance_shard",
    "lance_crcs",
    "lance_text_hashes",
    "read_lance_documents",
    "read_lance_documents_in_pieces",
    "values_layout",
]

_HEAD = 1
"""Number of the global buffer, and ..."""
_CRCS = {DATASET: 2, LOSS_MASK: 3}
"""... of those of the checksums."""
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a shard says of itself."""

    format_version: int
    token_count: int
    document_count: int
    sha256: str
    documents_sha256: str
    chunk_size: int
    vocab_size: int
    boundary_token_id: int
    tokenizer_sha256: str
    frame_sha256: str
    """Of all bytes of the data file of the tokens that are not tokens."""
    files: tuple[str, ...]
    """Labels of the files that documents come from."""
    columns: tuple[str, ...]
    """Of the data file of the documents, in order."""
    loss_mask_sha256: str = ""
    """Of its values; empty where there is none, and so is ..."""
    loss_mask_frame_sha256: str = ""
    """... that of all else in its data file."""

    def to_json(self) -> bytes:
        """As it is stored."""
        body = {name: value for name, value in asdict(self).items() if value or not name.startswith(LOSS_MASK)}
        return json.dumps(body, sort_keys=True).encode()  # ASCII: labels that are no UTF-8 are escaped

    @classmethod
    def of(cls, file: LanceFile) -> Self:
        """Of the data file of the documents.

        Raises:
            CorruptShardError: it does not say it.
        """
        try:
            body: Any = json.loads(file.read(*file.buffers[_HEAD]))
            body |= {name: tuple(body[name]) for name in ("files", "columns")}
            head = cls(**body)
            counts = [body[name] for name in ("format_version", "token_count", "document_count", "boundary_token_id")]
            sound = all(
                type(count) is int and count >= 0 for count in [*counts, body["chunk_size"], body["vocab_size"]]
            )
            texts: list[Any] = [*body["files"], *body["columns"]]
            texts += [head.sha256, head.documents_sha256, head.frame_sha256]
            texts += [head.loss_mask_sha256, head.loss_mask_frame_sha256]
            sound = sound and all(isinstance(text, str) for text in texts)
        except (IndexError, ValueError, TypeError, KeyError) as error:
            raise CorruptShardError(
                f"{file.path}: does not say what shard it is of: it is damaged ({error})"
            ) from error
        if not sound or not head.chunk_size or not 1 <= head.vocab_size <= 1 << 32:
            raise CorruptShardError(f"{file.path}: what it says of its shard makes no sense: it is damaged")
        if len(head.columns) != len(file.columns):
            raise CorruptShardError(f"{file.path}: names {len(head.columns)} columns, and has {len(file.columns)}")
        return head


def inspect_lance_shard(path: Path) -> ShardLayout:
    """The layout of a shard.

    Args:
        path: the data file of its tokens; those of its documents and its loss mask lie in the sibling data sets.

    Raises:
        MissingShardError, UnreadableShardError, CorruptShardError: naming the file.
    """
    head = Head.of(read_lance_file(docs_path(path)))
    dtype = np.dtype(dtype_name_for(head.vocab_size)).newbyteorder("<")
    mask: DataLayout | None = None
    if head.loss_mask_sha256:
        mask = DataLayout(**_values_of(mask_path(path), LOSS_MASK, head, np.dtype(np.uint8), head.loss_mask_sha256))
    return ShardLayout(
        **_values_of(path, DATASET, head, dtype, head.sha256),
        document_count=head.document_count,
        documents_sha256=head.documents_sha256,
        compression="none",
        attributes={
            "format_version": head.format_version,
            "boundary_token_id": head.boundary_token_id,
            "vocab_size": head.vocab_size,
            "tokenizer_sha256": head.tokenizer_sha256,
        },
        loss_mask=mask,
    )


def _values_of(path: Path, name: str, head: Head, dtype: np.dtype[Any], sha256: str) -> dict[str, Any]:
    """The fields of a `DataLayout`."""
    file = read_lance_file(path)
    first, offset = values_layout(file, dtype, head.token_count)
    crcs = lance_crcs(path, name)
    if len(crcs) != -(-head.token_count // head.chunk_size):
        crcs = np.zeros(1, np.uint32)  # damage, which a verification names
    return {
        "file_size": file.size,
        "dtype": dtype,
        "token_count": head.token_count,
        "sha256": sha256,
        "digest_offset": _digest_offset(file, sha256),
        "first": first,
        "offset": offset,
        "chunk_size": head.chunk_size,
        "first_crc": int(crcs[0]) if len(crcs) else 0,
        "last_crc": int(crcs[-1]) if len(crcs) else 0,
    }


def values_layout(
    file: LanceFile, dtype: np.dtype[Any], token_count: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """First token and byte offset of each extent of a data file of one value a token; pages that touch are one.

    Raises:
        CorruptShardError: it does not hold so many, or not one behind the other as they are.
    """
    if len(file.columns) != 1:
        raise CorruptShardError(f"{file.path}: wanted one column, a value a token, found {len(file.columns)}")
    places = _flat(file, file.columns[0], dtype.itemsize, token_count, "tokens")
    first: list[int] = []
    offset: list[int] = []
    at = stop = 0
    for place, rows in places:
        if not first or place != stop:
            first.append(at)
            offset.append(place)
        at, stop = at + rows, place + rows * dtype.itemsize
    return np.array(first, np.uint64), np.array(offset, np.uint64)


def frame_sha256(file: LanceFile) -> str:
    """SHA-256 over all bytes of a data file but those of its pages."""
    digest = hashlib.sha256()
    at = 0
    pages = sorted(place for column in file.columns for page in column for place in page.buffers)
    for start, size in [*pages, (file.size, 0)]:
        while at < start:
            piece = file.read(at, min(start - at, _PIECE))
            digest.update(piece)
            at += len(piece)
        at = max(at, start + size)
    return digest.hexdigest()


def frame_faults(path: Path) -> list[Path]:
    """The data files of a shard's values of which other bytes than values are not what was stored."""
    head = Head.of(read_lance_file(docs_path(path)))
    frames = {path: head.frame_sha256}
    if head.loss_mask_sha256:
        frames[mask_path(path)] = head.loss_mask_frame_sha256
    return [file for file, wanted in frames.items() if frame_sha256(read_lance_file(file)) != wanted]


def lance_crcs(path: Path, name: str) -> NDArray[np.uint32]:
    """The checksums of the chunks of a shard's tokens or of its loss mask, as they are stored."""
    docs = read_lance_file(docs_path(path))
    if len(docs.buffers) <= _CRCS[name]:
        return np.empty(0, np.uint32)
    data = docs.read(*docs.buffers[_CRCS[name]])
    return np.frombuffer(data[: len(data) // 4 * 4], dtype="<u4").astype(np.uint32, copy=False)


def lance_text_hashes(path: Path) -> bool:
    """Whether a shard has the hashes of its documents' texts."""
    return "text_hash" in Head.of(read_lance_file(docs_path(path))).columns


def read_lance_documents(path: Path, document_count: int) -> DocumentColumns:
    """The document index of a shard, whole: see `shards.read_documents`."""
    return _Columns(path, document_count).read(0, document_count)


def read_lance_documents_in_pieces(path: Path, document_count: int, rows: int) -> Iterator[DocumentColumns]:
    """The document index of a shard, at most `rows` documents at a time."""
    columns = _Columns(path, document_count)
    for start in range(0, document_count, rows):
        yield columns.read(start, min(start + rows, document_count))


_KINDS = {
    "end": np.dtype("<u8"),
    "source_row": np.dtype("<u8"),
    "source_byte": np.dtype("<u8"),
    "source_file": np.dtype("<u4"),
    "text_hash": np.dtype(f"V{HASH_BYTES}"),
}


class _Columns:
    """The columns of the data file of a shard's documents."""

    def __init__(self, path: Path, document_count: int) -> None:
        self._file = read_lance_file(docs_path(path))
        head = Head.of(self._file)
        self._labels = head.files
        self._count = document_count
        self._pages = dict(zip(head.columns, self._file.columns, strict=True))
        self._places = {
            name: _flat(self._file, self._pages[name], kind.itemsize, document_count, name)
            for name, kind in _KINDS.items()
            if name in self._pages
        }
        wanted = ["end", *(["source_row", "source_byte", "source_file"] if self._labels else [])]
        lacking = [name for name in wanted if name not in self._places]
        if lacking:
            raise CorruptShardError(f"{self._file.path}: has no column {', '.join(lacking)}")

    def read(self, start: int, stop: int) -> DocumentColumns:
        """Those of documents [start, stop)."""
        columns = DocumentColumns(
            self._column("end", start, stop),
            self._column("source_row", start, stop),
            self._column("source_byte", start, stop),
            self._column("source_file", start, stop),
            self._labels,
        )
        if "text_hash" in self._places:
            hashes = self._column("text_hash", start, stop)
            columns = replace(columns, text_hashes=hashes.view(np.uint8).reshape(stop - start, HASH_BYTES))
        if "id" not in self._pages:
            return columns
        lengths, data, before = self._ids(start, stop)
        return replace(
            columns, id_ends=np.cumsum(lengths, dtype=np.uint64) + np.uint64(before), ids=data, first_id=before
        )

    def _column(self, name: str, start: int, stop: int) -> NDArray[Any]:
        kind = _KINDS[name]
        places = self._places.get(name)
        if places is None:
            return np.empty(0, kind)
        parts = [
            np.frombuffer(self._file.read(place + skipped * kind.itemsize, rows * kind.itemsize), kind)
            for place, skipped, rows in _overlaps(places, start, stop)
        ]
        return np.concatenate(parts) if parts else np.empty(0, kind)

    def _ids(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8], int]:
        """Lengths of the ids of documents [start, stop), their bytes, and how many come before them.

        A page has two buffers: exclusive ends of the ids in it as uint64, and the bytes.
        """
        at = before = 0
        lengths: list[NDArray[np.uint64]] = []
        data: list[NDArray[np.uint8]] = []
        for page in self._pages["id"]:
            ends = self._id_ends(page)
            begin, end = max(start - at, 0), min(stop - at, page.rows)
            at += page.rows
            if end <= begin:
                before += int(ends[-1]) if end <= 0 or at <= start else 0
                continue
            low, high = int(ends[begin]), int(ends[end])
            before += low
            lengths.append(np.diff(ends[begin : end + 1]))
            data.append(np.frombuffer(self._file.read(page.buffers[1][0] + low, high - low), np.uint8))
        if at != self._count:
            raise CorruptShardError(f"{self._file.path}: wanted {self._count} ids, found {at}")
        nothing = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return np.concatenate([nothing[0], *lengths]), np.concatenate([nothing[1], *data]), before

    def _id_ends(self, page: Page) -> NDArray[np.uint64]:
        """Where the ids of a page begin and end, shape (rows + 1,)."""
        sizes = [size for _, size in page.buffers]
        if len(sizes) == 2 and sizes[0] == page.rows * 8:  # noqa: PLR2004  # as `_ids` says
            ends = np.frombuffer(self._file.read(*page.buffers[0]), "<u8")
            ends = np.concatenate([np.zeros(1, np.uint64), ends])
            if not bool((ends[1:] < ends[:-1]).any()) and int(ends[-1]) <= sizes[1]:
                return ends
        raise CorruptShardError(f"{self._file.path}: its ids are not as they were written")


def _flat(file: LanceFile, pages: Sequence[Page], itemsize: int, count: int, name: str) -> list[tuple[int, int]]:
    """Byte offset and rows of each page of a column of plain values.

    Raises:
        CorruptShardError: it is none, or not of so many rows.
    """
    for page in pages:
        if len(page.buffers) != 1 or page.buffers[0][1] != page.rows * itemsize:
            raise CorruptShardError(f"{file.path}: a page of its {name} is not {page.rows} values of {itemsize} bytes")
    found = sum(page.rows for page in pages)
    if found != count:
        raise CorruptShardError(f"{file.path}: wanted {count} {name}, found {found}")
    return [(page.buffers[0][0], page.rows) for page in pages]


def _overlaps(places: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Byte offset of each page that has some of the rows [start, stop), rows of it before them, and how many they are."""
    at = 0
    for place, rows in places:
        begin, end = max(start - at, 0), min(stop - at, rows)
        if begin < end:
            yield place, begin, end - begin
        at += rows


def _digest_offset(file: LanceFile, sha256: str) -> int:
    """Where the digits of the SHA-256 lie in a data file of values, behind all pages; 0 where they do not."""
    stop = max((offset + size for page in file.columns[0] for offset, size in page.buffers), default=0)
    found = file.read(stop, file.size - stop).find(sha256.encode()) if is_sha256(sha256) else -1
    return stop + found if found >= 0 else 0
