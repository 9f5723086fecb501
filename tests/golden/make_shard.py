"""The corpus whose bytes are pinned, and the maker of `corpus/`.

Run `python tests/golden/make_shard.py` to write the files again; see PROVENANCE.md before you do.
"""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.manifest import Manifest, ShardEntry, SourceEntry, TokenizerRef, dtype_name_for
from headrace.storage.hdf5_corpus import checked_layout, extents_of, write_sidecars
from headrace.storage.hdf5_writer import HDF5ShardWriter

if TYPE_CHECKING:
    from headrace.storage.extents import ShardExtents

GOLDEN = Path(__file__).parent
CHUNK = 500
BOUNDARY = 3
FILES = ("a.jsonl", "sub/b.jsonl", "caf\udce9.txt")
LENGTHS = ([1, 2, 499, 3, 495, 1, 7, 2000, 40], [], [300, 1])
"""Tokens of each document of the three shards, boundary included: some end with a chunk, one spans several."""
TOKENIZER = TokenizerRef(kind="bytes", name="bytes", sha256="0123456789abcdef" * 4, vocab_size=50_257)


def documents(vocab_size: int) -> list[list[list[int]]]:
    """The token ids of every document of each shard."""
    shards, number = [], 0
    for lengths in LENGTHS:
        shard = []
        for length in lengths:
            number += 1
            shard.append([(number * 7919 + place * 31) % vocab_size for place in range(length - 1)] + [BOUNDARY])
        shards.append(shard)
    return shards


def origins(count: int) -> dict[str, list[int]]:
    """Row, byte and file of each document of a shard: rows with gaps, bytes beyond 2**32, every file."""
    return {
        "rows": [3 * number for number in range(count)],
        "offsets": [number << 31 for number in range(count)],
        "files": [number % len(FILES) for number in range(count)],
    }


def extras(count: int) -> dict[str, object]:
    """Id and hash of each document of a shard; some ids are empty."""
    names = [b"\xc3\xa9 %d" % number if number % 3 else b"" for number in range(count)]
    digests = b"".join(hashlib.sha256(b"text %d" % number).digest()[:16] for number in range(count))
    return {"ids": names, "hashes": np.frombuffer(digests, np.uint8).reshape(count, 16)}


def loss_mask(count: int) -> np.ndarray:
    """Which of the tokens of a shard count in the loss."""
    return (np.arange(count) * 7 % 5 < 2).astype(np.uint8)  # a formula


def write(
    folder: Path, *, vocab_size: int, with_origins: bool, with_extras: bool = False, with_mask: bool = False
) -> Path:
    """Write the corpus into a folder that does not exist."""
    folder.mkdir(parents=True)
    entries: list[ShardEntry] = []
    extents: list[ShardExtents] = []
    start = 0
    for number, shard in enumerate(documents(vocab_size)):
        path = folder / f"{number:06d}-0000-0000.h5"
        with HDF5ShardWriter(
            path,
            CHUNK,
            vocab_size=vocab_size,
            boundary_token_id=BOUNDARY,
            tokenizer_sha256=TOKENIZER.sha256,
            source_files=FILES if with_origins else (),
            document_ids=with_extras,
            text_hashes=with_extras,
            loss_mask=with_mask,
        ) as writer:
            tokens = np.array([token for document in shard for token in document], dtype=np.int64)
            ends = np.cumsum([len(document) for document in shard], dtype=np.int64)
            writer.add_documents(
                tokens,
                ends,
                **(origins(len(shard)) if with_origins else {}),
                **(extras(len(shard)) if with_extras else {}),
                loss_mask=loss_mask(len(tokens)) if with_mask else None,
            )
        entry = writer.result(path.stem)
        extents.append(extents_of(checked_layout(path, entry)))
        entries.append(replace(entry, path=path.name, global_start=start, row_base=10 * number))
        start += entry.token_count
    manifest = Manifest(
        chunk_size=CHUNK,
        shards=tuple(entries),
        dtype=dtype_name_for(vocab_size),
        vocab_size=vocab_size,
        boundary_token_id=BOUNDARY,
        tokenizer=replace(TOKENIZER, vocab_size=vocab_size),
        options={"text_field": "text", "keep_empty": False, "max_document_tokens": None},
        sources=tuple(
            SourceEntry(path=name, size=5, sha256="fedcba9876543210" * 4, documents=4, dropped={"empty": 1})
            for name in FILES
        ),
    )
    write_sidecars(folder, manifest.fingerprint.hex, extents)
    (folder / "shards.json").write_bytes(manifest.to_json())
    return folder


CORPORA = {
    "corpus": {"vocab_size": 50_257, "with_origins": True},
    "corpus_extras": {"vocab_size": 50_257, "with_origins": True, "with_extras": True},
    "corpus_masked": {"vocab_size": 50_257, "with_origins": True, "with_mask": True},
    "corpus_uint32": {"vocab_size": 151_936, "with_origins": False},
}

if __name__ == "__main__":
    for name, options in CORPORA.items():
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        write(GOLDEN / name, **options)
