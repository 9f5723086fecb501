"""Folders and patterns as lists of paths, in byte-wise order, without running in circles."""

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Listing", "expand", "has_wildcards", "list_folder", "literal_prefix"]

_WILDCARDS = frozenset("*?[")


@dataclass(slots=True)
class Listing:
    """What lies below a folder. All paths are relative to it, `/` between parts."""

    files: list[str] = field(default_factory=list[str])
    """All that is no folder and not hidden, in byte-wise order of the path."""
    folders: list[str] = field(default_factory=list[str])
    """The folder itself (an empty string) and those below it; each real folder once."""
    hidden: list[str] = field(default_factory=list[str])
    """Files and folders whose name begins with `.`; folders end in `/`."""
    repeated: list[str] = field(default_factory=list[str])
    """Links to folders that are listed already, loops among them."""
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Folders that cannot be listed, and why."""


def list_folder(folder: str) -> Listing:
    """List a folder and all below it; links to folders are followed, after the folders proper."""
    listing = Listing()
    seen: set[tuple[int, int]] = set()
    pending, links = [""], list[str]()
    while pending or links:
        if not pending:
            links.sort(key=os.fsencode, reverse=True)
        relative = pending.pop() if pending else links.pop()
        path = os.path.join(folder, relative)  # noqa: PTH118 -- strings: names may not be UTF-8, and there may be millions
        try:
            status = os.stat(path)  # noqa: PTH116 -- as above
            if (status.st_dev, status.st_ino) in seen:
                listing.repeated.append(relative)
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                listing.folders.append(relative)
                for entry in entries:
                    _file_entry(entry, relative, listing, pending, links)
        except OSError as error:
            listing.problems.append((relative, f"cannot be listed ({error.strerror or error})"))
    for found in (listing.files, listing.folders, listing.hidden, listing.repeated):
        found.sort(key=os.fsencode)
    return listing


def _file_entry(entry: os.DirEntry[str], relative: str, listing: Listing, pending: list[str], links: list[str]) -> None:
    path = f"{relative}/{entry.name}" if relative else entry.name
    try:
        folder = entry.is_dir()
    except OSError:  # a link to itself: told when it is opened
        folder = False
    if entry.name.startswith("."):
        listing.hidden.append(path + "/" * folder)
    elif not folder:
        listing.files.append(path)
    else:
        (links if entry.is_symlink() else pending).append(path)


def has_wildcards(path: str) -> bool:
    """Tell whether a path holds `*`, `?` or `[`."""
    return not _WILDCARDS.isdisjoint(path)


def literal_prefix(pattern: str) -> str:
    """Return the folder that all matches of a pattern lie in: its leading parts without wildcards."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if has_wildcards(part))
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")


def expand(pattern: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the paths that match a pattern, in byte-wise order; and folders that cannot be listed, with the reason.

    `*`, `?` and `[...]` match inside one part of a path, and no leading dot unless they spell it. `**` stands for any
    number of folders, hidden ones left out; a pattern with it matches no folders.
    """
    problems: list[tuple[str, str]] = []
    root = "/" if pattern.startswith("/") else ""
    found = set(_matches(root, [part for part in pattern.split("/") if part], problems))
    if "**" in pattern.split("/"):
        found = {path for path in found if not os.path.isdir(path)}  # noqa: PTH112 -- names may not be UTF-8
    elif pattern.endswith("/"):
        found = {path for path in found if os.path.isdir(path)}  # noqa: PTH112
    return sorted(found, key=os.fsencode), problems


def _matches(base: str, parts: list[str], problems: list[tuple[str, str]]) -> Iterator[str]:
    if not parts:
        if os.path.lexists(base):
            yield base
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        listing = list_folder(base or ".")
        problems += [(os.path.join(base, folder), reason) for folder, reason in listing.problems]  # noqa: PTH118
        for folder in listing.folders:
            yield from _matches(os.path.join(base, folder) if folder else base, rest or ["*"], problems)  # noqa: PTH118
    elif not has_wildcards(part):
        yield from _matches(os.path.join(base, part), rest, problems)  # noqa: PTH118
    else:
        for name in _names(base, problems):
            if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")):
                yield from _matches(os.path.join(base, name), rest, problems)  # noqa: PTH118


def _names(folder: str, problems: list[tuple[str, str]]) -> list[str]:
    try:
        return os.listdir(folder or ".")  # noqa: PTH208 -- names only
    except (FileNotFoundError, NotADirectoryError):  # the pattern goes on where this path does not
        return []
    except OSError as error:
        problems.append((folder, f"cannot be listed ({error.strerror or error})"))
        return []
