"""A loader where there is little of everything: descriptors, tokens, rights; and where many open at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import PlanError
from headrace.testing.corpora import line_of, random_documents, small_corpus

WINDOW = 24

SERVE = """
import hashlib, json, resource, sys
import headrace

path, steps, files, prefetch = sys.argv[1], range(*json.loads(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])
if files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
corpus = headrace.open(path)
plan = headrace.Plan(order="blocks", token_count=len(corpus), window=24, batch_size=16, seed=9, corpus=str(corpus.fingerprint))
loader = headrace.Loader(corpus, plan, document_ids=True, position_ids=True, prefetch=prefetch)
loader.step = steps.start
seen = hashlib.sha256()
for batch in loader:
    for array in (batch.input_ids, batch.targets, batch.document_ids, batch.position_ids):
        seen.update(array.tobytes())
    if loader.step == steps.stop:
        break
print(seen.hexdigest())
"""


def start(folder: Path, steps: range, *, files: int = 0, prefetch: int = 0) -> "subprocess.Popen[str]":
    """A process that serves some steps, and prints a digest of them."""
    arguments = [folder, json.dumps([steps.start, steps.stop]), str(files), str(prefetch)]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(process: "subprocess.Popen[str]") -> str:
    """What it printed."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return out.strip()


@pytest.mark.extended
def test_3000_shards_and_256_descriptors(tmp_path):
    """All windows of an epoch, in random order, with and without a thread: the same bytes as without a limit."""
    folder = small_corpus(tmp_path / "corpus", random_documents(3, (1,) * 3000, longest=40))
    with headrace.open(folder) as corpus:
        steps = range(len(corpus) // WINDOW // 16 + 2)
    wanted = result(start(folder, steps))
    assert result(start(folder, steps, files=256)) == wanted
    assert result(start(folder, steps, files=256, prefetch=3)) == wanted


@pytest.mark.parametrize("known", [True, False])
def test_eight_processes_open_at_once(tmp_path, known):
    """Also where the extents are not known and each derives them: equal bytes, and nothing is left in the folder."""
    folder = small_corpus(tmp_path / "corpus", random_documents(4, (3,) * 40), sidecar=known)
    before = sorted(folder.rglob("*"))
    processes = [start(folder, range(5, 40), prefetch=number % 3) for number in range(8)]
    assert len({result(process) for process in processes}) == 1
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_cannot_be_written(tmp_path, bind_by_modes):
    """The corpus is read only, and so is the home with its cache: served all the same."""
    folder = small_corpus(tmp_path / "corpus", random_documents(4, (3,) * 4), sidecar=False)
    wanted = result(start(folder, range(20)))
    home = tmp_path / "home"
    home.mkdir()
    for path in (*folder.rglob("*"), folder, home):
        path.chmod(0o555 if path.is_dir() else 0o444)
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    refused = ["/bin/sh", "-c", 'touch "$0/x" 2>/dev/null; test ! -e "$0/x"']
    command = [sys.executable, "-P", "-c", SERVE, folder, "[0, 20]", "0", "0"]
    try:
        for place in (folder, home):
            subprocess.run([*refused, place], preexec_fn=bind_by_modes, check=True)  # no thread's lock
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, preexec_fn=bind_by_modes
        )
    finally:
        for path in (folder, *folder.rglob("*"), home):
            path.chmod(0o755)
    assert done.stdout.strip() == wanted, done.stderr


@pytest.mark.parametrize("extra", [-1, 0, 1, 2])
@pytest.mark.parametrize("targets", ["next", "inside"])
@pytest.mark.parametrize("order", ["random", "blocks", "sequential"])
def test_corpora_of_about_a_window(tmp_path, order, targets, extra):
    """Of T - 1, T, T + 1 and T + 2 tokens, some in shards without any: each window that fits, or a refusal with numbers."""
    tokens = WINDOW + extra
    documents = np.arange(1, tokens)
    folder = small_corpus(tmp_path / "c", [[], [documents[:7]], [], [documents[8:]], []])
    line, _ = line_of([[documents[:7]], [documents[8:]]])
    with headrace.open(folder) as corpus:
        assert np.array_equal(corpus[:], line)
        assert len(corpus) == tokens
        reads = WINDOW + (targets == "next")

        def plan() -> headrace.Plan:
            return headrace.Plan(order=order, token_count=tokens, window=WINDOW, batch_size=2, targets=targets)

        if tokens < reads:
            with pytest.raises(PlanError, match=f"holds {tokens} tokens; a window of {WINDOW}.*reads {reads}"):
                plan()
            return
        loader = headrace.Loader(corpus, plan())
        seen = set()
        for step in range(1 if order == "sequential" else 40):
            batch = loader.batch(step)
            for row, at in enumerate(batch.starts.tolist()):
                assert np.array_equal(batch.input_ids[row], line[at : at + WINDOW])
                seen.add(at)
        stride = {"random": 1, "next": WINDOW, "inside": WINDOW - 1}["random" if order == "random" else targets]
        assert seen == set(range(0, tokens - reads + 1, stride))
