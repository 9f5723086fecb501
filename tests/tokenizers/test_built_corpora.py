"""Corpora of each kind of tokenizer: built, decoded after the original is gone, appended to with the same one only."""

import json
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.errors import OutputExistsError, TokenizerError
from headrace.tokenizers.load import load_from_corpus, load_tokenizer
from headrace.verify import verify_path

DOCUMENTS = ["hello world", "a b  c\n", "héllo \u4e2d 👍🏽 <s></s>", "the end"]


def ranks(folder: Path, _) -> Path:
    """A tiktoken file with BOS and EOS."""
    import base64

    lines = [base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)]
    (folder / "small.tiktoken").write_bytes(b"".join([*lines, base64.b64encode(b"he") + b" 256\n"]))
    scheme = {"pattern": r"[a-z]+|[^a-z]", "special_tokens": {"<s>": 257, "</s>": 258}}
    scheme |= {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "small.tiktoken.json").write_text(json.dumps(scheme))
    return folder / "small.tiktoken"


def pieces(folder: Path, _) -> Path:
    """A sentencepiece model, whose processor could add BOS and EOS."""
    import io

    sentencepiece = pytest.importorskip("sentencepiece")
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(DOCUMENTS * 10), model_writer=made, vocab_size=300, model_type="bpe", byte_fallback=True,
        hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    (folder / "small.model").write_bytes(made.getvalue())
    return folder / "small.model"


def template(folder: Path, byte_level) -> Path:
    """A tokenizer.json that gigatoken does not run, whose post-processor adds BOS and EOS."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

    plain = tokenizers.Tokenizer.from_str(json.dumps(byte_level()))
    vocab = plain.get_vocab()
    made = tokenizers.Tokenizer(models.BPE(vocab, []))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder / "tokenizer.json"


@pytest.fixture(params=[ranks, pieces, template], ids=["tiktoken", "sentencepiece", "tokenizers"])
def original(request, tmp_path, byte_level):
    """A tokenizer's file."""
    if request.param is ranks:
        pytest.importorskip("tiktoken")
    folder = tmp_path / "original"
    folder.mkdir()
    return request.param(folder, byte_level)


@pytest.fixture
def source(tmp_path) -> Path:
    """The documents."""
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_bos_and_eos_stand_once(original, source, tmp_path, workers):
    """One BOS, the text's ids, one boundary; what the file's own post-processor would add is not there again."""
    (tmp_path / "more.jsonl").write_bytes(source.read_bytes())  # a source shard for the second worker
    corpus = tmp_path / "corpus"
    headrace.build(
        [source, tmp_path / "more.jsonl"], corpus, tokenizer=original, bos=True, workers=workers, allow_duplicates=True
    )
    tokenizer = load_tokenizer(original)
    bos, eos = (tokenizer.token_id(tokenizer.named_token(role)) for role in ("bos", "eos"))
    opened = headrace.open(corpus)
    assert all(report.ok for report in verify_path(corpus))
    for number, text in enumerate(DOCUMENTS * 2):
        assert opened.documents[number].tolist() == [bos, *tokenizer.encode(text), eos]
    tokens = opened[:]
    assert np.count_nonzero(tokens == bos) == np.count_nonzero(tokens == eos) == 2 * len(DOCUMENTS)


def test_the_copy_is_enough_and_another_is_refused(original, source, tmp_path):
    """Decoded without the original; appended to with the copy, not with another tokenizer."""
    corpus = tmp_path / "corpus"
    headrace.build(source, corpus, tokenizer=original, workers=1)
    for path in original.parent.iterdir():
        path.unlink()
    copy = load_from_corpus(corpus)
    opened = headrace.open(corpus)
    assert copy.ref == opened.manifest.tokenizer
    assert copy.decode(opened.documents[0][:-1]) == DOCUMENTS[0]
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"text": "more"}) + "\n")
    with pytest.raises(OutputExistsError, match="tokenizer"):
        headrace.build(more, corpus, tokenizer="bytes", append=True, workers=1)
    headrace.build(more, corpus, tokenizer=corpus / "tokenizer", append=True, workers=1)
    assert headrace.open(corpus).documents[4].tolist()[:-1] == copy.encode("more")


class Letters:
    """A user's own."""

    vocab_size = 70_000

    def encode(self, text):
        """Code points, large ones as 69,999."""
        return [min(ord(letter), 69_999) for letter in text]


def test_a_corpus_of_an_own_tokenizer(source, tmp_path):
    """Built with a boundary that was given, verified; the corpus says who wrote it, and cannot decode by itself."""
    corpus = tmp_path / "corpus"
    headrace.build(source, corpus, tokenizer=Letters(), boundary="0", workers=1)
    opened = headrace.open(corpus)
    assert opened.dtype == np.uint32
    assert opened.documents[2].tolist() == [*Letters().encode(DOCUMENTS[2]), 0]
    assert all(report.ok for report in verify_path(corpus))
    copy = load_from_corpus(corpus)
    assert copy.ref == opened.manifest.tokenizer
    with pytest.raises(TokenizerError, match=r"was written by the tokenizer .*Letters, an object of the program"):
        copy.decode([104])


def test_a_build_tells_who_encodes(original, source, tmp_path):
    """A notice, where gigatoken refused the tokenizer."""
    events = []
    headrace.build(source, tmp_path / "corpus", tokenizer=original, workers=1, on_event=events.append)
    notices = [event.message for event in events if getattr(event, "kind", None) == "tokenizer"]
    by_library = load_tokenizer(original).by_library
    assert len(notices) == by_library
    assert all("encodes, which is slower" in notice for notice in notices)
