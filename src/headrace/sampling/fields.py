"""What a plan is made of, and what follows from it without a step: checks, counts, the fingerprint."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headrace.errors import PlanError
from headrace.sampling.checks import checked_int, is_bool
from headrace.sampling.keys import Stream
from headrace.sampling.local import LocalShuffle
from headrace.sampling.phases import phase_of
from headrace.sampling.schedule import BatchSchedule, BatchSize
from headrace.sampling.shuffles import GlobalShuffle, InOrder, Shuffle
from headrace.sampling.skips import Skips
from headrace.sampling.windows import Targets, WindowGrid, targets_per_window

__all__ = ["Order", "PlanFields", "ShuffleKind", "fingerprint_of"]

Order = Literal["random", "blocks", "sequential", "documents"]
ShuffleKind = Literal["global", "local", "none"]

SCHEME = 1
"""Version of all orders together. Any change of an order is a change of this number, and of the golden values."""
PIECE_WINDOWS = 1_024
PIECES_AT_ONCE = 64
"""What a local shuffle takes if it is not told. Part of its order."""
_SHUFFLES: dict[str, tuple[str, ...]] = {"blocks": ("global", "local"), "documents": ("global", "local", "none")}
"""Kinds of shuffle of each order that has any; the first is the default."""


def fingerprint_of(fields: Mapping[str, Any]) -> str:
    """Return the fingerprint of a plan with these `fingerprint_fields`."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFields:
    """The fields of a `Plan`, which says what they mean together."""

    order: Order
    token_count: int
    """Tokens of the corpus."""
    window: int
    """T: inputs of a row, in tokens."""
    batch_size: BatchSize
    """Rows of the global batch, over all ranks; or pairs (from_step, rows), the first from step 0, where it changes."""
    seed: int = 0
    """Any integer >= 0."""
    targets: Targets = "next"
    """`next`: row i of the targets is the inputs moved on by one. `inside`: the labels are the inputs themselves."""
    stride: int | None = None
    """Tokens from a window's start to the next one's. None serves each target once: T for `next`, T - 1 for `inside`.
    A larger one loses targets, a smaller one repeats them (`sequential` then counts each the first time only)."""
    corpus: str = ""
    """Fingerprint of the corpus, hex; empty where it is not known. `Corpus.fingerprint` is taken for its digits."""
    shuffle: ShuffleKind | None = None
    """Of `blocks` and `documents`. `global` (None): every epoch a permutation of all windows. `local`: large pieces of the
    corpus in random order, and windows in random order within a few pieces, so that reads lie closer together.
    `documents` take `none`, too: in order, once, for evaluation."""
    piece_windows: int | None = None
    """`local`: windows, or documents, of a piece; None for 1,024."""
    pieces_at_once: int | None = None
    """`local`: pieces within which windows are mixed; None for 64."""
    phase: bool = False
    """`blocks`: move the windows of each epoch on by a number of tokens below the stride, its own, so that they are cut
    at other places; all epochs have the number of windows for which there is room in each."""
    documents: int | None = None
    """`documents`: how many there are."""
    skipped: tuple[tuple[int, int], ...] = ()
    """Samples of the order that are left out, first and the one after the last of each range; see `Plan.skip`."""
    _batches: BatchSchedule = field(init=False, repr=False, compare=False)
    _skips: Skips = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value, allowed in (("order", self.order, Order), ("targets", self.targets, Targets)):
            if value not in get_args(allowed):
                raise PlanError(f"{name} must be one of {', '.join(get_args(allowed))}; found {value!r}")
        least_window = 1 if self.targets == "next" else 2
        for name, least in (("token_count", 0), ("window", least_window)):
            self._set(name, checked_int(name, getattr(self, name), least=least))
        self._set("seed", checked_int("seed", self.seed, least=0, below=None))
        self._set("corpus", self._checked_corpus())
        self._set("_batches", BatchSchedule.of(self.batch_size))
        self._set("batch_size", self._batches.value)
        self._check_order()
        self._check_room()
        self._set("_skips", Skips.of(self.skipped))
        self._set("skipped", self._skips.ranges)
        if self.finite and self.skipped and self.skipped[-1][1] > self.windows:
            raise PlanError(f"skipped: the plan has the samples 0 to {self.windows - 1}, found {self.skipped[-1]}")
        if self.finite and self._skips.count == self.windows:
            raise PlanError(f"skipped: all {self.windows} samples of the plan are left out")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _checked_corpus(self) -> str:
        given: Any = self.corpus
        digits = given if isinstance(given, str) else getattr(given, "hex", None)
        if not isinstance(digits, str):
            raise PlanError(
                f"corpus: wanted the fingerprint, as str(corpus.fingerprint), or '' where it is not known; found {given!r}"
            )
        return digits

    def _check_order(self) -> None:
        """Check the fields that only some orders have."""
        if self.stride is not None:
            if self.order == "random":
                raise PlanError("a random plan has no stride: its starts are drawn one by one; leave stride out")
            if self.order == "documents":
                raise PlanError("a plan of documents has no stride: each row begins with a document; leave stride out")
            self._set("stride", checked_int("stride", self.stride, least=1))
        self._check_shuffle()
        if not is_bool(self.phase) or (self.phase and self.order != "blocks"):
            raise PlanError(f"phase is True or False, and for order='blocks'; found {self.phase!r}")
        self._set("phase", bool(self.phase))
        if (self.documents is not None) != (self.order == "documents"):
            raise PlanError(
                f"documents, their number, goes with order='documents' and with no other; found {self.documents!r} for "
                f"order={self.order!r}"
            )

    def _check_shuffle(self) -> None:
        """Check the kind of shuffle, and what only a local one has; a default is the same as its value."""
        kinds = _SHUFFLES.get(self.order, ())
        if self.shuffle is not None and self.shuffle not in kinds:
            other = (
                "; order='sequential' is blocks in order" if (self.order, self.shuffle) == ("blocks", "none") else ""
            )
            raise PlanError(
                f"shuffle of order={self.order!r} must be {' or '.join(map(repr, kinds)) or 'left out'}; "
                f"found {self.shuffle!r}{other}"
            )
        if kinds and self.shuffle == kinds[0]:
            self._set("shuffle", None)
        for name, default in (("piece_windows", PIECE_WINDOWS), ("pieces_at_once", PIECES_AT_ONCE)):
            value = getattr(self, name)
            if self.shuffle != "local" and value is not None:
                raise PlanError(f"{name} is for shuffle='local'; found {value!r}")
            if self.shuffle == "local":
                self._set(name, checked_int(name, default if value is None else value, least=1))

    def _check_room(self) -> None:
        """Check that there is a window."""
        if self.documents is not None:
            self._set("documents", checked_int("documents", self.documents, least=1))
            if self.documents > self.token_count:
                raise PlanError(f"{self.documents} documents do not fit into {self.token_count} tokens")
            return
        wanted = self.read_length + (self.effective_stride - 1 if self.phase else 0)
        if self.token_count < wanted:
            moved = f" and up to {self.effective_stride - 1} before them with phase=True" if self.phase else ""
            raise PlanError(
                f"the corpus holds {self.token_count} tokens; a window of {self.window} with targets={self.targets!r} "
                f"reads {self.read_length}{moved}. Take a smaller window or a larger corpus"
            )

    @property
    def read_length(self) -> int:
        """R: tokens that a row reads, `window + 1` for `next` and `window` for `inside`."""
        return targets_per_window(self.window, self.targets) + 1

    @property
    def effective_stride(self) -> int:
        """Tokens from a window's start to the next one's; 1 for a random plan, and for documents."""
        if self.order in {"random", "documents"}:
            return 1
        return targets_per_window(self.window, self.targets) if self.stride is None else self.stride

    @property
    def windows(self) -> int:
        """Windows of an epoch, or documents; for a random plan the number of different starts."""
        return self._grid.windows if self.documents is None else self.documents

    @property
    def tail_tokens(self) -> int:
        """Tokens of an epoch before its first window and after its last: as many targets that no window serves.

        0 for a random plan. With a phase, `tails` tells the two apart.

        Raises:
            PlanError: a plan of documents, whose lengths it does not know; see `Loader.unserved_targets`.
        """
        self._require_windows("tail_tokens")
        return self.token_count - ((self.windows - 1) * self.effective_stride + self.read_length)

    def tails(self, epoch: int) -> tuple[int, int]:
        """Return how many tokens of an epoch lie before its first window, and after its last: together `tail_tokens`.

        Raises:
            PlanError: a plan of documents, or no such epoch.
        """
        epoch = checked_int("epoch", epoch, least=0)
        front = phase_of(self.seed, epoch, self.effective_stride) if self.phase else 0
        return front, self.tail_tokens - front

    @property
    def lost_targets(self) -> int:
        """Targets between two windows that neither serves, in an epoch; the tail is not among them.

        Raises:
            PlanError: a plan of documents, as for `tail_tokens`.
        """
        self._require_windows("lost_targets")
        return self._grid.lost_targets

    @property
    def repeated_targets(self) -> int:
        """Targets served more than once in an epoch, once for each repeat; 0 for a random plan, which has no epoch."""
        return 0 if self.order in {"random", "documents"} else self._grid.repeated_targets

    @property
    def finite(self) -> bool:
        """Whether the plan is one pass: sequential, or documents that are not shuffled."""
        return self.order == "sequential" or self.shuffle == "none"

    @property
    def fingerprint(self) -> str:
        """SHA-256, hex, of all that decides the sequence of samples.

        The batch size is not in it: it cuts the sequence into steps and changes none of it.
        """
        return fingerprint_of(self.fingerprint_fields)

    @property
    def fingerprint_fields(self) -> dict[str, Any]:
        """What the fingerprint is of, as JSON holds it; fields that only some orders have are there where they count."""
        fields: dict[str, Any] = {
            "scheme": SCHEME,
            "order": self.order,
            "token_count": self.token_count,
            "window": self.window,
            "targets": self.targets,
            "stride": self.effective_stride,
            "seed": hex(self.seed),
            "corpus": self.corpus,
        }
        for name in ("shuffle", "piece_windows", "pieces_at_once", "documents"):
            if getattr(self, name) is not None:
                fields[name] = getattr(self, name)
        if self.phase:
            fields["phase"] = True
        if self.skipped:
            fields["skipped"] = [list(pair) for pair in self.skipped]
        return fields

    @property
    def _grid(self) -> WindowGrid:
        moved = self.effective_stride - 1 if self.phase else 0
        return WindowGrid(self.token_count - moved, self.read_length, self.effective_stride)

    @property
    def _total(self) -> int:
        """Samples of a finite plan."""
        return self.windows - self._skips.count

    @property
    def _shuffle(self) -> Shuffle:
        """Which unit each sample of the order is; a random plan has none."""
        if self.finite:
            return InOrder(self.windows)
        if self.shuffle == "local":
            return LocalShuffle(self.windows, self.seed, self.piece_windows or 1, self.pieces_at_once or 1)
        stream = Stream.DOCUMENTS if self.order == "documents" else Stream.BLOCKS
        return GlobalShuffle(self.windows, self.seed, stream)

    def _require_windows(self, name: str) -> None:
        if self.documents is not None:
            raise PlanError(
                f"{name}: how much of long documents is not served, only their lengths say, which a plan does not know: "
                "ask a Loader for its unserved_targets()"
            )
