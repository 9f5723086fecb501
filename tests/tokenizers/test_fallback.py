"""What gigatoken does not run, the `tokenizers` library does: WordPiece, Unigram, other normalizers; the same rules."""

import json
import pickle

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import headrace
from headrace.errors import TokenizerError
from headrace.tokenizers.base import BatchTokenizer, NamedTokens
from headrace.tokenizers.load import load_from_corpus, load_tokenizer
from headrace.tokenizers.tokenizer_json import JsonTokenizer

SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "<s>", "</s>"]


def word_piece() -> tokenizers.Tokenizer:
    """Like BERT's: lower case without accents, `##` for what continues a word."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106  # a vocabulary entry
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def word_level() -> tokenizers.Tokenizer:
    """A dictionary of words."""
    made = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))  # noqa: S106  # a vocabulary entry
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def unigram() -> tokenizers.Tokenizer:
    """Like T5's: NFKC, words that begin with a bar."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def lower_case_bpe() -> tokenizers.Tokenizer:
    """A byte-level BPE with a normalizer that gigatoken does not know."""
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


MADE = {"WordPiece": word_piece, "WordLevel": word_level, "Unigram": unigram, "BPE": lower_case_bpe}


@pytest.fixture(scope="session", params=MADE)
def path(request, tmp_path_factory, texts):
    """A tokenizer.json of each kind, trained on the texts, with a post-processor that adds BOS and EOS."""
    made = MADE[request.param]()
    options = {"vocab_size": 2000, "special_tokens": SPECIALS, "show_progress": False}
    trainer = {
        "WordPiece": trainers.WordPieceTrainer,
        "WordLevel": trainers.WordLevelTrainer,
        "Unigram": trainers.UnigramTrainer,
        "BPE": trainers.BpeTrainer,
    }[request.param]
    if request.param == "Unigram":
        options["unk_token"] = "[UNK]"  # noqa: S105  # a vocabulary entry
    if request.param == "BPE":
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([text[:20_000] for text in texts], trainer(**options))
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 3), ("</s>", 4)])
    folder = tmp_path_factory.mktemp("fallback") / request.param
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture
def loaded(path):
    """As a build loads it."""
    return load_tokenizer(path)


def test_ids_equal_hugging_face(path, loaded, texts, hard):
    """The same ids, document by document; no BOS or EOS of the post-processor, no id for a spelled special token."""
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    drawn = [text for text in [*hard, *texts[:20]] if "<s>" not in text and "</s>" not in text]
    ids, ends = loaded.encode_documents([text.encode() for text in drawn])
    wanted = [reference.encode(text, add_special_tokens=False).ids for text in drawn]
    assert [part.tolist() for part in np.split(ids, ends[:-1])] == wanted
    assert (ids.dtype, ends.dtype, len(ends)) == (np.uint16, np.int64, len(drawn))
    assert loaded.encode(drawn[3]) == wanted[3]
    assert loaded.decode(wanted[3]) == reference.decode(wanted[3], skip_special_tokens=False)


def test_a_special_token_in_a_text_is_text(loaded, hard):
    """No text has the id of one, though Unigram and WordLevel know their spelling as any other entry's."""
    spelled = [*hard, "[CLS]", " [SEP] ", "<s>", "a </s> b", "</s>" * 3]
    ids, _ = loaded.encode_documents([text.encode() for text in spelled])
    assert not {1, 2, 3, 4} & set(ids.tolist())
    assert loaded.token_id("</s>") == 4
    assert loaded.id_to_token(4) == "</s>"


def test_added_tokens_keep_their_ids(path, tmp_path):
    """Special tokens among the added ones, in the vocabulary or behind it, move no others, and are found in no text."""
    made = tokenizers.Tokenizer.from_file(str(path))
    made.add_special_tokens(["<extra>", tokenizers.AddedToken("<more>", lstrip=True)])
    made.add_tokens(["covidword"])
    made.add_special_tokens(["<last>"])
    made.add_tokens(["zweitwort"])
    made.save(str(tmp_path / "tokenizer.json"))
    made.encode_special_tokens = True
    text = "a covidword <extra> <more>zweitwort<last>covidword"
    found = load_tokenizer(tmp_path).encode(text)
    assert found == made.encode(text, add_special_tokens=False).ids
    assert found.count(made.token_to_id("covidword")) == 2
    assert not {made.token_to_id(token) for token in ("<extra>", "<more>", "<last>")} & set(found)


def test_who_encodes_is_said(path):
    """A notice tells that gigatoken refused it, and who encodes instead; the kind stays what it is."""
    notices = []
    loaded = load_tokenizer(path, on_notice=notices.append)
    assert len(notices) == 1
    assert "not supported by gigatoken" in notices[0]
    assert "the tokenizers library encodes, which is slower" in notices[0]
    assert loaded.by_library
    assert loaded.ref.kind == "huggingface"
    assert isinstance(loaded, BatchTokenizer)
    assert isinstance(loaded, NamedTokens)
    loaded.check([b"its own reference"])


def test_gigatoken_is_kept_where_it_can(gpt2_folder):
    """No notice, no library."""
    notices = []
    assert not load_tokenizer(gpt2_folder, on_notice=notices.append).by_library
    assert notices == []


PREFIXED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    ("content", "flags", "parts"),
    [
        ("word", {"single_word": True}, {}),
        (" word", {"rstrip": True, "lstrip": True}, {}),
        ("  ", {"rstrip": True}, {}),
        ("w\u00f3rd", {}, {"normalizer": {"type": "NFC"}}),
        ("wo\u0301rd", {"normalized": True}, {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}),
        (" word", {}, {"pre_tokenizer": PREFIXED}),
    ],
)
def test_added_tokens_that_gigatoken_finds_elsewhere(byte_level, added_token, write_json, content, flags, parts):
    """The library encodes from the beginning: a sample of the text may not hold what the two take differently."""
    document = byte_level(added_tokens=[added_token(256, content, **flags)], **parts)
    path = write_json(document)
    notices = []
    loaded = load_tokenizer(path, on_notice=notices.append)
    assert len(notices) == 1
    assert f"the added token {content!r} is not supported by gigatoken: it " in notices[0]
    reference = tokenizers.Tokenizer.from_file(str(path))
    texts = [before + content + after for before in ("", " ", "x", "\n") for after in ("", " ", "x", content)]
    ids, ends = loaded.encode_documents([text.encode() for text in texts])
    wanted = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    assert [part.tolist() for part in np.split(ids, ends[:-1])] == wanted


@pytest.mark.parametrize(
    ("content", "flags", "parts"),
    [
        ("word", {"lstrip": True, "rstrip": True, "normalized": True}, {}),
        ("  ", {}, {}),
        ("w\u00f3rd", {}, {"normalizer": {"type": "Sequence", "normalizers": []}}),
        ("word", {"normalized": True}, {"normalizer": {"type": "NFC"}}),
        ("word", {}, {"pre_tokenizer": PREFIXED}),
    ],
)
def test_added_tokens_that_gigatoken_finds_too(byte_level, added_token, write_json, content, flags, parts):
    """It goes on encoding where it gives the library's ids."""
    path = write_json(byte_level(added_tokens=[added_token(256, content, **flags)], **parts))
    loaded = load_tokenizer(path)
    assert not loaded.by_library
    reference = tokenizers.Tokenizer.from_file(str(path))
    for text in (before + content + after for before in ("", " ", "x", "\n") for after in ("", " ", "x", content)):
        assert loaded.encode(text) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
@pytest.mark.parametrize("other", ["\n\n", " lead", "trail "])
def test_added_tokens_that_take_white_space_of_others(byte_level, added_token, write_json, flag, other):
    """The library gives both tokens, gigatoken the first alone: so it does not encode."""
    path = write_json(byte_level(added_tokens=[added_token(256, "word", **{flag: True}), added_token(257, other)]))
    loaded = load_tokenizer(path)
    reference = tokenizers.Tokenizer.from_file(str(path))
    for text in (f"a{other}word{other}b", f"word {other}word", f"{other}{other} word"):
        assert loaded.encode(text) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("first", "flags", "second", "text"),
    [
        ("<ab>", {"special": True}, "ab", "x <ab> ab"),
        ("ab", {"special": True}, "bc", "abc bc"),
        ("<x>", {"normalized": True}, "x>", "<x> x>"),
        ("ab", {"normalized": True}, "bc", "abc ab bc"),
    ],
)
def test_added_tokens_that_overlap(byte_level, added_token, write_json, first, flags, second, text):
    """The library looks for some before others, and leaves special ones whole; gigatoken does neither."""
    path = write_json(byte_level(added_tokens=[added_token(256, first, **flags), added_token(257, second)]))
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    assert load_tokenizer(path).encode(text) == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("prefix", ["hf:", "tokenizers:"])
def test_the_library_can_be_asked_for(gpt2, gpt2_folder, prefix, texts):
    """With `hf:` before a path the ids are the same, by the other implementation, under the same identity."""
    forced = load_tokenizer(f"{prefix}{gpt2_folder}")
    assert forced.by_library
    assert forced.ref == gpt2.ref
    batch = [text.encode() for text in texts[:5]]
    assert [part.tolist() for part in forced.encode_documents(batch)] == [
        part.tolist() for part in gpt2.encode_documents(batch)
    ]


def test_disagreement_says_how_to_go_on(byte_level, write_json):
    """The library is not put in silently where gigatoken gives other ids; the error says how to ask for it."""
    path = write_json(byte_level(pre_tokenizer=None))
    with pytest.raises(TokenizerError, match=rf"with tokenizers:{path} as the tokenizer"):
        load_tokenizer(path).check([])
    load_tokenizer(f"tokenizers:{path}").check([])


def test_a_prefix_before_nothing_or_another_kind():
    """`hf:bytes` is no tokenizer of that library, and a missing path stays a missing path."""
    with pytest.raises(TokenizerError, match="there is no tokenizer at"):
        load_tokenizer("hf:./nothing")


def test_pickles_and_copies(loaded, tmp_path):
    """A worker process and the copy in a corpus encode with the library too, without asking gigatoken."""
    again = pickle.loads(pickle.dumps(loaded))  # noqa: S301  # our own bytes
    (tmp_path / "tokenizer").mkdir()
    for name, content in loaded.files().items():
        (tmp_path / "tokenizer" / name).write_bytes(content)
    for other in (again, load_from_corpus(tmp_path)):
        assert other.by_library
        assert other.ref == loaded.ref
        assert other.encode("the def class") == loaded.encode("the def class")


def test_each_part_counts_in_the_identity(path, loaded, write_json):
    """Other normalizer, pre-tokenizer, order of the vocabulary or option: another hash; other formatting: the same."""
    import json

    document = json.loads(path.read_bytes())
    same = JsonTokenizer(write_json(json.dumps(document, indent=3), "same"))
    assert same.ref.sha256 == loaded.ref.sha256
    hashes = {loaded.ref.sha256}
    changes = {"normalizer": {"type": "NFD"}, "pre_tokenizer": {"type": "Punctuation", "behavior": "Isolated"}}
    for part, change in changes.items():
        hashes.add(JsonTokenizer(write_json(document | {part: change}, part)).ref.sha256)
    model = dict(document["model"])
    model["vocab"] = list(model["vocab"]) if isinstance(model["vocab"], list) else dict(model["vocab"])
    if isinstance(model["vocab"], list):
        model["vocab"][10], model["vocab"][11] = model["vocab"][11], model["vocab"][10]
    else:
        first, second = list(model["vocab"])[10:12]
        model["vocab"][first], model["vocab"][second] = model["vocab"][second], model["vocab"][first]
    hashes.add(JsonTokenizer(write_json(document | {"model": model}, "vocab")).ref.sha256)
    hashes.add(JsonTokenizer(write_json(document | {"model": document["model"] | {"extra": 1}}, "option")).ref.sha256)
    assert len(hashes) == 5


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram"])
def test_files_older_than_the_type_are_recognised(write_json, byte_level, kind):
    """By the form of their vocabulary."""
    model = {
        "WordPiece": {
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"a": 0, "[UNK]": 1},
        },
        "Unigram": {"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]},
    }[kind]
    path = write_json(byte_level(model=model, pre_tokenizer={"type": "Whitespace"}, decoder=None))
    loaded = load_tokenizer(path)
    assert loaded.encode("a b") == ([0, 1] if kind == "WordPiece" else [1, 0])
    assert loaded.vocab_size == 2


def test_what_both_refuse_is_an_error(write_json, byte_level):
    """With both reasons in it."""
    path = write_json(byte_level(normalizer={"type": "Nonsense"}))
    with pytest.raises(TokenizerError, match=r"supported by gigatoken.*refused by the tokenizers library"):
        load_tokenizer(path)


def test_a_panic_of_the_library_is_told(write_json, byte_level, added_token, tmp_path):
    """As what it refuses is: here the normalizer leaves nothing of an added token, and it is looked for within a character."""
    strips = {"type": "Strip", "strip_left": True, "strip_right": False}
    path = write_json(byte_level(normalizer=strips, added_tokens=[added_token(256, "\n\n", normalized=True)]))
    (tmp_path / "a.jsonl").write_text('{"text": "known"}\n{"text": "\u65e5"}\n', encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"a.jsonl:2: .*cannot encode the text: "):
        headrace.build(tmp_path / "a.jsonl", tmp_path / "c", tokenizer=path, boundary=0, workers=1)


def test_a_text_without_ids_is_named(write_json, byte_level, tmp_path):
    """A model without an entry for unknown words has no ids for some texts: file and line are told, and no traceback."""
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"known": 0, "end": 1},
    }
    path = write_json(byte_level(model=model, pre_tokenizer={"type": "Whitespace"}, decoder=None))
    for name, lines, fields in (
        ("texts", [{"text": "known"}] * 2 + [{"text": "other"}], {}),
        (
            "pairs",
            [{"p": "known", "r": "known"}] * 2 + [{"p": "known", "r": "no"}],
            {"prompt_field": "p", "response_field": "r"},
        ),
    ):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        with pytest.raises(TokenizerError, match=rf"{name}.jsonl:3: .*cannot encode the text: .*UNK") as error:
            headrace.build(source, tmp_path / name, tokenizer=path, boundary="end", workers=1, **fields)
        assert "other" not in str(error.value)
