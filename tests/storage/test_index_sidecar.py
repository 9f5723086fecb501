"""The sidecar of a long index: it says what the index says, and is never believed of another one."""

import copy
import json
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import HeadraceError
from headrace.manifest import Append, CutEntry, Manifest, ShardEntry, SourceEntry, Split, TokenizerRef, read_manifest
from headrace.storage import index_sidecar as sidecars
from headrace.storage.index_sidecar import index_sidecar, open_manifest, publish_index, sidecar_bytes
from headrace.storage.versions import VERSIONS
from headrace.verify import verify_corpus

HASHES = st.integers(0, 2**256 - 1).map("{:064x}".format)
COUNTS = st.integers(0, 5) | st.integers(0, 1 << 55)
NAMES = st.text(st.characters(exclude_characters="\0/."), min_size=1, max_size=9)  # lone surrogates too
FIELDS = tuple(name for name, field in Manifest.__dataclass_fields__.items() if field.compare)


def appends(sources, shards):
    """An append to a corpus of so many."""
    return st.builds(
        Append,
        base=HASHES,
        sources=st.integers(0, sources),
        shards=st.integers(0, shards),
        options=st.dictionaries(NAMES, COUNTS | NAMES | st.none(), max_size=2),
    )


@st.composite
def manifests(draw):
    """A manifest of version 2 that has all that one can have."""
    sources = draw(
        st.lists(
            st.builds(
                SourceEntry,
                path=NAMES,
                size=st.just(9),
                sha256=HASHES | st.just(""),
                documents=COUNTS,
                dropped=st.dictionaries(NAMES, COUNTS, max_size=2),
                cuts=st.just(()) | HASHES.map(lambda sha: (CutEntry(start=0, stop=5, sha256=sha),)),
            ),
            max_size=3,
        )
    )
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    origins, masks = draw(st.booleans()), draw(st.booleans())
    shards, start = [], 0
    for name in names:
        shard = ShardEntry(
            shard_id=name,
            path=draw(st.sampled_from(["{}.h5", "in/{}", "{}"])).format(name),
            token_count=draw(COUNTS),
            document_count=draw(COUNTS),
            sha256=draw(HASHES),
            global_start=start,
            documents_sha256=draw(HASHES),
            sources_sha256=draw(HASHES) if origins else "",
            loss_mask_sha256=draw(HASHES) if masks else "",
            source=draw(st.integers(0, max(len(sources) - 1, 0))),
            row_base=draw(COUNTS),
        )
        shards.append(shard)
        start = shard.global_stop
    appended = st.lists(appends(len(sources), len(shards)), max_size=2).map(tuple)
    split = st.builds(
        Split,
        base=HASHES,
        part=NAMES,
        seed=COUNTS,
        by=st.sampled_from(["text", "tokens"]),
        fractions=st.just((("val", "0.1"),)),
        rest=NAMES,
        appends=appended,
    )
    return Manifest(
        chunk_size=draw(st.integers(1, 1 << 40)),
        shards=shards,
        vocab_size=257,
        boundary_token_id=draw(st.integers(0, 256)),
        tokenizer=draw(
            st.none() | st.builds(TokenizerRef, kind=NAMES, name=NAMES, sha256=HASHES, vocab_size=st.just(257))
        ),
        options=draw(st.dictionaries(NAMES, st.booleans() | COUNTS | NAMES | st.floats(allow_nan=False), max_size=3)),
        sources=tuple(sources),
        appends=draw(appended),
        splits=draw(st.lists(split, max_size=2).map(tuple)),
    )


@pytest.fixture
def every_index(monkeypatch):
    """Small indexes have sidecars too, and no cache makes up for one."""
    monkeypatch.setattr(sidecars, "LEAST", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no/such/cache")


@pytest.mark.usefixtures("every_index")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(manifest=manifests())
def test_says_what_the_index_says(tmp_path, manifest):
    """Every field of the manifest, each entry, the sums and the fingerprint are those of the parsed index; so are copies."""
    index = tmp_path / "shards.json"
    index.write_bytes(manifest.to_json())
    index_sidecar(index).parent.mkdir(exist_ok=True)
    index_sidecar(index).unlink(missing_ok=True)
    parsed = read_manifest(index)
    assert open_manifest(index) == parsed == manifest
    index_sidecar(index).write_bytes(sidecar_bytes(index.read_bytes()))
    opened = open_manifest(index)
    for name in FIELDS:
        assert getattr(opened, name) == getattr(parsed, name)
        assert getattr(parsed, name) == getattr(opened, name)
    assert opened == parsed
    assert opened.to_json() == index.read_bytes()
    assert opened.fingerprint == parsed.fingerprint
    assert replace(opened, version=2).fingerprint == parsed.fingerprint
    assert (opened.total_tokens, opened.total_documents) == (parsed.total_tokens, parsed.total_documents)
    assert opened.has_loss_mask == parsed.has_loss_mask
    assert [*opened.shards] == [opened.shards[number] for number in range(len(parsed.shards))] == [*manifest.shards]
    assert opened.sources[:1] == manifest.sources[:1]
    assert (len(opened.sources), hash(opened.shards)) == (len(manifest.sources), hash(parsed.shards))
    assert copy.deepcopy(opened) == parsed


def small_index(folder: Path) -> Path:
    """An index of three shards and two sources, with its sidecar."""
    shards = [
        ShardEntry(
            shard_id=f"s{number}",
            path=f"s{number}.h5",
            token_count=5,
            document_count=number,
            sha256=f"{number:064x}",
            documents_sha256=f"{number + 9:064x}",
            global_start=5 * number,
        )
        for number in range(3)
    ]
    sources = tuple(SourceEntry(path=name, size=3, sha256="ab" * 32, documents=1) for name in ("a", "b"))
    folder.mkdir(exist_ok=True)
    publish_index(folder / "shards.json", Manifest(chunk_size=4, shards=shards, sources=sources).to_json())
    return folder / "shards.json"


def outcome(read, index):
    """What reading comes to: a manifest, or what the error says."""
    try:
        manifest = read(index)
    except HeadraceError as error:
        return str(error)
    return manifest, tuple(manifest.shards), tuple(manifest.sources), manifest.fingerprint


@pytest.mark.usefixtures("every_index")
def test_any_damage_of_the_sidecar_is_seen(tmp_path):
    """Whatever byte is changed, lost or added, what is opened is what the index says."""
    index = small_index(tmp_path)
    right = outcome(read_manifest, index)
    good = index_sidecar(index).read_bytes()
    for at in {*range(160), *range(0, len(good), 11)}:
        index_sidecar(index).write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        assert outcome(open_manifest, index) == right
    for bad in (b"", good[:-1], good[: len(good) // 2], good + b"\0", bytes(len(good))):
        index_sidecar(index).write_bytes(bad)
        assert outcome(open_manifest, index) == right


@pytest.mark.usefixtures("every_index")
def test_any_change_of_the_index_is_seen(tmp_path):
    """Whatever byte of it is changed, opening says what reading that index says, an error or another manifest."""
    index = small_index(tmp_path)
    good = index.read_bytes()
    before = index_sidecar(index).read_bytes()
    for at in range(0, len(good), 5):
        index.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 7]) + good[at + 1 :])
        assert outcome(open_manifest, index) == outcome(read_manifest, index)
    assert index_sidecar(index).read_bytes() == before


@pytest.mark.usefixtures("every_index")
def test_verify_judges_it(tmp_path):
    """A damaged one is named, and one that contradicts the index; one of another index, or none, is no fault."""
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n', encoding="utf-8")
    headrace.build(tmp_path / "a.jsonl", tmp_path / "c")
    sidecar = index_sidecar(tmp_path / "c" / "shards.json")
    good = sidecar.read_bytes()
    assert verify_corpus(tmp_path / "c").others == ()
    for bad, reason in (
        (good[:-1] + bytes([good[-1] ^ 1]), "is damaged"),
        (good[:70] + bytes([good[70] ^ 1]) + good[71:], "is damaged"),
        (sidecars.seal([good[:70], bytes([good[70] ^ 1]), good[71:-4]]), "and shards.json say different things"),
    ):
        sidecar.write_bytes(bad)
        (report,) = verify_corpus(tmp_path / "c").others
        assert (report.shard_id, report.status) == (".headrace/index.bin", "corrupt")
        assert reason in report.reason
    sidecar.write_bytes(index_sidecar(small_index(tmp_path / "other")).read_bytes())
    assert verify_corpus(tmp_path / "c").others == ()
    sidecar.unlink()
    assert verify_corpus(tmp_path / "c").others == ()


# -- long indexes, as builds leave them -------------------------------------------------------------------------------


def texts(folder: Path, count: int, mark: str) -> Path:
    """So many text files, of which one shard is made."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{mark}{number:05d}.txt").write_text(f"{mark} {number}", encoding="utf-8")
    return folder


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """Bytes of each index that was parsed from now on, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sizes = []

    def spy(data, **name):
        sizes.append(len(data))
        return original(data, **name)

    original = Manifest.from_json
    monkeypatch.setattr(Manifest, "from_json", spy)
    return sizes


def test_the_life_of_a_long_index(tmp_path, parsed):
    """Built, appended to and replaced: opening parses next to nothing of the newest and of the kept; each says the right.

    A sidecar that a build left which was killed before its index is of no use, and does no harm; a corpus without one is
    parsed once for all; one of a corpus that was replaced by a small one goes.
    """
    corpus, least = tmp_path / "c", sidecars.LEAST
    headrace.build(texts(tmp_path / "a", 500, "a"), corpus)
    index = corpus / "shards.json"
    first = str(headrace.open(corpus).fingerprint)
    assert index.stat().st_size >= least
    headrace.build(texts(tmp_path / "b", 20, "b"), corpus, append=True)
    kept = index_sidecar(corpus / VERSIONS / f"{first}.json")
    for path in (index, corpus / VERSIONS / f"{first}.json"):
        assert index_sidecar(path).read_bytes() == sidecar_bytes(path.read_bytes())

    parsed.clear()
    newest, old = headrace.open(corpus), headrace.open(corpus, version=first)
    assert max(parsed) < least / 40
    assert [len(each.manifest.sources) for each in (newest, old)] == [520, 500]
    assert (newest.manifest.sources[-1].path, str(old.fingerprint)) == ("b00019.txt", first)
    assert newest.manifest == read_manifest(index)
    assert verify_corpus(corpus).others == ()

    stale = tmp_path / "stale"
    shutil.copytree(corpus, stale)
    index_sidecar(stale / "shards.json").write_bytes(kept.read_bytes())
    for often in (1, 0):
        parsed.clear()
        opened = headrace.open(stale)
        assert sum(size >= least for size in parsed) == often
        assert opened.manifest == newest.manifest
    assert verify_corpus(stale).others == ()

    headrace.build(texts(tmp_path / "d", 1, "d"), corpus, overwrite=True)
    assert not index_sidecar(index).exists()
    assert len(headrace.open(corpus).manifest.sources) == 1


def test_an_open_corpus_keeps_its_sources(tmp_path):
    """What was opened before an append tells its own sources, though they are looked at only afterwards."""
    headrace.build(texts(tmp_path / "a", 500, "a"), tmp_path / "c")
    with headrace.open(tmp_path / "c") as opened:
        headrace.build(texts(tmp_path / "b", 3, "b"), tmp_path / "c", append=True)
        assert len(opened.manifest.sources) == 500
        assert opened.manifest.sources[-1].path == "a00499.txt"


def test_a_shard_takes_no_more_than_200_bytes(tmp_path, monkeypatch):
    """Neither where the index was parsed, nor where its columns are mapped, which take a tenth."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no/such/cache")
    count = 3000
    row = small_index(tmp_path / "one").read_bytes()
    shard = {**json.loads(row)["shards"][1], "document_count": 1, "token_count": 1, "sources_sha256": "1f" * 32}
    shards = [
        ShardEntry(**{**shard, "shard_id": f"{number:06d}-0000-0000", "path": f"{number:06d}-0000-0000.h5", "global_start": number})
        for number in range(count)
    ]  # fmt: skip
    index = tmp_path / "shards.json"
    publish_index(index, Manifest(chunk_size=4, shards=shards).to_json())
    for read, most in ((read_manifest, 200), (open_manifest, 24)):
        read(index)  # what is imported and cached on the way
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        opened = read(index)
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert taken < most * count + 8000
        assert len(opened.shards) == count
