"""Write a Lance data set of tokens from a stream of a Hugging Face data set, as the Lance documentation does for GPT-2.

Usage: lance_create.py OUTPUT [--dataset NAME_OR_FILE] [--config NAME] [--tokenizer NAME_OR_FILE] [--max-documents N]

Documents come one by one, so memory is bounded whatever the size of the source. A name is looked up on the hub; a file
of JSON lines, Parquet or text is read as it is.
"""

import argparse
import sys
from pathlib import Path

import lance
from datasets import IterableDataset, load_dataset

import headrace

LOADERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}


def stream(dataset: str, config: str | None, seed: int) -> IterableDataset:
    """Open a shuffled stream of documents: of a file, or of a data set of the hub."""
    if Path(dataset).exists():
        opened = load_dataset(LOADERS[Path(dataset).suffix], data_files=dataset, split="train", streaming=True)
    else:
        opened = load_dataset(dataset, config, split="train", streaming=True)
    return opened.shuffle(seed=seed)


def main() -> int:
    """Build the corpus, and look at it as anybody who knows only Lance would."""
    parser = argparse.ArgumentParser(description="Write a Lance data set of tokens from a stream of documents.")
    parser.add_argument("output", type=Path, help="folder of the corpus")
    parser.add_argument("--dataset", default="Salesforce/wikitext", help="of the hub, or a file")
    parser.add_argument("--config", default="wikitext-103-raw-v1", help="of a data set of the hub")
    parser.add_argument("--tokenizer", default="openai-community/gpt2", help="of the hub, a file, or bytes")
    parser.add_argument("--max-documents", type=int, default=500_000, help="stop after so many")
    parser.add_argument("--seed", type=int, default=1337, help="of the shuffle")
    options = parser.parse_args()
    report = headrace.build(
        stream(options.dataset, options.config, options.seed),
        options.output,
        tokenizer=options.tokenizer,
        store="lance",
        max_documents=options.max_documents,
    )
    tokens = lance.dataset(options.output / "tokens.lance")
    first = tokens.take(list(range(min(8, tokens.count_rows())))).to_pydict()["input_ids"]
    print(f"{report.documents:,} documents, {tokens.count_rows():,} tokens; the first are {first}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
