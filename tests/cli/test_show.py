"""`headrace show`: any place of a corpus, decoded, with its source; places outside are clear errors."""

import json

import pytest

import headrace as library


def test_every_document(headrace, known):
    """`--document N` shows the text, its range, and the line of the source file that it came from."""
    for number in (0, 1, 7, 19, 20, 21):
        ran = headrace("show", known.path, "--document", number)
        assert ran.code == 0, ran.err
        source, line = known.origins[number]
        head, where, body = ran.out.split("\n", 2)
        start, stop = known.starts[number], known.starts[number + 1]
        assert head == f"tokens [{start}, {stop})"
        assert where.startswith(f"-- document {number} [{start}, {stop}) from {source}:{line} (byte ")
        assert body == f"{known.texts[number]}<|boundary|>\n"


def test_every_position(headrace, known):
    """`--at` shows the document around a token, its first, its last (the boundary) and one between."""
    for number in (0, 5, 21):
        start, stop = known.starts[number], known.starts[number + 1]
        for position in (start, (start + stop) // 2, stop - 1):
            ran = headrace("show", known.path, "--at", position)
            assert ran.out.startswith(f"tokens [{start}, {stop}), token {position}\n-- document {number} ")
            assert f"\n{known.texts[number]}<|boundary|>\n" in ran.out


@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 100_000), (3, 300), (-1, 256), (-40, 7), (-300, 300)])
def test_windows(headrace, known, start, length):
    """`--window` gives the tokens from a place on, document by document, up to the corpus' end; JSON holds them all."""
    total = known.starts[-1]
    start += total if start < 0 else 0
    ran = headrace("show", known.path, "--window", start, "--length", length, "--json")
    assert ran.code == 0, ran.err
    shown = json.loads(ran.out)
    stop = min(start + length, total)
    assert (shown["start"], shown["stop"]) == (start, stop)
    with library.open(known.path) as corpus:
        ids = corpus[start:stop].tolist()
    joined, position = [], start
    for piece in shown["pieces"]:
        assert piece["start"] == position == piece["location"]["position"]
        assert piece["boundary"] is piece["ends"]
        assert piece["text"] == library.Tokenizer().decode(piece["tokens"])
        number = piece["location"]["document"]
        assert known.starts[number] <= position < known.starts[number + 1]
        assert (piece["location"]["source"], piece["location"]["line"]) == known.origins[number]
        joined += piece["tokens"] + [0] * piece["boundary"]
        position = start + len(joined)
    assert joined == ids
    text = headrace("show", known.path, "--window", start, "--length", length)
    assert text.out.count("-- document ") == len(shown["pieces"])
    assert text.out.count("<|boundary|>") == ids.count(0)


@pytest.mark.parametrize("option", ["--document", "--at", "--window"])
def test_places_outside(headrace, known, option):
    """One behind the last place is exit code 1 and says what there is; a negative one or no number is wrong usage."""
    count = len(known.texts) if option == "--document" else known.starts[-1]
    last = headrace("show", known.path, option, count - 1)
    assert last.code == 0, last.err
    for place in (count, count + 1, 2**63, 2**70):
        ran = headrace("show", known.path, option, place)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("headrace: ")
        assert str(count) in ran.err
        assert str(place) in ran.err
    for place in ("-1", "x", "1.5", ""):
        ran = headrace("show", known.path, option, place)
        assert (ran.code, ran.out) == (2, "")
        assert option in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--document", 0, "--at", 0),
        ("--at", 0, "--window", 0),
        ("--window", 0, "--length", 0),
        ("--at", 0, "--length", 5),
    ],
)
def test_one_place(headrace, known, arguments):
    """Exactly one place is asked for, and a window has a length."""
    ran = headrace("show", known.path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: headrace show" in ran.err


def test_without_the_copy_of_the_tokenizer(headrace, known, tmp_path):
    """A corpus that lost its tokenizer says how to name one; any tokenizer can be named."""
    import shutil

    shutil.copytree(known.path, tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "tokenizer")
    ran = headrace("show", tmp_path / "c", "--document", 20)
    assert ran.code == 1
    assert "holds no copy of its tokenizer" in ran.err
    assert "name the tokenizer instead" in ran.err
    ran = headrace("show", tmp_path / "c", "--document", 20, "--tokenizer", "bytes")
    assert "\nalone<|boundary|>\n" in ran.out
    assert ran.err == ""


def test_another_tokenizer_is_told(headrace, known, tmp_path, write_lines):
    """Text that another tokenizer than the corpus' own decodes comes with a warning that names both."""
    source = write_lines(tmp_path / "a.jsonl", ["some text to learn from"])
    assert headrace("tokenizer", "train", source, "-o", tmp_path / "own", "--vocab-size", 260).code == 0
    ran = headrace("show", known.path, "--document", 20, "--tokenizer", tmp_path / "own")
    assert ran.code == 0
    assert ran.err.startswith(
        "warning: the corpus was built with the tokenizer bytes (349760d9aca30f04), and is decoded "
    )
    assert "another, own (" in ran.err


def test_one_shard_alone(headrace, known):
    """A shard's file by itself is shown as ids, with documents and sources, as it names no tokenizer's files."""
    with library.open(known.path) as corpus:
        entry = corpus.entries[-2]
    ran = headrace("show", entry.path, "--document", 0)
    assert ran.out.splitlines()[1:] == [
        "-- document 0 [0, 6) from b.jsonl:1 (byte 0)",
        "98 109 112 111 102<|boundary|>",
    ]
    assert "token ids are shown; --tokenizer decodes them" in ran.err


def test_a_corpus_of_the_pipeline(headrace, tmp_path):
    """What `write_corpus` writes is decoded as well; it has no source files to name."""
    library.ShardedTokenizationPipeline(library.Tokenizer(), tmp_path).write_corpus({"a": ["hello"]})
    ran = headrace("show", tmp_path, "--document", 0)
    assert ran.out == "tokens [0, 6)\n-- document 0 [0, 6)\nhello<|boundary|>\n"


def test_the_id_of_a_document(headrace, tmp_path):
    """Where the build kept one it stands behind the line, and in the JSON."""
    (tmp_path / "a.jsonl").write_text('{"text": "hi", "uid": 7}\n')
    assert headrace("build", tmp_path / "a.jsonl", "-o", tmp_path / "c", "--id-field", "uid").code == 0
    assert "from a.jsonl:1 (byte 0), id 7\n" in headrace("show", tmp_path / "c", "--at", 1).out
    (piece,) = json.loads(headrace("show", tmp_path / "c", "--at", 1, "--json").out)["pieces"]
    assert piece["location"]["id"] == "7"


def test_what_counts_in_the_loss_is_marked(headrace, tmp_path):
    """A document with a loss mask is shown with what counts in marks, and as JSON with its mask; `info` says the share."""
    source, corpus = tmp_path / "a.jsonl", tmp_path / "c"
    source.write_text('{"q": "ask", "a": "say"}\n')
    ran = headrace("build", source, "-o", corpus, "--prompt-field", "q", "--response-field", "a")
    assert ran.code == 0, ran.err
    assert "ask<|counts|>say<|/counts|><|boundary|>" in headrace("show", corpus, "--document", 0).out
    (piece,) = json.loads(headrace("show", corpus, "--at", 1, "--json").out)["pieces"]
    assert piece["loss_mask"] == [0, 0, 0, 1, 1, 1, 1]
    assert "57.14% of the tokens count" in headrace("info", corpus).out
    assert json.loads(headrace("info", corpus, "--json").out)["loss_share"] == 4 / 7
