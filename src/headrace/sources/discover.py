"""From paths, folders and patterns to an ordered, checked list of input files.

The order is that of the inputs; inside a folder or a pattern, byte-wise by path. All problems are told at once.
"""

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, get_args

from headrace.errors import Problem, SourceError, SourceNotFoundError
from headrace.sources.content import Format, Refusal, inspect
from headrace.sources.fetched import fetched_files
from headrace.sources.field import Field, as_field
from headrace.sources.files import (
    CUT_BYTES,
    SUFFIXES,
    Promise,
    SourceFile,
    SourceShard,
    group_into_shards,
    kind_of_name,
    label,
    split_compression,
)
from headrace.sources.listing import expand, has_wildcards, list_folder, literal_prefix
from headrace.sources.saved import STATE_NAME, saved_files
from headrace.sources.split import NO_SPLIT, check_split

__all__ = ["Discovery", "SourceFile", "SourceShard", "discover"]

_ABSENT = "does not exist"
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
        include: patterns that select the files of folders instead, matched (case-sensitive, `*` matches `/` too)
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
    search = _Search(format, tuple(include))
    for index, item in enumerate(inputs):
        search.add(index, os.fspath(item))
    if not inputs:
        raise SourceNotFoundError("no inputs: wanted at least one file, folder or pattern")
    return _Selection(search, field, text_split, cut_bytes).finish(
        [os.fspath(item) for item in inputs], allow_duplicates=allow_duplicates
    )


class _Candidate(NamedTuple):
    input_index: int
    path: str
    """Absolute."""
    place: str
    """The path as the user would write it, for messages."""
    chosen: bool
    """Named, not merely found in a folder."""
    promise: Promise | None = None


class _LeftOut(NamedTuple):
    input_index: int
    path: str
    reason: str


class _Search:
    """Turns inputs into candidates, without opening any file."""

    def __init__(self, form: Format, include: tuple[str, ...]) -> None:
        self.form: Format = form
        self.candidates: list[_Candidate] = []
        self.skipped: list[_LeftOut] = []
        self.repeated: list[str] = []
        self.problems: list[Problem] = []
        self.missing = 0
        """How many of the problems are things that do not exist."""
        self.roots: list[str] = []
        self.answered: set[int] = set()
        """Inputs that gave a file or a problem."""
        self._include = include

    def add(self, index: int, given: str) -> None:
        if os.path.lexists(given):
            path = _absolute(given)
            folder = os.path.isdir(path)  # noqa: PTH112 -- names that are not UTF-8 stay strings
            self.roots.append(path if folder else os.path.dirname(path))  # noqa: PTH120 -- as above
            self._add_path(index, given)
        elif has_wildcards(given):
            self._add_pattern(index, given)
        else:
            reason = "a URL; this version reads local files" if "://" in given else _why_absent(given)
            self.refuse(index, given or "(an empty path)", reason, missing=reason == _ABSENT)

    def refuse(self, index: int, place: str, reason: str, *, missing: bool = False, line: int | None = None) -> None:
        self.problems.append(Problem(label(place) + (f":{line}" if line else ""), reason))
        self.missing += missing
        self.answered.add(index)

    def _add_pattern(self, index: int, pattern: str) -> None:
        matches, problems = expand(pattern)
        for place, reason in problems:
            self.refuse(index, place, reason)
        if not matches and not problems:
            self.refuse(index, pattern, "no path matches this pattern", missing=True)
        elif matches:
            self.roots.append(_absolute(literal_prefix(pattern)))
        for match in matches:
            self._add_path(index, match)

    def _add_path(self, index: int, given: str) -> None:
        path = _absolute(given)
        if not os.path.isdir(path):  # noqa: PTH112 -- as above
            self._add_file(index, given, path)
            return
        listing = list_folder(path)
        self.repeated += [f"{path}/{folder}" for folder in listing.repeated]
        self.skipped += [
            _LeftOut(index, f"{path}/{hidden}", "a hidden file" if hidden[-1] != "/" else "a hidden folder")
            for hidden in listing.hidden
        ]
        for folder, reason in listing.problems:
            self.refuse(index, os.path.join(given, folder) if folder else given, reason)  # noqa: PTH118 -- as above
        saved = {} if self._include else self._saved(index, given, path, listing.files)
        for relative in _in_saved_order(listing.files, saved):
            folder, _, name = relative.rpartition("/")
            why_not = self._why_left_out(relative)
            if not why_not and name.endswith(".arrow") and name not in saved.get(folder, [name]):
                why_not = f"not among the files that {STATE_NAME} names"
            if why_not:
                self.skipped.append(_LeftOut(index, f"{path}/{relative}", why_not))
            else:
                place = os.path.join(given, relative)  # noqa: PTH118 -- as above
                self.candidates.append(_Candidate(index, f"{path}/{relative}", place, chosen=bool(self._include)))

    def _add_file(self, index: int, given: str, path: str) -> None:
        fetched = fetched_files(path)
        if fetched is None:
            self.candidates.append(_Candidate(index, path, given, chosen=True))
        elif isinstance(fetched, str):
            self.refuse(index, given, fetched)
        else:
            for name, promise in fetched:
                beside = os.path.join(os.path.dirname(path), name)  # noqa: PTH118, PTH120 -- as above
                place = os.path.join(os.path.dirname(given), name)  # noqa: PTH118, PTH120 -- as above
                self.candidates.append(_Candidate(index, beside, place, chosen=True, promise=promise))

    def _saved(self, index: int, given: str, path: str, files: list[str]) -> dict[str, list[str]]:
        """Names of the files of each saved data set, by its folder below `path`."""
        saved: dict[str, list[str]] = {}
        present = set(files)
        for relative in files:
            folder, _, name = relative.rpartition("/")
            names = saved_files(f"{path}/{folder}") if name == STATE_NAME else None
            if isinstance(names, str):
                self.refuse(index, os.path.join(given, folder), names)  # noqa: PTH118 -- as above
            elif names is not None:
                saved[folder] = names
                for missing in names:
                    if f"{folder}/{missing}".lstrip("/") not in present:
                        place = os.path.join(given, folder, missing)  # noqa: PTH118 -- as above
                        self.refuse(index, place, f"{STATE_NAME} names it, but it does not exist", missing=True)
        return saved

    def _why_left_out(self, relative: str) -> str | None:
        name = relative.rpartition("/")[2]
        if self._include:
            included = any(fnmatch.fnmatchcase(tried, glob) for glob in self._include for tried in (name, relative))
            return None if included else "no --include pattern matches it"
        kind = kind_of_name(name)
        if kind is None:
            return "not a name of documents"
        kind = "jsonl" if kind == "json" else kind
        return None if self.form in {"auto", kind} else f"not a name of --format {self.form}"


class _Selection:
    """Looks into the candidates, and keeps those that can be read."""

    def __init__(self, search: _Search, field: Field, text_split: str, cut_bytes: int) -> None:
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

    def _judge(self, candidate: _Candidate) -> None:
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
                self._skipped.append(_LeftOut(candidate.input_index, path, refusal.reason))
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


def _in_saved_order(files: list[str], saved: dict[str, list[str]]) -> list[str]:
    """The same files, those of saved data sets in their own order, at the places that they have together."""
    if not saved:
        return files
    ordered = {folder: iter([f"{folder}/{name}".lstrip("/") for name in names]) for folder, names in saved.items()}
    present = set(files)
    named = {f"{folder}/{name}".lstrip("/") for folder, names in saved.items() for name in names}
    return [
        next(other for other in ordered[file.rpartition("/")[0]] if other in present) if file in named else file
        for file in files
    ]


def _why_absent(path: str) -> str:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        return f"cannot be opened ({error.strerror or error})"
    return _ABSENT


def _absolute(path: str) -> str:
    """Return an absolute path; `..` behind a link leads where the system would go."""
    if ".." not in path.split("/"):
        return os.path.abspath(path)  # noqa: PTH100 -- names that are not UTF-8 stay strings
    head, tail = os.path.split(path.rstrip("/"))
    if tail in {"", ".", ".."}:
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(head), tail)  # noqa: PTH118 -- as above


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 -- as above
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reads_as_text(given: str) -> bool:
    """Whether what was given as a path looks like a document's text."""
    return "\n" in given or given.count(" ") >= _WORDS
