"""Held-out text that is trained on is refused, where it can be told."""

import json
from pathlib import Path

import pytest

import headrace
from headrace.errors import TrainingError
from headrace.testing.corpora import random_documents, small_corpus
from headrace.training.leak import check_no_leak


def written(folder: Path, texts: list[str]) -> Path:
    """A file of texts."""
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def texts_of(name: str, count: int) -> list[str]:
    """Texts of their own."""
    return [f"{name} {number} " + "x" * (number % 7) for number in range(count)]


@pytest.fixture(scope="module", params=["none", "exact"])
def split(request, tmp_path_factory) -> Path:
    """A folder with a corpus and its parts: `whole`, `parts/train`, `parts/val`, `parts/test`; with hashes of texts or not."""
    folder = tmp_path_factory.mktemp("split")
    texts = texts_of("a", 400) * (1 if request.param == "exact" else 2)
    headrace.build(written(folder / "in", texts), folder / "whole", dedup=request.param, shard_tokens=1500, workers=1)
    headrace.split(folder / "whole", folder / "parts", {"val": 0.2, "test": 0.1}, seed=3, workers=1)
    return folder


def verdict(train: Path, held_out: Path) -> str:
    """What the check says; a warning is told where and only where it cannot say."""
    said = []
    with headrace.open(train) as one, headrace.open(held_out) as other:
        found = check_no_leak(one, other, on_event=said.append)
    assert [notice.kind for notice in said] == ["warning"] * (found == "unknown")
    return found


def test_parts_of_one_split(split):
    """Their record tells that they share nothing, whichever two."""
    names = ("train", "val", "test")
    for train in names:
        for held_out in names:
            if train != held_out:
                assert verdict(split / "parts" / train, split / "parts" / held_out) == "split"


def test_parts_of_parts(split, tmp_path):
    """A part of the one part and the other one are apart, too; a part and what it was taken from are not."""
    headrace.split(split / "parts" / "val", tmp_path / "o", {"a": 0.5}, rest="b", seed=4, workers=1)
    assert verdict(split / "parts" / "train", tmp_path / "o" / "a") == "split"
    assert verdict(tmp_path / "o" / "a", tmp_path / "o" / "b") == "split"
    for train, held_out in (("parts/val", "o/a"), ("whole", "o/b"), ("o/a", "whole"), ("o/b", "parts/val")):
        with pytest.raises(TrainingError, match="one is a part of the other"):
            verdict(*((tmp_path if path[0] == "o" else split) / path for path in (train, held_out)))


def test_the_same_corpus(split):
    """Nothing is held out of a corpus that is evaluated on itself, or of a whole and its part."""
    for train, held_out in (("whole", "whole"), ("whole", "parts/val"), ("parts/train", "whole")):
        with pytest.raises(TrainingError, match="are the same corpus, or one is a part of the other"):
            verdict(split / train, split / held_out)


def test_a_grown_corpus(tmp_path):
    """The part of a corpus as it was holds nothing of another part as it is, as long as each is as it was split."""
    whole = tmp_path / "whole"
    headrace.build(written(tmp_path / "a", texts_of("a", 200)), whole, workers=1)
    headrace.split(whole, tmp_path / "old", {"val": 0.2}, workers=1)
    headrace.build(written(tmp_path / "b", texts_of("b", 200)), whole, workers=1, append=True)
    headrace.split(whole, tmp_path / "new", {"val": 0.2}, workers=1)
    assert verdict(tmp_path / "new" / "train", tmp_path / "old" / "val") == "split"
    other = tmp_path / "other"
    headrace.build(written(tmp_path / "c", texts_of("c", 200)), other, workers=1)
    with headrace.open(other) as corpus:
        before = corpus.fingerprint
    headrace.build(written(tmp_path / "d", texts_of("d", 200)), other, workers=1, append=True)
    with headrace.open(other, version=before) as old, headrace.open(other) as new:
        for train, held_out in ((old, new), (new, old)):
            with pytest.raises(TrainingError, match="one is a part of the other"):
                check_no_leak(train, held_out)


def test_a_part_that_has_grown(split, tmp_path):
    """Of what was appended to a part, the record of its split says nothing."""
    train = tmp_path / "train"
    headrace.split(split / "whole", tmp_path, {"val": 0.2, "test": 0.1}, seed=3, workers=1)
    dedup = "exact" if "exact" in (split / "whole" / "shards.json").read_text() else "none"
    headrace.build(written(tmp_path / "b", texts_of("b", 50)), train, workers=1, append=True, dedup=dedup)
    assert verdict(train, tmp_path / "val") == {"exact": "texts", "none": "unknown"}[dedup]


def test_shared_texts(tmp_path):
    """Hashes of texts tell how many documents are in both, and where the first of them are."""
    train = [*texts_of("a", 60), "shared, of both", *texts_of("b", 60), "another one"]
    held_out = [*texts_of("c", 30), "another one", "shared, of both"]
    for name, texts in (("train", train), ("held", held_out), ("clean", texts_of("c", 30))):
        path = tmp_path / name
        headrace.build(written(tmp_path / f"in-{name}", texts), path, dedup="exact", shard_tokens=900, workers=1)
    assert verdict(tmp_path / "train", tmp_path / "clean") == "texts"
    with pytest.raises(TrainingError) as caught:
        verdict(tmp_path / "train", tmp_path / "held")
    assert caught.value.summary.endswith("share 2 documents")
    assert [str(problem).split(": ") for problem in caught.value.problems] == [
        [f"document {held_out.index(text)} of {tmp_path}/held/shards.json (a.jsonl:{held_out.index(text) + 1})",
         f"is also document {train.index(text)} of {tmp_path}/train/shards.json (a.jsonl:{train.index(text) + 1})"]
        for text in ("shared, of both", "another one")
    ]  # fmt: skip


def test_what_nobody_can_tell(tmp_path):
    """Corpora without a record and hashes: one warning, no verdict."""
    one = small_corpus(tmp_path / "one", random_documents(1, [30]))
    other = small_corpus(tmp_path / "other", random_documents(2, [30]))
    assert verdict(one, other) == "unknown"


def test_another_tokenizer(tmp_path):
    """A perplexity over other ids than those that were trained on means nothing."""
    text = written(tmp_path / "in", texts_of("a", 50))
    headrace.build(text, tmp_path / "bytes", workers=1)
    from headrace.tokenizers.train import train_tokenizer

    train_tokenizer(text, tmp_path / "own", vocab_size=300)
    headrace.build(text, tmp_path / "bpe", tokenizer=str(tmp_path / "own"), workers=1)
    with pytest.raises(TrainingError, match="have different tokenizers: "):
        verdict(tmp_path / "bytes", tmp_path / "bpe")
