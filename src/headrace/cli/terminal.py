"""What reaches the terminal: errors, progress, JSON lines and numbers."""

import errno
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from headrace.errors import HeadraceError
from headrace.events import (
    BuildFinished,
    BuildStarted,
    Event,
    FirstPass,
    Notice,
    Progress,
    ShardVerified,
    ShardWritten,
    SplitFinished,
    SplitStarted,
    json_values,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = [
    "JsonLines",
    "ProgressDisplay",
    "print_error",
    "print_report",
    "print_rows",
    "print_split",
    "printable",
    "settings",
    "size",
]

_LINE_SECONDS = 5.0
"""Between two lines of progress where stderr is no terminal."""


class Settings:
    """What options of the running command decide about printing."""

    max_reported = 20


settings = Settings()


def print_error(error: Exception) -> None:
    """A one-line summary on stderr, then at most `settings.max_reported` places."""
    if not isinstance(error, HeadraceError):
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        elif isinstance(error, FileNotFoundError) and error.strerror == os.strerror(errno.ENOENT):  # of os.getcwd
            text = "the working directory is not there any more"
        sys.stderr.write(f"headrace: {printable(text, sys.stderr)}\n")
        return
    summary, *more = error.summary.split("\n")
    lines = [f"headrace: {summary}", *more]
    limit = settings.max_reported
    lines += [f"  {problem}" for problem in error.problems[:limit]]
    more = getattr(error, "count", len(error.problems)) - min(limit, len(error.problems))  # an error keeps some of many
    if more > 0:
        lines.append(f"  ... and {more} more")
    sys.stderr.write(printable("\n".join(lines), sys.stderr) + "\n")


def printable(text: str, stream: TextIO) -> str:
    """Text that a stream can encode, whatever file names and documents are made of."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class JsonLines:
    """A subscriber that writes each event to stdout as one JSON object a line, the kind under `event`."""

    def __call__(self, event: Event, /) -> None:
        """Write one line."""
        row = {"event": type(event).__name__, **json_values(asdict(event))}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


class ProgressDisplay:
    """A subscriber that shows progress on stderr: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._told = time.monotonic()
        self._notices = Counter[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event, /) -> None:
        """Show an event."""
        if isinstance(event, Notice):
            self._notice(event)
        elif isinstance(event, BuildStarted | SplitStarted):
            self._start(event)
        elif isinstance(event, FirstPass):
            self._first_pass(event)
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, BuildFinished | SplitFinished) and self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._total)
        elif isinstance(event, ShardVerified | ShardWritten):
            pass  # their sum is in the report

    def _notice(self, event: Notice) -> None:
        self._notices[event.kind] += 1
        if self._notices[event.kind] <= settings.max_reported:
            sys.stderr.write(printable(f"{event.kind}: {event.message}\n", sys.stderr))
        elif self._notices[event.kind] == settings.max_reported + 1:
            sys.stderr.write(f"{event.kind}: ... and more; --max-reported shows them\n")

    def _start(self, event: BuildStarted | SplitStarted) -> None:
        self._total = event.input_bytes
        if not sys.stderr.isatty():
            work = f"{size(event.input_bytes)}, {event.workers} worker{'s' * (event.workers != 1)}"
            if isinstance(event, SplitStarted):
                text = f"splitting into {event.output}: {', '.join(event.parts)}; {event.shards} shard{'s' * (event.shards != 1)}, {work}\n"
            else:
                text = f"building {event.output}: {event.source_shards} source shard{'s' * (event.source_shards != 1)}, {work}, tokenizer {event.tokenizer}\n"
            sys.stderr.write(printable(text, sys.stderr))
            return
        from rich.console import Console  # noqa: PLC0415  # only where there is a terminal
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        self._bar = Bar(
            TextColumn("{task.percentage:>3.0f}%"),
            BarColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("build", total=max(self._total, 1), counts="")
        self._bar.start()

    def _first_pass(self, event: FirstPass) -> None:
        if time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            share = event.input_bytes / max(event.total_bytes, 1)
            left = event.seconds * (1 - share) / share if share > 0 else 0.0
            sys.stderr.write(f"first pass: {share:4.0%}  {event.documents:,} documents, about {left:,.0f} s left\n")

    def _progress(self, event: Progress) -> None:
        # Where there is no text, of ids and of a split, the rate is that of what is read.
        rate = (event.text_bytes or event.input_bytes) / 1e6 / max(event.seconds, 1e-9)
        counts = f"{event.documents:,} documents, {event.tokens:,} tokens, {rate:,.1f} MB/s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=event.input_bytes, counts=counts)
        elif time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            share = event.input_bytes / max(self._total, 1)
            left = event.seconds * (1 - share) / share if share > 0 else 0.0
            sys.stderr.write(f"{share:4.0%}  {counts}, about {left:,.0f} s left\n")


def print_report(report: BuildFinished) -> None:
    """The closing report of a build, on stdout."""
    from headrace.building.drop_log import NOT_SAMPLED  # noqa: PLC0415  # loaded by the build

    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    listed = f" (listed in {report.output}/.headrace/dropped)" if report.dropped.keys() - {NOT_SAMPLED} else ""
    dropped = f"{dropped}{listed}" if dropped else "none"
    share = report.boundary_tokens / max(report.tokens, 1)
    # Of a run that found some of the work done, no rate can be told.
    rate = (
        ""
        if report.resumed or not report.text_bytes
        else f", {report.text_bytes / 1e6 / max(report.seconds, 1e-9):.1f} MB/s of text"
    )
    rows = [
        ("documents", f"{report.documents_in:,} in, {report.documents:,} kept"),
        ("dropped", dropped),
        ("tokens", f"{report.tokens:,} ({report.boundary_tokens:,} boundaries, {share:.2%})"),
        ("bytes per token", f"{report.text_bytes / max(report.tokens - report.boundary_tokens, 1):.3f}"),
        ("shards", f"{report.shards:,}"),
        ("time", f"{report.seconds:.2f} s{rate}"),
        ("fingerprint", report.fingerprint),
    ]
    if not report.text_bytes:  # the documents were ids
        del rows[3]
    if report.cut_tokens:
        rows.insert(3, ("cut", f"{report.cut_tokens:,} tokens by --max-document-tokens"))
    if report.replaced:
        rows.insert(2, ("replaced", f"invalid bytes became U+FFFD in {report.replaced:,} documents"))
    if report.total_tokens != report.tokens:
        rows.insert(-1, ("whole corpus", f"{report.total_tokens:,} tokens"))
    if report.resumed:
        rows.insert(-1, ("kept", f"{report.resumed:,} source shards of an earlier run"))
    print_rows([("corpus", report.output), *rows])


def print_split(report: SplitFinished) -> None:
    """The closing report of a split, on stdout."""
    total = sum(part.documents for part in report.parts)
    rows = [
        ("split of", report.base),
        ("by", f"hash of {'its text' if report.by == 'text' else 'its tokens'}, seed {report.seed}"),
    ]
    for part in report.parts:
        share = part.documents / max(total, 1)
        asked = f"{part.fraction} asked for" if part.fraction else "the rest"
        counts = f"{part.documents:,} documents ({share:.6f}, {asked}), {part.tokens:,} tokens, {part.shards:,} shards"
        rows += [(part.name, part.path), ("", counts), ("", f"fingerprint {part.fingerprint}")]
    if report.kept:
        rows.append(("kept", f"{report.kept:,} parts of an earlier run"))
    print_rows([*rows, ("time", f"{report.seconds:.2f} s")])


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Two aligned columns on stdout."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        sys.stdout.write(printable(f"{name:<{width}}  {value}\n", sys.stdout))


def size(count: float) -> str:
    """A byte count for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004  # SI
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
