"""The HDF5 corpus format, byte for byte: written as it was, and read as it was meant."""

import hashlib
import importlib.util
import json
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace

GOLDEN = Path(__file__).parent
HDF5 = (2, 0, 0)
"""The HDF5 library that wrote the files; another one may lay out the same content otherwise."""

FINGERPRINTS = {
    "corpus": "2c96e8e01cb6ca00b6f662da0b749c33afaa683ba4c874eecf17d1af00a03c8f",
    "corpus_extras": "2c96e8e01cb6ca00b6f662da0b749c33afaa683ba4c874eecf17d1af00a03c8f",
    "corpus_masked": "6f1977680809a6ec056066757e5aa1fe2bf800b18ccd53447de0c9f81f289efb",
    "corpus_uint32": "f3d42811523430136e38cae14c7af66ca248d0a34ccd990c93f3e0182058949d",
}


def _load():
    spec = importlib.util.spec_from_file_location("make_shard", GOLDEN / "make_shard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_shard = _load()


@pytest.fixture(params=sorted(FINGERPRINTS))
def name(request):
    """Each golden corpus."""
    return request.param


def lines(name):
    """The golden corpus as the model has it: per shard the dtype's bytes of all tokens, and the document ends."""
    vocab_size = make_shard.CORPORA[name]["vocab_size"]
    dtype = "<u2" if vocab_size <= 65_536 else "<u4"
    for shard in make_shard.documents(vocab_size):
        tokens = np.array([token for document in shard for token in document], dtype=dtype)
        yield tokens, np.cumsum([len(document) for document in shard], dtype="<u8")


@pytest.mark.skipif(h5py.h5.get_libversion() != HDF5, reason=f"the golden bytes are those of HDF5 {HDF5}")
def test_what_is_written_now_is_what_was_written_then(tmp_path, name):
    """Shards, `shards.json` and the sidecar are the golden ones to the last byte, and no file more."""
    folder = make_shard.write(tmp_path / name, **make_shard.CORPORA[name])
    written = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    golden = {path.relative_to(GOLDEN / name): path for path in (GOLDEN / name).rglob("*") if path.is_file()}
    assert written.keys() == golden.keys()
    for path, data in written.items():
        assert data == golden[path].read_bytes(), path


def test_corpora_written_then_are_read_now(name):
    """The golden corpus opens from its sidecar, verifies, and serves the model's tokens, documents and origins."""
    corpus = headrace.open(GOLDEN / name, verify="full")
    tokens = np.concatenate([tokens for tokens, _ in lines(name)])
    np.testing.assert_array_equal(corpus[:], tokens)
    assert corpus.dtype == tokens.dtype
    assert corpus.fingerprint.hex == FINGERPRINTS[name]
    documents = [
        document for shard in make_shard.documents(make_shard.CORPORA[name]["vocab_size"]) for document in shard
    ]
    assert [document.tolist() for document in corpus.documents] == documents
    assert corpus.has_loss_mask == ("with_mask" in make_shard.CORPORA[name])
    if corpus.has_loss_mask:
        mask = np.concatenate([make_shard.loss_mask(len(tokens)) for tokens, _ in lines(name)])
        np.testing.assert_array_equal(corpus.loss_mask(0, len(corpus)), mask)
    found = corpus.locate(len(tokens) - 1)
    assert (found.shard_id, found.document) == ("000002-0000-0000", len(documents) - 1)
    if make_shard.CORPORA[name]["with_origins"]:
        assert (found.source, found.line, found.byte) == ("sub/b.jsonl", 20 + 3 + 1, 1 << 31)
    else:
        assert (found.source, found.line, found.byte) == (None, None, None)


def test_each_shard_is_what_the_format_says(name):
    """Bare h5py finds the objects, types, attributes and checksums that `docs/format.md` promises."""
    options = make_shard.CORPORA[name]
    for number, (tokens, ends) in enumerate(lines(name)):
        with h5py.File(GOLDEN / name / f"{number:06d}-0000-0000.h5", "r") as file:
            stored = file["tokens"]
            assert (stored.dtype, stored.maxshape, stored.chunks) == (tokens.dtype, (None,), (500,))
            assert stored.compression is None
            np.testing.assert_array_equal(stored[:], tokens)
            np.testing.assert_array_equal(file["documents/end"][:], ends)
            chunks = [tokens[at : at + 500] for at in range(0, len(tokens), 500)]
            assert file["chunks/crc32"][:].tolist() == [zlib.crc32(chunk.tobytes()) for chunk in chunks]
            attributes = {
                "format_version": 2,
                "token_count": len(tokens),
                "document_count": len(ends),
                "boundary_token_id": 3,
                "vocab_size": options["vocab_size"],
                "sha256": hashlib.sha256(tokens.tobytes()).hexdigest().encode(),
                "documents_sha256": hashlib.sha256(ends.tobytes()).hexdigest().encode(),
                "tokenizer_sha256": b"0123456789abcdef" * 4,
            }
            mask = make_shard.loss_mask(len(tokens))
            if "with_mask" in options:
                attributes["loss_mask_sha256"] = hashlib.sha256(mask.tobytes()).hexdigest().encode()
                assert (file["loss_mask"].dtype, file["loss_mask"].chunks) == (np.dtype("u1"), (500,))
                assert file["loss_mask"][:].tolist() == mask.tolist()
                parts = [mask[at : at + 500] for at in range(0, len(mask), 500)]
                assert file["chunks/loss_mask_crc32"][:].tolist() == [zlib.crc32(part.tobytes()) for part in parts]
            assert ("loss_mask" in file) == ("with_mask" in options)
            assert dict(stored.attrs) == attributes
            assert {stored.attrs[key].dtype for key in ("token_count", "vocab_size")} == {np.dtype("u8")}
            files = [label.encode("utf-8", "surrogateescape") for label in make_shard.FILES]
            assert file["documents/files"][:].tolist() == (files if options["with_origins"] else [])
            origins = make_shard.origins(len(ends) if options["with_origins"] else 0)
            for key, column in (("rows", "source_row"), ("offsets", "source_byte"), ("files", "source_file")):
                assert file["documents"][column][:].tolist() == origins[key]
            assert ("text_hash" in file["documents"]) == ("id" in file["documents"]) == ("with_extras" in options)
            if "with_extras" in options:
                extras = make_shard.extras(len(ends))
                assert file["documents/id"][:].tobytes() == b"".join(extras["ids"])
                assert file["documents/id_end"][:].tolist() == np.cumsum([*map(len, extras["ids"])]).tolist()
                assert file["documents/text_hash"].dtype == np.dtype("V16")
                assert file["documents/text_hash"][:].tobytes() == extras["hashes"].tobytes()


def test_the_sidecar_is_what_the_format_says(name):
    """Parsed from the text of the format alone, the sidecar leads to every token, digest and checksum in the files."""
    data = (GOLDEN / name / ".headrace" / "extents.bin").read_bytes()
    magic, fingerprint, shards, extents, tokens = struct.unpack_from("<32s32sQQQ", data)
    assert magic == b"headrace extents 1\n".ljust(32, b"\0")
    assert fingerprint.hex() == FINGERPRINTS[name]
    rows = [struct.unpack_from("<QQQQII", data, 88 + 40 * row) for row in range(shards)]
    at = 88 + 40 * shards
    first = np.frombuffer(data, "<u8", extents, at)
    offset = np.frombuffer(data, "<u8", extents, at + 8 * extents)
    shard = np.frombuffer(data, "<u4", extents, at + 16 * extents)
    assert len(data) == at + 20 * extents + 4
    assert int.from_bytes(data[-4:], "little") == zlib.crc32(data[:-4])

    index = json.loads((GOLDEN / name / "shards.json").read_bytes())
    assert tokens == index["total_tokens"]
    dtype, served = np.dtype("<u2" if index["dtype"] == "uint16" else "<u4"), []
    for number, (size, digest_at, first_extent, chunk, first_crc, last_crc) in enumerate(rows):
        file = (GOLDEN / name / index["shards"][number]["path"]).read_bytes()
        assert size == len(file)
        assert file[digest_at : digest_at + 64].decode() == index["shards"][number]["sha256"]
        assert chunk == 500
        assert first_extent == int((shard < number).sum())
        begin = index["shards"][number]["global_start"]
        stop = begin + index["shards"][number]["token_count"]
        parts = []
        for extent in np.flatnonzero(shard == number):
            end = min(stop, int(first[extent + 1]) if extent + 1 < extents else tokens)
            parts.append(np.frombuffer(file, dtype, end - int(first[extent]), int(offset[extent])))
        line = np.concatenate(parts) if parts else np.empty(0, dtype)
        assert first_crc == (zlib.crc32(line[:500].tobytes()) if len(line) else 0)
        assert last_crc == (zlib.crc32(line[(len(line) - 1) // 500 * 500 :].tobytes()) if len(line) else 0)
        served.append(line)
    np.testing.assert_array_equal(np.concatenate(served), np.concatenate([line for line, _ in lines(name)]))
