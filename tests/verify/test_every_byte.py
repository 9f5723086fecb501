"""One changed byte anywhere in a shard: found, or without effect. Wrong tokens or documents are never served as right."""

import subprocess
import sys

import pytest

from headrace.testing.corpora import random_documents, small_corpus

JUDGE = """
import json, random, sys
from pathlib import Path
import numpy as np
import headrace
from headrace.errors import HeadraceError
from headrace.manifest import load_index
from headrace.verify import verify_shards

folder = Path(sys.argv[1])
path = folder / "000000-0000-0000.h5"
good = path.read_bytes()
start, stop, step = map(int, sys.argv[2:])
places = range(start, len(good) if stop < 0 else stop, step)
corpus = headrace.open(folder)
tokens, lengths = corpus[:], [len(document) for document in corpus.documents]
entries = load_index(folder)
found = 0
for at in places:
    bad = bytearray(good)
    bad[at] ^= random.Random(at).randrange(1, 256)
    path.write_bytes(bad)
    (report,) = verify_shards(entries)
    assert report.status in {"ok", "corrupt"}, (at, report)
    found += not report.ok
    for place in (folder, path):
        for verify in ("quick", "off"):
            try:
                corpus = headrace.open(place, verify=verify)
                read = corpus[:]
                documents = [len(document) for document in corpus.documents]
            except HeadraceError as error:
                assert path.name in str(error), (at, error)
                continue
            if report.ok:
                assert np.array_equal(read, tokens), at
                assert documents == lengths, at
            elif verify == "quick" and place == folder:
                assert documents == lengths, at
print(found, len(places))
"""


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 5000, 41), (3, -1, 409)])
def test_a_changed_byte_anywhere(tmp_path, start, stop, step):
    """Verification finds it, or it changes nothing; readers raise an error that names the file, or serve what is right.

    In a process of its own: HDF5 reads damaged files here. The metadata, at the start, is tried most.
    """
    folder = small_corpus(tmp_path, random_documents(22, (40,)), chunk_size=200)
    arguments = [sys.executable, "-c", JUDGE, folder, *map(str, (start, stop, step))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, tried = map(int, done.stdout.split())
    assert 0 < found <= tried
