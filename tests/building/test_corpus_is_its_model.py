"""A built corpus equals what a few lines of plain Python say it should be: tokens, documents, sources, counts."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.building.job import run_job
from headrace.building.output import drop_log
from headrace.errors import BuildError, SourceError
from headrace.events import BuildFinished

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "x" * 40, "aé" * 9, "\r\n", "\x00"])
BLANK, BAD = object(), object()
LINES = st.lists(TEXTS | st.sampled_from([BLANK, BAD]), max_size=6)
FILES = st.lists(
    st.tuples(st.just("jsonl"), LINES, st.booleans(), st.booleans()) | st.tuples(st.just("txt"), TEXTS), max_size=4
)
OPTIONS = st.fixed_dictionaries(
    {
        "shard_tokens": st.none() | st.integers(1, 60),
        "chunk_tokens": st.integers(1, 40) | st.just(65536),
        "max_document_tokens": st.none() | st.integers(1, 15),
        "bos": st.booleans(),
        "keep_empty": st.booleans(),
    }
)


@dataclass
class Model:
    """The corpus as lists."""

    shards: list[list[list[int]]] = field(default_factory=list)
    """Tokens of each document of each shard."""
    origins: list[tuple[str, int, int]] = field(default_factory=list)
    """File, line from 1, and byte of each document."""
    documents_in: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    cut: int = 0

    def drop(self, reason: str) -> None:
        """Count a document that is not kept."""
        self.documents_in += 1
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def keep(self, text: str, origin: tuple[str, int, int], options: dict) -> None:
        """Put a document into the last shard, or into the next if that is full."""
        if not text and not options["keep_empty"]:
            self.drop("empty")
            return
        self.documents_in += 1
        limit = options["max_document_tokens"]
        ids = [byte + 1 for byte in text.encode()]
        self.cut += len(ids) - len(ids[:limit])
        full = options["shard_tokens"] is not None and sum(map(len, self.shards[-1])) >= options["shard_tokens"]
        if full:
            self.shards.append([])
        self.shards[-1].append([3] * options["bos"] + ids[:limit] + [0])
        self.origins.append(origin)


def write(folder: Path, files: list[tuple], options: dict) -> Model:
    """Write the files and say what must come of them; neighbouring texts share a source shard."""
    model = Model()
    before = None
    for number, (kind, content, *rest) in enumerate(files):
        name = f"{number}.{kind}"
        if kind == "jsonl" or before != "txt":
            model.shards.append([])
        before = kind
        if kind == "txt":
            (folder / name).write_bytes(content.encode())
            start = 3 if content.startswith("\ufeff") else 0
            model.keep(content.removeprefix("\ufeff"), (name, 1, start), options)
            continue
        ascii_only, last_newline = rest
        data = b""
        for row, line in enumerate(content):
            start = len(data)
            if line is BAD:
                data += b"{]\n"
                model.drop("not JSON")
            elif line is BLANK:
                data += b" \r\n"
            else:
                data += json.dumps({"id": row, "text": line}, ensure_ascii=ascii_only).encode() + b"\n"
                model.keep(line, (name, row + 1, start), options)
        (folder / name).write_bytes(data if last_newline else data.removesuffix(b"\n"))
    model.shards = [shard for shard in model.shards if shard]
    return model


def check(corpus: headrace.Corpus, model: Model) -> None:
    """Every token, border, hash, count and origin."""
    documents = [document for shard in model.shards for document in shard]
    line = [token for document in documents for token in document]
    assert corpus[:].tolist() == line
    assert [entry.document_count for entry in corpus.entries] == [len(shard) for shard in model.shards]
    assert [entry.token_count for entry in corpus.entries] == [sum(map(len, shard)) for shard in model.shards]
    assert len(corpus.documents) == len(documents)
    start = 0
    for number, (document, (source, row, byte)) in enumerate(zip(documents, model.origins, strict=True)):
        assert corpus.documents[number].tolist() == document
        stop = start + len(document)
        for position in {start, (start + stop) // 2, stop - 1}:
            place = corpus.locate(position)
            assert (place.document, place.start, place.stop) == (number, start, stop)
            assert (place.source, place.line, place.byte) == (source, row, byte)
        start = stop


def build_and_check(tokenizer: headrace.Tokenizer, files: list[tuple], options: dict) -> None:
    """Build a corpus of such files, and compare it with its model."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, output = Path(folder) / "in", Path(folder) / "c"
        inputs.mkdir()
        model = write(inputs, files, options)

        def build() -> BuildFinished:
            return headrace.build(
                inputs, output, tokenizer=tokenizer, workers=1, on_bad_input="skip", max_bad=1, **options
            )

        if not model.shards:
            try:
                build()
            except (BuildError, SourceError):
                assert not output.exists()
                return
            raise AssertionError("a corpus of no documents was published")
        report = build()
        tokens = sum(len(document) for shard in model.shards for document in shard)
        assert (report.documents_in, report.documents) == (model.documents_in, len(model.origins))
        assert (report.dropped, report.cut_tokens) == (model.dropped, model.cut)
        assert (report.tokens, report.shards) == (tokens, len(model.shards))
        with headrace.open(output, verify="full") as corpus:
            assert corpus.fingerprint.hex == report.fingerprint
            check(corpus, model)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(files=FILES, options=OPTIONS)
def test_any_corpus(bytes_with_bos, files, options):
    """Whatever the documents, the sharding, the chunks and the cuts: nothing is lost, moved or counted wrongly."""
    build_and_check(bytes_with_bos, files, options)


@pytest.mark.extended
@settings(
    max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(files=FILES, options=OPTIONS)
def test_any_corpus_at_length(bytes_with_bos, files, options):
    """The same with many more examples."""
    build_and_check(bytes_with_bos, files, options)


def test_a_document_longer_than_a_shard(tmp_path, write_jsonl):
    """Documents never cross shards: a long one makes a long shard, and the next document begins a new one."""
    texts = ["a" * 5, "b" * 1000, "c", "d" * 10, "e" * 10]
    write_jsonl(tmp_path / "a.jsonl", texts)
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", shard_tokens=10, chunk_tokens=64)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert [entry.token_count for entry in corpus.entries] == [6 + 1001, 2 + 11, 11]
        assert [entry.shard_id for entry in corpus.entries] == [f"000000-0000-000{roll}" for roll in range(3)]
        assert [headrace.Tokenizer().decode(document) for document in corpus.documents] == texts


@pytest.mark.parametrize(("shard_tokens", "counts"), [(9, [10] * 3), (10, [10] * 3), (11, [15, 15]), (30, [30])])
def test_a_shard_that_is_full_to_the_token(tmp_path, write_jsonl, shard_tokens, counts):
    """A shard ends at the first document end at or behind the limit, not one document later; no empty shard follows."""
    write_jsonl(tmp_path / "a.jsonl", ["four"] * 6)
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", shard_tokens=shard_tokens)
    with headrace.open(tmp_path / "c") as corpus:
        assert [entry.token_count for entry in corpus.entries] == counts


def test_a_text_of_every_length_around_a_chunk(tmp_path, write_jsonl):
    """Lengths at and beside the chunk's, so that ends fall on, before and behind its edge."""
    texts = ["x" * length for length in (1, 62, 63, 64, 65, 126, 127, 128, 63, 63, 1)]
    write_jsonl(tmp_path / "a.jsonl", texts)
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c", chunk_tokens=64)
    with headrace.open(tmp_path / "c", verify="full") as corpus:
        assert [len(document) - 1 for document in corpus.documents] == [len(text) for text in texts]


def test_batches_are_cut_anywhere(tmp_path, write_jsonl):
    """Documents of several batches of the reader lie in one shard, each traced to its own line."""
    texts = [f"document {number} " * (number % 40) + "end" for number in range(12_000)]
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    assert path.stat().st_size > 3 << 20  # more than one batch
    headrace.build(path, tmp_path / "c")
    starts = np.cumsum([0, *map(len, path.read_bytes().splitlines(keepends=True))])
    with headrace.open(tmp_path / "c") as corpus:
        assert len(corpus.documents) == len(texts)
        for number in [0, 1, 5999, 6000, 11_998, 11_999, *range(0, 12_000, 997)]:
            place = corpus.locate(corpus.documents.bounds(number)[0])
            assert (place.line, place.byte) == (number + 1, starts[number])
            assert headrace.Tokenizer().decode(corpus.documents[number]) == texts[number]


def test_a_job_can_run_alone(tmp_path, write_jsonl):
    """A source shard's job gives entries and extents without any engine: the seam that engines are built on."""
    from headrace.building.job import ContentOptions, ShardJob
    from headrace.sources import discover

    found = discover([write_jsonl(tmp_path / "a.jsonl", ["ab", "", "c"])])
    job = ShardJob(shard=found.shards[0], source=0, options=ContentOptions(boundary_token_id=0), output=tmp_path)
    outcome = run_job(job, headrace.Tokenizer())
    assert [entry.token_count for entry in outcome.entries] == [5]
    assert (outcome.documents_in, outcome.drops) == (3, ())
    assert drop_log(job.output, job.shard.key).exists()
