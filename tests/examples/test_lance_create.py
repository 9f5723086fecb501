"""The first of the two Lance recipes, as a program: what it writes, the recipe's own calls and our drop-ins read alike."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

EXAMPLE = Path(__file__).parents[2] / "examples" / "lance_create.py"
BLOCK = 16


@pytest.mark.extended
def test_a_stream_becomes_a_data_set_that_the_recipe_trains_on(tmp_path, monkeypatch):
    """So many documents of a shuffled stream, none of them empty; and each block is the recipe's."""
    import lance

    from headrace.torch import LanceDataset, LanceSampler

    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    texts = [f"document {number} of many" * (number % 3) for number in range(300)]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    output = tmp_path / "out"
    command = [sys.executable, "-P", "-W", "error", EXAMPLE, output, "--dataset", source, "--tokenizer", "bytes"]
    ran = subprocess.run([*command, "--max-documents", "100"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("100 documents, ")
    corpus = headrace.open(output)
    found = {bytes((document[:-1] - 1).tolist()).decode() for document in corpus.documents}
    assert len(found) == 100
    assert found <= set(filter(None, texts))
    theirs = lance.dataset(output / "tokens.lance")
    ours = LanceDataset(output / "tokens.lance", BLOCK)
    assert len(ours) == theirs.count_rows() - BLOCK == len(corpus) - BLOCK
    starts = list(LanceSampler(ours, BLOCK))
    assert sorted(starts) == list(range(0, len(ours), BLOCK))
    for start in random.Random(0).sample(starts, 8):
        wanted = [row["input_ids"] for row in theirs.take(list(range(start, start + BLOCK))).to_pylist()]
        assert ours[start]["input_ids"].tolist() == ours[start]["labels"].tolist() == wanted
    assert json.loads((output / "shards.json").read_bytes())["store"] == "lance"
