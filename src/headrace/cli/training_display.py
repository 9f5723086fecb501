"""What a training run shows: a tqdm bar on a terminal, else a line every few seconds; and its closing report."""

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from headrace.cli.terminal import ProgressDisplay, print_rows
from headrace.training.log import StepRecord
from headrace.training.report import EpochEnded, Evaluated, RunReport, RunStarted

__all__ = ["TrainingDisplay", "print_run"]

_LINE_SECONDS = 5.0
"""Between two lines of progress where stderr is no terminal."""


class TrainingDisplay:
    """A subscriber for a run, on stderr."""

    def __init__(self) -> None:
        self._others = ProgressDisplay()
        self._bar: Any = None
        self._steps = 0
        self._told = time.monotonic()
        self._tokens = 0
        self._waited = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, event: Any, /) -> None:  # noqa: ANN401  # all that `headrace.training.report` lists
        """Show an event."""
        if isinstance(event, StepRecord):
            self._step(event)
        elif isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, EpochEnded):
            self._line(f"epoch {event.epoch}: training perplexity {event.train_perplexity:,.2f}")
        elif isinstance(event, Evaluated):
            self._line(f"step {event.step}: held-out perplexity {event.perplexity:,.2f} ({event.targets:,} targets)")
        elif not isinstance(event, RunReport):
            self._others(event)

    def _start(self, event: RunStarted) -> None:
        self._steps = event.steps
        begun = f", from step {event.step:,} on" if event.step else ""
        self._line(
            f"training {event.parameters:,} parameters on {event.device} x {event.processes}: {event.steps:,} steps of "
            f"{event.step_tokens:,} tokens{begun}; {event.output}"
        )
        if sys.stderr.isatty():
            size = shutil.get_terminal_size()
            known = min(os.get_terminal_size(sys.stderr.fileno())) > 0  # else tqdm would draw nothing
            shape: dict[str, Any] = {"dynamic_ncols": True} if known else {"ncols": size.columns, "nrows": size.lines}
            self._bar = tqdm(total=event.steps, initial=event.step, unit="step", **shape)
        self._told = time.monotonic()

    def _step(self, record: StepRecord) -> None:
        self._tokens += record.tokens
        self._waited += record.data_wait_s
        now = time.monotonic()
        seconds = now - self._told
        if self._bar is not None:
            self._bar.update()
        if seconds < (_LINE_SECONDS if self._bar is None else self._bar.mininterval):
            return
        figures = (
            f"loss {record.loss:.4f}, lr {record.lr:.2e}, {self._tokens / seconds:,.0f} tokens/s, "
            f"data wait {self._waited / seconds:.1%}"
        )
        if self._bar is None:
            self._line(f"{(record.step + 1) / self._steps:4.0%}  step {record.step + 1:,}, {figures}")
        else:
            self._bar.set_postfix_str(figures, refresh=False)
        self._told, self._tokens, self._waited = now, 0, 0.0

    def _line(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)


def print_run(report: RunReport) -> None:
    """The closing report of a run, on stdout."""
    seconds = max(report.seconds, 1e-9)
    rows = [("run", report.output), ("steps", f"{report.step:,}, of which {report.skipped:,} were skipped")]
    if report.loss is not None:
        rows.append(("loss", f"{report.loss:.4f}"))
    if report.perplexity is not None:
        rows.append(("perplexity", f"{report.perplexity:,.2f}"))
    if report.tokens:
        rate = f"{report.tokens / seconds:,.0f} tokens/s, {report.data_wait_s / seconds:.2%} of the time spent waiting for data"
        rows.append(("time", f"{report.seconds:.2f} s, {rate}"))
    print_rows([*rows, ("checkpoint", report.checkpoint)])
