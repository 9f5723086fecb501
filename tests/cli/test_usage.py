"""Help, exit codes and wrong usage."""

import inspect
import re

import pytest

import headrace as library

OPTIONS = {
    "build": {
        *(
            "--output",
            "-o",
            "--tokenizer",
            "--text-field",
            "--text-split",
            "--boundary",
            "--bos",
            "--workers",
            "--shard-tokens",
        ),
        *("--chunk-tokens", "--max-document-tokens", "--format", "--include", "--on-bad-input", "--max-bad"),
        *(
            "--keep-empty",
            "--allow-duplicates",
            "--validate",
            "--compression",
            "--store",
            "--append",
            "--overwrite",
            "--live",
        ),
        *(
            "--show-text",
            "--json",
            "--max-reported",
            "--max-documents",
            "--sample-seed",
            "--ids-field",
            "--vocab-size",
            "--id-field",
            "--prompt-field",
            "--response-field",
            "--chat-field",
            "--tools-field",
            "--chat-template",
            "--chat-date",
        ),
        "--dedup",
    },
    "verify": {"--quick", "--expect", "--workers", "--json", "--max-reported"},
    "status": {"--json"},
    "info": {"--window", "--json"},
    "show": {"--document", "--at", "--window", "--length", "--tokenizer", "--json"},
    "tokenizer train": {
        *("--output", "-o", "--vocab-size", "--text-field", "--format", "--end-of-text", "--special", "--max-bytes"),
        *("--overwrite", "--json", "--max-reported"),
    },
    "tokenizer info": {"--json"},
    "tokenizer encode": {"--json"},
    "tokenizer decode": {"--json"},
    "tokenizer compare": {"--text-field", "--format", "--max-bytes", "--json"},
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help_lists_every_option(headrace, command):
    """Each command's help has a sentence for the command and for every option, and no option that is not expected."""
    ran = headrace(*command.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    found = re.findall(r"^\s+(?:(-\w), )?(--[\w-]+)\s+(\S.*)?", ran.out, flags=re.MULTILINE)
    names = {name for short, long, _ in found for name in (short, long) if name}
    assert names == OPTIONS[command] | {"--help"}
    for line in re.split(r"\n  (?=-)", ran.out)[1:]:
        assert len(line.split()) > 2, line


def test_help_of_the_whole(headrace):
    """The command by itself, or with --help, lists the commands."""
    ran = headrace("--help")
    assert ran.code == 0
    for command in OPTIONS:
        *group, name = command.split()
        assert f"\n  {name} " in (headrace(*group, "--help").out if group else ran.out)
    alone = headrace()
    assert alone.code == 2
    assert "Commands:" in alone.out + alone.err


def test_choices_are_in_the_help(headrace):
    """What may be chosen from is listed."""
    text = headrace("build", "--help").out
    assert "auto|jsonl|text" in text
    assert "error|skip|replace" in text


def test_the_library_has_what_the_command_has():
    """`headrace.build` takes every option of the command under the same name, with the same default."""
    from headrace.cli.build import build as command

    printing = {"json_lines", "max_reported"}
    options = {name: p.default for name, p in inspect.signature(command).parameters.items() if name not in printing}
    library_options = {name: p.default for name, p in inspect.signature(library.build).parameters.items()}
    assert library_options.pop("on_event")
    assert options.pop("include") is None
    assert library_options.pop("include") == ()
    options["inputs"] = options.pop("sources")
    assert options == library_options


def test_version(headrace):
    """--version prints the version and nothing else."""
    ran = headrace("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"headrace {library.__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("build",),
        ("build", "a.jsonl"),
        ("build", "-o", "c"),
        ("build", "a.jsonl", "-o", "c", "--workers", "0"),
        ("build", "a.jsonl", "-o", "c", "--shard-tokens", "0"),
        ("build", "a.jsonl", "-o", "c", "--chunk-tokens", "-1"),
        ("build", "a.jsonl", "-o", "c", "--max-document-tokens", "0"),
        ("build", "a.jsonl", "-o", "c", "--max-documents", "0"),
        ("build", "a.jsonl", "-o", "c", "--max-bad", "1.5"),
        ("build", "a.jsonl", "-o", "c", "--on-bad-input", "ignore"),
        ("build", "a.jsonl", "-o", "c", "--format", "xml"),
        ("build", "a.jsonl", "-o", "c", "--no-such-option"),
        ("verify",),
        ("verify", "a", "b"),
        ("info", "a", "--window", "x"),
        ("show",),
        ("no-such-command",),
    ],
)
def test_wrong_usage(headrace, tmp_path, monkeypatch, arguments):
    """Wrong usage is exit code 2 with a hint at the help; nothing is made."""
    monkeypatch.chdir(tmp_path)
    ran = headrace(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: headrace")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tokenizer", "absent/tokenizer.json"), "absent/tokenizer.json"),
        (("--boundary", "<|nothing|>"), "'<|nothing|>' is not in the vocabulary"),
        (("--boundary", "257"), "the boundary id 257 is not in the vocabulary"),
        (("--bos",), "the BOS token is not known"),
        (("--text-field", "body"), "no field body"),
    ],
)
def test_failures(headrace, tmp_path, write_lines, options, message):
    """What was well said but cannot be done is exit code 1, with one message and nothing made."""
    source = write_lines(tmp_path / "a.jsonl", ["x"])
    ran = headrace("build", source, "-o", tmp_path / "c", *options)
    assert (ran.code, ran.out) == (1, "")
    assert "headrace: " in ran.err
    assert message in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--boundary", "id:x"), "wanted digits behind id:"),
        (("--text-field", ""), "wanted the name of the field"),
        (("--id-field", "\udcff"), "which is no UTF-8"),
        (("--tokenizer", ""), "wanted the path or the name of a tokenizer"),
        (("-o", ""), "empty path"),
        (("--compression", "gzip:99"), "compression 'gzip:99': wanted none"),
        (("--text-split", "line:"), "wanted none, blank-lines"),
        (("--ids-field", "ids"), "ids (--ids-field) need a tokenizer"),
        (("--vocab-size", "10"), "Texts have no --vocab-size"),
        (("--ids-field", "ids", "--vocab-size", str(2**32 + 1), "--boundary", "0"), "1 to 2**32 ids"),
        (("--prompt-field", "p"), "give both"),
        (("--chat-field", "m", "--ids-field", "i", "--vocab-size", "9"), "no --ids-field"),
        (("--chat-template", "x"), "give their --chat-field"),
        (("--tools-field", "x"), "give their --chat-field"),
        (("--chunk-tokens", str(2**31)), "wanted 1 to 2147483647"),
        (("--text-field", "t", "--chat-field", "m"), "give no --text-field ('t')"),
        (("--text-field", "t", "--ids-field", "i", "--vocab-size", "9"), "give no --text-field ('t')"),
        (("--text-field", "t", "--prompt-field", "p", "--response-field", "r"), "give no --text-field ('t')"),
        (("--chat-field", "m", "--chat-date", "2026-13-01"), "wanted YYYY-MM-DD"),
        (("--store", "lance", "--compression", "gzip"), "compression is 'gzip'"),
        (("--append", "--overwrite"), "give one of the two"),
    ],
)
def test_options_that_make_no_sense(headrace, tmp_path, write_lines, options, message):
    """What is wrong whatever it is applied to is exit code 2, with one message and nothing made."""
    source = write_lines(tmp_path / "a.jsonl", ["x"])
    ran = headrace("build", source, "-o", tmp_path / "c", *options)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("fractions", [(), ("val=2",), ("val=0.6", "test=0.6"), ("val=x",), ("../val=0.1",)])
def test_a_split_that_makes_no_sense(headrace, tmp_path, write_lines, fractions):
    """Likewise."""
    source = write_lines(tmp_path / "a.jsonl", ["x"])
    assert headrace("build", source, "-o", tmp_path / "c").code == 0
    asked = [argument for fraction in fractions for argument in ("--fraction", fraction)]
    assert headrace("split", tmp_path / "c", "-o", tmp_path / "parts", *asked).code == 2
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", ""),
        ("info", ""),
        ("show", "", "--at", "0"),
        ("split", "", "-o", "parts", "--fraction", "val=0.5"),
        ("split", ".", "-o", "", "--fraction", "val=0.5"),
        ("status", ""),
        ("plot", ""),
        ("plot", ".", "-o", ""),
        ("train", ".", "-o", ""),
    ],
)
def test_an_empty_path_is_not_the_working_directory(headrace, tmp_path, monkeypatch, write_lines, arguments):
    """An empty path, as of a shell variable that is not set, is wrong usage, also in the folder of a corpus."""
    source = write_lines(tmp_path / "a.jsonl", ["x"])
    assert headrace("build", source, "-o", tmp_path / "c").code == 0
    monkeypatch.chdir(tmp_path / "c")
    before = sorted((tmp_path / "c").iterdir())
    ran = headrace(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "it is empty; wanted a path" in ran.err
    assert sorted((tmp_path / "c").iterdir()) == before


def test_a_path_that_begins_with_a_dash(headrace, tmp_path, monkeypatch, write_lines):
    """`--` ends the options of every command."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "-a.jsonl", ["x"])
    assert headrace("build", "-o", "-c", "-a.jsonl").code == 2
    assert headrace("build", "-o", "-c", "--", "-a.jsonl").code == 0
    assert headrace("verify", "--", "-c").code == 0
    assert headrace("info", "--", "-c").code == 0
    assert headrace("show", "--at", "0", "--", "-c").out.endswith("\nx<|boundary|>\n")


def test_the_report(headrace, tmp_path):
    """The closing report counts documents in and kept, drops by reason, cut tokens and boundaries."""
    (tmp_path / "a.jsonl").write_text('{"text": "abcdef"}\n{"text": ""}\n[]\n{"text": "gh"}\n')
    arguments = (
        "build",
        tmp_path / "a.jsonl",
        "-o",
        tmp_path / "c",
        "--on-bad-input",
        "skip",
        "--max-document-tokens",
        4,
    )
    rows = dict(re.split(r"  +", line) for line in headrace(*arguments).out.splitlines())
    assert rows["documents"] == "4 in, 2 kept"
    assert rows["dropped"] == f"1 empty, 1 not an object (listed in {tmp_path}/c/.headrace/dropped)"
    assert rows["cut"] == "2 tokens by --max-document-tokens"
    assert rows["tokens"] == "8 (2 boundaries, 25.00%)"
    with library.open(tmp_path / "c") as corpus:
        assert rows["fingerprint"] == str(corpus.fingerprint)


def test_the_first_documents(headrace, tmp_path, write_lines):
    """`--max-documents` keeps so many, says what was not read, and is no failure where there are fewer."""
    source = write_lines(tmp_path / "a.jsonl", ["x", "y", "z"])
    other = write_lines(tmp_path / "b.jsonl", ["w"])
    ran = headrace("build", source, other, "-o", tmp_path / "c", "--max-documents", 2)
    assert ran.code == 0
    assert "documents        2 in, 2 kept" in ran.out
    assert "1 source files of 14 bytes were not read to their ends, 1 not at all" in ran.err
    assert "not read" not in headrace("build", source, other, "-o", tmp_path / "d", "--max-documents", 9).err


def test_ids_in_place_of_texts(headrace, tmp_path):
    """`--ids-field` with a tokenizer is shown as text, with `--vocab-size` as ids; the report counts no bytes of text."""
    (tmp_path / "a.jsonl").write_text('{"ids": [105, 106]}\n{"ids": [257]}\n')
    build = ("build", tmp_path / "a.jsonl", "--ids-field", "ids", "-o")
    ran = headrace(*build, tmp_path / "c", "--tokenizer", "bytes", "--on-bad-input", "skip", "--max-bad", 1)
    assert ran.code == 0
    assert "bytes per token" not in ran.out
    assert "1 ids holds an id beyond the vocabulary of 257 (listed" in ran.out
    assert headrace("show", tmp_path / "c", "--at", 0).out.endswith("\nhi<|boundary|>\n")
    assert headrace(*build, tmp_path / "d", "--vocab-size", 258, "--boundary", 0).code == 0
    assert "105" in headrace("show", tmp_path / "d", "--at", 0).out
    ran = headrace(*build, tmp_path / "e")
    assert (ran.code, ran.out) == (2, "")
    assert "--vocab-size" in ran.err
