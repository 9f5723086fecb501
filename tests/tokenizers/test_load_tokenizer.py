"""What a user may name as a tokenizer, and what each mistake is answered with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import TokenizerError
from headrace.tokenizers.bytes import Tokenizer
from headrace.tokenizers.load import load_from_corpus, load_tokenizer
from headrace.tokenizers.tokenizer_json import JsonTokenizer


def test_bytes_is_the_default():
    """No file is needed for the byte-level tokenizer."""
    assert isinstance(load_tokenizer(), Tokenizer)
    assert isinstance(load_tokenizer("bytes"), Tokenizer)


def test_a_tokenizer_is_passed_through(gpt2):
    """A loaded one is used as it is; anything else is refused by its type."""
    assert load_tokenizer(gpt2) is gpt2
    with pytest.raises(TokenizerError, match="found int"):
        load_tokenizer(5)


def test_folder_and_file_are_the_same(write_json, byte_level, monkeypatch):
    """Either names it, as text or path, relative or absolute; the label holds no way to it."""
    path = write_json(byte_level({"ab": 256}, [["a", "b"]]), "small")
    ref = load_tokenizer(path).ref
    assert (ref.kind, ref.name, ref.vocab_size) == ("huggingface", "small", 257)
    monkeypatch.chdir(path.parent.parent)
    for spec in (str(path), path.parent, Path("small"), "small", "./small/", "small/tokenizer.json"):
        assert load_tokenizer(spec).ref == ref
    monkeypatch.chdir(path.parent)
    assert load_tokenizer(".").ref == ref


def test_a_file_of_another_name_is_its_own_label(write_json, byte_level, tmp_path):
    """`my-gpt2.json` is called my-gpt2; the hash does not know the name."""
    path = write_json(byte_level())
    shutil.copy(path, tmp_path / "my-gpt2.json")
    tokenizer = load_tokenizer(tmp_path / "my-gpt2.json")
    assert tokenizer.ref.name == "my-gpt2"
    assert tokenizer.ref.sha256 == load_tokenizer(path).ref.sha256


def write_copy(tokenizer, corpus: Path) -> Path:
    """What a build does with `files()`."""
    folder = corpus / "tokenizer"
    folder.mkdir(parents=True)
    for name, content in tokenizer.files().items():
        (folder / name).write_bytes(content)
    return corpus


def test_the_copy_in_a_corpus_needs_nothing_else(gpt2_folder, tmp_path):
    """It decodes and names its boundary after the original is gone, under the same reference, name included."""
    original = tmp_path / "original"
    shutil.copytree(gpt2_folder, original)
    tokenizer = load_tokenizer(original)
    corpus = write_copy(tokenizer, tmp_path / "corpus")
    shutil.rmtree(original)
    again = load_from_corpus(corpus)
    assert again.ref == tokenizer.ref
    assert again.decode([15496, 995, 50256]) == "Hello world<|endoftext|>"
    assert again.named_token("eos") == "<|endoftext|>"
    assert again.files() == tokenizer.files()
    assert load_tokenizer(corpus / "tokenizer").ref == tokenizer.ref


def test_the_copy_of_the_byte_tokenizer(tmp_path):
    """It has no vocabulary, and is found again."""
    again = load_from_corpus(write_copy(Tokenizer(), tmp_path))
    assert isinstance(again, Tokenizer)


def test_a_changed_copy_is_refused(byte_level, write_json, tmp_path):
    """A corpus' tokens mean what its own tokenizer says, or nothing."""
    corpus = write_copy(JsonTokenizer(write_json(byte_level({"ab": 256}, [["a", "b"]]))), tmp_path / "corpus")
    (corpus / "tokenizer" / "tokenizer.json").write_text(json.dumps(byte_level({"ac": 256}, [["a", "c"]])))
    with pytest.raises(TokenizerError, match="is not the tokenizer that it says"):
        load_from_corpus(corpus)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is damaged"),
        ('{"kind": "sentences", "name": "x", "sha256": "", "vocab_size": 1}', "kind 'sentences'"),
        ('{"kind": "huggingface", "name": "x", "sha256": "", "vocab_size": 1}', "tokenizer.json cannot be read"),
    ],
)
def test_a_damaged_copy_is_named(tmp_path, content, message):
    """The file that is wrong, in one line."""
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "headrace.json").write_text(content)
    with pytest.raises(TokenizerError, match=message) as error:
        load_from_corpus(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_corpus_without_a_copy(tmp_path):
    """The error says what is missing and what to do."""
    with pytest.raises(TokenizerError, match="holds no copy of its tokenizer"):
        load_from_corpus(tmp_path)


def test_a_path_that_is_not_there(tmp_path):
    """What does not look like a hub's name is a missing path, and no network is asked."""
    for spec in (tmp_path / "none.json", str(tmp_path / "none"), "./none", "none.json", "a/b/c", Path("none")):
        with pytest.raises(TokenizerError, match="there is no tokenizer at"):
            load_tokenizer(spec)


def test_a_folder_without_a_tokenizer(tmp_path):
    """The error lists what is there instead."""
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json.*; it is empty"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").touch()
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json.*; it holds vocab\.json"):
        load_tokenizer(tmp_path)


def test_a_special_file_is_not_read(tmp_path):
    """Reading a FIFO would wait for ever."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TokenizerError, match="neither a file nor a folder"):
        load_tokenizer(tmp_path / "fifo")


def test_an_unreadable_file_is_named(tmp_path, monkeypatch, gpt2_folder):
    """The system's reason is given."""
    shutil.copy(gpt2_folder / "tokenizer.json", tmp_path / "tokenizer.json")
    monkeypatch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read: Permission denied"):
        load_tokenizer(tmp_path)


BROKEN = {
    "": "is not JSON",
    '{"model": ': "is not JSON",
    "[" * 100_000: "is not JSON",
    "null": "is no Hugging Face tokenizer.json",
    "[]": "is no Hugging Face tokenizer.json",
    '{"vocab": {}}': "is no Hugging Face tokenizer.json",
    '{"model": 5}': "is no Hugging Face tokenizer.json",
    '{"model": {"type": "BPE"}}': "model.vocab: wanted an object",
    '{"model": {"type": "BPE", "vocab": {}, "merges": []}}': "model.vocab: wanted an object",
    '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}': r"model.vocab\['a'\]: wanted an id",
    '{"model": {"type": "BPE", "vocab": {"a": true}, "merges": []}}': r"model.vocab\['a'\]: wanted an id",
    '{"model": {"type": "BPE", "vocab": {"a": 0}}}': "model.merges: wanted a list",
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}': r"model.merges\[0\]: wanted a pair",
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": "1"}]}': r"added_tokens\[0\]",
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": {}}': "added_tokens: wanted a list",
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}': "gigatoken; it says.*tokenizers library",
    '{"model": {"type": "Bigram", "vocab": {"a": 0}}}': "a model of type 'Bigram'; wanted BPE, WordPiece",
    '{"model": {"type": "Unigram", "vocab": [["a", -1], ["b"]]}}': r"model.vocab\[1\]: wanted a token and its score",
    '{"model": {"type": "Unigram", "vocab": {"a": 0}}}': "model.vocab: wanted a list of pairs",
}


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_file_is_named_with_what_is_wrong(write_json, content):
    """Never a bare traceback of a library."""
    path = write_json(content)
    with pytest.raises(TokenizerError, match=BROKEN[content]) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)


def test_all_problems_of_a_file_are_listed_at_once(write_json):
    """So that it is repaired once."""
    model = {"type": "BPE", "vocab": {"a": -1, "b": "x", "c": 0}, "merges": ["a b", "c", 3]}
    with pytest.raises(TokenizerError) as error:
        load_tokenizer(write_json({"model": model, "added_tokens": [5]}))
    places = [problem.place for problem in error.value.problems]
    assert places == ["model.vocab['a']", "model.vocab['b']", "model.merges[1]", "model.merges[2]", "added_tokens[0]"]


def test_a_file_that_is_not_utf8(tmp_path):
    """A binary file under a JSON name."""
    (tmp_path / "tokenizer.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(TokenizerError, match=r"is not UTF-8 \(byte 7\)"):
        load_tokenizer(tmp_path)


def test_a_byte_order_mark_is_no_fault(byte_level, write_json):
    """Editors on Windows put one; it changes no id."""
    path = write_json(byte_level({"ab": 256}, [["a", "b"]]))
    plain = load_tokenizer(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = load_tokenizer(path)
    assert marked.ref == plain.ref
    marked.check([b"cab"])


def test_dropout_is_refused(byte_level, write_json):
    """It makes ids random in Hugging Face and does nothing in gigatoken."""
    document = byte_level()
    document["model"]["dropout"] = 0.1
    with pytest.raises(TokenizerError, match=r"dropout of 0\.1"):
        load_tokenizer(write_json(document))


def test_a_panic_in_the_reference_is_an_error(byte_level, write_json):
    """`tokenizers` panics on this file; a panic is no Exception in Python."""
    document = byte_level({"ab": 256}, [["a", "b"]])
    document["model"]["continuing_subword_prefix"] = "##"
    tokenizer = load_tokenizer(write_json(document))
    with pytest.raises(TokenizerError, match="is refused by the tokenizers library"):
        tokenizer.decode([97])


def test_a_file_without_a_decoder_decodes_as_text(byte_level, write_json):
    """Vocabularies trained at home often have none."""
    tokenizer = load_tokenizer(write_json(byte_level({"Ġa": 256}, [["Ġ", "a"]], decoder=None)))
    assert tokenizer.decode(tokenizer.encode("a a é\n")) == "a a é\n"


def test_nothing_heavy_is_imported_before_it_is_used():
    """Opening a corpus must not wait for tokenizers; the copy in a corpus decodes without gigatoken."""
    script = (
        "import sys, headrace.tokenizers.load as load; "
        "load.load_tokenizer('bytes').encode('a'); "
        "heavy = {'gigatoken', 'awkward', 'tokenizers', 'huggingface_hub', 'h5py'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_decoding_does_not_load_gigatoken(gpt2_folder, tmp_path):
    """A viewer needs the reference only."""
    corpus = write_copy(JsonTokenizer(gpt2_folder / "tokenizer.json"), tmp_path)
    script = (
        "import sys, headrace.tokenizers.load as load; "
        f"assert load.load_from_corpus({str(corpus)!r}).decode([15496]) == 'Hello'; "
        "assert not {'gigatoken', 'awkward'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
