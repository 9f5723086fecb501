"""`shards.json`: read back as written; every fault of it found, each once, and named by its place."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ManifestError, MissingShardError, UnreadableShardError
from headrace.manifest import (
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerRef,
    dtype_name_for,
    read_manifest,
)

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNTS = st.integers(0, 1 << 50)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@st.composite
def manifests(draw):
    """Any manifest of version 2."""
    vocab_size = draw(st.integers(1, 1 << 32))
    sources = tuple(
        SourceEntry(path=path, size=draw(COUNTS), sha256=draw(HEX), documents=draw(COUNTS), dropped={"empty": 3})
        for path in draw(st.lists(NAMES, max_size=3))
    )
    shards, start = [], 0
    for number in range(draw(st.integers(0, 4))):
        shards.append(
            ShardEntry(
                shard_id=f"{number:06d}",
                path=f"folder/{number}.h5",
                token_count=draw(COUNTS),
                document_count=draw(COUNTS),
                sha256=draw(HEX),
                documents_sha256=draw(HEX),
                global_start=start,
                source=draw(st.integers(0, max(len(sources) - 1, 0))),
                row_base=draw(COUNTS),
            )
        )
        start = shards[-1].global_stop
    return Manifest(
        chunk_size=draw(st.integers(1, 1 << 40)),
        shards=tuple(shards),
        dtype=dtype_name_for(vocab_size),
        vocab_size=vocab_size,
        boundary_token_id=draw(st.integers(0, vocab_size - 1)),
        tokenizer=draw(
            st.none() | st.builds(TokenizerRef, kind=NAMES, name=NAMES, sha256=HEX, vocab_size=st.just(vocab_size))
        ),
        options=draw(st.dictionaries(NAMES, st.none() | st.booleans() | COUNTS | NAMES, max_size=3)),
        sources=sources,
    )


@settings(max_examples=100, deadline=None)
@given(manifests())
def test_reads_back_as_written(manifest):
    """A manifest survives its JSON, which is one text for one value."""
    data = manifest.to_json()
    again = Manifest.from_json(data)
    assert again == manifest
    assert again.to_json() == data
    assert again.fingerprint == manifest.fingerprint


def test_a_label_that_is_no_utf8():
    """A source file whose name is no UTF-8 is kept, in a file that is."""
    name = b"caf\xe9.jsonl".decode("utf-8", "surrogateescape")
    source = SourceEntry(path=name, size=1, sha256="ab" * 32, documents=1)
    manifest = Manifest(chunk_size=1, shards=(), sources=(source,))
    assert Manifest.from_json(manifest.to_json()).sources[0].path == name
    manifest.to_json().decode("utf-8")


@pytest.fixture
def body():
    """A right manifest of two sources and three shards, as JSON values."""
    shards = [
        {"shard_id": f"s{number}", "path": f"s{number}.h5", "token_count": 10, "document_count": 2}
        | {"sha256": "ab" * 32, "documents_sha256": "cd" * 32, "global_start": number * 10, "source": 0, "row_base": 0}
        for number in range(3)
    ]
    return {
        "version": 2,
        "store": "hdf5",
        "chunk_size": 64,
        "dtype": "uint16",
        "vocab_size": 257,
        "boundary_token_id": 0,
        "tokenizer": {"kind": "bytes", "name": "bytes", "sha256": "ef" * 32, "vocab_size": 257},
        "options": {},
        "sources": [
            *({"path": name, "size": 1, "sha256": "12" * 32, "documents": 3, "dropped": {}} for name in ("a", "b")),
            {"path": "c", "size": 10, "sha256": "", "documents": 0, "dropped": {}}
            | {"cuts": [{"start": start, "stop": stop, "sha256": "34" * 32} for start, stop in ((0, 4), (4, 10))]},
        ],
        "total_tokens": 30,
        "total_documents": 6,
        "shards": shards,
    }


def problems_of(body):
    """The places and reasons of all faults; none if the manifest is accepted."""
    try:
        Manifest.from_json(json.dumps(body).encode())
    except ManifestError as error:
        return [(problem.place, problem.reason) for problem in error.problems]
    return []


def test_the_example_is_right(body):
    """The manifest that the other tests damage has no fault."""
    assert problems_of(body) == []


FAULTS = [
    (("version",), 3, "version"),
    (("version",), True, "version"),
    (("version",), 1.0, "version"),
    (("version",), [], "version"),
    (("store",), "zarr", "store"),
    (("chunk_size",), 0, "chunk_size"),
    (("chunk_size",), 64.0, "chunk_size"),
    (("dtype",), "uint32", "dtype"),
    (("dtype",), None, "dtype"),
    (("vocab_size",), (1 << 32) + 1, "vocab_size"),
    (("vocab_size",), "257", "vocab_size"),
    (("boundary_token_id",), 257, "boundary_token_id"),
    (("boundary_token_id",), -1, "boundary_token_id"),
    (("tokenizer",), "bytes", "tokenizer"),
    (("tokenizer", "sha256"), "EF" * 32, "tokenizer.sha256"),
    (("tokenizer", "kind"), 3, "tokenizer.kind"),
    (("options",), [], "options"),
    (("sources",), {}, "sources"),
    (("sources", 1), "b", "sources[1]"),
    (("sources", 1, "size"), -1, "sources[1].size"),
    (("sources", 0, "dropped"), {"empty": "3"}, "sources[0].dropped"),
    (("sources", 0, "cuts"), {}, "sources[0].cuts"),
    (("sources", 2, "cuts"), [1], "sources[2].cuts[0]"),
    (("sources", 2, "cuts", 1, "start"), "4", "sources[2].cuts[1].start"),
    (("sources", 2, "cuts", 1, "start"), 5, "sources[2].cuts"),
    (("sources", 2, "cuts", 1, "stop"), 11, "sources[2].cuts"),
    (("sources", 2, "cuts", 0, "start"), 1, "sources[2].cuts"),
    (("sources", 2, "cuts", 0, "sha256"), "", "sources[2].cuts[0].sha256"),
    (("total_tokens",), 31, "total_tokens"),
    (("total_tokens",), None, "total_tokens"),
    (("total_documents",), 5, "total_documents"),
    (("shards",), {}, "shards"),
    (("shards", 1), None, "shards[1]"),
    (("shards", 1, "shard_id"), "s0", "shards[1].shard_id"),
    (("shards", 1, "shard_id"), 1, "shards[1].shard_id"),
    (("shards", 1, "path"), "", "shards[1].path"),
    (("shards", 1, "path"), None, "shards[1].path"),
    (("shards", 1, "path"), "/etc/passwd", "shards[1].path"),
    (("shards", 1, "path"), "../s1.h5", "shards[1].path"),
    (("shards", 1, "path"), "a/../../s1.h5", "shards[1].path"),
    (("shards", 1, "path"), "a\0b", "shards[1].path"),
    (("shards", 1, "token_count"), "10", "shards[1].token_count"),
    (("shards", 1, "token_count"), 1 << 63, "shards[1].token_count"),
    (("shards", 1, "document_count"), -1, "shards[1].document_count"),
    (("shards", 1, "sha256"), "ab" * 31, "shards[1].sha256"),
    (("shards", 1, "sha256"), None, "shards[1].sha256"),
    (("shards", 1, "documents_sha256"), "", "shards[1].documents_sha256"),
    (("shards", 2, "global_start"), 21, "shards[2].global_start"),
    (("shards", 2, "source"), 3, "shards[2].source"),
    (("shards", 2, "row_base"), -1, "shards[2].row_base"),
]


@pytest.mark.parametrize(("where", "value", "place"), FAULTS)
def test_each_fault_is_reported_once(body, where, value, place):
    """One wrong value is one problem, at the place of the value."""
    target = body
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    found = problems_of(body)
    assert [name for name, _ in found] == [place], found


LANCE = {"tokens": 1, "docs": 1, "data_storage_version": "2.0"}


@pytest.mark.parametrize(
    ("lance", "masks", "wanted"),
    [
        (LANCE, 0, []),
        (LANCE | {"loss_mask": 1}, 3, []),
        (LANCE | {"loss_mask": 1}, 0, [("lance.loss_mask", "is there, but no shard has one")]),
        (LANCE, 3, [("lance.loss_mask", "is not there, but the shards have one")]),
        (
            LANCE | {"loss_mask": 1},
            2,
            [("shards[2].loss_mask_sha256", "is not there, but other shards have a loss mask")],
        ),
        (LANCE | {"tokens": 0}, 0, [("lance.tokens", "wanted an integer from 1 to 2**63 - 1, found 0")]),
        (None, 0, [("lance", "wanted an object, found NoneType")]),
    ],
)
def test_faults_of_a_lance_corpus(body, lance, masks, wanted):
    """The versions of the data sets are there, that of the loss masks where the shards have them, and nowhere else."""
    body |= {"store": "lance", "lance": lance}
    for number, shard in enumerate(body["shards"]):
        shard.update(docs_sha256="56" * 32, **({"loss_mask_sha256": "78" * 32} if number < masks else {}))
    assert problems_of(body) == wanted


@pytest.mark.parametrize(
    "key",
    ["chunk_size", "dtype", "vocab_size", "boundary_token_id", "store", "total_tokens", "total_documents", "shards"],
)
def test_what_is_missing_is_named(body, key):
    """A key that is not there is reported by its name."""
    del body[key]
    assert (key, "nothing") in [(place, reason.rsplit(" ", 1)[-1]) for place, reason in problems_of(body)]


@pytest.mark.parametrize("key", ["shard_id", "path", "token_count", "document_count", "sha256", "documents_sha256"])
def test_what_is_missing_of_a_shard_is_named(body, key):
    """A shard needs all its keys."""
    del body["shards"][1][key]
    assert f"shards[1].{key}" in [place for place, _ in problems_of(body)]


def test_what_a_corpus_without_sources_leaves_out(body):
    """`source`, `row_base`, `sources`, `options` and `tokenizer` may be absent."""
    for shard in body["shards"]:
        del shard["source"], shard["row_base"]
    for key in ("sources", "options", "tokenizer"):
        del body[key]
    assert problems_of(body) == []


def test_all_faults_at_once(body):
    """Independent faults are all in one error, in the order of the file's parts, up to twenty in the message."""
    body["shards"][0]["sha256"] = "x"
    body["shards"][1]["path"] = "/x"
    body["shards"][2]["global_start"] = 5
    body["total_documents"] = 1
    body["boundary_token_id"] = 300
    with pytest.raises(ManifestError) as caught:
        Manifest.from_json(json.dumps(body).encode(), name="corpus/shards.json")
    places = [problem.place for problem in caught.value.problems]
    assert sorted(places) == sorted(
        ["shards[0].sha256", "shards[1].path", "shards[2].global_start", "total_documents", "boundary_token_id"]
    )
    assert str(caught.value).startswith("corpus/shards.json: not a usable corpus index (5 problems)")
    assert isinstance(caught.value, ValueError)


def test_one_wrong_count_is_not_reported_for_every_shard_after_it(body):
    """A count that contradicts the next start and the total gives these two problems, not one a shard."""
    body["shards"][0]["token_count"] = 11
    assert [place for place, _ in problems_of(body)] == ["shards[1].global_start", "total_tokens"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 column 1"),
        (b'{"version": 2,\n "shards": [', "line 2 column 13"),
        (b'{"version": 2\n "x"', "line 2 column 2"),
        (b'{"path": "\xff"}', "byte 10"),
        (b"[" * 100_000, "no corpus index"),
        (b'{"version": ' + b"1" * 5000 + b"}", "no corpus index"),
        (b"[]", "wanted a JSON object, found list"),
        (b"null", "wanted a JSON object, found NoneType"),
        (b"\xef\xbb\xbf{}", "BOM"),
    ],
)
def test_what_is_no_json_object(tmp_path, data, message):
    """Text that is no manifest at all is an error of ours that names the file and the place."""
    (tmp_path / "shards.json").write_bytes(data)
    with pytest.raises(ManifestError, match=re.escape(message)) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path / "shards.json") in str(caught.value)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), manifest=manifests())
def test_any_value_anywhere_is_accepted_or_reported(data, manifest):
    """Whatever JSON stands in place of a value, the answer is a manifest or a `ManifestError`, nothing else."""
    body = json.loads(manifest.to_json())
    places = [(body, key) for key in body]
    places += [(shard, key) for shard in body["shards"] for key in shard]
    places += [(source, key) for source in body["sources"] for key in source]
    target, key = data.draw(st.sampled_from(places))
    scalars = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=70)
    target[key] = data.draw(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
    try:
        read = Manifest.from_json(json.dumps(body).encode())
    except ManifestError as error:
        problems = error.problems
    else:
        assert Manifest.from_json(read.to_json()) == read
        return
    assert problems
    assert all(problem.place and problem.reason for problem in problems)


def test_no_index(tmp_path):
    """A folder without an index, and a path that is not there, are a FileNotFoundError that says what a corpus is."""
    for path in (tmp_path, tmp_path / "no"):
        with pytest.raises(MissingShardError, match="no such file; a corpus is a folder with") as caught:
            read_manifest(path)
        assert isinstance(caught.value, FileNotFoundError)


def test_an_index_that_cannot_be_read(tmp_path):
    """An index that is a folder itself is an OSError that names it."""
    (tmp_path / "shards.json").mkdir()
    with pytest.raises(UnreadableShardError, match=r"shards\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("vocab_size", "name"),
    [(1, "uint16"), (65_535, "uint16"), (65_536, "uint16"), (65_537, "uint32"), (1 << 32, "uint32")],
)
def test_dtype_of_a_vocabulary(vocab_size, name):
    """uint16 holds the ids of a vocabulary of up to 65,536."""
    assert dtype_name_for(vocab_size) == name


@pytest.mark.parametrize("vocab_size", [0, -1, (1 << 32) + 1])
def test_vocabularies_that_no_dtype_holds(vocab_size):
    """There are vocabularies of 1 to 2**32 ids."""
    with pytest.raises(ValueError, match=re.escape(str(vocab_size))):
        dtype_name_for(vocab_size)
