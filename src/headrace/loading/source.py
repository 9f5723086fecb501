"""What a loader needs of a corpus, and what it asks of one that can say more."""

from os import PathLike
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import NoDocumentsError, PlanError
from headrace.sampling import Plan
from headrace.verdicts import Verify, checked_verify, require_ok

__all__ = [
    "MaskSource",
    "WindowBlock",
    "WindowSource",
    "boundary_of",
    "checked_dtype",
    "corpus_identity",
    "ends_of",
    "require_documents",
    "require_kinds",
    "require_same_corpus",
    "verify_store",
]


class WindowBlock(Protocol):
    """The windows of several steps, located once."""

    def gather_into(self, row: int, out: NDArray[Any], /) -> None:
        """Fill `out`, C-contiguous `(B, length)` of int64 or the corpus' dtype, with the windows of one row."""
        ...

    def cold_share(self) -> float:
        """Return which share of a sample of the windows has to come from the disk; 0 for what has no disk."""
        ...

    def will_need(self, row: int, /) -> None:
        """Let the windows of one row be fetched, without waiting for them."""
        ...


class WindowSource(Protocol):
    """What a loader needs of a corpus."""

    @property
    def token_count(self) -> int:
        """Tokens of the whole line."""
        ...

    @property
    def fingerprint(self) -> object:
        """Identity of the content; `str()` gives its hex digits."""
        ...

    def windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        """Locate windows of `length` tokens at `starts`, int64 `(S, B)`."""
        ...


@runtime_checkable
class MaskSource(Protocol):
    """What a loader asks, too, of a corpus that may store which tokens count in the loss."""

    @property
    def has_loss_mask(self) -> bool:
        """Whether it does."""
        ...

    def loss_mask_windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        """Locate the mask of windows of `length` tokens at `starts`, int64 `(S, B)`; it is gathered as uint8, 0 or 1."""
        ...


def require_kinds(corpus: object, plan: object) -> None:
    """Refuse what is no corpus, or no plan, by what it is.

    Raises:
        TypeError: as said.
    """
    lacking = [name for name in ("token_count", "fingerprint", "windows") if not hasattr(corpus, name)]
    if lacking:
        hint = "; open it first: headrace.open(path)" if isinstance(corpus, str | PathLike) else ""
        raise TypeError(
            f"corpus: wanted what headrace.open returns, found {type(corpus).__name__}, which has no {', '.join(lacking)}{hint}"
        )
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: wanted a headrace.Plan, found {type(plan).__name__}")


def checked_dtype(dtype: object, corpus: WindowSource) -> np.dtype[Any]:
    """Return a dtype in which the corpus hands out tokens.

    Raises:
        PlanError: it is none, or the corpus does not.
    """
    own: Any = getattr(corpus, "dtype", None)
    try:
        wanted = None if dtype is None else np.dtype(cast("DTypeLike", dtype))
    except (TypeError, ValueError):
        wanted = None
    if wanted is None or (own is not None and wanted not in (np.dtype(np.int64), own)):
        raise PlanError(f"dtype: wanted int64 or the corpus' own{'' if own is None else f', {own}'}; found {dtype!r}")
    return wanted


def require_same_corpus(plan: Plan, corpus: WindowSource) -> None:
    """Refuse a plan that was made for another corpus.

    Raises:
        PlanError: naming the field.
    """
    if plan.token_count != corpus.token_count:
        raise PlanError(
            f"token_count: the plan was made for {plan.token_count} tokens, the corpus holds {corpus.token_count}"
        )
    if plan.corpus and plan.corpus != str(corpus.fingerprint):
        raise PlanError(f"corpus: the plan was made for the corpus {plan.corpus}, this one is {corpus.fingerprint}")


def require_documents(corpus: WindowSource, plan: Plan) -> None:
    """Refuse a corpus that does not know its documents, or another number of them than the plan. Reads no index.

    Raises:
        NoDocumentsError, PlanError: as said.
    """
    documents: Any = getattr(corpus, "documents", None)
    if documents is None:
        raise NoDocumentsError(f"{type(corpus).__name__} does not say where its documents end")
    count = len(documents)
    if plan.documents is not None and plan.documents != count:
        raise PlanError(f"documents: the plan was made for {plan.documents} documents, the corpus holds {count}")


def ends_of(corpus: WindowSource) -> NDArray[np.int64]:
    """Return the position after each document's last token, int64 `(documents,)`, of a corpus that knows them."""
    documents: Any = corpus.documents  # pyright: ignore[reportAttributeAccessIssue]  # see `require_documents`
    return documents.ends


def boundary_of(corpus: WindowSource) -> int:
    """Return the id that ends documents; 0 where the corpus does not say."""
    manifest: Any = getattr(corpus, "manifest", None)
    return 0 if manifest is None else manifest.boundary_token_id


def corpus_identity(corpus: WindowSource) -> dict[str, object]:
    """Return what a checkpoint keeps of a corpus."""
    fingerprint = corpus.fingerprint
    tokenizer: Any = getattr(getattr(corpus, "manifest", None), "tokenizer", None)
    return {
        "corpus": str(fingerprint),
        "corpus_kind": getattr(fingerprint, "kind", "content"),
        "tokenizer": "" if tokenizer is None else tokenizer.sha256,
    }


def verify_store(store: object, verify: Verify) -> None:
    """Do what `Loader` promises of `verify`.

    Raises:
        CorruptShardError, ValueError, TypeError: as there.
    """
    if checked_verify(verify) != "full":
        return
    method = getattr(store, "verify", None)
    if not callable(method):
        raise TypeError(
            f"verify='full' needs a corpus that can verify itself, such as headrace.open gives; {type(store).__name__} "
            "has no verify(): leave it at 'quick'"
        )
    reports: Any = method()
    require_ok(reports)
