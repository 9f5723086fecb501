"""From paths, folders and patterns to the files that may be inputs; none of them is opened, but for lists of files."""

import fnmatch
import os
from typing import NamedTuple

from headrace.errors import Problem
from headrace.sources.content import Format
from headrace.sources.fetched import fetched_files
from headrace.sources.files import Promise, kind_of_name, label
from headrace.sources.listing import expand, has_wildcards, list_folder, literal_prefix
from headrace.sources.saved import STATE_NAME, saved_files

__all__ = ["Candidate", "LeftOut", "Search"]

_ABSENT = "does not exist"


class Candidate(NamedTuple):
    """A file that is to be looked into."""

    input_index: int
    path: str
    """Absolute."""
    place: str
    """The path as the user would write it, for messages."""
    chosen: bool
    """Named, not merely found in a folder."""
    promise: Promise | None = None


class LeftOut(NamedTuple):
    """What was met in a folder and is not read."""

    input_index: int
    path: str
    reason: str


class Search:
    """Turns inputs into candidates, without opening any file."""

    def __init__(self, form: Format, include: tuple[str, ...]) -> None:
        self.form: Format = form
        self.candidates: list[Candidate] = []
        self.skipped: list[LeftOut] = []
        self.repeated: list[str] = []
        self.problems: list[Problem] = []
        self.missing = 0
        """How many of the problems are things that do not exist."""
        self.roots: list[str] = []
        self.answered: set[int] = set()
        """Inputs that gave a file or a problem."""
        self._include = include

    def add(self, index: int, given: str) -> None:
        """Search one input: a path, or else a pattern."""
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
        """Note what is wrong at a place (and a line of it, from 1) for an input; `missing`: there is nothing at all."""
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
            LeftOut(index, f"{path}/{hidden}", "a hidden file" if hidden[-1] != "/" else "a hidden folder")
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
                self.skipped.append(LeftOut(index, f"{path}/{relative}", why_not))
            else:
                place = os.path.join(given, relative)  # noqa: PTH118 -- as above
                self.candidates.append(Candidate(index, f"{path}/{relative}", place, chosen=bool(self._include)))

    def _add_file(self, index: int, given: str, path: str) -> None:
        fetched = fetched_files(path)
        if fetched is None:
            self.candidates.append(Candidate(index, path, given, chosen=True))
        elif isinstance(fetched, str):
            self.refuse(index, given, fetched)
        else:
            for name, promise in fetched:
                beside = os.path.join(os.path.dirname(path), name)  # noqa: PTH118, PTH120 -- as above
                place = os.path.join(os.path.dirname(given), name)  # noqa: PTH118, PTH120 -- as above
                self.candidates.append(Candidate(index, beside, place, chosen=True, promise=promise))

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
