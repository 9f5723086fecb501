"""Two shards from memory, validated, opened through the map; ten batches with their shape and checksum."""

import sys
import tempfile
import zlib

from headrace import (
    MmapTokenStore,
    ShardedTokenizationPipeline,
    SlidingWindowDataloader,
    Tokenizer,
    load_index,
    validate_corpus,
)

CORPUS = {
    "rivers": [f"River {n} carries {n * n} litres a second past the mill." for n in range(40)],
    "wheels": [f"Wheel {n} turns {7 * n % 60} times a minute and grinds what it is given." for n in range(40)],
}


def main(folder: str) -> int:
    """Build, validate and read the corpus in `folder`; returns the exit code."""
    pipeline = ShardedTokenizationPipeline(Tokenizer(), folder, chunk_size=512)
    for entry in pipeline.write_corpus(CORPUS):
        print(f"[shard] {entry.shard_id} tokens={entry.token_count} sha256={entry.sha256[:12]}")
    entries = load_index(folder)
    if failing := validate_corpus(entries):
        print(f"[validate] failing shards: {failing}")
        return 1
    print(f"[validate] all {len(entries)} shards match shards.json")
    with MmapTokenStore(entries) as store:
        loader = SlidingWindowDataloader(store, window_size=64, batch_size=4, seed=7)
        for step, (inputs, targets) in enumerate(loader.take(10)):
            checksum = zlib.crc32(targets.tobytes(), zlib.crc32(inputs.tobytes()))
            print(f"[batch] step={step} shape={inputs.shape} checksum={checksum:08x}")
    return 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(scratch))
