"""`headrace.open(path, live=True)`: a corpus whose build is at work, as far as its documents are whole."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.corpus import Corpus, open_corpus, open_index
from headrace.documents import Documents
from headrace.errors import MissingShardError
from headrace.in_progress import BUILDING_NAME, Building, read_building
from headrace.manifest import NO_HASH, Fingerprint, read_manifest
from headrace.storage.live_line import LiveLineMaker

if TYPE_CHECKING:
    from headrace.verify import ShardReport

__all__ = ["LiveCorpus", "open_live"]

_LOOKS = 3
"""How often files are looked for that a build has moved on from since it said that they are there."""


class LiveCorpus(Corpus):
    """A corpus whose build is at work, was killed, or has finished.

    It is the finished source shards in their order, as far as none is missing, and of the next one what is whole. Between
    two calls of `refresh` nothing changes; after one there may be more. A position never changes its meaning, whether the
    build goes on, is killed, or is begun anew by the same command.

    Picklable: the copy is opened anew, and has at least what this one has, or cannot be opened. Until it is finished, its
    `fingerprint` is of kind `live` and changes as it grows.

    Args:
        corpus: what there is now.
        look: returns what there is by then, and whether the build is finished; None if it is.
    """

    def __init__(self, corpus: Corpus, look: Callable[[], tuple[Corpus, bool]] | None) -> None:
        self._look = look
        self._refreshing = threading.Lock()
        self._show(corpus)

    def _show(self, corpus: Corpus) -> None:
        # It sets the line first, so that who reads meanwhile, in another thread, meets no count beyond it.
        super().__init__(
            corpus._line,  # noqa: SLF001  # it is one of ours
            corpus.manifest,
            corpus.entries,
            path=corpus.path,
            fingerprint=corpus.fingerprint,
            documents=corpus.documents,
            reopen=corpus._reopen,  # noqa: SLF001  # likewise
        )

    def __reduce__(self) -> tuple[Any, ...]:
        version = self.fingerprint.hex if self.finished else None
        return _reopen, (self.path, self._reopen, self.token_count, version)

    @property
    def finished(self) -> bool:
        """Whether the build is finished, and all of its corpus seen; `refresh` then does nothing."""
        return self._look is None

    def refresh(self) -> bool:
        """See what the build has added since.

        Where it was begun anew, what was seen stays until it has got as far again.

        Returns:
            Whether there are more tokens, or the build is finished.

        Raises:
            MissingShardError: (a FileNotFoundError) the build was given up, or another one has taken its place.
            ManifestError: what it writes down is damaged.
            CorruptShardError, UnreadableShardError: a shard of it is.
        """
        with self._refreshing:
            if self._look is None:
                return False
            corpus, finished = self._look()
            self._require_same(corpus, finished=finished)
            grown = corpus.token_count > self.token_count
            if finished or corpus.token_count >= self.token_count:
                self._show(corpus)
            if finished:
                self._look = None
            return grown or finished

    def _require_same(self, corpus: Corpus, *, finished: bool) -> None:
        """Refuse what is not the same line, by the shards that are finished in both."""
        same = not finished or corpus.token_count >= self.token_count
        for mine, theirs in zip(self.entries, corpus.entries, strict=False):
            if NO_HASH in {mine.sha256, theirs.sha256}:
                break
            same = same and mine.sha256 == theirs.sha256
        if not same:
            raise MissingShardError(
                f"{self.path.parent}: the build that was followed is gone: what is there now ({corpus.fingerprint}) does "
                "not begin with the same tokens; open it anew"
            )

    def verify(self, *, quick: bool = False) -> list["ShardReport"]:
        """As of any corpus; a shard that is being written is left out."""
        from headrace.verify import verify_shards  # noqa: PLC0415  # not needed to read

        if self.finished:
            return super().verify(quick=quick)
        whole = [entry for entry in self.entries if entry.sha256 != NO_HASH]
        return verify_shards(whole, quick=quick, manifest=self.manifest)


def _reopen(path: Path, options: dict[str, Any], token_count: int, version: str | None) -> LiveCorpus:
    if version is not None:
        return LiveCorpus(open_corpus(path, **options, version=version), None)
    corpus = open_live(path, options)
    if corpus.token_count < token_count:
        raise MissingShardError(
            f"{path.parent}: holds {corpus.token_count} tokens, the corpus that was sent here {token_count}: its build was "
            "begun anew; send it again once that has got as far"
        )
    return corpus


def open_live(index: Path, options: dict[str, Any]) -> LiveCorpus:
    """Open a corpus whose build may be at work.

    Args:
        index: absolute, of the `shards.json` that there is or will be.
        options: `io`, `verify` and `vocab_size` of `open_corpus`.

    Raises:
        MissingShardError: there is neither a corpus nor a build of one.
        ManifestError: what the build writes down is damaged.
    """
    follower = _Follower(index, options)
    corpus, finished = follower.look()
    return LiveCorpus(corpus, None if finished else follower.look)


class _Follower:
    """Sees what is whole of a build."""

    def __init__(self, index: Path, options: dict[str, Any]) -> None:
        self._index = index
        self._options = options
        self._maker = LiveLineMaker(index, io=options["io"], verify=options["verify"] != "off")
        self._seen: tuple[object, str] = None, ""

    def look(self) -> tuple[Corpus, bool]:
        """What there is now, and whether that is the finished corpus."""
        looks = 0
        while True:
            building = read_building(self._index.parent)
            try:
                if building is None or self._is_published(building):
                    return open_index(self._index, self._options), True
                return self._corpus(building), False
            except MissingShardError as error:  # the build may have moved on since it wrote that down
                looks += 1
                if looks == _LOOKS:
                    raise self._nothing_there() or error from error

    def _nothing_there(self) -> MissingShardError | None:
        """What to say where there is no corpus, nor will be one."""
        folder = self._index.parent
        if self._index.exists() or (folder / BUILDING_NAME).exists():
            return None
        return MissingShardError(
            f"{folder}: wanted a corpus ({self._index.name}), or a build of one, at work or interrupted ({BUILDING_NAME}), "
            "found neither; begin one with `headrace build`, or wait until one has begun"
        )

    def _is_published(self, building: Building) -> bool:
        """Whether the index is that of this build, which has only to tidy up."""
        if not self._index.exists():
            return False
        if building.mode == "append":
            return self._newest() != building.base
        if building.mode == "overwrite":
            return not (self._index.parent / building.folder).is_dir()
        finished = self._maker.finished(building)
        return all(index in finished for index in range(building.source_shards))

    def _newest(self) -> str:
        """Fingerprint of the index, which may be large, so that it is not read again for nothing."""
        status = self._index.stat()
        mark = status.st_ino, status.st_size, status.st_mtime_ns
        if self._seen[0] != mark:
            self._seen = mark, read_manifest(self._index).fingerprint.hex
        return self._seen[1]

    def _corpus(self, building: Building) -> Corpus:
        live = self._maker.make(building)
        return Corpus(
            live.line,
            live.manifest,
            live.manifest.shards,
            path=self._index,
            fingerprint=Fingerprint(live.manifest.fingerprint.hex, "live"),
            documents=Documents(live.line, live.manifest, live.manifest.shards, readers=live.documents),
            reopen=self._options,
        )
