"""The fingerprint: the bytes that `docs/format.md` says are hashed, and nothing else."""

import hashlib
import json
import struct
from dataclasses import replace

import pytest

from headrace.manifest import Fingerprint, Manifest, ShardEntry, SourceEntry, TokenizerRef

TOKENIZER = TokenizerRef(kind="bytes", name="bytes", sha256="11" * 32, vocab_size=257)
SHARDS = tuple(
    ShardEntry(
        shard_id=f"s{number}",
        path=f"s{number}.h5",
        token_count=10 + number,
        document_count=3 + number,
        sha256=f"{number:02x}" * 32,
        documents_sha256=f"{number + 16:02x}" * 32,
        global_start=number * 10,
    )
    for number in range(3)
)
MANIFEST = Manifest(chunk_size=64, shards=SHARDS, vocab_size=257, boundary_token_id=5, tokenizer=TOKENIZER)


def with_shard(number, **changes):
    """The manifest with one shard changed."""
    shards = list(SHARDS)
    shards[number] = replace(shards[number], **changes)
    return replace(MANIFEST, shards=tuple(shards))


def test_golden():
    """The value that corpora written until now have; another one would make their checkpoints strangers."""
    assert MANIFEST.fingerprint == Fingerprint(
        "a347af6e5a0c73a1cd3608cbcb7371f3a473b604602f4af60af7b89d2cfe2a6a", "content"
    )
    assert str(MANIFEST.fingerprint) == MANIFEST.fingerprint.hex
    empty = Manifest(chunk_size=64, shards=())
    assert empty.fingerprint.hex == "b6b52fdd4dfe9b80228634ed70bbfb6bc5be225029037b9bae99e2a7532b4158"


def test_is_what_the_format_says():
    """A second implementation, from the text of the format alone, gives the same."""
    digest = hashlib.sha256(
        json.dumps(["headrace corpus 1", "uint16", "11" * 32, 5, 3], separators=(",", ":")).encode()
    )
    for shard in SHARDS:
        digest.update(bytes.fromhex(shard.sha256) + bytes.fromhex(shard.documents_sha256))
        digest.update(struct.pack("<QQ", shard.token_count, shard.document_count))
    assert MANIFEST.fingerprint.hex == digest.hexdigest()


def test_version_1_has_zeros_for_what_it_does_not_know():
    """No tokenizer is an empty string, no hash of the documents is 32 zero bytes."""
    manifest = Manifest(version=1, chunk_size=64, shards=(replace(SHARDS[0], documents_sha256=""),))
    digest = hashlib.sha256(b'["headrace corpus 1","uint16","",0,1]')
    digest.update(bytes.fromhex(SHARDS[0].sha256) + bytes(32) + struct.pack("<QQ", 10, 3))
    assert manifest.fingerprint.hex == digest.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        replace(MANIFEST, dtype="uint32"),
        replace(MANIFEST, boundary_token_id=6),
        replace(MANIFEST, tokenizer=replace(TOKENIZER, sha256="12" * 32)),
        replace(MANIFEST, tokenizer=None),
        replace(MANIFEST, shards=SHARDS[:2]),
        replace(MANIFEST, shards=(SHARDS[1], SHARDS[0], SHARDS[2])),
        with_shard(1, sha256="ff" * 32),
        with_shard(1, documents_sha256="ff" * 32),
        with_shard(1, token_count=99),
        with_shard(1, document_count=99),
    ],
)
def test_changes_with_the_content(other):
    """Tokens, documents, their order, their division into shards, dtype, tokenizer and boundary all count."""
    assert other.fingerprint != MANIFEST.fingerprint


@pytest.mark.parametrize(
    "other",
    [
        replace(MANIFEST, chunk_size=65),
        replace(MANIFEST, options={"text_field": "body"}),
        replace(MANIFEST, vocab_size=300),
        replace(MANIFEST, tokenizer=replace(TOKENIZER, name="another label", kind="huggingface")),
        replace(MANIFEST, sources=(SourceEntry(path="a", size=1, sha256="ab" * 32, documents=1),)),
        with_shard(1, path="elsewhere/x.h5"),
        with_shard(1, shard_id="another"),
        with_shard(1, source=1, row_base=7),
    ],
)
def test_does_not_change_with_anything_else(other):
    """Paths, names, chunks, sources and labels do not count: the same tokens are the same corpus anywhere."""
    assert other.fingerprint == MANIFEST.fingerprint
