"""One changed byte anywhere in a shard: found and named, or without effect. Nothing wrong is ever served as right."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.manifest import Manifest, SourceEntry, dtype_name_for
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.testing.corpora import random_documents

CHUNK = 200
SOURCES = ("a.jsonl", "b.jsonl")
DOCUMENTS = 40

JUDGE = """
import json, random, sys
from pathlib import Path
import h5py
import numpy as np
import headrace
from headrace.errors import HeadraceError
from headrace.verify import verify_path

folder, step = Path(sys.argv[1]), int(sys.argv[2])
idle = {"padding", "metadata", *sys.argv[3:]}
path = folder / "000000-0000-0000.h5"
good = path.read_bytes()
COLUMNS = ("end", "source_row", "source_byte", "source_file")


def regions():
    # (name, first byte, after its last): of what is stored in data sets; all else is HDF5's own
    with h5py.File(path) as file:
        count = int(file["tokens"].attrs["token_count"])
        for name in ("tokens", *(f"documents/{column}" for column in COLUMNS), "chunks/crc32"):
            found = file[name]
            rows = count if name == "tokens" else len(found)
            for number in range(found.id.get_num_chunks()):
                start, _, at, size = found.id.get_chunk_info(number)
                used = min(rows - start[0], found.chunks[0]) * found.dtype.itemsize
                used = size if found.id.get_create_plist().get_nfilters() else used
                yield f"{name} {start[0] // found.chunks[0]}", at, at + used
                yield "padding", at + used, at + size
        found = file["documents/files"]
        at = found.id.get_offset()
        yield "documents/files 0", at, at + found.id.get_storage_size()


def places(known):
    taken = set()
    for name, begin, end in known:
        taken.update(range(begin, end))
        if end > begin:
            inner = range(begin, end)
            picked = inner[:: max(1, -(-len(inner) // 4))] if name != "padding" else inner[:: max(1, len(inner) // 2)]
            yield from ((name, at) for at in {*picked, inner[-1]})
    rest = [at for at in range(len(good)) if at not in taken]
    yield from (("metadata", at) for at in rest[::step])


def whole(corpus):
    documents = [corpus.documents.bounds(n) for n in range(len(corpus.documents))]
    return corpus[:].tolist(), documents, [corpus.locate(start) for start, _ in documents]


def check_named(region, report, at):
    name, _, chunk = region.partition(" ")
    told = [(problem.place.removeprefix(f"{path}: "), problem.reason) for problem in report.problems]
    if name == "tokens":
        ((place, reason),) = told
        start, stop = int(chunk) * SIZE, min(int(chunk) * SIZE + SIZE, len(tokens))
        assert place == f"chunk {chunk}", (at, told)
        assert reason.startswith(f"tokens [{start}, {stop}) of the shard (corpus [{start}, {stop})), documents "), told
        assert " of the corpus (" in reason and ".jsonl:" in reason, told
    elif name == "chunks/crc32":
        assert [place for place, _ in told] == ["/chunks/crc32"], (at, told)
        assert "the tokens are whole" in told[0][1]
    elif name == "documents/end":
        assert [place for place, _ in told] == ["/documents/end"], (at, told)
        assert "what cannot be right is the end of document" in told[0][1], (at, told)
    elif name.startswith("documents/"):
        assert {place for place, _ in told} <= {"/documents/source_*", "/documents/source_file"}, (at, told)
    else:
        assert report.reason, at
        assert all(problem.place.startswith(str(path)) for problem in report.problems), (at, told)


with headrace.open(folder) as corpus:
    tokens, bounds, origins = whole(corpus)
    SIZE = corpus.manifest.chunk_size
found, harmless = {}, {}
for region, at in list(places(list(regions()))):
    bad = bytearray(good)
    bad[at] ^= random.Random(at).randrange(1, 256)
    path.write_bytes(bad)
    report, *others = verify_path(folder)
    assert report.status in {"ok", "corrupt"}, (at, report)
    # A file that is whole and laid out otherwise than its extents say: of the sidecar, too, that is a fault.
    assert not others or report.ok, (at, others)
    kind = region.partition(" ")[0]
    counts = harmless if report.ok else found
    counts[kind] = counts.get(kind, 0) + 1
    assert not report.ok or kind in idle, (region, at)
    if not report.ok:
        check_named(region, report, at)
    for place in (folder, path):
        for verify in ("quick", "off"):
            try:
                with headrace.open(place, verify=verify) as corpus:
                    read = whole(corpus)
            except HeadraceError as error:
                assert path.name in str(error), (at, error)
                continue
            if report.ok:
                assert read[:2] == (tokens, bounds), at
                assert read[2] == origins, at
            elif place == folder:
                assert read[1:] == (bounds, origins), at  # the document index is always hashed
path.write_bytes(good)
print(json.dumps([found, harmless]))
"""


def write_corpus(folder: Path, compression: str) -> Path:
    """One shard of two sources with its index."""
    folder.mkdir()
    path = folder / "000000-0000-0000.h5"
    (documents,) = random_documents(22, (DOCUMENTS,))
    half = DOCUMENTS // 2
    with HDF5ShardWriter(path, CHUNK, vocab_size=257, source_files=SOURCES, compression=compression) as writer:
        writer.add_documents(
            np.concatenate([np.append(document, 0) for document in documents]),
            np.cumsum([len(document) + 1 for document in documents]),
            rows=np.arange(DOCUMENTS) % half,
            offsets=np.arange(DOCUMENTS) % half * 100,
            files=np.arange(DOCUMENTS) // half,
        )
    manifest = Manifest(
        chunk_size=CHUNK,
        shards=(replace(writer.result(path.stem), path=path.name),),
        dtype=dtype_name_for(257),
        vocab_size=257,
        sources=tuple(SourceEntry(path=name, size=1, sha256="ab" * 32, documents=half) for name in SOURCES),
    )
    (folder / "shards.json").write_bytes(manifest.to_json())
    return folder


def judge(folder: Path, step: int, *idle: str) -> tuple[dict[str, int], dict[str, int]]:
    """Change bytes, one at a time; how many changes were found and how many did nothing, by kind of place.

    In a process of its own: HDF5 reads damaged files here. Kinds of places besides padding and metadata where a change may
    do nothing are `idle`.
    """
    command = [sys.executable, "-P", "-c", JUDGE, folder, str(step), *idle]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    import json

    found, harmless = json.loads(done.stdout)
    return found, harmless


def needs_plugin(compression: str) -> None:
    """Skip where what zstd needs is not installed."""
    if compression.startswith("zstd") and importlib.util.find_spec("hdf5plugin") is None:
        pytest.skip("could not import hdf5plugin")


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_changed_byte_anywhere(tmp_path, compression):
    """Verification finds it and names the region, or it changes nothing; readers raise, or serve what is right.

    All that is stored in a data set is covered by a checksum, compressed or not; but for padding and HDF5's own unused
    bytes nothing is without effect. Tokens are named with chunk, documents and lines.
    """
    needs_plugin(compression)
    idle = ["tokens"] if compression == "zstd" else []  # a few bits of its streams decode to nothing
    found, harmless = judge(write_corpus(tmp_path / "corpus", compression), 251, *idle)
    assert set(harmless) <= {"padding", "metadata", *idle}
    assert set(found) >= {"tokens", "documents/end", "documents/source_row", "documents/source_byte", "metadata"}
    assert set(found) >= {"documents/source_file", "documents/files", "chunks/crc32"}


@pytest.mark.extended
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_much_of_the_metadata(tmp_path, compression):
    """The same for many more bytes of what HDF5 writes of its own."""
    needs_plugin(compression)
    judge(write_corpus(tmp_path / "corpus", compression), 11, "tokens")
