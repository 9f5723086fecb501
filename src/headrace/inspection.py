"""Questions people ask of a corpus: what is in it, and is it whole?"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headrace.corpus import Corpus, open_corpus
from headrace.errors import HeadraceError, NoDocumentsError, Problem
from headrace.events import Subscriber, ignore
from headrace.lance_data import LanceCorpus
from headrace.manifest import Manifest, ShardEntry, Split, TokenizerRef
from headrace.sampling import Plan
from headrace.storage.lance_names import is_lance
from headrace.storage.lance_open import split_version
from headrace.storage.stores import files_of
from headrace.tokenizers.chat_template import TEMPLATE_NAME
from headrace.tokenizers.load import load_from_corpus
from headrace.verdicts import CorpusReport, report_file
from headrace.verify import require_fingerprint, verify_corpus

__all__ = [
    "CorpusSummary",
    "WindowSummary",
    "describe",
    "verify_all",
]

HIGH_BOUNDARY_SHARE = 0.05
"""Above it, documents are so short that the model mostly learns to end them."""
TOKENIZER_FOLDER = "tokenizer"
"""In a corpus: the copy of its tokenizer."""
_MEDIAN_DOCUMENTS = 10_000_000
"""Documents looked at for the median length, at most; more would take minutes to read."""


_MASK_PIECE, _MASK_PIECES = 1 << 20, 64
"""Values of the loss mask that are read at a time, and how often at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSummary:
    """What windows of one length make of a corpus."""

    window: int
    """Tokens of input a window."""
    windows: int
    """Full windows an epoch of shuffled blocks has."""
    tail_tokens: int
    """Tokens at the end that are a target of no full window."""
    chunks_touched: float | None
    """Chunks that a window at a random place touches, on average; None where the file has no chunks, likewise ..."""
    chunk_fits: bool | None
    """... whether the chunk is a multiple of the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSummary:
    """A corpus in figures."""

    path: str
    fingerprint: str
    fingerprint_kind: str
    version: int
    store: str
    tokens: int
    documents: int | None
    """None where the corpus stores no document index, likewise ..."""
    median_document_tokens: float | None
    """... the median document length, boundary included, ..."""
    median_is_sampled: bool
    boundary_share: float | None
    """... and boundary tokens / tokens."""
    shards: int
    dtype: str
    vocab_size: int
    boundary_token_id: int
    tokenizer: str | None
    tokenizer_sha256: str | None
    chunk_tokens: int | None
    """None where the tokens of a shard lie in one piece."""
    compression: str
    """`none`, `gzip:4`, `zstd:3` or other HDF5 filters; several, joined by ` and `, where appends differ."""
    bytes_on_disk: int
    dropped: dict[str, int]
    """Documents the build did not keep, by reason; of a part of a split, the build of what was split."""
    splits: tuple[Split, ...] = ()
    """Of a part: how it was split off, and what that was a part of before it; the last is its own."""
    loss_share: float | None = None
    """Tokens that count as targets in the loss / tokens; None where the corpus stores no loss mask."""
    loss_is_sampled: bool = False
    window: WindowSummary | None = None


def describe(corpus: Corpus, *, window: int | None = None) -> CorpusSummary:
    """Sum a corpus up.

    Args:
        corpus: an open corpus.
        window: also say what windows of this many input tokens make of it.

    Raises:
        PlanError: the corpus is too small for one window.
    """
    manifest = corpus.manifest
    documents, median, sampled = _documents(corpus)
    chunk, compression = _storage(corpus)
    loss_share, loss_is_sampled = _loss_share(corpus)
    dropped: dict[str, int] = {}
    for source in manifest.sources:
        for reason, count in source.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return CorpusSummary(
        path=str(corpus.path),
        fingerprint=corpus.fingerprint.hex,
        fingerprint_kind=corpus.fingerprint.kind,
        version=manifest.version,
        store=manifest.store,
        tokens=corpus.token_count,
        documents=documents,
        median_document_tokens=median,
        median_is_sampled=sampled,
        boundary_share=documents / corpus.token_count if documents and corpus.token_count else None,
        shards=len(corpus.entries),
        dtype=str(corpus.dtype),
        vocab_size=manifest.vocab_size,
        boundary_token_id=manifest.boundary_token_id,
        tokenizer=manifest.tokenizer.name if manifest.tokenizer else None,
        tokenizer_sha256=manifest.tokenizer.sha256 if manifest.tokenizer else None,
        chunk_tokens=chunk,
        compression=compression,
        bytes_on_disk=sum(path.stat().st_size for entry in corpus.entries for path in _files(corpus, entry)),
        dropped=dict(sorted(dropped.items())),
        splits=manifest.splits,
        loss_share=loss_share,
        loss_is_sampled=loss_is_sampled,
        window=None if window is None else _window(corpus, window, chunk),
    )


def _files(corpus: Corpus, entry: ShardEntry) -> tuple[Path, ...]:
    """The files of a shard; a Lance data set of other people has nothing of ours beside its own."""
    path = Path(entry.path)
    return (path,) if isinstance(corpus, LanceCorpus) else files_of(path, loss_mask=bool(entry.loss_mask_sha256))


def _documents(corpus: Corpus) -> tuple[int | None, float | None, bool]:
    """Count, median length, and whether the median is of a sample of shards."""
    try:
        count = len(corpus.documents)
    except NoDocumentsError:
        return None, None, False
    if not count:
        return 0, None, False
    # Whole shards, evenly spread: document indices are read a shard at a time.
    filled = [shard for shard, entry in enumerate(corpus.entries) if entry.document_count]
    chosen = filled[:: -(-count // _MEDIAN_DOCUMENTS)]
    lengths = [corpus.documents.lengths(shard) for shard in chosen]
    return count, float(np.median(np.concatenate(lengths))), len(chosen) < len(filled)


def _loss_share(corpus: Corpus) -> tuple[float | None, bool]:
    """Share of the tokens that count in the loss, and whether it is of evenly spread samples."""
    if not corpus.has_loss_mask or not corpus.token_count:
        return None, False
    pieces = -(-corpus.token_count // _MASK_PIECE)
    step = -(-pieces // _MASK_PIECES)
    starts = range(0, corpus.token_count, step * _MASK_PIECE)
    masks = [corpus.loss_mask(start, min(start + _MASK_PIECE, corpus.token_count)) for start in starts]
    return sum(int(mask.sum()) for mask in masks) / sum(map(len, masks)), step > 1


def _storage(corpus: Corpus) -> tuple[int | None, str]:
    """Tokens a chunk, None where there are no chunks, and the compression: of the first shard, and of each append's."""
    if isinstance(corpus, LanceCorpus):
        return None, "none" if corpus.flat else "as Lance packs them"
    if all(is_lance(Path(entry.path)) for entry in corpus.entries):
        return corpus.manifest.chunk_size, "none"
    from headrace.storage.compression import filters_of  # noqa: PLC0415  # not for `headrace show`
    from headrace.storage.hdf5_open import open_shard  # noqa: PLC0415
    from headrace.storage.layout import DATASET  # noqa: PLC0415  # imports h5py

    chunk: int | None = corpus.manifest.chunk_size
    names: dict[str, None] = {}
    for entry in _first_shards(corpus):
        with open_shard(Path(entry.path)) as file:
            dataset = file[DATASET]
            chunk = int(dataset.chunks[0]) if dataset.chunks else None
            names[filters_of(dataset)] = None
    return chunk, " and ".join(names) or "none"


def _first_shards(corpus: Corpus) -> Iterator[ShardEntry]:
    """The first shard of a corpus, and of each append to it; of a part of a split, also of those to what was split."""
    manifest = corpus.manifest
    firsts = {0, *(append.shards for append in manifest.appends)}
    begun = {append.sources for split in manifest.splits for append in split.appends}
    for number, entry in enumerate(corpus.entries):
        passed = {sources for sources in begun if sources <= entry.source}
        if number in firsts or passed:
            yield entry
        begun -= passed


def _window(corpus: Corpus, window: int, chunk: int | None) -> WindowSummary:
    plan = Plan(order="blocks", token_count=corpus.token_count, window=window, batch_size=1)
    return WindowSummary(
        window=window,
        windows=plan.windows,
        tail_tokens=plan.tail_tokens,
        # A read of R tokens at a uniform place crosses (R - 1) / chunk chunk edges on average.
        chunks_touched=None if chunk is None else 1 + (plan.read_length - 1) / chunk,
        chunk_fits=None if chunk is None else chunk % window == 0,
    )


def verify_all(
    path: str | Path,
    *,
    quick: bool = False,
    workers: int | None = None,
    expect: str | None = None,
    on_event: Subscriber = ignore,
) -> CorpusReport:
    """Judge all of a corpus: `headrace.verify.verify_corpus`, and the copy of the tokenizer, too.

    Args, errors: as there.
    """
    if split_version(path) is not None:
        return _verify_lance(path, quick=quick, expect=expect, on_event=on_event)
    report = verify_corpus(path, quick=quick, workers=workers, expect=expect, on_event=on_event)
    folder = report.path.parent / TOKENIZER_FOLDER
    tokenizer = report_file(folder, TOKENIZER_FOLDER, _tokenizer_problems(folder, report.manifest))
    if tokenizer.ok:
        return report
    on_event(tokenizer.event)
    return replace(report, others=(*report.others, tokenizer))


def _verify_lance(path: str | Path, *, quick: bool, expect: str | None, on_event: Subscriber) -> CorpusReport:
    """Judge a Lance data set that has no `shards.json`, as far as it can be."""
    with open_corpus(path) as corpus:
        require_fingerprint(corpus.path, corpus.manifest, expect)
        shards = corpus.verify(quick=quick)
        for shard in shards:
            on_event(shard.event)
        return CorpusReport(path=corpus.path, manifest=corpus.manifest, shards=tuple(shards), others=())


def _tokenizer_problems(folder: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong with a corpus' copy of its tokenizer; nothing is where there is none."""
    if manifest.tokenizer is None or not folder.exists():
        return []
    try:
        found = load_from_corpus(folder.parent).ref
    except HeadraceError as error:
        return [Problem(str(folder), error.summary), *error.problems]
    except OSError as error:
        return [Problem(str(folder), f"cannot be read: {error.strerror}")]
    if found == manifest.tokenizer:
        return _template_problems(folder / TEMPLATE_NAME, manifest)
    return [Problem(str(folder), f"shards.json says {_named(manifest.tokenizer)}, the copy is {_named(found)}")]


def _template_problems(path: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong with the copy of the chat template that wrote a corpus' documents."""
    options = (manifest.options, *(append.options for append in manifest.appends))
    wanted = {used["chat_template"] for used in options if "chat_template" in used}
    if not wanted:
        return []
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return [Problem(str(path), f"cannot be read: {error.strerror}")]
    return (
        [] if found in wanted else [Problem(str(path), "is not the chat template that shards.json has the SHA-256 of")]
    )


def _named(ref: TokenizerRef) -> str:
    return f"{ref.kind} {ref.name!r} of {ref.vocab_size} ids, sha256 {ref.sha256}"
