"""`verify` of the loaders: what is compared before anything is served, and when."""

import sys
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError
from headrace.loading import Loader, SlidingWindowDataloader
from headrace.sampling import Plan
from headrace.testing.corpora import random_documents, small_corpus
from headrace.testing.memory import MemoryCorpus
from headrace.testing.sparse import sparse_corpus

CHUNK = 64
SHARDS = random_documents(41, (30, 30))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A corpus of two shards."""
    return small_corpus(tmp_path / "corpus", SHARDS, chunk_size=CHUNK)


def damage(folder: Path, chunk: int) -> int:
    """Change a token of a chunk of the second shard; returns the position of its first token in the corpus."""
    with headrace.open(folder) as corpus:
        entry = corpus.entries[1]
        stored = corpus[entry.global_start + chunk * CHUNK :][:CHUNK].tobytes()
    path = Path(entry.path)
    data = bytearray(path.read_bytes())
    assert data.count(stored) == 1
    data[data.index(stored)] ^= 1
    path.write_bytes(data)
    return entry.global_start + chunk * CHUNK


def loader(corpus, kind: str, **options):
    """A loader of either kind, over the whole line."""
    if kind == "sliding":
        return SlidingWindowDataloader(corpus, 16, 8, **options)
    return Loader(corpus, Plan(order="random", token_count=len(corpus), window=16, batch_size=8), **options)


KINDS = pytest.mark.parametrize("kind", ["plan", "sliding"])


@KINDS
@pytest.mark.parametrize("opened", ["full", "quick", "off"])
def test_full_compares_every_byte_before_it_serves(folder, kind, opened):
    """A whole corpus is served; one changed token anywhere is an error that says where, however the corpus was opened."""
    with headrace.open(folder, verify=opened) as corpus:
        before = loader(corpus, kind, verify="full")
        assert next(iter(before)) is not None
        start = damage(folder, 3)
        with pytest.raises(CorruptShardError, match="1 of 2 shards are not ok") as caught:
            loader(corpus, kind, verify="full")
    (problem,) = caught.value.problems
    assert problem.place.endswith("000001-0000-0000.h5: chunk 3")
    assert f"(corpus [{start}, {start + CHUNK}))" in problem.reason


@KINDS
def test_full_names_a_shard_that_is_gone(folder, kind):
    """A shard that is not there any more is named like a damaged one."""
    with headrace.open(folder) as corpus:
        Path(corpus.entries[1].path).unlink()
        with pytest.raises(CorruptShardError, match=r"000001-0000-0000\.h5: missing: no such file"):
            loader(corpus, kind, verify="full")


@KINDS
@pytest.mark.parametrize("options", [{}, {"verify": "quick"}])
def test_quick_leaves_it_to_the_first_touch(folder, kind, options):
    """By default a damaged end of a shard is found when the shard is first read, and not before; its middle is not."""
    with headrace.open(folder) as corpus:
        rest = loader(corpus, kind, **options)
        damage(folder, 0)
        with pytest.raises(CorruptShardError, match=r"000001-0000-0000\.h5: the checksum of tokens \[0, 64\)"):
            for _, _batch in zip(range(100), rest, strict=False):
                pass


@KINDS
def test_off_adds_nothing(folder, kind):
    """With verification off for corpus and loader, what lies on disk is served."""
    damage(folder, 0)
    with headrace.open(folder, verify="off") as corpus:
        batches = iter(loader(corpus, kind, verify="off"))
        assert len([next(batches) for _ in range(50)]) == 50


@KINDS
def test_verification_changes_no_batch(folder, kind):
    """What is served is the same under all three."""
    with headrace.open(folder) as corpus:
        served = []
        for verify in ("full", "quick", "off"):
            batch = next(iter(loader(corpus, kind, verify=verify)))
            served.append(batch[0] if kind == "sliding" else batch.input_ids)
    np.testing.assert_array_equal(served[0], served[1])
    np.testing.assert_array_equal(served[0], served[2])


@KINDS
@pytest.mark.parametrize("verify", ["", "none", "FULL", True, None])
def test_what_is_none_of_the_three(folder, kind, verify):
    """It is a ValueError that lists them, for any store."""
    with headrace.open(folder) as corpus:
        for store in (corpus, MemoryCorpus(range(500))):
            with pytest.raises(ValueError, match="'full', 'quick' or 'off'"):
                loader(store, kind, verify=verify)


@KINDS
def test_a_store_that_cannot_verify_itself(kind):
    """One without `verify()` serves under `quick` and `off`, and says so under `full`."""
    store = MemoryCorpus(range(500))
    for verify in ("quick", "off"):
        assert next(iter(loader(store, kind, verify=verify))) is not None
    with pytest.raises(TypeError, match=r"MemoryCorpus has no verify\(\)"):
        loader(store, kind, verify="full")


@KINDS
def test_a_plan_that_does_not_fit_is_refused_first(folder, kind, monkeypatch):
    """Nobody waits an hour to learn of a wrong number."""
    with headrace.open(folder) as corpus:
        monkeypatch.setattr(corpus, "verify", lambda: pytest.fail("verified first"))
        plan = Plan(order="random", token_count=9, window=4, batch_size=1)
        make = {
            "plan": lambda: Loader(corpus, plan, verify="full"),
            "sliding": lambda: SlidingWindowDataloader(corpus, len(corpus), 8, verify="full"),
        }[kind]
        with pytest.raises(ValueError, match="tokens"):
            make()


@KINDS
def test_quick_opens_no_shard_more(tmp_path, kind):
    """To make a loader of many shards and serve a first batch touches the shards of that batch alone."""
    folder = sparse_corpus(tmp_path / "corpus", 60 << 20, shards=60)
    opened: set[str] = set()

    def watch(event: str, arguments: tuple) -> None:
        if event == "open" and str(arguments[0]).endswith(".h5"):
            opened.add(str(arguments[0]))

    with headrace.open(folder) as corpus:
        sys.addaudithook(watch)
        next(iter(loader(corpus, kind)))
        assert len(opened) <= 8 + 1
    opened.clear()
