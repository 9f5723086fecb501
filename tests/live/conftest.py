"""A build that takes its steps at a test's command, through the real writers; and what others must see of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.building.encode import EncodedBatch
from headrace.building.rolling import RollingShards
from headrace.building.shard_writing import hdf5_shards
from headrace.in_progress import BUILDING_NAME, JOURNAL, Building, OpenShard, plan_digest, shard_name
from headrace.manifest import INDEX_NAME, Manifest, TokenizerRef, read_manifest
from headrace.storage.atomic import write_bytes
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.incoming import Origins

VOCABULARY = 997
TOKENIZER = TokenizerRef(kind="bytes", name="numbers", sha256="ab" * 32, vocab_size=VOCABULARY)


@dataclass
class Source:
    """A source shard, and how far its writer is."""

    documents: list
    """Token ids, boundary included."""
    taken: int = 0
    shards: RollingShards | None = None
    finished: bool = False
    left: int = 0
    """Documents that are whole in files which a killed writer has left."""


@dataclass
class SteppedBuild:
    """Does in its output folder what `headrace build` does. One instance is one command, killed and repeated or not."""

    folder: Path
    documents: Sequence[Sequence[Sequence[int]]]
    """Of each source shard, without the boundary, which is 0."""
    mode: str = "build"
    chunk: int = 16
    shard_tokens: int | None = None
    compression: str = "none"
    base: Manifest | None = None
    silent: bool = False
    """Whether `building.json` is left as it is, as if it had been read a moment ago."""
    open: dict = field(default_factory=dict)

    def __post_init__(self):
        self.sources = [Source([[*document, 0] for document in documents]) for documents in self.documents]
        used = [int(entry.shard_id[:6]) for entry in self.base.shards] if self.base else []
        self.first = max(used, default=-1) + 1
        self.shards = self.folder / (".headrace/next" if self.mode == "overwrite" else ".")
        (self.shards / JOURNAL).parent.mkdir(parents=True, exist_ok=True)
        row = {"plan": {"documents": self.documents}}
        self.plan = plan_digest(row["plan"])
        (self.shards / JOURNAL).write_text(json.dumps(row) + "\n")
        self.tell()

    # -- the build's steps ------------------------------------------------------------------------------------------

    def tell(self):
        """Write `building.json`."""
        building = Building(
            mode=self.mode,
            folder=str(self.shards.relative_to(self.folder)),
            base=self.base.fingerprint.hex if self.base else "",
            dtype="uint16",
            vocab_size=VOCABULARY,
            boundary_token_id=0,
            chunk_size=self.chunk,
            tokenizer=TOKENIZER,
            first_index=self.first,
            source_shards=len(self.sources),
            total_bytes=1,
            plan=self.plan,
            open=tuple(self.open.values()),
        )
        if not self.silent:
            write_bytes(self.folder / BUILDING_NAME, building.to_json())

    def begin(self, number):
        """Begin a source shard, from its first document on."""

        def opened(roll, path):
            self.open[number] = OpenShard(index=self.first + number, roll=roll, path=path.name)
            self.tell()

        self.sources[number].taken = self.sources[number].left = 0
        self.sources[number].shards = RollingShards(
            lambda roll: shard_name(self.first + number, roll),
            self.shards,
            hdf5_shards(self._writer),
            shard_tokens=self.shard_tokens,
            opened=opened,
        )

    def _writer(self, path):
        return HDF5ShardWriter(
            path,
            self.chunk,
            vocab_size=VOCABULARY,
            tokenizer_sha256=TOKENIZER.sha256,
            source_files=["a.jsonl"],
            compression=self.compression,
        )

    def write(self, number, count):
        """Write the next documents of a source shard; returns whether any are left."""
        source = self.sources[number]
        if source.shards is None:
            self.begin(number)
        documents = source.documents[source.taken : source.taken + count]
        if documents:
            ends = np.cumsum([*map(len, documents)])
            batch = EncodedBatch(tokens=np.concatenate(documents), ends=ends, cut_tokens=0, cut_documents=0)
            rows = np.arange(source.taken, source.taken + len(documents), dtype=np.uint64)
            source.shards.add(batch, Origins(rows, rows * np.uint64(10), np.zeros(len(rows), np.uint32)))
            source.taken += len(documents)
        return source.taken < len(source.documents)

    def grow(self, number):
        """Write documents until some of the shard that is being written can be seen, behind a finished one at least."""
        source = self.sources[number]
        while self.write(number, 1):
            shards = source.shards
            before = sum(entry.document_count for entry in shards.entries)
            if shards.entries and shards._open is not None and self._whole(source) > before + 1:
                return
        raise AssertionError("there are too few documents")

    def finish(self, number):
        """Write the rest of a source shard, and note in the journal that it is finished."""
        source = self.sources[number]
        while self.write(number, 1000):
            pass
        source.shards.finish()
        entries = [asdict(replace(entry, path=Path(entry.path).name)) for entry in source.shards.entries]
        row = json.dumps({"finished": {"index": self.first + number, "entries": entries}})
        with (self.shards / JOURNAL).open("a") as journal:
            journal.write(row + "\n")
        source.finished = True
        self.open.pop(number, None)
        self.tell()

    def kill(self):
        """Die as by SIGKILL: whatever is in the folder stays as it is."""
        for source in self.sources:
            if source.shards is not None and not source.finished:
                source.left = self._whole(source)
                if source.shards._open is not None:
                    source.shards._open.writer._abandon()
                source.shards = None

    def clean(self):
        """What the same command does first: remove what is no finished source shard."""
        for number, source in enumerate(self.sources):
            if not source.finished:
                self._remove(number)
        self.open.clear()
        self.tell()

    def retry(self, number):
        """Begin a source shard anew whose worker has died; `building.json` names its old shard until it has one."""
        source = self.sources[number]
        if source.shards is not None and source.shards._open is not None:
            source.shards._open.writer._abandon()
        self._remove(number)

    def _remove(self, number):
        name = f"{self.first + number:06d}-"
        for path in self.shards.iterdir():
            if path.name.lstrip(".").startswith(name):
                path.unlink()
        source = self.sources[number]
        source.shards, source.taken, source.left = None, 0, 0

    def publish(self):
        """Write the index, and tidy up."""
        for source in self.sources:
            assert source.finished
        entries = [*(self.base.shards if self.base else ())]
        start = sum(entry.token_count for entry in entries)
        for source in self.sources:
            for entry in source.shards.entries:
                entries.append(replace(entry, path=Path(entry.path).name, global_start=start))
                start += entry.token_count
        manifest = Manifest(
            chunk_size=self.chunk,
            shards=tuple(entries),
            dtype="uint16",
            vocab_size=VOCABULARY,
            tokenizer=TOKENIZER,
        )
        if self.mode == "append":
            versions = self.folder / ".headrace" / "versions"
            versions.mkdir(exist_ok=True)
            name = f"{self.base.fingerprint.hex}.json"
            write_bytes(versions / name, (self.folder / INDEX_NAME).read_bytes())
        if self.mode == "overwrite":
            for entry in entries:
                (self.shards / entry.path).replace(self.folder / entry.path)
            write_bytes(self.folder / JOURNAL, (self.shards / JOURNAL).read_bytes())
        write_bytes(self.folder / INDEX_NAME, manifest.to_json())
        return manifest

    def tidy(self):
        """The very last step."""
        (self.folder / BUILDING_NAME).unlink()

    # -- what it makes of its documents -----------------------------------------------------------------------------

    @property
    def lengths(self):
        """Tokens of each new document of the finished corpus."""
        return [len(document) for source in self.sources for document in source.documents]

    @property
    def line(self):
        """All new tokens of the finished corpus."""
        return [token for source in self.sources for document in source.documents for token in document]

    @property
    def whole(self):
        """How many documents can be seen now, new ones."""
        count = 0
        for source in self.sources:
            if not source.finished:
                return count + (source.left or self._whole(source))
            count += len(source.documents)
        return count

    def _whole(self, source):
        """Documents of a source shard in finished shards, and in whole chunks of the one that is being written."""
        if source.shards is None:
            return 0
        before = sum(entry.document_count for entry in source.shards.entries)
        writer = source.shards._open and source.shards._open.writer
        if writer is None:
            return before
        written = writer.token_count // self.chunk * self.chunk
        ends = np.cumsum([len(document) for document in source.documents[before : source.taken]])
        return before + int((ends < written).sum())


@pytest.fixture
def stepped_build():
    """The class."""
    return SteppedBuild


@pytest.fixture
def corpus_of():
    """What a folder's finished corpus serves: tokens, and its documents' lengths."""

    def call(folder):
        corpus = headrace.open(folder)
        return corpus[:].tolist(), [len(document) for document in corpus.documents]

    return call


@pytest.fixture
def published():
    """Build a corpus of some documents in one go, to append to or to replace; returns its manifest."""

    def call(folder, documents, **options):
        build = SteppedBuild(folder, documents, **options)
        for number in range(len(documents)):
            build.finish(number)
        build.publish()
        build.tidy()
        return read_manifest(folder)

    return call
