"""sentencepiece models: the ids of the `sentencepiece` library, whoever encodes."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BoundaryError, MissingExtraError, TokenIdError, TokenizerError
from headrace.testing.vocabularies import MISTRAL_V1, MISTRAL_V3
from headrace.tokenizers.load import load_from_corpus, load_tokenizer, resolve_bos, resolve_boundary
from headrace.tokenizers.sentencepiece import SentencePieceTokenizer
from headrace.tokenizers.sentencepiece_model import parse_model

sentencepiece = pytest.importorskip("sentencepiece")

LLAMA = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}
TRAINED = {
    "llama": LLAMA | {"split_digits": True, "allow_whitespace_only_pieces": True},
    "no prefix": LLAMA | {"add_dummy_prefix": False},
    "nfkc": {"model_type": "bpe", "byte_fallback": True},
    "one space": LLAMA | {"remove_extra_whitespaces": True},
    "unigram": {"model_type": "unigram"},
    "unigram with bytes": {"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc_cf"},
    "bpe without bytes": {"model_type": "bpe"},
    "user-defined": LLAMA | {"user_defined_symbols": ["<|x|>", "   "]},
    "suffix": LLAMA | {"treat_whitespace_as_suffix": True},
}
BY_GIGATOKEN = {"llama", "no prefix"}


def train(texts, **options) -> bytes:
    """A model of 600 pieces."""
    made = io.BytesIO()
    pieces = (line for text in texts for line in text[:20_000].splitlines() if line.strip())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=pieces,
        model_writer=made,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        character_coverage=0.98,
        **options,
    )
    return made.getvalue()


@pytest.fixture(scope="session")
def models(tmp_path_factory, texts) -> dict[str, Path]:
    """A model of each kind, trained on the texts."""
    folder = tmp_path_factory.mktemp("models")
    paths = {name: folder / f"{name}.model" for name in TRAINED}
    for name, options in TRAINED.items():
        paths[name].write_bytes(train(texts[:12], **options))
    return paths


def ids_of(tokenizer, texts):
    """The ids of each text, from one batch."""
    ids, ends = tokenizer.encode_documents([text.encode() for text in texts])
    return [part.tolist() for part in np.split(ids, ends[:-1])]


@pytest.mark.parametrize("vocabulary", [MISTRAL_V1, MISTRAL_V3], ids=["32,000", "32,768"])
def test_ids_of_mistral_equal_the_librarys(real, vocabulary, texts, hard):
    """Hard texts and many scripts; decoded, they are what the library decodes, and the texts themselves."""
    path = real(vocabulary)
    loaded = load_tokenizer(path)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    drawn = [*hard, *texts[:20]]
    wanted = reference.encode(drawn)
    assert loaded.by_library == (vocabulary is MISTRAL_V3)  # which has user-defined pieces
    assert ids_of(loaded, drawn) == wanted
    assert [loaded.decode(ids) for ids in wanted] == reference.decode(wanted)
    lossless = [text for text in drawn if "\u2581" not in text]
    assert [loaded.decode(loaded.encode(text)) for text in lossless] == lossless
    assert loaded.vocab_size == reference.vocab_size()
    assert resolve_boundary(loaded) == reference.eos_id()
    assert resolve_bos(loaded, "auto") == reference.bos_id()
    loaded.check([text.encode() for text in texts[:10]])


@pytest.mark.parametrize("name", TRAINED)
def test_ids_of_every_kind_equal_the_librarys(models, name, texts, hard):
    """Unigram, BPE with and without bytes, normalizers, user-defined pieces, with and without a prefix."""
    notices = []
    loaded = load_tokenizer(models[name], on_notice=notices.append)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(models[name]))
    drawn = [*hard, *texts[:10]]
    assert ids_of(loaded, drawn) == reference.encode(drawn)
    assert loaded.by_library == (name not in BY_GIGATOKEN)
    assert len(notices) == loaded.by_library
    short = [text for text in drawn if len(text) < 1000]
    assert [loaded.decode(ids) for ids in reference.encode(short)] == reference.decode(reference.encode(short))
    loaded.check([text.encode() for text in drawn[:5]])


@pytest.fixture(scope="module", params=sorted(BY_GIGATOKEN))
def both(request, models):
    """A tokenizer that gigatoken runs, and the same run by the library."""
    loaded = load_tokenizer(models[request.param])
    return loaded, loaded.run_by_library()


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_text_has_the_librarys_ids(both, texts):
    """Whatever the characters."""
    by_gigatoken, by_library = (ids_of(tokenizer, texts) for tokenizer in both)
    assert by_gigatoken == by_library


@pytest.mark.parametrize("vocabulary", [MISTRAL_V1, MISTRAL_V3], ids=["gigatoken", "library"])
def test_control_pieces_in_a_text_are_text(real, vocabulary):
    """No text yields one, by merging its spelling either."""
    loaded = load_tokenizer(real(vocabulary))
    for text in ("<s>", "</s>", "a</s>b", "[INST] x [/INST]", "<unk>", "<0x0A>", "</s>" * 10):
        assert not set(loaded.special_tokens.values()) & set(loaded.encode(text))
        assert loaded.decode(loaded.encode(text)) == text
    assert loaded.decode([1, *loaded.encode("hi"), 2]) == "<s> hi</s>"
    assert (loaded.token_id("</s>"), loaded.id_to_token(2)) == (2, "</s>")


def test_decode_takes_any_ids(real):
    """Half a character becomes U+FFFD; ids outside the vocabulary are refused."""
    loaded = load_tokenizer(real(MISTRAL_V1))
    ids = loaded.encode("ok \U0001fabf")
    assert loaded.decode(ids[:-1]) == "ok \ufffd"
    assert loaded.id_to_token(32000) is None
    with pytest.raises(TokenIdError, match="not in the vocabulary of 32000 ids"):
        loaded.decode([32000])


def test_a_model_without_eos_has_none(tmp_path, texts):
    """The boundary must be given then."""
    path = tmp_path / "none.model"
    path.write_bytes(train(texts[:5], model_type="bpe", byte_fallback=True, bos_id=-1, eos_id=-1))
    loaded = load_tokenizer(path)
    assert loaded.named_token("bos") is None
    with pytest.raises(BoundaryError, match="does not say what ends a document"):
        resolve_boundary(loaded)


@pytest.mark.parametrize("name", ["llama", "unigram"])
def test_pickles_and_copies(models, name, tmp_path):
    """Workers and a corpus without the original give the same ids under the same identity."""
    loaded = load_tokenizer(models[name])
    (tmp_path / "tokenizer").mkdir()
    for file, content in loaded.files().items():
        (tmp_path / "tokenizer" / file).write_bytes(content)
    for other in (
        pickle.loads(pickle.dumps(loaded)),  # noqa: S301  # our own bytes
        load_from_corpus(tmp_path),
        load_tokenizer(tmp_path / "tokenizer"),
    ):
        assert (other.ref, other.by_library) == (loaded.ref, loaded.by_library)
        assert other.encode("def x(self)") == loaded.encode("def x(self)")


def test_identity(models, tmp_path):
    """Pieces, kinds, normalizer count; how the file is laid out, and what training noted, does not."""
    hashes = {name: SentencePieceTokenizer(path).ref.sha256 for name, path in models.items()}
    assert len(set(hashes.values())) == len(hashes)
    data = models["llama"].read_bytes()
    noted = tmp_path / "noted.model"
    noted.write_bytes(data + bytes([0x12, 4, 0x0A, 2]) + b"me")  # trainer_spec.input, merged into the message
    assert SentencePieceTokenizer(noted).ref.sha256 == hashes["llama"]
    model = parse_model(data, "llama")
    model.pieces[300], model.pieces[301] = model.pieces[301], model.pieces[300]
    assert model.identity_sha256() != hashes["llama"]


def test_mistrals_identity_is_pinned(real):
    """Corpora record it: another value would make this version refuse the corpora of the last."""
    assert (
        SentencePieceTokenizer(real(MISTRAL_V1)).ref.sha256
        == "7385404bd174899a1c6ccaab1a80823e810c63cd782885c32af9f613acb9faf2"
    )


def test_damaged_models_are_named(models, tmp_path):
    """Cut anywhere: an error that names the file, or a model; never another exception."""
    data = models["llama"].read_bytes()
    path = tmp_path / "cut.model"
    for size in [*range(3, 200), *range(200, len(data), 500)]:
        path.write_bytes(data[:size])
        try:
            load_tokenizer(path)
        except TokenizerError as error:
            assert str(path) in str(error)  # noqa: PT017  # most sizes raise, whole numbers of pieces may not


def test_without_the_library_the_extra_is_named(models, monkeypatch):
    """Encoding asks for it at once; decoding needs no library at all."""
    monkeypatch.setattr("headrace.tokenizers.sentencepiece.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headrace\[sentencepiece\]'"):
        load_tokenizer(models["llama"])
    tokenizer = SentencePieceTokenizer(models["llama"])
    assert tokenizer.decode([tokenizer.token_id("<0x41>")]) == "A"
