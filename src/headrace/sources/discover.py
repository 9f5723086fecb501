"""From paths, folders and patterns to an ordered, checked list of input files.

The order is that of the inputs; inside a folder or a pattern, byte-wise by path. All problems are told at once.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources.candidates import Candidate, LeftOut, Search
from headrace.sources.content import Format, Refusal, inspect
from headrace.sources.field import Field, as_field
from headrace.sources.files import (
    CUT_BYTES,
    SUFFIXES,
    SourceFile,
    SourceShard,
    group_into_shards,
    label,
    split_compression,
)
from headrace.sources.split import NO_SPLIT, check_split

__all__ = ["Discovery", "SourceFile", "SourceShard", "discover"]

_WORDS = 4
"""Spaces that the name of a file hardly has."""
MAX_NAMED = 3
"""Most files that a message about a folder without input names."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The inputs of a build, in order. All labels are relative to `root`."""

    root: Path
    """Common root of all inputs: the folders given, and the folders of the files given."""
    shards: tuple[SourceShard, ...]
    skipped: tuple[tuple[str, str], ...]
    """Label and reason of what was found in a folder and left out; labels of folders end in `/`."""
    duplicates: tuple[str, ...]
    """Label of each file that was met again, and what it is the same as; it is read once, where it came first."""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files, in order."""
        return tuple(file for shard in self.shards if shard.is_last for file in shard.files)

    @classmethod
    def of_documents(cls, file: SourceFile) -> "Discovery":
        """What a program gave in place of files."""
        return cls(root=Path.cwd(), shards=(SourceShard(0, (file,)),), skipped=(), duplicates=())

    @property
    def given(self) -> bool:
        """Whether a program gave documents in place of files: these are read once, and nobody knows if they are the same."""
        return any(file.given is not None for file in self.files)


def discover(
    inputs: Sequence[str | Path],
    *,
    format: Format = "auto",  # noqa: A002 -- named as the command's option
    include: Sequence[str] = (),
    text_field: str | Field = "text",
    text_split: str = NO_SPLIT,
    allow_duplicates: bool = False,
    cut_bytes: int = CUT_BYTES,
) -> Discovery:
    """List the input files and look at the start of each.

    In a folder the name selects: `.jsonl`, `.ndjson`, `.json` (if its first line, or the first element of its array,
    holds the text field), `.txt`, `.parquet`, `.arrow`, with or without `.gz`, `.zst`, `.bz2`, `.xz`, in any case; hidden
    files and folders are left out. A file that is named, matched by a pattern of `inputs`, or by `include`, is always read.
    The content decides how a file is compressed, and whether it is Parquet, Arrow, or one JSON array. In a folder that
    Hugging Face `save_to_disk` wrote, the Arrow files are those that its `state.json` names, in its order.

    Args:
        inputs: files, folders (read with all below them), and patterns (`*`, `**`, `?`, `[...]`). A path that exists is
            no pattern, whatever characters it holds. A `.json` file that lists `url`, `bytes` and `sha256` of fetched files
            stands for these files, beside it under their `path`, `file` or `filename`, else under the last parts of the URLs.
        format: how files are read; `auto` goes by the name, and for names that say nothing by the first line. Other
            formats select, in folders, the names of their own kind.
        include: patterns, or one, that select the files of folders instead, matched (case-sensitive, `*` matches `/` too)
            with the name and with the path below the folder.
        text_field: looked for in `.json` files of folders, in Parquet and in Arrow; see `read_jsonl` and `read_parquet`.
            Where it holds ids, text files are left out of folders.
        text_split: where text files are cut into documents: `none` (a file is one), `blank-lines`, `line:TEXT` (lines that
            are this text) or any other text (wherever it stands).
        allow_duplicates: accept `a.jsonl` beside `a.jsonl.gz`.
        cut_bytes: decompressed bytes after which a file is cut that can be read in several places at once: JSON lines that
            are not compressed, and Parquet. Each cut is a source shard.

    Raises:
        SourceNotFoundError: a path, a match or an input file in a folder is missing, and nothing else is wrong.
        SourceError: anything else is wrong; `problems` lists all of it.
        MissingExtraError: a file is Parquet or Arrow, and pyarrow is not installed.
    """
    if format not in get_args(Format):
        raise SourceError(f"wanted a format of {', '.join(get_args(Format))}, got {format!r}")
    field = as_field(text_field)
    check_split(text_split)
    search = Search(format, (include,) if isinstance(include, str) else tuple(include))
    for index, item in enumerate(inputs):
        search.add(index, os.fspath(item))
    if not inputs:
        raise SourceNotFoundError("no inputs: wanted at least one file, folder or pattern")
    return _Selection(search, field, text_split, cut_bytes).finish(
        [os.fspath(item) for item in inputs], allow_duplicates=allow_duplicates
    )


class _Selection:
    """Looks into the candidates, and keeps those that can be read."""

    def __init__(self, search: Search, field: Field, text_split: str, cut_bytes: int) -> None:
        self._search = search
        self._cut_bytes = cut_bytes
        self._text_split = text_split
        self._field = field
        self._root = os.path.commonpath(search.roots) if search.roots else "/"
        self._files: list[SourceFile] = []
        self._duplicates = [
            f"{self._label(path)}/ (a link to a folder that is read anyway)" for path in search.repeated
        ]
        self._skipped = list(search.skipped)
        self._judged: dict[tuple[int, int], str] = {}

    def finish(self, inputs: list[str], *, allow_duplicates: bool) -> Discovery:
        search = self._search
        for candidate in search.candidates:
            self._judge(candidate)
        for index, given in enumerate(inputs):
            if index not in search.answered:
                search.refuse(index, given, self._nothing_found(index), missing=True)
        if not allow_duplicates:
            self._refuse_pairs()
        if search.problems:
            kind = SourceNotFoundError if search.missing == len(search.problems) else SourceError
            count = len(search.problems)
            hint = "; give texts, which are not paths, as headrace.Documents(texts)" * any(map(_reads_as_text, inputs))
            raise kind(f"cannot read the inputs, {count} problem{'s' * (count > 1)}{hint}:", problems=search.problems)
        kept = {str(file.path) for file in self._files}
        return Discovery(
            root=Path(self._root),
            shards=group_into_shards(self._files),
            skipped=tuple((self._label(path), reason) for _, path, reason in self._skipped if path not in kept),
            duplicates=tuple(self._duplicates),
        )

    def _judge(self, candidate: Candidate) -> None:
        path, shown = candidate.path, self._label(candidate.path)
        identity = _identity(path)
        first = self._judged.get(identity) if identity else None
        if first is not None:
            same = "given more than once" if first == shown else f"the same file as {first}"
            self._duplicates.append(f"{shown} ({same})")
            self._search.answered.add(candidate.input_index)
            return
        try:
            file = inspect(
                path,
                shown=shown,
                form=self._search.form,
                chosen=candidate.chosen,
                field=self._field,
                cut_bytes=self._cut_bytes,
            )
        except Refusal as refusal:
            if refusal.foreign and not candidate.chosen:
                self._skipped.append(LeftOut(candidate.input_index, path, refusal.reason))
                return
            self._search.refuse(
                candidate.input_index, candidate.place, refusal.reason, missing=refusal.missing, line=refusal.line
            )
        else:
            promise = candidate.promise
            if promise and promise.size != file.size:
                reason = f"{file.size} bytes, but the list of fetched files says {promise.size}; fetch it again"
                self._search.refuse(candidate.input_index, candidate.place, reason)
            split = self._text_split if file.kind == "text" else NO_SPLIT
            self._files.append(replace(file, split=split, promise=promise))
            self._search.answered.add(candidate.input_index)
        if identity:
            self._judged[identity] = shown

    def _nothing_found(self, index: int) -> str:
        wanted = f"wanted names in {', '.join(SUFFIXES)}, or --include PATTERN"
        left_out = [item for item in self._skipped if item.input_index == index]
        if not left_out:
            return f"no input files here; {wanted}"
        names = ", ".join(f"{self._label(item.path)} ({item.reason})" for item in left_out[:MAX_NAMED])
        more = f" and {len(left_out) - MAX_NAMED} more" if len(left_out) > MAX_NAMED else ""
        return f"no input files here; {wanted}; left out: {names}{more}"

    def _refuse_pairs(self) -> None:
        first: dict[str, SourceFile] = {}
        for file in self._files:
            other = first.setdefault(split_compression(str(file.path))[0], file)
            if other is not file:
                reason = f"probably the same documents as {other.label}; leave one out, or pass --allow-duplicates"
                self._search.refuse(-1, str(file.path), reason)

    def _label(self, path: str) -> str:
        return label(path.removeprefix(self._root).lstrip("/") or ".")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 -- as above
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reads_as_text(given: str) -> bool:
    """Whether what was given as a path looks like a document's text."""
    return "\n" in given or given.count(" ") >= _WORDS
