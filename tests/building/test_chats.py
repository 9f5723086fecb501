"""Conversations through a chat template: the ids that the reference library gives, and what the assistant says told apart."""

import json
from itertools import pairwise
from pathlib import Path

import jinja2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import headrace
from headrace.errors import BuildError, MissingExtraError, OutputExistsError, SourceError, TokenizerError
from headrace.inspection import verify_all
from headrace.sources import chat as chat_module
from headrace.tokenizers.load import load_tokenizer

TEMPLATES = Path(__file__).parent.parent / "data" / "chat"
SPECIAL = [
    *("<|end|>", "<|im_start|>", "<|im_end|>"),
    *("<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
]
BOS, EOS = "<|begin|>", "<|end|>"
FIELD = {"chat_field": "messages"}
CONTENT = st.lists(
    st.sampled_from(
        ["a", "\n", "\n\n", " ", "  b", "caf\u00e9", "\u4e2d", "<|", "im_end", "|>", "\x00", "\ufffd", "### x"]
    )
    | st.sampled_from(SPECIAL),
    max_size=5,
).map("".join)
CONVERSATIONS = st.tuples(
    CONTENT, st.lists(st.tuples(st.sampled_from(["user", "assistant"]), CONTENT), max_size=4)
).map(lambda drawn: [("user", drawn[0]), *drawn[1]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer of bytes, two line ends being one token, with special tokens and the ChatML template."""
    path = tmp_path_factory.mktemp("chat") / "tok"
    path.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([*alphabet, "\u010a\u010a"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("\u010a", "\u010a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"eos_token": "<|end|>", "bos_token": {"content": "<|begin|>"}, "chat_template": template("chatml")}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def template(name):
    """Text of one of our templates."""
    return (TEMPLATES / f"{name}.jinja").read_text()


def conversation(pairs):
    """Pairs of role and content as messages."""
    return [{"role": role, "content": content} for role, content in pairs]


def plainly(name, messages):
    """The template's text, by an environment of the test's own, without marks; contents spell no special token."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # noqa: S701  # no HTML
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    text = template(name).replace("{% generation %}", "{% if true %}").replace("endgeneration", "endif")
    return environment.from_string(text).render(
        messages=messages, add_generation_prompt=False, bos_token=BOS, eos_token=EOS
    )


def said(corpus, tokenizer):
    """What counts, run by run, of all documents."""
    tokens, mask = corpus[:], corpus.loss_mask(0, len(corpus))
    edges = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(tokens)]
    runs = [(start, stop) for start, stop in pairwise(edges) if start < stop and mask[start]]
    return [tokenizer.decode(tokens[start:stop]) for start, stop in runs]


@pytest.mark.parametrize("name", ["chatml", "headers", "generation"])
@settings(max_examples=8, deadline=None)
@given(pairs=CONVERSATIONS)
def test_ids_are_the_reference_s_and_messages_make_no_special_token(folder, tmp_path_factory, name, pairs):
    """With harmless contents ids are those of `tokenizers` on the rendered text; any content comes back as it was written."""
    out = tmp_path_factory.mktemp("built") / "c"
    messages = conversation(pairs)
    options = {"tokenizer": folder, "chat_template": str(TEMPLATES / f"{name}.jinja")}
    headrace.build([{"messages": messages}], out, **FIELD, **options, workers=1)
    corpus, tokenizer = headrace.open(out), load_tokenizer(folder)
    ids = corpus[:].tolist()
    assert ids[-1] == tokenizer.token_id("<|end|>")
    text = plainly(name, messages)
    assert tokenizer.decode(ids[:-1]) == text
    specials = {token: tokenizer.token_id(token) for token in SPECIAL}
    written = plainly(name, conversation([(role, "x") for role, _ in pairs]))
    for token, number in specials.items():
        assert ids.count(number) == written.count(token) + (token == "<|end|>")  # noqa: S105  # no secret
    if not any(token in content for _, content in pairs for token in SPECIAL):
        reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert ids[:-1] == reference.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("chatml", "", "<|im_end|>"), ("headers", "", "<|eot_id|>"), ("generation", "", "<|end|>")],
)
def test_what_counts_is_what_the_assistant_says_and_its_end(folder, tmp_path, name, before, after):
    """By prefixes as by `{% generation %}`: contents with the token behind them, and the boundary after the last of them."""
    pairs = [
        ("user", "ask <|im_end|>"),
        ("assistant", "one"),
        ("user", "and"),
        ("assistant", "two <|eot_id|> caf\u00e9"),
    ]
    options = {"tokenizer": folder, "chat_template": str(TEMPLATES / f"{name}.jinja")}
    rows = [{"messages": conversation(pairs)}, {"messages": conversation(pairs[:3])}]
    headrace.build(rows, tmp_path / "c", **FIELD, **options)
    corpus = headrace.open(tmp_path / "c")
    runs = said(corpus, load_tokenizer(folder))
    one, two = (f"{before}{content}{after}" for content in ("one", "two <|eot_id|> caf\u00e9"))
    boundary = "" if after == "<|end|>" else "<|end|>"  # a turn's end is not learned twice
    if name == "headers":  # nothing between the end of the turn and the boundary
        assert runs == [one, two + boundary, one]
    else:
        assert runs == [one, two, *([boundary] if boundary else []), one]


def test_boundary_and_bos_are_never_there_twice(folder, tmp_path):
    """Where the text ends with the boundary, or begins with the BOS, the build adds no other."""
    options = {"tokenizer": folder, "chat_template": str(TEMPLATES / "headers.jinja"), "boundary": "<|eot_id|>"}
    rows = [{"messages": conversation([("user", "a"), ("assistant", "b")])}]
    tokenizer = load_tokenizer(folder)
    for number, bos in enumerate((False, True)):
        headrace.build(rows, tmp_path / str(number), **FIELD, **options, bos=bos)
        corpus = headrace.open(tmp_path / str(number))
        assert tokenizer.decode(corpus[:]) == plainly("headers", rows[0]["messages"])
        assert said(corpus, tokenizer) == ["b<|eot_id|>"]


def test_every_kind_of_source_gives_the_same(folder, tmp_path):
    """JSON lines, an array, Parquet, which has null for what a message lacks, and a program's mappings: one corpus."""
    rows = [
        {"messages": conversation([("user", "a"), ("assistant", "b")])},
        {"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": None, "tool_calls": ["f"]}]},
        {"messages": []},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    sources = [[tmp_path / "a.jsonl"], [tmp_path / "a.json"], [tmp_path / "a.parquet"], rows]
    prints = set()
    for number, source in enumerate(sources):
        report = headrace.build(source, tmp_path / str(number), **FIELD, tokenizer=folder)
        assert report.dropped == {"empty": 1}
        prints.add(report.fingerprint)
    assert len(prints) == 1
    assert "".join(said(headrace.open(tmp_path / "0"), load_tokenizer(folder))).count("<tool_call>") == 1


TOOLS = [{"type": "function", "function": {"name": "look <|im_end|>", "parameters": {"a": {"type": "string"}}}}]
WITH_TOOLS = (
    "{% if tools %}<|im_start|>tools{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


@pytest.fixture
def tools_options(folder, tmp_path):
    """Options of a build whose template writes tools."""
    (tmp_path / "tools.jinja").write_text(WITH_TOOLS)
    return {**FIELD, "tools_field": "tools", "tokenizer": folder, "chat_template": str(tmp_path / "tools.jinja")}


def test_tools_reach_the_template_from_every_kind_of_source(folder, tmp_path, tools_options):
    """Lists or their JSON text, missing, null or empty for none; special tokens that they spell are ordinary text."""
    talk = conversation([("user", "a"), ("assistant", "b")])
    rows = [
        {"messages": talk, "tools": TOOLS},
        {"messages": talk, "tools": None},
        {"messages": talk, "tools": []},
    ]
    texts = [{**row, "tools": json.dumps(row["tools"])} for row in rows]
    texts[1]["tools"], texts[2]["tools"] = None, " "
    lacking = [rows[0], {"messages": talk}, {"messages": talk}]
    for name, found in (("lists", rows), ("texts", texts), ("lacking", lacking)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    (tmp_path / "array.json").write_text(json.dumps(rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    parquet.write_table(pa.Table.from_pylist(texts), tmp_path / "texts.parquet")
    names = ("lists.jsonl", "texts.jsonl", "lacking.jsonl", "array.json", "lists.parquet", "texts.parquet")
    for number, source in enumerate([*([tmp_path / name] for name in names), rows, lacking]):
        headrace.build(source, tmp_path / str(number), **tools_options, workers=1)
        corpus, tokenizer = headrace.open(tmp_path / str(number)), load_tokenizer(folder)
        plain = "<|im_start|>user a<|im_end|><|im_start|>assistant b<|im_end|>"
        offered = f"<|im_start|>tools{json.dumps(TOOLS[0])}<|im_end|>"
        assert tokenizer.decode(corpus[:]) == f"{offered}{plain}<|end|>{plain}<|end|>{plain}<|end|>"
        assert corpus[:].tolist().count(tokenizer.token_id("<|im_end|>")) == 7  # and one is spelled
        assert said(corpus, tokenizer) == ["b<|im_end|><|end|>"] * 3


def test_tools_that_are_none(tmp_path, tools_options):
    """Each fault with its line; a column of another type, and the option alone, before anything is read."""
    talk = conversation([("user", "a")])
    faults = {
        "tools is not a list": {"name": "f"},
        "tools[1] is not an object": [{}, "f"],
        "tools is not JSON": "[{]",
        "tools holds what JSON does not have": [{"a": float("nan")}],
    }
    rows = [{"messages": talk, "tools": tools} for tools in faults.values()]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in ([tmp_path / "a.jsonl"], rows):
        with pytest.raises(SourceError) as caught:
            headrace.build(source, tmp_path / "c", **tools_options)
        assert [problem.reason.partition(" (")[0] for problem in caught.value.problems] == list(faults)
    parquet.write_table(pa.table({"messages": [talk], "tools": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"column tools holds int64; wanted lists of tools.*--tools-field"):
        headrace.build([tmp_path / "a.parquet"], tmp_path / "c", **tools_options)
    with pytest.raises(BuildError, match="give their --chat-field"):
        headrace.build(rows, tmp_path / "c", tools_field="tools")


FAULTS = [
    ('{"messages": "x"}', "messages is not a list"),
    ('{"messages": ["x"]}', "messages[0] is not an object"),
    ('{"messages": [{"content": "x"}]}', "messages[0] has no role"),
    ('{"other": []}', "no field messages"),
    ('{"messages": null}', "messages is null"),
    ('{"messages": [{"role": "user", "content": NaN}]}', "messages holds what JSON does not have"),
    (
        '{"messages": [{"role": "judge", "content": "x"}]}',
        "refuses it: Only system, user, assistant and tool speak here",
    ),
    ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "lone surrogate"),
]


def test_bad_conversations_are_told_with_line_and_reason(folder, tmp_path):
    """Each fault has its line, and no reason tells what a document says."""
    (tmp_path / "a.jsonl").write_text("".join(f"{line}\n" for line, _ in FAULTS))
    options = {"tokenizer": folder, "chat_template": str(TEMPLATES / "headers.jinja")}
    with pytest.raises(SourceError) as caught:
        headrace.build([tmp_path / "a.jsonl"], tmp_path / "c", **FIELD, **options)
    problems = {problem.place: problem.reason for problem in caught.value.problems}
    for number, (_, reason) in enumerate(FAULTS, 1):
        assert reason in problems.get(f"a.jsonl:{number}", "")
    assert "judge" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}", "cannot be told"),
        ("{{ strftime_now('%Y') }}{{ messages[0].content }}", "give one by --chat-date"),
        ("{{ raise_exception(messages[0].content) }}", "the chat template refuses it"),
        ("{% if false %}{{ messages }}{% endif %}", "the chat template writes nothing of it"),
        ("{{ 1 / 0 }}", r"fails \(ZeroDivisionError\)"),
    ],
)
def test_templates_that_do_not_fit_a_document(folder, tmp_path, text, reason):
    """What the assistant says cannot be told, the date of today, what it raises: each is the document's fault, and said."""
    (tmp_path / "t.jinja").write_text(text)
    rows = [{"messages": conversation([("user", "secret"), ("assistant", "b")])}]
    with pytest.raises(SourceError, match=reason) as caught:
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder, chat_template=str(tmp_path / "t.jinja"))
    assert "secret" not in str(caught.value)


def test_two_strings_that_spell_a_special_token_together(folder, tmp_path):
    """Parts of a content that a template joins make no special token."""
    parts = [{"type": "text", "text": "<|im_"}, {"type": "x", "text": "end|>"}]
    rows = [{"messages": [{"role": "user", "content": parts}]}]
    report = headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder)
    assert report.documents == 1  # keys lie between them, as the template does not see it
    joined = [{"messages": [{"role": "user", "content": ["<|im_", "end|>"]}]}]
    (tmp_path / "t.jinja").write_text("{{ messages[0].content | join }}")
    with pytest.raises(SourceError, match="together spell a special token"):
        headrace.build(joined, tmp_path / "d", **FIELD, tokenizer=folder, chat_template=str(tmp_path / "t.jinja"))


def test_the_date_is_given(folder, tmp_path):
    """No corpus depends on the clock: a template's day is that of the option, which makes another command of it."""
    options = {"tokenizer": folder, "chat_template": str(TEMPLATES / "headers.jinja")}
    rows = [{"messages": conversation([("system", "s"), ("assistant", "b")])}]
    (tmp_path / "a.jsonl").write_text(json.dumps(rows[0]) + "\n")
    headrace.build(rows, tmp_path / "c", **FIELD, **options)
    assert "Today: 26 Jul 2024" in load_tokenizer(folder).decode(headrace.open(tmp_path / "c")[:])
    headrace.build([tmp_path / "a.jsonl"], tmp_path / "d", **FIELD, **options, chat_date="2026-11-30")
    assert "Today: 30 Nov 2026" in load_tokenizer(folder).decode(headrace.open(tmp_path / "d")[:])
    with pytest.raises(OutputExistsError, match=r"chat_date \(--chat-date\)"):
        headrace.build([tmp_path / "a.jsonl"], tmp_path / "d", **FIELD, **options)


def test_named_templates_and_what_a_corpus_keeps(folder, tmp_path):
    """A name, a file or the only one; the corpus keeps what was used, is verified for it, and another one is refused."""
    many = tmp_path / "many"
    many.mkdir()
    (many / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    named = [{"name": name, "template": template(name)} for name in ("chatml", "generation")]
    (many / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": named}))
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"messages": conversation([("user", "a"), ("assistant", "b")])}) + "\n"
    )
    source, out = [tmp_path / "a.jsonl"], tmp_path / "c"
    with pytest.raises(TokenizerError, match="it has chatml, generation"):
        headrace.build(source, out, **FIELD, tokenizer=many)
    headrace.build(source, out, **FIELD, tokenizer=many, chat_template="generation", workers=1)
    copy = out / "tokenizer" / "chat_template.jinja"
    assert copy.read_text() == template("generation")
    assert all(report.ok for report in verify_all(out).reports)
    headrace.build(source, tmp_path / "again", **FIELD, tokenizer=out / "tokenizer")
    assert headrace.open(tmp_path / "again").fingerprint == headrace.open(out).fingerprint
    with pytest.raises(OutputExistsError, match="chat_template"):
        headrace.build(source, out, **FIELD, tokenizer=many, chat_template="chatml")
    with pytest.raises(OutputExistsError, match="chat_template"):
        headrace.build(
            [{"messages": conversation([("user", "z")])}],
            out,
            **FIELD,
            tokenizer=many,
            chat_template="chatml",
            append=True,
        )
    copy.write_text("{{ messages }}")
    (bad,) = [report for report in verify_all(out).reports if not report.ok]
    assert "chat_template.jinja" in str(bad.problems)


def test_what_cannot_have_a_template(folder, tmp_path, monkeypatch):
    """A tokenizer without, options without a field, no template's text, and no jinja2: said before anything is read."""
    rows = [{"messages": conversation([("user", "a")])}]
    with pytest.raises(TokenizerError, match=r"goes with a tokenizer\.json"):
        headrace.build(rows, tmp_path / "c", **FIELD)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(TokenizerError, match=r"chat_template\.jinja beside it\); give a file by --chat-template"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=bare, boundary="<|end|>")
    with pytest.raises(TokenizerError, match="there is no file x; give a file"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=bare, boundary="<|end|>", chat_template="x")
    with pytest.raises(BuildError, match="--chat-field"):
        headrace.build(rows, tmp_path / "c", tokenizer=folder, chat_template="x")
    with pytest.raises(BuildError, match="no --prompt-field"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder, prompt_field="a", response_field="b")
    with pytest.raises(BuildError, match="YYYY-MM-DD"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder, chat_date="today")
    (tmp_path / "t.jinja").write_text("\n{% if %}")
    with pytest.raises(TokenizerError, match="none: line 2"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder, chat_template=str(tmp_path / "t.jinja"))
    chat_module._compiled.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"headrace\[chat\]"):
        headrace.build(rows, tmp_path / "c", **FIELD, tokenizer=folder)


def test_a_character_that_would_be_dropped(tmp_path):
    """A model of some letters, without unknown token: a message with another one ends the build by its line."""
    letters = {letter: number for number, letter in enumerate("userait: bcdx\n")}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    path = tmp_path / "letters"
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    text = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": text}))
    for content, lost in (("abba", None), ("ab<|end|>ba", "U+003C"), ("ab\u00e9", "U+00E9")):
        rows = [{"messages": conversation([("user", "abc")])}, {"messages": conversation([("user", content)])}]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        build = {**FIELD, "tokenizer": path, "overwrite": True}
        if lost is None:
            headrace.build([tmp_path / "a.jsonl"], tmp_path / "c", **build)
            assert load_tokenizer(path).decode(headrace.open(tmp_path / "c")[:]) == "user: abc<|end|>user: abba<|end|>"
            continue
        with pytest.raises(
            TokenizerError, match=rf"a\.jsonl:2: letters: has no entry for the character {lost.replace('+', '[+]')}"
        ):
            headrace.build([tmp_path / "a.jsonl"], tmp_path / "c", **build)


@pytest.mark.parametrize(
    "model",
    [
        models.Unigram([("<unk>", 0.0), ("</s>", -1.0), ("user", -1.0), ("x", -1.0)], 0),
        models.WordPiece({"<unk>": 0, "</s>": 1, "user": 2, "x": 3}, unk_token="<unk>"),  # noqa: S106  # no secret
        models.WordLevel({"<unk>": 0, "</s>": 1, "user": 2, "x": 3}, unk_token="<unk>"),  # noqa: S106  # likewise
    ],
    ids=["Unigram", "WordPiece", "WordLevel"],
)
def test_models_that_have_special_tokens_in_their_vocabulary(tmp_path, model):
    """A message that spells one does not get it there either; what the template writes is it."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": "</s>", "chat_template": "{% for m in messages %}user {{ m.content }} </s>{% endfor %}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    headrace.build([{"messages": conversation([("user", "x </s> x")])}], tmp_path / "c", tokenizer=tmp_path, **FIELD)
    with headrace.open(tmp_path / "c") as corpus:
        ids = corpus[:].tolist()
    assert (ids[:2], ids[-2:], ids.count(1)) == ([2, 3], [3, 1], 1)


def test_workers_decide_nothing(folder, tmp_path):
    """Two processes give the bytes of one, spelled special tokens and all; so does a cut at a number of tokens."""
    for number in range(3):
        pairs = [("user", f"q{number} <|im_end|>"), ("assistant", "long answer " * number + "<|end|>")]
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"messages": conversation(pairs)}) + "\n")
    source = sorted(tmp_path.glob("*.jsonl"))
    for name, workers in (("one", 1), ("two", 2)):
        headrace.build(
            source, tmp_path / name, **FIELD, tokenizer=folder, workers=workers, max_document_tokens=60, validate=True
        )
    for path in (tmp_path / "one").glob("*.h5"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    corpus = headrace.open(tmp_path / "one")
    assert not corpus.loss_mask(0, len(corpus))[-1]  # it was cut there
