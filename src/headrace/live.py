"""`headrace.open(path, live=True)`: a corpus whose build is at work, as far as its documents are whole."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.corpus import Corpus, open_corpus, open_index
from headrace.documents import Documents
from headrace.errors import MissingShardError
from headrace.in_progress import BUILDING_NAME, JOURNAL, Building, file_mark, read_building, read_plans
from headrace.manifest import NO_HASH, Fingerprint, read_manifest
from headrace.storage.live_line import LiveLineMaker

if TYPE_CHECKING:
    from headrace.verify import ShardReport

__all__ = ["LiveCorpus", "never_grows", "open_live"]

_LOOKS = 3
"""How often files are looked for that a build has moved on from since it said that they are there."""


class LiveCorpus(Corpus):
    """A corpus whose build is at work, was killed, or has finished.

    It is the finished source shards in their order, as far as none is missing, and of the next one what is whole. Between
    two calls of `refresh` nothing changes; after one there may be more. A position never changes its meaning, whether the
    build goes on, is killed, or is begun anew by the same command; or is finished, and the corpus appended to.

    Picklable: the copy is opened anew, and has at least what this one has, or cannot be opened. While it is not finished,
    its `fingerprint` is of kind `live` and changes as it grows.

    Args:
        view: what there is now.
        follower: sees what there is by then; None if nothing can be added.
    """

    def __init__(self, view: "_View", follower: "_Follower | None") -> None:
        self._follower = follower
        self._refreshing = threading.Lock()
        self._show(view)

    def _show(self, view: "_View") -> None:
        corpus = view.corpus
        # It sets the line first, so that who reads meanwhile, in another thread, meets no count beyond it.
        super().__init__(
            corpus._line,  # noqa: SLF001  # it is one of ours
            corpus.manifest,
            corpus.entries,
            path=corpus.path,
            fingerprint=corpus.fingerprint,
            documents=corpus.documents,
            reopen=corpus._reopen,  # noqa: SLF001  # likewise
            open_mask=corpus._open_mask,  # noqa: SLF001  # likewise
        )
        self._view = view

    def __reduce__(self) -> tuple[Any, ...]:
        if self.finished:
            return _reopen_finished, (self.path, self._reopen, self.fingerprint.hex)
        plan = self._view.building.plan if self._view.building else ""
        return _reopen, (self.path, self._reopen, self.token_count, [entry.sha256 for entry in self.entries], plan)

    @property
    def finished(self) -> bool:
        """Whether all of a finished corpus was seen, and nothing was being appended to it."""
        return self._view.building is None

    def refresh(self) -> bool:
        """See what the build, or an append, has added since.

        Where it was begun anew, what was seen stays until it has got as far again. A finished corpus that is about to be
        replaced stays until then.

        Returns:
            Whether there are more tokens, or the build is finished.

        Raises:
            MissingShardError: (a FileNotFoundError) the build was given up, or another one has taken its place.
            ManifestError: what it writes down is damaged.
            CorruptShardError, UnreadableShardError: a shard of it is.
        """
        with self._refreshing:
            if self._follower is None:
                return False
            view = self._follower.look()
            if view.corpus is self._view.corpus:
                return False
            hashes = [entry.sha256 for entry in self.entries]
            plan = self._view.building.plan if self._view.building else ""
            self._follower.require_same(view, self.token_count, hashes, plan)
            grown = view.corpus.token_count > self.token_count
            ended = view.building is None and not self.finished
            if ended or view.corpus.token_count >= self.token_count:
                self._show(view)
            return grown or ended

    def verify(self, *, quick: bool = False) -> list["ShardReport"]:
        """As of any corpus; a shard that is being written is left out."""
        from headrace.verify import verify_shards  # noqa: PLC0415  # not needed to read

        if self.finished:
            return super().verify(quick=quick)
        whole = [entry for entry in self.entries if entry.sha256 != NO_HASH]
        return verify_shards(whole, quick=quick, manifest=self.manifest)


def _reopen(path: Path, options: dict[str, Any], token_count: int, hashes: list[str], plan: str) -> LiveCorpus:
    follower = _Follower(path, options)
    view = follower.look()
    follower.require_same(view, token_count, hashes, plan)
    if view.corpus.token_count < token_count:
        raise MissingShardError(
            f"{path.parent}: holds {view.corpus.token_count} tokens, the corpus that was sent here {token_count}: its build "
            "was begun anew; send it again once that has got as far"
        )
    return LiveCorpus(view, follower)


def _reopen_finished(path: Path, options: dict[str, Any], version: str) -> LiveCorpus:
    corpus = open_corpus(path, **options, version=version)
    follower = _Follower(path, options, corpus) if path.suffix == ".json" else None
    return LiveCorpus(_View(corpus, None), follower)


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
    return LiveCorpus(follower.look(), follower)


def never_grows(corpus: Corpus) -> LiveCorpus:
    """What was opened from one file."""
    return LiveCorpus(_View(corpus, None), None)


class _View(NamedTuple):
    """What there is at a moment."""

    corpus: Corpus
    building: Building | None
    """The build that makes it; None if it is finished."""


class _Follower:
    """Sees what is whole of a build.

    Args:
        index, options: see `open_live`.
        finished: the corpus that is followed, if it is one that was finished.
    """

    def __init__(self, index: Path, options: dict[str, Any], finished: Corpus | None = None) -> None:
        self._index = index
        self._options = options
        self._maker = self._new_maker()
        self._seen: tuple[object, str] = None, ""
        self._finished: tuple[object, Corpus | None] = None, finished

    def _new_maker(self) -> LiveLineMaker:
        return LiveLineMaker(self._index, io=self._options["io"], verify=self._options["verify"] != "off")

    def look(self) -> _View:
        """What there is now."""
        looks = 0
        while True:
            building = read_building(self._index.parent)
            try:
                if building is None or self._is_published(building) or self._is_still_there(building):
                    return _View(self._open(), None)
                return _View(self._corpus(building), building)
            except MissingShardError as error:  # the build may have moved on since it wrote that down
                looks += 1
                if looks == _LOOKS:
                    raise self._nothing_there() or error from error

    def require_same(self, view: _View, token_count: int, hashes: Sequence[str], plan: str) -> None:
        """Refuse a view that does not begin with what was seen before, or will not.

        Args:
            view: what there is now.
            token_count: how many tokens were seen before.
            hashes: of the shards that were; that of one which was being written is `NO_HASH`.
            plan: of the build that was writing them.

        Raises:
            MissingShardError: another build has taken its place.
        """
        count = 0
        for mine, theirs in zip(hashes, view.corpus.entries, strict=False):
            if mine != theirs.sha256 or mine == NO_HASH:
                differs = NO_HASH not in {mine, theirs.sha256}
                break
            count += 1
        else:
            differs = False
        # Beyond the shards that are finished in both, only the command tells whether the tokens are the same.
        if not differs and (count == len(hashes) or self._is_of(plan, view, token_count)):
            return
        raise MissingShardError(
            f"{self._index.parent}: the build that was followed is gone: what is there now ({view.corpus.fingerprint}) does "
            "not begin with the same tokens; open it anew"
        )

    def _is_of(self, plan: str, view: _View, token_count: int) -> bool:
        """Whether a command has made, or makes, what there is."""
        if view.building is not None and view.building.plan == plan:
            return True
        if view.building is None and view.corpus.token_count < token_count:
            return False
        published = view.building is None or view.building.mode == "append"
        return published and plan in read_plans(self._index.parent / JOURNAL)

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
        keys = [key for key in sorted(finished) if key[0] < building.stop_index]
        made = [entry.sha256 for key in keys for entry in finished[key].entries]
        return made == [entry.sha256 for entry in read_manifest(self._index).shards]

    def _is_still_there(self, building: Building) -> bool:
        """Whether a build will replace the finished corpus that was followed, or mends it, and has not done so yet."""
        followed = self._finished[1]
        same = followed is not None and self._newest() == followed.fingerprint.hex
        return same and building.mode != "append"

    def _newest(self) -> str:
        """Fingerprint of the index, which may be large, so that it is not read again for nothing; empty if there is none."""
        mark = file_mark(self._index)
        if self._seen[0] != mark:
            self._seen = mark, read_manifest(self._index).fingerprint.hex if mark else ""
        return self._seen[1]

    def _open(self) -> Corpus:
        """The finished corpus; the same object again if nothing has changed."""
        mark = file_mark(self._index)
        seen, corpus = self._finished
        if corpus is None or seen != mark:
            corpus = open_index(self._index, self._options)
            self._finished = mark, corpus
            self._maker = self._new_maker()  # that one holds files of the build
        return corpus

    def _corpus(self, building: Building) -> Corpus:
        live = self._maker.make(building)
        mask = live.loss_mask
        return Corpus(
            live.line,
            live.manifest,
            live.manifest.shards,
            path=self._index,
            fingerprint=Fingerprint(live.manifest.fingerprint.hex, "live"),
            documents=Documents(live.line, live.manifest, live.manifest.shards, readers=live.documents),
            reopen=self._options,
            open_mask=None if mask is None else lambda: mask,
        )
