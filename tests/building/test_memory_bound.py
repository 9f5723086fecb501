"""The memory of a process that builds: bounded by the largest document, not by how many there are."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.building.job import ContentOptions, ShardJob, run_job
from headrace.sources import discover
from headrace.tokenizers.bytes import Tokenizer

MIB = 1 << 20
PROGRAM = """
import sys, tempfile
from pathlib import Path
import headrace

with tempfile.TemporaryDirectory() as folder:
    options = {"sample_seed": int(seed) for seed in sys.argv[3:]}
    headrace.build(sys.argv[1], Path(folder) / "c", tokenizer=sys.argv[2], workers=1, **options)
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""
TEXT = b"It was the best of times, it was the worst of times, it was the age of wisdom; "


def one_document(path: Path) -> int:
    """Write a line of 64 MiB; returns the size of its text."""
    text = TEXT * (64 * MIB // len(TEXT))
    path.write_bytes(b'{"text": "' + text + b'"}\n')
    return len(text)


def many_documents(path: Path) -> int:
    """Write 300,000 short documents; returns the size of the largest."""
    path.write_text("".join(json.dumps({"text": f"document {number}"}) + "\n" for number in range(300_000)))
    return 15


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak")
@pytest.mark.parametrize(
    ("tokenizer", "documents", "options"),
    [
        ("bytes", one_document, []),
        ("gpt2", one_document, []),
        ("gpt2", many_documents, []),
        ("bytes", one_document, ["1"]),
        ("gpt2", many_documents, ["1"]),
    ],
)
def test_peak_memory(gpt2_folder, tmp_path, tokenizer, documents: Callable[[Path], int], options):
    """At most 700 MB and 12 times the largest document are promised; what is plain text stays well below that."""
    largest = documents(tmp_path / "a.jsonl")
    peak = int(
        subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                PROGRAM,
                tmp_path / "a.jsonl",
                {"gpt2": gpt2_folder}.get(tokenizer, tokenizer),
                *options,
            ],
            check=True,
            capture_output=True,
        ).stdout
    )
    (tmp_path / "a.jsonl").unlink()
    assert peak * 1024 <= 350e6 + 9 * largest


def test_large_documents_do_not_pile_up(tmp_path):
    """However slow the disk is: when a large document is encoded, those before it are written, and hold no memory."""

    class Watching(Tokenizer):
        """Notes how many shards are whole whenever a document is encoded."""

        def encode_documents(self, texts):
            whole.append(len(list(tmp_path.glob("0*.h5"))))
            return super().encode_documents(texts)

    whole: list[int] = []
    (tmp_path / "a.jsonl").write_bytes((b'{"text": "' + b"x" * (17 * MIB) + b'"}\n') * 4)
    shard = discover([str(tmp_path / "a.jsonl")]).shards[0]
    options = ContentOptions(boundary_token_id=0, shard_tokens=1, chunk_tokens=MIB)
    run_job(ShardJob(shard=shard, source=0, options=options, output=tmp_path), Watching())
    assert whole == [0, 1, 2, 3]
