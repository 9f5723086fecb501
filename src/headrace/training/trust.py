"""Whether a corpus is what it should be, looked at before the first step and not on the third day."""

from pathlib import Path
from typing import Literal

from headrace.corpus import open_corpus
from headrace.errors import FormatError
from headrace.events import Notice, Subscriber, ignore
from headrace.inspection import verify_all
from headrace.reading import Corpus
from headrace.verdicts import Verify, require_ok
from headrace.verify import check_expectation, require_fingerprint

__all__ = ["Trust", "check", "version_of"]

Trust = Verify | Literal["auto"]
"""How a corpus is verified before a run: `auto` is `full` below 10 GB of tokens, else `quick`."""
FULL_BYTES = 10 * 10**9
_LINES: dict[Verify, str] = {
    "full": "every byte compared",
    "quick": "sizes, digests, first and last chunks compared (--verify full compares every byte)",
}
_ADVICE = "; repeat the build, which mends them (--verify off trains all the same)"


def check(
    path: str | Path, verify: Trust = "auto", *, expect: str | None = None, on_event: Subscriber = ignore
) -> Verify:
    """Verify a corpus, and say in one line what was done.

    Args:
        path: as for `headrace.open`.
        verify: `full` compares every byte with the manifest; `quick` sizes, digests, and the first and last chunk of each
            shard; `off` nothing but the fingerprint, if one is expected. `auto` lets files of others pass that store no
            hashes: whether they are whole is looked at, and that there is nothing more to compare is said.
        expect: the fingerprint that the corpus must have, or its first 8 digits or more; or must have had before something
            was appended to it (see `version_of`).
        on_event: receives a `ShardVerified` for each shard, and the line as a `Notice`.

    Returns:
        What was done: `auto` is one of the others.

    Raises:
        CorruptShardError: naming shard, tokens, documents and lines of all damage.
        ManifestError: it is another corpus than expected, or there is no usable index.
        MissingShardError, FormatError, UnreadableShardError: it cannot be read.
    """
    digits = None if expect is None else check_expectation(expect)
    with open_corpus(path, verify="off") as corpus:
        kept = _kept(corpus, digits)
        if kept is not None:
            digits = None
            on_event(Notice(kind="version", message=f"{path}: read as it was before it was appended to: {kept}"))
        require_fingerprint(corpus.path, corpus.manifest, digits)
        hashed = corpus.fingerprint.kind == "content"
        size = corpus.token_count * corpus.dtype.itemsize
    done = verify
    if done == "auto":
        done = "full" if size < FULL_BYTES else "quick"
    line = "not verified"
    if done != "off":
        try:
            report = verify_all(path, quick=done == "quick", expect=digits, on_event=on_event)
        except FormatError as error:
            if hashed or verify != "auto":
                raise
            on_event(Notice(kind="verify", message=str(error)))
            return "off"
        require_ok(report.shards, report.others, where=f"{path}: ", advice=_ADVICE)
        line = f"{_LINES[done]}; fingerprint {report.fingerprint}"
    on_event(Notice(kind="verify", message=f"{path}: {size:,} bytes of tokens, {line}"))
    return done


def version_of(path: str | Path, expect: str | None) -> str:
    """Return the fingerprint, in full, of what a run reads: the corpus as it is now, or as it was when it was as expected.

    It can be opened as that version, so a run goes on, and is done again, whatever came to its corpus meanwhile.
    """
    digits = None if expect is None else check_expectation(expect)
    with open_corpus(path, verify="off") as corpus:
        return _kept(corpus, digits) or corpus.fingerprint.hex


def _kept(corpus: Corpus, digits: str | None) -> str | None:
    """The fingerprint that begins so, where the corpus had it before something was appended to it."""
    if digits is None:
        return None
    return next((one.base for one in corpus.manifest.appends if one.base.startswith(digits)), None)
