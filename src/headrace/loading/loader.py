"""A corpus and a plan together: step -> batch."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import PlanError
from headrace.loading.batch import Batch
from headrace.loading.document_rows import DocumentRows, documents_reading, unserved_targets
from headrace.loading.marks import BoundaryLoss, Marker, MarkOptions, Marks, WindowMarker, both
from headrace.loading.source import (
    MaskSource,
    WindowBlock,
    WindowSource,
    boundary_of,
    corpus_identity,
    ends_of,
    require_documents,
    require_same_corpus,
    verify_store,
)
from headrace.loading.state import plan_of_state, state_of
from headrace.sampling import Places, Plan
from headrace.sampling.checks import checked_int, nearest_divisors
from headrace.verdicts import Verify

__all__ = ["Loader"]

BLOCK_STEPS = 1_024
"""Steps whose starts are worked out together: numpy's cost of a call is paid once for them."""
BLOCK_STARTS = 131_072
"""Most starts of a block (1 MiB), whatever the batch size."""
BLOCK_EPOCHS = 64
"""Most epochs of a block: each costs keys, and a tiny corpus has many in few steps."""


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

    Raises:
        PlanError: the plan is for another corpus, or the rank and world size do not fit it.
        NoDocumentsError: documents are asked for, and the corpus does not know them.
        CorruptShardError: `full` found damage; it names shard, chunk, tokens, documents and lines.
        ValueError, TypeError: `verify` is none of the three, or `full` and the corpus has no `verify()`.
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
    ) -> None:
        self._options = MarkOptions(bool(document_ids), bool(position_ids), boundary_loss)
        require_same_corpus(plan, corpus)
        if plan.order == "documents" or self._options.any:
            require_documents(corpus, plan)
        self.rank = rank
        self.world_size = world_size
        self.dtype = np.dtype(dtype)
        self._corpus = corpus
        self._pad_id = boundary_of(corpus) if pad_id is None else checked_int("pad_id", pad_id, least=0)
        self._step = 0
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
        self._block: _Block | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_block": None}

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
        index: Any = getattr(self._corpus, "path", None)
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
            batch = self.batch(self._step)
            self._step += 1
            yield batch

    def batch(self, step: int, *, micro: int = 0, of: int = 1) -> Batch:
        """Return this rank's rows of one step, in arrays of their own.

        Args:
            step: of the optimizer.
            micro: which part of this rank's rows, for gradients that are accumulated over several batches.
            of: number of parts; it must divide the rank's rows. All parts in order are the rank's batch.

        Raises:
            PlanError: the plan has no such step, or the step no such part.
        """
        step = checked_int("step", step, least=0)
        block = self._block
        if block is None or not block.first <= step < block.stop or block.of != of:
            self._block = block = self._located(step, of)
        if micro:
            micro = checked_int("micro", micro, least=0, below=of)
        row = (step - block.first) * of + micro
        tokens = block.gathered(block.windows, row, self.dtype, self._pad_id)
        marks = Marks() if block.marker is None else block.marker.marks(row)
        mask = marks.loss_mask
        if self._steps is not None:
            mask = both(mask, self.plan.loss_mask(step, self.rank * of + micro, self.world_size * of))
        if block.stored is not None:
            stored = np.zeros((len(tokens), self.plan.window), np.bool_)  # inside, nothing is read after the last input
            stored[:, : tokens.shape[1] - 1] = block.gathered(block.stored, row, np.dtype(np.uint8), 0)[:, 1:]
            mask = both(mask, stored)
        return Batch(
            step=step,
            input_ids=tokens if self._inside else tokens[:, :-1],
            targets=None if self._inside else tokens[:, 1:],
            labels=tokens if self._inside else None,
            loss_mask=mask,
            starts=block.starts[row].copy(),
            document_ids=marks.document_ids,
            position_ids=marks.position_ids,
        )

    def steps_of(self, tokens: range, epochs: range | None = None, *, steps: range | None = None) -> Places:
        """Find the rows that read any of some tokens. As `Plan.steps_of`, for plans of documents too."""
        if self.plan.order != "documents":
            return self.plan.steps_of(tokens, epochs, steps=steps)
        if tokens.step != 1 or not 0 <= tokens.start < tokens.stop <= self.plan.token_count:
            raise PlanError(f"tokens: wanted a range without gaps in [0, {self.plan.token_count}), found {tokens}")
        documents = documents_reading(ends_of(self._corpus), tokens, self.plan.read_length)
        if not documents:  # all of them lie beyond what a row holds
            return Places(np.empty(0, np.int64), np.empty(0, np.int64))
        return self.plan.documents_steps(documents, epochs, steps=steps)

    def unserved_targets(self) -> int:
        """Return how many targets of the corpus no row of an epoch serves.

        Those are its tail, and what lies between windows further apart than they read; of a plan of documents what lies
        beyond the first `read_length` tokens of each, for which every length is looked at. 0 for random windows.
        """
        if self.plan.order == "documents":
            return unserved_targets(ends_of(self._corpus), self.plan.read_length)
        return 0 if self.plan.order == "random" else self.plan.tail_tokens + self.plan.lost_targets

    @property
    def _identity(self) -> dict[str, object]:
        return {**corpus_identity(self._corpus), "boundary_loss": self._options.boundary_loss}

    def _located(self, step: int, of: int) -> "_Block":
        """Work out where the rows of a step lie, and those of the steps around it."""
        of = checked_int("of", of, least=1)
        plan, alike = self.plan, self.plan.steps_alike(step)
        rows = plan.valid(step, self.rank, self.world_size).size
        if rows % of:
            raise PlanError(
                f"of must divide the {rows} rows of a rank's batch, found {of}; the nearest that does is "
                f"{nearest_divisors(rows, of)}"
            )
        epoch_steps = BLOCK_EPOCHS * plan.windows // plan.batch_size_at(step)
        count = max(1, min(BLOCK_STEPS, BLOCK_STARTS // rows, epoch_steps))
        first = step - (step - alike.start) % count
        stop = min(first + count, alike.stop)
        numbers = plan.documents_many if plan.order == "documents" else plan.starts_many
        found = numbers(first, stop - first, self.rank, self.world_size).reshape(-1, rows // of)
        documents = marker = None
        starts, length = found, plan.read_length
        if plan.order == "documents":
            marker = documents = DocumentRows(
                ends_of(self._corpus),
                found,
                window=plan.window,
                read_length=plan.read_length,
                token_count=plan.token_count,
                options=self._options,
            )
            starts, length = documents.starts, documents.reads
        elif self._options.any:
            marker = WindowMarker(
                ends_of(self._corpus), found, window=plan.window, reads_next=not self._inside, options=self._options
            )
        places, corpus = starts if documents is None else documents.places, self._corpus
        windows, masked = corpus.windows(places, length), isinstance(corpus, MaskSource) and corpus.has_loss_mask
        stored = cast("MaskSource", corpus).loss_mask_windows(places, length) if masked else None
        return _Block(first, stop, of, (rows // of, length), starts, windows, stored, marker, documents)


class _Block(NamedTuple):
    """Several steps of one batch size, their windows located once. A row is a part of a step, `of` of them."""

    first: int
    stop: int
    of: int
    shape: tuple[int, int]
    """Of what is read for a row of the block."""
    starts: NDArray[np.int64]
    """`(steps * of, rows)`."""
    windows: WindowBlock
    stored: WindowBlock | None
    """The corpus' loss mask of the same windows."""
    marker: Marker | None
    documents: DocumentRows | None

    def gathered(self, windows: WindowBlock, row: int, dtype: np.dtype[Any], pad: int) -> NDArray[Any]:
        """Return the windows of one row, `(rows, read_length)`; `pad` stands behind the end of a document's row."""
        out = np.empty(self.shape, dtype)
        windows.gather_into(row, out)
        return out if self.documents is None else self.documents.arrange(row, out, pad)
