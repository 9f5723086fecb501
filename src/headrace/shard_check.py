"""All comparisons of one shard with its entry in the manifest: attributes, document index, checksums, hashes."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.chunk_check import ChunkCheck
from headrace.damage import DocumentPlaces, listed, odd_ends, odd_origins, unreadable_objects
from headrace.errors import CorruptShardError, NoDocumentsError, Problem, UnreadableShardError
from headrace.manifest import ShardEntry, is_sha256
from headrace.storage.lance_names import is_lance
from headrace.storage.layout import DATASET, LOSS_MASK
from headrace.storage.stores import file_with, files_of, inspect_shard, read_documents

if TYPE_CHECKING:
    from headrace.storage.document_columns import DocumentColumns
    from headrace.storage.extents import ShardExtents
    from headrace.storage.layout import DataLayout

__all__ = ["ShardCheck"]


class ShardCheck:
    """Compares; what is wrong collects in `problems`.

    Args:
        entry: of the shard, with an absolute path.
        first_document: number in the corpus of the shard's first document; None where that is not known.
        stopped: asked between reads; once it is true the check ends with a `CancelledError`.

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: the file as a whole cannot be judged.
    """

    def __init__(
        self, entry: ShardEntry, *, first_document: int | None = None, stopped: Callable[[], bool] | None = None
    ) -> None:
        self.entry = entry
        self.path = Path(entry.path)
        self._first_document = first_document
        self._stopped = stopped
        self.layout = inspect_shard(self.path)
        self.problems: list[Problem] = []
        self.bytes_read = 0
        self.documents_by_file: tuple[tuple[str, int], ...] | None = None
        """Label and number of documents of each source file; None where the shard does not say, or is not believed."""
        self._places: DocumentPlaces | None = None
        """Names documents, where their ends are sound."""
        self._ends_fault = ""
        self._traced = False
        """Whether what the shard says of its documents' sources is to be believed."""

    def problem(self, place: str, reason: str, *, file: Path | None = None) -> None:
        """Note one fault; `file` is the one that has it, by default that of the tokens."""
        self.problems.append(Problem(f"{file or self.entry.path}: {place}", reason))

    def compare_attributes(self, wanted: Mapping[str, object]) -> None:
        """What every shard of the corpus must say."""
        found = {**self.layout.attributes, "dtype": str(self.layout.dtype), "chunk size": self.layout.chunk_size}
        for name, value in wanted.items():
            if found.get(name) != value:
                self.problem(name, f"shards.json says {value or 'nothing'}, the file {found.get(name, 'nothing')}")

    def run(self, *, quick: bool) -> None:
        """Compare all, or with `quick` only the first and last chunk's bytes besides attributes and documents."""
        entry, layout = self.entry, self.layout
        if not is_sha256(entry.sha256):
            raise UnreadableShardError(f"{self.path}: stores no sha256, so there is nothing to verify it against")
        for name, wanted, found in (
            ("token_count", entry.token_count, layout.token_count),
            ("document_count", entry.document_count, layout.document_count),
            ("sha256", entry.sha256, layout.sha256),
            ("documents_sha256", entry.documents_sha256, layout.documents_sha256),
            ("loss_mask_sha256", entry.loss_mask_sha256 or None, layout.loss_mask and layout.loss_mask.sha256),
        ):
            unsaid = name == "document_count" and found is None and not entry.documents_sha256
            if wanted != found and not unsaid:
                self.problem(f"attribute {name}", f"shards.json says {wanted}, the file {found}")
        known = bool(entry.documents_sha256)  # of version 1 the one hash is all there is
        columns = self._documents() if known else None
        tokens = self._chunk_check(DATASET, layout, entry.sha256, ("tokens", "are"))
        whole = self._compare(tokens, quick=quick, checksums=known)
        if columns is not None and self._ends_fault:
            self._report_ends(columns, tokens if whole else None)
        if layout.loss_mask is not None and entry.loss_mask_sha256:
            mask = self._chunk_check(LOSS_MASK, layout.loss_mask, entry.loss_mask_sha256, ("loss mask", "is"))
            self._compare(mask, quick=quick, checksums=True)

    def compare_files(self, *, quick: bool) -> None:
        """Compare what of a Lance shard's data files its other hashes do not cover."""
        if not is_lance(self.path):
            return
        from headrace.storage.lance_shard import frame_faults  # noqa: PLC0415  # as the others are

        docs = files_of(self.path, loss_mask=False)[1]
        if not quick:
            data = docs.read_bytes()
            self.bytes_read += len(data)
            if hashlib.sha256(data).hexdigest() != self.entry.docs_sha256 and not self.problems:
                self.problems.append(Problem(str(docs), "its SHA-256 is not docs_sha256: its metadata is damaged"))
        for file in frame_faults(self.path):
            self.problem("metadata", "its SHA-256 is not the one that was stored", file=file)

    def wrong_sidecars(self, extents: "ShardExtents") -> tuple[Path, ...]:
        """The sidecars whose extents say of this shard what is not so."""
        from headrace.storage.hdf5_corpus import MASK_SIDECAR, SIDECAR, extents_of  # noqa: PLC0415  # as is called

        found = extents_of(self.layout)
        pairs = ((SIDECAR, found, extents), (MASK_SIDECAR, found.loss_mask, extents.loss_mask))
        return tuple(path for path, ours, theirs in pairs if ours and theirs and _differ(ours, theirs))

    # -- document index -----------------------------------------------------------------------------------------------

    def _documents(self) -> "DocumentColumns | None":
        """Compare the document index, all but what is wrong with its ends; None where it cannot be read."""
        entry = self.entry
        try:
            columns = read_documents(self.path, entry.document_count)
        except (CorruptShardError, NoDocumentsError) as error:
            self._unreadable("/documents", error)
            return None
        self.bytes_read += columns.ends.nbytes
        self._traced = True
        if len(columns.file_indices) and int(columns.file_indices.max()) >= len(columns.files):
            self.problem("/documents/source_file", "names a file that /documents/files does not have")
            self._traced = False
        if entry.sources_sha256 and columns.sources_sha256 != entry.sources_sha256:
            reason = "the SHA-256 of the documents' sources is not sources_sha256"
            self._traced = False
            for column, document in odd_origins(columns):
                place = self._places_in(columns).of_documents(max(document - 1, 0), document)
                reason += f"; {column} is out of order at {place}"
            place = "/documents/source_*" + " or id" * (columns.ids is not None)
            self.problem(place + " or text_hash" * (columns.text_hashes is not None), reason)
        if self._traced and columns.files:
            counts = np.bincount(columns.file_indices, minlength=len(columns.files)).tolist()
            self.documents_by_file = tuple(zip(columns.files, counts, strict=True))
        self._ends_fault = self._fault_of(columns.ends)
        if not self._ends_fault:
            self._places = self._places_in(columns)
        return columns

    def _places_in(self, columns: "DocumentColumns") -> DocumentPlaces:
        return DocumentPlaces(self.entry, columns, first_document=self._first_document, traced=self._traced)

    def _fault_of(self, ends: NDArray[np.uint64]) -> str:
        if hashlib.sha256(ends.astype("<u8").data).hexdigest() != self.entry.documents_sha256:
            return "the SHA-256 of the document ends is not documents_sha256"
        last = int(ends[-1]) if len(ends) else 0
        if last != self.entry.token_count or bool((ends[1:] <= ends[:-1]).any()) or not ends[:1].all():
            return f"the document ends do not increase to {self.entry.token_count} tokens"
        return ""

    def _report_ends(self, columns: "DocumentColumns", tokens: ChunkCheck | None) -> None:
        """Say what is wrong with the ends, and where the tokens are whole which of them cannot be right."""
        reason = self._ends_fault
        if tokens is not None:
            boundary = self.layout.attributes.get("boundary_token_id")
            at_boundary = self._last_tokens(columns.ends, tokens) == boundary
            places = self._places_in(columns)
            odd = [places.of_documents(n, n) for n in odd_ends(columns.ends, self.layout.token_count, at_boundary)]
            reason += f"; what cannot be right is the end of {listed(odd)}" * bool(odd)
        self.problem("/documents/end", reason)

    def _last_tokens(self, ends: NDArray[np.uint64], check: ChunkCheck) -> NDArray[np.int64]:
        """The token before each end, -1 where there is none."""
        layout = self.layout
        found = np.full(len(ends), -1, dtype=np.int64)
        with ExitStack() as stack:
            read = check.reader(stack)
            for start, stop in check.chunks():
                here = np.flatnonzero((ends > np.uint64(start)) & (ends <= np.uint64(stop)))
                if len(here):
                    tokens = np.frombuffer(b"".join(read(start, stop)), dtype=layout.dtype)
                    found[here] = tokens[(ends[here] - np.uint64(start + 1)).astype(np.intp)]
        return found

    # -- values ---------------------------------------------------------------------------------------------------

    def _chunk_check(self, name: str, layout: "DataLayout", sha256: str, called: tuple[str, str]) -> ChunkCheck:
        file = file_with(self.path, name)
        return ChunkCheck(
            file,
            layout,
            name=name,
            called=called,
            sha256=sha256,
            problem=partial(self.problem, file=file),
            where=self._where,
            stopped=self._stopped,
        )

    def _where(self, start: int, stop: int) -> str:
        base = self.entry.global_start
        touched = self._places.of_tokens(start, stop) if self._places else ""
        place = f"tokens [{start}, {stop}) of the shard (corpus [{base + start}, {base + stop}))"
        return place + f", {touched}," * bool(touched)

    def _compare(self, check: ChunkCheck, *, quick: bool, checksums: bool) -> bool:
        """Compare the values of one data set; returns whether all are what they were."""
        crcs: NDArray[np.uint32] | None = None
        if checksums:
            try:
                crcs = check.stored_crcs()
            except CorruptShardError as error:
                self._unreadable("/chunks", error)
        whole = check.run(crcs=crcs, quick=quick and crcs is not None)
        self.bytes_read += check.bytes_read
        return whole

    def _unreadable(self, place: str, error: Exception) -> None:
        """Name what HDF5 cannot read of an object and those in it."""
        inner = [part for part in unreadable_objects(self.path) if part.place.startswith(f"{self.path}: {place}")]
        self.problems += inner or [Problem(f"{self.path}: {place}", self._said(error))]

    def _said(self, error: Exception) -> str:
        """What an error says, without the path that it begins with."""
        return str(getattr(error, "summary", error)).removeprefix(f"{self.path}: ")


def _differ(some: "ShardExtents", others: "ShardExtents") -> bool:
    names = [field.name for field in fields(some) if field.name != "loss_mask"]
    return any(not np.array_equal(getattr(some, name), getattr(others, name)) for name in names)
