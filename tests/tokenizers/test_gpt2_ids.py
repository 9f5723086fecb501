"""GPT-2 through gigatoken: the ids of Hugging Face `tokenizers`, for every text."""

import pickle
import threading
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.building.encode import DocumentEncoder
from headrace.errors import TokenIdError, TokenizerError
from headrace.testing.gpt2 import END_OF_TEXT, END_OF_TEXT_ID, GPT2_VOCAB_SIZE, gpt2_tokenizer_json
from headrace.tokenizers.tokenizer_json import JsonTokenizer

END_OF_TEXT_AS_TEXT = [27, 91, 437, 1659, 5239, 91, 29]


@pytest.fixture(scope="module")
def hugging_face():
    """The reference, taking special tokens' spellings as text."""
    reference = tokenizers.Tokenizer.from_str(gpt2_tokenizer_json())
    reference.encode_special_tokens = True
    return reference


def documents(tokenizer, texts):
    """The ids of each text, from one batch."""
    ids, ends = tokenizer.encode_documents([text.encode() for text in texts])
    return [part.tolist() for part in np.split(ids, ends[:-1])]


def test_ids_equal_hugging_face(gpt2, hugging_face, texts):
    """Code, many scripts, emoji and special literals: the same ids, document by document."""
    found = documents(gpt2, texts)
    assert found == [hugging_face.encode(text, add_special_tokens=False).ids for text in texts]
    assert sum(map(len, found)) > 100_000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_ids_equal_hugging_face_on_any_text(gpt2, hugging_face, drawn):
    """Whatever the characters: control, combining, unassigned, empty texts between others."""
    assert documents(gpt2, drawn) == [hugging_face.encode(text, add_special_tokens=False).ids for text in drawn]


def test_batches_do_not_change_ids(gpt2, texts):
    """A document's ids depend on nothing but the document."""
    assert documents(gpt2, texts) == [gpt2.encode(text) for text in texts]
    assert documents(gpt2, texts[::-1]) == documents(gpt2, texts)[::-1]


def test_empty_batches_and_texts(gpt2):
    """Nothing in, nothing out; an empty text keeps its place in `ends`."""
    ids, ends = gpt2.encode_documents([])
    assert (len(ids), len(ends)) == (0, 0)
    ids, ends = gpt2.encode_documents([b"", b"a", b"", b""])
    assert (ids.tolist(), ends.tolist()) == ([64], [0, 1, 1, 1])
    assert (ids.dtype, ends.dtype) == (np.uint32, np.int64)


def test_a_special_token_in_a_text_is_text(gpt2):
    """Only the boundary has the special id: a text cannot forge one."""
    assert gpt2.encode(END_OF_TEXT) == END_OF_TEXT_AS_TEXT
    assert gpt2.encode(f"a {END_OF_TEXT} b")[2:-1] == END_OF_TEXT_AS_TEXT[1:]
    assert END_OF_TEXT_ID not in gpt2.encode(f"{END_OF_TEXT}\n{END_OF_TEXT * 3}")
    assert gpt2.token_id(END_OF_TEXT) == END_OF_TEXT_ID


def test_decode_gives_the_text_back(gpt2, texts):
    """Byte-level BPE loses nothing."""
    for text in texts:
        assert gpt2.decode(gpt2.encode(text)) == text


def test_decode_spells_special_tokens(gpt2):
    """A boundary inside a window is visible."""
    assert gpt2.decode([END_OF_TEXT_ID, *gpt2.encode("hi"), END_OF_TEXT_ID]) == f"{END_OF_TEXT}hi{END_OF_TEXT}"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, GPT2_VOCAB_SIZE - 1), max_size=20))
def test_decode_takes_any_ids(gpt2, ids):
    """A window may hold any ids in any order: never an exception, and as the bytes of the tokens would decode."""
    spelled = {chr(byte): byte for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    spelled |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(spelled.values())))}
    raw = bytes(spelled[character] for token_id in ids for character in gpt2.id_to_token(token_id))
    assert gpt2.decode(np.array(ids, np.uint16)) == raw.decode(errors="replace")


def test_a_cut_inside_a_character_becomes_a_replacement(gpt2):
    """An emoji is several tokens; a window that ends between them still decodes."""
    ids = gpt2.encode("ok 🦜")
    assert gpt2.decode(ids[:-1]) == "ok \ufffd"
    assert gpt2.decode(ids[-1:]) == "\ufffd"


@pytest.mark.parametrize("ids", [[50257], [1, -1], np.array([65535], np.uint16)])
def test_decode_refuses_ids_outside_the_vocabulary(gpt2, ids):
    """Not skipped, not wrapped."""
    with pytest.raises(TokenIdError, match="not in the vocabulary of 50257 ids"):
        gpt2.decode(ids)


@pytest.mark.parametrize("ids", [[1.5], [[1, 2]], ["a"]])
def test_decode_refuses_what_is_no_row_of_ids(gpt2, ids):
    """A shape or dtype mistake is named as such."""
    with pytest.raises(TokenIdError, match="wanted a row of token ids"):
        gpt2.decode(ids)


def test_lone_surrogate_is_a_clear_error(gpt2):
    """The same error as the byte tokenizer's."""
    with pytest.raises(TokenizerError, match=r"character 0 .*U\+DC00"):
        gpt2.encode("\udc00")


def test_the_post_processor_never_runs(byte_level, added_token, write_json):
    """A template that would add BOS and EOS adds nothing, here or in the reference of `check`."""
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}},
    }
    document = byte_level(added_tokens=[added_token(256, "<s>", special=True)], post_processor=template)
    tokenizer = JsonTokenizer(write_json(document))
    assert tokenizer.encode("ab") == [97, 98]
    tokenizer.check([b"ab"])


def test_truncation_and_padding_of_the_file_are_ignored(byte_level, write_json):
    """A tokenizer.json saved with truncation must not cut documents, in encoding or in the check."""
    document = byte_level(
        truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 50},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "!",
        },
    )
    tokenizer = JsonTokenizer(write_json(document))
    assert tokenizer.encode("abcdefgh") == list(b"abcdefgh")
    tokenizer.check([b"abcdefgh"])


def test_added_tokens_that_are_not_special_are_encoded(byte_level, added_token, write_json):
    """Only special ones are taken as text: runs of spaces are added tokens in GPT-NeoX's vocabulary."""
    document = byte_level(added_tokens=[added_token(256, "    "), added_token(257, "<s>", special=True)])
    tokenizer = JsonTokenizer(write_json(document))
    assert tokenizer.encode("a    b<s>") == [97, 256, 98, *b"<s>"]
    tokenizer.check([b"a    b<s>"])


@pytest.mark.parametrize(
    ("size", "dtype"), [(65_535, np.uint16), (65_536, np.uint16), (65_537, np.uint32), (151_936, np.uint32)]
)
def test_vocabulary_size_decides_the_dtype(byte_level, write_json, size, dtype):
    """65,536 ids are stored as uint16, one more is not; the highest id is encoded and decoded whole."""
    fillers = {f"<filler {token_id}>": token_id for token_id in range(256, size - 1)}
    document = byte_level(fillers | {"ab": size - 1}, [["a", "b"]])
    tokenizer = JsonTokenizer(write_json(document))
    ids, ends = tokenizer.encode_documents([b"xab", b"ab"])
    assert tokenizer.vocab_size == size
    assert (ids.tolist(), ends.tolist()) == ([120, size - 1, size - 1], [2, 3])
    stored = DocumentEncoder(tokenizer, 0).encode([b"xab", b"ab"]).tokens
    assert (stored.dtype, stored.tolist()) == (dtype, [120, size - 1, 0, size - 1, 0])
    assert tokenizer.decode(ids) == "xabab"


def test_other_threads_run_while_it_encodes(gpt2, texts, until):
    """The GIL is free during one large batch: a build may write and hash meanwhile."""
    batch = [text.encode() for text in texts] * 20

    def ticks() -> int:
        """How often another thread ran while one batch was encoded."""
        moments, done = [], threading.Event()

        def tick():
            while not done.is_set():
                moments.append(time.perf_counter())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        start = time.perf_counter()
        gpt2._gigatoken.load().encode_batch(batch, parallel=False)
        end = time.perf_counter()
        done.set()
        thread.join()
        return sum(start + 0.1 * (end - start) < moment < end - 0.1 * (end - start) for moment in moments)

    until(lambda: ticks() >= 5)  # the first time, unless the machine stood still


def test_a_pickle_is_the_tokenizer(byte_level, write_json):
    """A worker reads no file, and encodes with its parent's vocabulary whatever became of that; nothing loaded travels."""
    path = write_json(byte_level({"ab": 256}, [["a", "b"]]))
    tokenizer = JsonTokenizer(path)
    fresh = pickle.dumps(tokenizer)
    assert tokenizer.encode("xab") == [120, 256]
    assert tokenizer.decode([120, 256]) == "xab"
    used = pickle.dumps(tokenizer)
    assert len(used) < 3 * path.stat().st_size + 1000
    path.unlink()
    for data in (fresh, used):
        copy = pickle.loads(data)  # noqa: S301  # our own bytes
        assert (copy.ref, copy.encode("xab"), copy.decode([120, 256])) == (tokenizer.ref, [120, 256], "xab")
        copy.check([b"abba"])
