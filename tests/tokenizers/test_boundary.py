"""Which id ends a document: said by the user or by the tokenizer, never guessed."""

import json
import shutil

import pytest

from headrace.errors import BoundaryError, TokenizerError
from headrace.tokenizers.bytes import Tokenizer
from headrace.tokenizers.load import resolve_bos, resolve_boundary
from headrace.tokenizers.tokenizer_json import JsonTokenizer


@pytest.fixture
def tokenizer(byte_level, added_token, write_json):
    """Writes a tokenizer with an entry `7`, specials, and the given tokenizer_config.json."""

    def make(config=None):
        specials = [added_token(258, "<s>", special=True), added_token(259, "</s>", special=True)]
        path = write_json(byte_level({"77": 256, "<pad>": 257}, [["7", "7"]], added_tokens=specials))
        if config is not None:
            text = config if isinstance(config, str) else json.dumps(config)
            path.with_name("tokenizer_config.json").write_text(text)
        return JsonTokenizer(path)

    return make


def test_bytes_end_with_zero():
    """The byte-level tokenizer says it itself."""
    assert resolve_boundary(Tokenizer()) == 0
    assert resolve_boundary(Tokenizer(), "<boundary>") == 0
    assert resolve_boundary(Tokenizer(), "256") == 256


def test_gpt2_says_its_end_of_text(gpt2):
    """Its tokenizer_config.json names the token."""
    assert resolve_boundary(gpt2) == 50256


@pytest.mark.parametrize("entry", ["</s>", {"__type": "AddedToken", "content": "</s>", "special": True}])
def test_eos_token_is_a_text_or_an_object(tokenizer, entry):
    """Both forms are in use."""
    assert resolve_boundary(tokenizer({"eos_token": entry, "bos_token": "<s>"})) == 259


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        (77, 77),
        ("77", 77),  # digits are an id ...
        ("id:77", 77),
        ("token:77", 256),  # ... though there is an entry of that spelling
        ("</s>", 259),
        ("token:</s>", 259),
        ("<pad>", 257),
        ("0", 0),
        ("259", 259),
        ("007", 7),
    ],
)
def test_options(tokenizer, option, wanted):
    """An id, as a number or in digits, else an entry; a prefix forces one."""
    assert resolve_boundary(tokenizer(), option) == wanted


@pytest.mark.parametrize("option", ["260", "id:260", "99999999999999999999", "nope", "token:nope", "-1", "", "\u0665"])
def test_what_is_not_in_the_vocabulary_is_an_error_that_lists_choices(tokenizer, option):
    """No new id is made up, and the error shows what could be meant."""
    with pytest.raises(BoundaryError, match=r"<s> \(id 258\), </s> \(id 259\)"):
        resolve_boundary(tokenizer({"eos_token": "</s>"}), option)


@pytest.mark.parametrize("option", ["id:", "id:x", "id:-1", "id: 5"])
def test_a_forced_id_is_digits(tokenizer, option):
    """`id:` with anything else is a mistake, not an entry."""
    with pytest.raises(BoundaryError, match="wanted digits behind id:"):
        resolve_boundary(tokenizer(), option)


@pytest.mark.parametrize("config", [None, {}, {"eos_token": None}, {"bos_token": "<s>"}])
def test_it_is_never_guessed(tokenizer, config):
    """Though `</s>` is there and looks like one: the user decides."""
    with pytest.raises(BoundaryError, match=r"Pass one: <s> \(id 258\), </s> \(id 259\)"):
        resolve_boundary(tokenizer(config))


def test_no_special_token_to_offer(byte_level, write_json):
    """The error still says what can be passed."""
    with pytest.raises(BoundaryError, match="an id or an entry of its vocabulary"):
        resolve_boundary(JsonTokenizer(write_json(byte_level())))


def test_a_thousand_special_tokens_are_not_all_listed(byte_level, added_token, write_json):
    """Large vocabularies reserve many."""
    reserved = [added_token(256 + i, f"<reserved {i}>", special=True) for i in range(1000)]
    with pytest.raises(BoundaryError, match=r"<reserved 19> \(id 275\) and 980 more$"):
        resolve_boundary(JsonTokenizer(write_json(byte_level(added_tokens=reserved))))


def test_an_eos_token_outside_the_vocabulary_is_an_error(tokenizer):
    """Not a fallback to something else."""
    with pytest.raises(
        BoundaryError, match=r"eos_token of tokenizer_config\.json.* token '<eos>' is not in the vocabulary"
    ):
        resolve_boundary(tokenizer({"eos_token": "<eos>"}))


@pytest.mark.parametrize("config", ["{", "[]", '{"eos_token": 5}', '{"eos_token": {"id": 3}}', '"x"'])
def test_a_damaged_config_is_named(tokenizer, config):
    """What cannot be read is not taken for absent."""
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        resolve_boundary(tokenizer(config))


def test_an_option_does_not_need_the_config(tokenizer):
    """A boundary that is given works with a damaged config beside it."""
    assert resolve_boundary(tokenizer("{"), "</s>") == 259


def test_bos_is_added_only_if_asked_for(tokenizer, gpt2):
    """None without an option, whatever the config says; `auto` takes the config's; else as a boundary."""
    made = tokenizer({"bos_token": "<s>", "eos_token": "</s>"})
    assert resolve_bos(made) is None
    assert resolve_bos(made, "auto") == 258
    assert resolve_bos(made, "token:77") == 256
    assert resolve_bos(gpt2, "auto") == 50256
    assert resolve_bos(gpt2, "token:auto") == gpt2.token_id("auto") != 50256


def test_auto_bos_is_not_guessed(tokenizer):
    """A tokenizer that names none has none."""
    with pytest.raises(BoundaryError, match="the BOS token is not known"):
        resolve_bos(tokenizer({"eos_token": "</s>"}), "auto")
    with pytest.raises(BoundaryError, match="the BOS token is not known"):
        resolve_bos(Tokenizer(), "auto")


class OnlyEncodes:
    """What `pack_documents` takes at least."""

    def encode(self, text):
        """Bytes."""
        return list(text.encode())


def test_a_tokenizer_that_says_nothing():
    """Another's tokenizer must be told its boundary; the error names it."""
    with pytest.raises(BoundaryError, match="OnlyEncodes does not say what ends a document"):
        resolve_boundary(OnlyEncodes())


def test_a_copied_folder_keeps_its_boundary(gpt2_folder, tmp_path):
    """The config travels beside the tokenizer.json, not by its original place."""
    shutil.copytree(gpt2_folder, tmp_path / "moved")
    assert resolve_boundary(JsonTokenizer(tmp_path / "moved" / "tokenizer.json")) == 50256
