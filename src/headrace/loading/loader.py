"""A corpus and a plan together: step -> batch."""

import time
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import PlanError
from headrace.loading.ahead import ReadAhead
from headrace.loading.batch import Batch
from headrace.loading.document_rows import documents_reading, unserved_targets
from headrace.loading.marks import BoundaryLoss, MarkOptions, Marks, both
from headrace.loading.prefetch import prefetched
from headrace.loading.rows import Rows, locate_rows, locate_samples
from headrace.loading.source import (
    WindowSource,
    boundary_of,
    checked_dtype,
    corpus_identity,
    ends_of,
    require_documents,
    require_kinds,
    require_same_corpus,
    verify_store,
)
from headrace.loading.state import plan_of_state, state_of
from headrace.loading.stats import LoaderStats, Tally
from headrace.sampling import Places, Plan
from headrace.sampling.checks import POSITION_LIMIT, checked_int, checked_run
from headrace.verdicts import Verify

__all__ = ["Loader"]

_NO_MARKS = Marks()


class Loader:
    """Serves the batches of a plan. `batch(step)` is a pure function: any step, any number of times, at equal cost.

    Iteration goes on from `step`, the number of batches already taken, and moves it before it hands a batch out. To save
    a run, keep `state_dict()`; `load_state_dict` goes on from there, at once, with other ranks and batch sizes too. An
    endless plan iterates for ever. A finite one stops after its last step; iteration that begins there begins anew.

    Args:
        corpus: what serves the tokens; see `WindowSource`. Where it stores a loss mask (see `MaskSource`), the batches
            have it, put together with what else does not count. Plans of documents, `document_ids`, `position_ids` and
            `boundary_loss` need one that knows where its documents end.
        plan: made for this corpus.
        rank: which part of every batch to serve.
        world_size: number of parts; it must divide the plan's batch sizes. Every rank serves equally many batches.
        dtype: of the tokens handed out, int64 or the corpus' own.
        verify: `full` compares every byte of the corpus with its manifest now, once and whatever the corpus was opened
            with. `quick` reads nothing now and leaves it to the corpus, which checks each shard's stored digest and its
            first and last chunk when it is first touched; but one that was opened with `verify="off"` checks sizes
            only. `off` asks for nothing: the corpus does what it was opened to do.
        document_ids: give each batch the number of each token's document.
        position_ids: give each batch the place of each token in its document, counted from the first of its tokens that
            is in the row.
        boundary_loss: which predictions at the borders of documents count. `keep`: all. `target`: not that of a
            document's last token, its boundary. `after`: not that of the next one's first token from it. `both`:
            neither. What counts is in the batch's `loss_mask`.
        pad_id: stands where a document is shorter than its row, in plans of documents; by default the corpus' boundary,
            or 0 where it has none.
        prefetch: batches that a thread makes ahead of iteration; 0 for none. It changes no batch, and pays where making
            one takes long beside a step: from a cold disk, of compressed shards, with `document_ids`.

    Raises:
        PlanError: the plan is for another corpus, the rank and world size do not fit it, or an option is none that there is.
        NoDocumentsError: documents are asked for, and the corpus does not know them.
        CorruptShardError: `full` found damage; it names shard, chunk, tokens, documents and lines.
        ValueError: `verify` is none of the three.
        TypeError: `full`, and the corpus has no `verify()`; or it is no corpus, or the plan no plan.
    """

    def __init__(
        self,
        corpus: WindowSource,
        plan: Plan,
        *,
        rank: int = 0,
        world_size: int = 1,
        dtype: DTypeLike = np.int64,
        verify: Verify = "quick",
        document_ids: bool = False,
        position_ids: bool = False,
        boundary_loss: BoundaryLoss = "keep",
        pad_id: int | None = None,
        prefetch: int = 0,
    ) -> None:
        self._options = MarkOptions(document_ids, position_ids, boundary_loss)
        require_kinds(corpus, plan)
        require_same_corpus(plan, corpus)
        if plan.order == "documents" or self._options.any:
            require_documents(corpus, plan)
        self.rank = rank
        self.world_size = world_size
        self.dtype = checked_dtype(dtype, corpus)
        self.corpus = corpus
        # Of the corpus as it is now: one that grows later has the tokens of this plan still, under another fingerprint.
        self._identity = {**corpus_identity(corpus), "boundary_loss": boundary_loss}
        if pad_id is not None:
            pad_id = checked_int("pad_id", pad_id, least=0, below=min(1 << 8 * self.dtype.itemsize, POSITION_LIMIT))
        self._pad_id = boundary_of(corpus) if pad_id is None else pad_id
        self.prefetch = checked_int("prefetch", prefetch, least=0)
        self._step = 0
        self._tally = Tally()
        self._follow(plan)
        verify_store(corpus, verify)

    def _follow(self, plan: Plan) -> None:
        """Serve this plan from the present step on."""
        sizes = plan.batch_size if not isinstance(plan.batch_size, int) else ((0, plan.batch_size),)
        for from_step, _ in sizes:  # those of past steps need not fit this world
            if from_step < plan.step_limit and plan.steps_alike(from_step).stop > self._step:
                plan.valid(from_step, self.rank, self.world_size)
        self.plan = plan
        self._steps = plan.steps
        self._inside = plan.targets == "inside"
        self._rows: Rows | None = None
        self._next: Rows | None = None
        self._ahead = ReadAhead[Rows]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None, "_next": None, "_ahead": None, "_tally": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _ahead=ReadAhead[Rows](), _tally=Tally())

    def on_rank(self, rank: int, world_size: int) -> "Loader":
        """Return a loader like this one, at the same step, for another part of every batch.

        Raises:
            PlanError: the rank and world size do not fit the plan.
        """
        other = copy(self)
        other.rank, other.world_size = rank, world_size
        other._follow(self.plan)  # noqa: SLF001  # a loader too
        return other

    @property
    def step(self) -> int:
        """The step that iteration serves next: how many batches of the plan were taken. May be set."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = checked_int("step", value, least=0, below=self.plan.step_limit + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return how far the trainer is: `step`, the samples taken, and what they were taken of. JSON holds it."""
        return state_of(self.plan, self._step, self._identity)

    def load_state_dict(self, state: Mapping[str, Any], *, allow: Collection[str] = ()) -> None:
        """Go on where a state was saved, at once, whatever the step.

        Ranks, world size and dtype may be others, and so may the batch size: what was taken stays taken, the steps go on
        counting, and `plan` says from which step on the new size counts. Everything else must be as it was, but for what
        is allowed to differ.

        Args:
            state: what `state_dict` returned, here or in another process.
            allow: names of fields that may differ, as the error names them; `skipped`, after `plan.skip`, for instance.

        Raises:
            PlanError: it is the state of another run; each field that differs is named, and where the corpus is another
                one, the version of it that would fit, if its folder keeps that.
        """
        index: Any = getattr(self.corpus, "path", None)
        plan, step = plan_of_state(state, self.plan, self._identity, allow=allow, index=index)
        before, self._step = self._step, step
        try:
            self._follow(plan)
        except PlanError:
            self._step = before
            raise

    def __len__(self) -> int:
        """Return the number of steps of a finite plan.

        Raises:
            TypeError: the plan is endless.
        """
        if self._steps is None:
            raise TypeError(f"a plan of order {self.plan.order!r} is endless and has no len(); stop at a step")
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        if self._step == self._steps:
            self._step = 0
        while self._step != self._steps:
            plan, coming = self.plan, self._coming()
            while True:
                asked = time.perf_counter()
                batch = next(coming, None)
                if batch is None:
                    break
                self._step = batch.step + 1
                self._tally.add(batch.input_ids.size, asked)
                yield batch
                if self._step != batch.step + 1 or self.plan is not plan:  # set by whoever iterates
                    break

    def _coming(self) -> Iterator[Batch]:
        """Make the batches from the present step on."""
        steps = count(self._step) if self._steps is None else range(self._step, self._steps)
        return prefetched(self._made, steps, self.prefetch) if self.prefetch else map(self._made, steps)

    def stats(self) -> LoaderStats:
        """Return what was served so far, and how long it was waited for."""
        return self._tally.stats(self._ahead.cold_share)

    def batch(self, step: int, *, micro: int = 0, of: int = 1, out: NDArray[Any] | None = None) -> Batch:
        """Return this rank's rows of one step, in arrays of their own.

        Args:
            step: of the optimizer.
            micro: which part of this rank's rows, for gradients that are accumulated over several batches.
            of: number of parts; it must divide the rank's rows. All parts in order are the rank's batch.
            out: holds the batch's tokens in place of an array of its own, `(B, plan.read_length)`, C-contiguous, of the
                loader's dtype: pinned memory, for instance. It is overwritten whole.

        Raises:
            PlanError: the plan has no such step, or the step no such part.
            ValueError: `out` is of another shape, dtype or order, or cannot be written to.
            TypeError: `out` is no array of numpy. That of a tensor in memory is `tensor.numpy()`.
        """
        asked = time.perf_counter()
        batch = self._made(step, micro, of, out)
        self._tally.add(batch.input_ids.size, asked)
        return batch

    def _made(self, step: int, micro: int = 0, of: int = 1, out: NDArray[Any] | None = None) -> Batch:
        step = checked_int("step", step, least=0)
        rows = self._rows
        if rows is None or of != rows.of or not rows.first <= step < rows.stop:
            ahead = self._next
            self._rows = rows = ahead if ahead is not None and ahead.holds(step, of) else self._located(step, of)
        if micro or type(micro) is not int or type(of) is not int:  # what equals 0 or 1 may be a float
            of = checked_int("of", of, least=1)
            micro = checked_int("micro", micro, least=0, below=of)
        if out is not None:
            self._require_fit(out, rows)
        row = (step - rows.first) * of + micro
        if rows is not self._ahead.warm:
            self._ahead.before(rows, row, self._after)
        planned = None
        if self._steps is not None:
            planned = self.plan.loss_mask(step, self.rank * of + micro, self.world_size * of)
        return self._read(rows, row, step, planned, out)

    def samples(self, numbers: NDArray[np.int64]) -> Batch:
        """Return the rows of any samples of the plan's order, in the order given, whatever the rank; the batch's step is -1.

        For data sets that are asked for samples; a trainer's batches come from `batch`, which works out many together.

        Args:
            numbers: int64 `(S,)`, at least one; see `Plan.starts_of`.

        Raises:
            PlanError: the plan has no such sample, or there is none to read.
        """
        rows = locate_samples(self.corpus, self.plan, numbers, self._options)
        planned = None if self._steps is None else self.plan.loss_mask_of(numbers)
        return self._read(rows, 0, -1, planned, None)

    def _read(
        self, rows: Rows, row: int, step: int, planned: NDArray[np.bool_] | None, out: NDArray[Any] | None
    ) -> Batch:
        tokens = rows.gathered(rows.windows, row, self.dtype, self._pad_id, out)
        marks = _NO_MARKS if rows.marker is None else rows.marker.marks(row)
        mask = marks.loss_mask if planned is None else both(marks.loss_mask, planned)
        if rows.stored is not None:
            stored = np.zeros((len(tokens), self.plan.window), np.bool_)  # inside, nothing is read after the last input
            stored[:, : tokens.shape[1] - 1] = rows.gathered(rows.stored, row, np.dtype(np.uint8), 0)[:, 1:]
            mask = both(mask, stored)
        return Batch(
            step=step,
            input_ids=tokens if self._inside else tokens[:, :-1],
            targets=None if self._inside else tokens[:, 1:],
            labels=tokens if self._inside else None,
            loss_mask=mask,
            starts=rows.starts[row].copy(),
            document_ids=marks.document_ids,
            position_ids=marks.position_ids,
        )

    def _require_fit(self, out: NDArray[Any], rows: Rows) -> None:
        if not isinstance(out, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]  # buffers come from anywhere
            raise TypeError(
                f"out: wanted an array of numpy, found {type(out).__name__}; that of a tensor in memory is tensor.numpy()"
            )
        if not out.flags.writeable:
            raise ValueError("out: wanted an array that can be written to, found one that is read-only")
        wanted = rows.shape[0], self.plan.read_length
        if out.shape != wanted or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out: wanted {self.dtype} {wanted}, C-contiguous, found {out.dtype} {out.shape}, strides {out.strides}"
            )

    def steps_of(self, tokens: range, epochs: range | None = None, *, steps: range | None = None) -> Places:
        """Find the rows that read any of some tokens. As `Plan.steps_of`, for plans of documents too."""
        if self.plan.order != "documents":
            return self.plan.steps_of(tokens, epochs, steps=steps)
        tokens = checked_run("tokens", tokens, below=self.plan.token_count)
        documents = documents_reading(ends_of(self.corpus), tokens, self.plan.read_length)
        if not documents:  # all of them lie beyond what a row holds
            return Places(np.empty(0, np.int64), np.empty(0, np.int64))
        return self.plan.documents_steps(documents, epochs, steps=steps)

    def unserved_targets(self) -> int:
        """Return how many targets of the corpus no row of an epoch serves.

        Those are its tail, and what lies between windows further apart than they read; of a plan of documents what lies
        beyond the first `read_length` tokens of each, for which every length is looked at. 0 for random windows.
        """
        if self.plan.order == "documents":
            return unserved_targets(ends_of(self.corpus), self.plan.read_length)
        return 0 if self.plan.order == "random" else self.plan.tail_tokens + self.plan.lost_targets

    def _located(self, step: int, of: int) -> Rows:
        return locate_rows(
            self.corpus, self.plan, step, of, rank=self.rank, world_size=self.world_size, options=self._options
        )

    def _after(self, rows: Rows) -> Rows | None:
        """Work out where the rows behind these lie, unless that was done.

        None where the plan ends, or has batches from there on that cannot be cut into as many parts.
        """
        if rows.stop >= self.plan.step_limit or self.plan.batch_size_at(rows.stop) % (self.world_size * rows.of):
            return None
        following = self._next
        if following is None or not following.holds(rows.stop, rows.of):
            self._next = following = self._located(rows.stop, rows.of)
        return following
