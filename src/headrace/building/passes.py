"""What all passes of a build have in common: who does the jobs, what is told of them, and what is said where they stop."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.building.engine import Engine, PoolEngine, SerialEngine
from headrace.building.faults import FaultyInputError, show_texts, with_more
from headrace.building.job import ContentOptions
from headrace.building.limits import available_cpus
from headrace.building.processes import Workers
from headrace.building.rolling import require_folder
from headrace.building.work import Work
from headrace.errors import BuildError, SourceError
from headrace.events import BuildStarted, Subscriber
from headrace.in_progress import Building
from headrace.manifest import dtype_name_for
from headrace.sources import BadInput, Discovery, SourceShard
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["Setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Of a build, what does not change from pass to pass."""

    work: Work
    found: Discovery
    options: ContentOptions
    tokenizer: BatchTokenizer
    count: int
    """Workers at most."""
    workers: Workers
    in_order: bool
    """Whether jobs that write are begun in order, not the largest first."""
    show_text: bool
    on_event: Subscriber

    def workers_for(self, jobs: int) -> int:
        """How many workers do so many jobs."""
        return max(min(self.count, jobs), 1)

    def own_threads(self, jobs: int) -> bool:
        """Whether there is a core for a second thread of each of these workers."""
        return available_cpus() > self.workers_for(jobs)

    def engine(self, jobs: int, *, reads: bool = False, sample: Sequence[bytes] | None = ()) -> Engine:
        """What does so many jobs, and checks the tokenizer with the sample; if they only read, without it and in any order."""
        count = self.workers_for(jobs)
        tokenizer = None if reads else self.tokenizer
        if count == 1:
            self.workers.start(0)
            return SerialEngine(tokenizer, sample)
        in_order = self.in_order and not reads
        return PoolEngine(tokenizer, count, sample, workers=self.workers, in_order=in_order)

    def tell_start(self, shards: Sequence[SourceShard]) -> None:
        """Tell what is to do."""
        self.on_event(
            BuildStarted(
                output=str(self.work.folder.path),
                source_shards=len(shards),
                input_bytes=sum(shard.size for shard in shards),
                workers=self.workers_for(len(shards)),
                tokenizer=self.tokenizer.ref.name,
            )
        )

    def building(self, shards: Sequence[SourceShard]) -> Building:
        """What others are told of the build.

        Args:
            shards: all that there is to do, finished or not.
        """
        work, finished = self.work, self.work.journal.finished.values()
        assert work.journal.plan is not None  # noqa: S101  # it has begun
        return Building(
            mode=work.mode,
            folder=str(work.shards.relative_to(work.folder.path)),
            base=work.base.fingerprint.hex if work.base else "",
            dtype=dtype_name_for(self.tokenizer.vocab_size),
            vocab_size=self.tokenizer.vocab_size,
            boundary_token_id=self.options.boundary_token_id,
            chunk_size=self.options.chunk_tokens,
            tokenizer=self.tokenizer.ref,
            first_index=work.first_index,
            source_shards=len(shards),
            more_cuts=sum(shard.key[1] > 0 for shard in shards),
            total_bytes=sum(shard.size for shard in shards),
            plan=work.journal.plan.digest,
            input_bytes=sum(outcome.input_bytes for outcome in finished),
            documents=sum(entry.document_count for outcome in finished for entry in outcome.entries),
            tokens=sum(entry.token_count for outcome in finished for entry in outcome.entries),
        )

    @contextmanager
    def reporting(self, rest: Callable[[], Iterable[SourceShard]]) -> Generator[None]:
        """Let what stops the jobs say all that is known of it.

        Args:
            rest: says which source shards were not read to their ends.
        """
        try:
            yield
        except SourceError as error:
            reported = self._reported(error, rest())
            if reported is error:
                raise
            raise reported from error
        except (BuildError, FileNotFoundError):
            require_folder(self.work.folder.path)  # which says it, if it was removed meanwhile
            raise

    def _reported(self, error: SourceError, rest: Iterable[SourceShard]) -> SourceError:
        """What stopped the build, with what else is wrong with the sources that are not finished."""
        files = self.found.files
        if self.options.on_bad_input == BadInput.ERROR:
            order = {file.label: number for number, file in enumerate(files)}
            error = with_more(error, rest, order, self.options.field)
        if self.show_text and isinstance(error, FaultyInputError):
            error.problems = tuple(show_texts(error, files))
        return error
