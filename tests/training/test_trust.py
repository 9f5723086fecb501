"""Before step 0: damage and other corpora stop a run."""

import random
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, FormatError, ManifestError
from headrace.events import Event, Notice
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training import trust

CHUNK = 64


@pytest.fixture
def folder(tmp_path) -> Path:
    """A corpus of three shards."""
    return small_corpus(tmp_path / "corpus", random_documents(5, [70, 1, 130]), chunk_size=CHUNK)


def line_of(events: list[Event]) -> str:
    """The one line that is said."""
    (notice,) = (event for event in events if isinstance(event, Notice))
    assert notice.kind == "verify"
    return notice.message


def flip(corpus: headrace.Corpus, position: int) -> None:
    """Flip one byte of a token, in its shard's file."""
    entry = next(entry for entry in corpus.entries if entry.global_start <= position < entry.global_stop)
    data = bytearray(Path(entry.path).read_bytes())
    local = position - entry.global_start
    start = entry.global_start + local - local % CHUNK  # a chunk lies in one piece
    chunk = corpus.get_slice(start, min(start + CHUNK, entry.global_stop)).tobytes()
    assert data.count(chunk) == 1
    data[data.find(chunk) + 2 * (position - start)] ^= 1
    Path(entry.path).write_bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_one_flipped_byte_stops_the_run(folder, seed):
    """Wherever it is: the shard, and a range of tokens that holds it, are named."""
    with headrace.open(folder) as corpus:
        position = random.Random(seed).randrange(len(corpus))
        (entry,) = (entry for entry in corpus.entries if entry.global_start <= position < entry.global_stop)
        flip(corpus, position)
    with pytest.raises(CorruptShardError) as caught:
        trust.check(folder)
    (problem,) = caught.value.problems
    first = (position - entry.global_start) // CHUNK * CHUNK
    last = min(first + CHUNK, entry.token_count)
    assert problem.place == f"{entry.path}: chunk {first // CHUNK}"
    assert f"tokens [{first}, {last}) of the shard" in problem.reason


def test_auto_is_full_for_small_corpora_and_quick_for_large_ones(folder, monkeypatch):
    """Below 10 GB of tokens every byte is read; what was done is said in one line."""
    said = []
    assert trust.check(folder, on_event=said.append) == "full"
    assert "every byte compared; fingerprint " in line_of(said)
    assert trust.FULL_BYTES == 10 * 10**9
    with headrace.open(folder) as corpus:
        monkeypatch.setattr(trust, "FULL_BYTES", 2 * len(corpus))
    said = []
    assert trust.check(folder, on_event=said.append) == "quick"
    assert "first and last chunks compared (--verify full" in line_of(said)


def test_what_each_way_finds(folder):
    """A damaged chunk in the middle of a shard is for `full` alone; `quick` finds the first one; `off` nothing."""
    with headrace.open(folder) as corpus:
        flip(corpus, 5 * CHUNK)
    said = []
    assert trust.check(folder, "quick") == "quick"
    assert trust.check(folder, "off", on_event=said.append) == "off"
    assert line_of(said).endswith("bytes of tokens, not verified")
    with pytest.raises(CorruptShardError):
        trust.check(folder, "full")
    with headrace.open(folder, verify="off") as corpus:
        flip(corpus, 0)
    with pytest.raises(CorruptShardError):
        trust.check(folder, "quick")
    assert trust.check(folder, "off") == "off"


@pytest.mark.parametrize("verify", ["full", "quick", "off", "auto"])
def test_the_expected_fingerprint(folder, verify):
    """Another corpus than expected is refused, however little is verified; the first eight digits are enough."""
    with headrace.open(folder) as corpus:
        known = corpus.fingerprint.hex
    trust.check(folder, verify, expect=known)
    trust.check(folder, verify, expect=known[:8].upper())
    with pytest.raises(ManifestError, match="wanted the corpus with fingerprint 00000000, found"):
        trust.check(folder, verify, expect="00000000")
    with pytest.raises(ValueError, match="8 to 64"):
        trust.check(folder, verify, expect="xyz")


def test_files_of_others_without_hashes(tmp_path):
    """There is nothing to compare: said of `auto`, an error for who asks for more."""
    import h5py

    path = tmp_path / "theirs.h5"
    with h5py.File(path, "w") as file:
        file["tokens"] = np.arange(1000, dtype=np.uint16)
    said = []
    assert trust.check(path, on_event=said.append) == "off"
    assert "nothing to verify it against" in line_of(said)
    for verify in ("full", "quick"):
        with pytest.raises(FormatError, match="nothing to verify it against"):
            trust.check(path, verify)
