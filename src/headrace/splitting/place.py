"""The folder in which the parts of a split lie: what is in it already, and what is left of a run that ended early."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from headrace.building.output import TOKENIZER_FOLDER, remove_shards
from headrace.building.replacing import forget_data_sets
from headrace.errors import ManifestError, OutputExistsError, Problem
from headrace.events import Notice, Subscriber
from headrace.in_progress import BUILDING_NAME, WRITING
from headrace.manifest import INDEX_NAME, PRIVATE, Manifest, Split, read_manifest
from headrace.splitting.copying import Copied
from headrace.splitting.request import SplitRequest
from headrace.storage.atomic import fsync_folder, write_bytes
from headrace.verify import verify_corpus

__all__ = ["Part", "begin", "finish", "give_up", "look_at", "record_of", "refuse_corpus", "tidy"]

MARK = Path(PRIVATE) / "split.json"
"""In the folder of the parts while they are made, or after a run has died: of which split they are."""
_FRESH = re.compile(r"\..+\.\d+\.[0-9a-f]{8}(?:\.partial)?")
"""Names of files before they are whole."""
Record = Mapping[str, Any]
"""What tells a split from others; decoded JSON."""


@dataclass(kw_only=True, eq=False)
class Part:
    """One part, as far as it is made."""

    name: str
    folder: Path
    share: Fraction
    """Of the documents; exactly what was asked for."""
    published: Manifest | None = None
    """What an earlier run has published of it, and ..."""
    whole: bool = False
    """... whether that is as it should be, so that nothing is left to do."""
    manifest: Manifest | None = None
    """In the end."""
    copied: list[Copied] = field(default_factory=list[Copied])
    """Its shards, in order."""


def refuse_corpus(output: Path) -> None:
    """Keep parts out of the folder of a corpus.

    Raises:
        OutputExistsError: it is one, or is becoming one.
    """
    for name in (INDEX_NAME, BUILDING_NAME):
        if (output / name).exists():
            raise OutputExistsError(
                f"{output}: holds a corpus ({name}); the parts of a split are folders in one of their own: choose another"
            )


def record_of(split: Split, compression: str) -> Record:
    """What tells the split of a part from others."""
    return {
        "base": split.base,
        "seed": split.seed,
        "by": split.by,
        "fractions": [list(pair) for pair in split.fractions],
        "rest": split.rest,
        "compression": compression,
    }


def look_at(
    output: Path, request: SplitRequest, wanted: Record, source: Path, *, on_event: Subscriber
) -> tuple[Part, ...]:
    """Look at what is in the output, and refuse what is not of this split.

    Args:
        output: held.
        request: the split.
        wanted: its record.
        source: folder of the corpus that is split.
        on_event: is told what is made again.

    Returns:
        The parts, in order.

    Raises:
        OutputExistsError: there is something else; everything is named.
    """
    parts = tuple(
        Part(name=name, folder=output / name, share=share)
        for name, share in zip(request.names, request.shares, strict=True)
    )
    unfinished = _read_mark(output / MARK)
    problems = _unfinished_problems(output, unfinished, wanted)
    if not problems:
        for part in parts:
            problems += _look_at_part(part, wanted, source, begun=unfinished == wanted)
    if problems:
        raise OutputExistsError(
            f"{output}: holds something else than the parts of this split; choose another folder, or remove what is there",
            problems=problems,
        )
    for part in parts:
        if part.published is None:
            continue
        bad = [report for report in verify_corpus(part.folder).reports if not report.ok]
        part.whole = not bad
        part.manifest = None if bad else part.published
        if bad:
            message = f"{part.folder} is there, but not whole ({bad[0].fault}): it is made again"
            on_event(Notice(kind="resumed", message=message))
    return parts


def _unfinished_problems(output: Path, unfinished: Record | None, wanted: Record) -> list[Problem]:
    """An unfinished split of another command. One that has published all its parts only could not say so any more."""
    if unfinished is None or unfinished == wanted:
        return []
    names = [*(str(name) for name, _ in unfinished["fractions"]), str(unfinished["rest"])]
    if all((output / name / INDEX_NAME).exists() for name in names if name):
        return []
    return [
        Problem(str(MARK), f"a split is not finished there, of another command: {_differences(unfinished, wanted)}")
    ]


def _look_at_part(part: Part, wanted: Record, source: Path, *, begun: bool) -> list[Problem]:
    """What is wrong with what lies where a part will be."""
    folder = part.folder
    fault = ""
    if not folder.is_dir():
        fault = "is no folder" if folder.is_symlink() or folder.exists() else ""
    elif folder.samefile(source):
        fault = "is the corpus that is to be split"
    elif (folder / INDEX_NAME).exists():
        fault = _look_at_corpus(part, wanted)
    elif not begun:
        names = sorted(entry.name for entry in folder.iterdir())
        fault = f"holds {names[0]!r}, and is no part of this split" if names else ""
    return [Problem(part.name, fault)] if fault else []


def _look_at_corpus(part: Part, wanted: Record) -> str:
    """What is wrong with a corpus that lies where a part will be; if nothing, it is the part."""
    try:
        manifest = read_manifest(part.folder)
    except ManifestError as error:
        return f"holds a corpus whose {INDEX_NAME} cannot be used: {error.summary}"
    if not manifest.splits or manifest.splits[-1].part != part.name:
        return "holds another corpus"
    found = record_of(manifest.splits[-1], manifest.options.get("compression", "none"))
    if found != wanted:
        return f"is of another split: {_differences(found, wanted)}"
    if manifest.appends:
        return f"was appended to since, {len(manifest.appends)} times"
    part.published = manifest
    return ""


def _differences(found: Record, wanted: Record) -> str:
    odd = [name for name in wanted if found.get(name) != wanted[name]]
    return "; ".join(f"{name} was {_told(found.get(name))}, is {_told(wanted[name])}" for name in odd)


def _told(value: object) -> str:
    """A value of a record, in words."""
    if not isinstance(value, list):
        return str(value) or "none"
    return ", ".join("=".join(map(str, pair)) for pair in cast("list[list[object]]", value))


def _read_mark(path: Path) -> Record | None:
    """The record of an unfinished split; None where there is none."""
    try:
        found: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"fractions", "rest"} <= cast("dict[str, Any]", found).keys():
        raise OutputExistsError(f"{path}: is damaged, so what lies beside it is not known; choose another folder")
    return cast("Record", found)


def begin(output: Path, parts: Sequence[Part], record: Record) -> None:
    """Write down which split begins, and remove what an earlier run has left half done of the parts that are to be made."""
    _remove_fresh(output / PRIVATE)
    write_bytes(output / MARK, json.dumps(record, indent=1).encode())
    for part in parts:
        _clean(part)
        part.folder.mkdir(exist_ok=True)
    fsync_folder(output)


def _clean(part: Part) -> None:
    """Remove what is half done of a part; all that is in its folder, unless a corpus is there, which only was not whole."""
    if not part.folder.is_dir():
        return
    if part.published is not None:
        for folder in (part.folder, part.folder / PRIVATE, part.folder / TOKENIZER_FOLDER):
            _remove_fresh(folder)
        shutil.rmtree(part.folder / WRITING, ignore_errors=True)
        return
    (part.folder / INDEX_NAME).unlink(missing_ok=True)  # first, so that nothing opens while it goes
    for path in part.folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _remove_fresh(folder: Path) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if _FRESH.fullmatch(path.name):
            path.unlink(missing_ok=True)


def give_up(output: Path, parts: Sequence[Part]) -> None:
    """After a failure: remove what was made, so that nothing of it is published any more."""
    for part in parts:
        with suppress(OSError):  # what cannot be removed is no reason to hide what went wrong
            _clean(part)
            if part.published is None:
                part.folder.rmdir()
    with suppress(OSError):
        finish(output)


def tidy(parts: Sequence[Part]) -> None:
    """Remove what a Lance part that was not whole has left beside the one that is now."""
    for part in parts:
        if part.manifest is not None and part.manifest.lance is not None:
            forget_data_sets(part.folder, part.manifest)
            remove_shards(part.folder, {entry.path for entry in part.manifest.shards})


def finish(output: Path) -> None:
    """All that is to be there is there."""
    _remove_fresh(output / PRIVATE)
    (output / MARK).unlink(missing_ok=True)
