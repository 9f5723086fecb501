"""`headrace status`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.paths import given_path
from headrace.cli.terminal import print_rows, size

if TYPE_CHECKING:
    from headrace.status import BuildStatus

__all__ = ["status"]


def status(
    output: Annotated[Path, typer.Argument(metavar="OUT", parser=given_path, help="The output folder of a build.")],
    json_object: Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")] = False,
) -> None:
    """Say whether a build is running, dead or done, and how far it is."""
    from headrace.status import build_status  # noqa: PLC0415  # not for --help

    found = build_status(output)
    if json_object:
        sys.stdout.write(json.dumps({**asdict(found), "share": found.share}) + "\n")
    else:
        _print(found)


def _print(found: "BuildStatus") -> None:
    rows = [("output", found.path), ("state", found.state)]
    if found.state != "done":
        rows += [
            ("source shards", f"{found.finished:,} of {found.source_shards:,} finished"),
            ("input", f"{size(found.input_bytes)} of {size(found.total_bytes)} ({found.share:.1%})"),
        ]
    rows += [("documents", f"{found.documents:,}"), ("tokens", f"{found.tokens:,}")]
    if found.state == "running":
        rows.append(("time", f"{found.seconds:,.0f} s{_left(found)}; told {found.age:,.0f} s ago"))
    if found.state == "dead":
        rows.append(("next", _next(found)))
    if found.overwriting:
        rows.append(
            ("unfinished", f"{found.overwriting:,} source shards of an --overwrite, whose command goes on from there")
        )
    if found.fingerprint:
        old = "" if found.state == "done" else " (the corpus as it was; it can be opened meanwhile)"
        rows.append(("fingerprint", found.fingerprint + old))
    print_rows(rows)


def _next(found: "BuildStatus") -> str:
    """What to do about a build that is dead."""
    from headrace.in_progress import JOURNAL  # noqa: PLC0415  # not for --help

    again = "the same command goes on from what is finished"
    if found.mode == "append":
        return f"{again}; to give the append up, and keep the corpus as it was, remove {JOURNAL} in {found.path}"
    if found.mode == "overwrite":
        return f"{again}; until then the corpus stays as it was"
    return f"{again}; --overwrite starts over"


def _left(found: "BuildStatus") -> str:
    if not found.input_bytes:
        return ""
    left = found.seconds * (1 - found.share) / found.share
    return f", about {left:,.0f} s left"
