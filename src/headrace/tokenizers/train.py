"""A byte-level BPE of the user's own text."""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headrace.errors import OutputExistsError, Problem, TokenizerError
from headrace.events import Notice, Subscriber, ignore
from headrace.sources.content import Format
from headrace.storage.atomic import write_all
from headrace.tokenizers.bpe_file import BYTE_TOKENS, byte_level_bpe, byte_spellings, to_json
from headrace.tokenizers.bpe_trainer import SEPARATOR, train_merges
from headrace.tokenizers.load import load_tokenizer
from headrace.tokenizers.sample import TextSample

__all__ = ["CONFIG_NAME", "END_OF_TEXT", "MAX_BYTES", "TrainingReport", "train_tokenizer"]

CONFIG_NAME = "tokenizer_config.json"
END_OF_TEXT = "<|endoftext|>"
"""The token that ends a document, by default."""
MAX_BYTES = 500_000_000
"""Bytes of text trained on, at most, by default."""
_CHECKED_BYTES = 256 * 1024
"""Text whose ids are compared with the `tokenizers` library's before anything is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """What was learned, and from what."""

    path: str
    """The tokenizer.json."""
    documents: int
    text_bytes: int
    """UTF-8 bytes of the documents."""
    complete: bool
    """Whether this was all there is; False where `max_bytes` left something out."""
    dropped: dict[str, int]
    """Documents left out because something is wrong with them, by reason."""
    places: list[str]
    """Place and reason of the first of them."""
    vocab_size: int
    """Special tokens included; less than asked for where the text has no more pairs to merge."""
    special_tokens: dict[str, int]
    """And their ids."""
    sha256: str
    """The tokenizer's identity, as in a corpus built with it."""
    seconds: float


def train_tokenizer(
    sources: Sequence[str | Path] | str | Path,
    output: str | Path,
    *,
    vocab_size: int,
    text_field: str = "text",
    format: Format = "auto",  # noqa: A002  # named as the command's option
    end_of_text: str = END_OF_TEXT,
    special: Sequence[str] = (),
    max_bytes: int = MAX_BYTES,
    overwrite: bool = False,
    on_event: Subscriber = ignore,
) -> TrainingReport:
    """Train a byte-level BPE, and write it as a tokenizer.json with a tokenizer_config.json beside it.

    The same documents give the same bytes, whatever the number of threads. Ids 0 to 255 are the bytes, what was learned
    follows, special tokens come last, the end of text first among them. Words are cut as GPT-2 does. Text that spells a
    special token is trained on as ordinary text. Documents that cannot be read are left out and counted.

    Args:
        sources: files, folders and patterns, as for a build.
        output: a name that ends in `.json`; else a folder, made if it is not there, for a `tokenizer.json`.
        vocab_size: ids wanted, special tokens included; at least 256 and the special tokens.
        text_field: field that holds the text of a line.
        format: how files are read.
        end_of_text: the special token that ends each document; the tokenizer_config.json names it.
        special: more special tokens, in the order of their ids.
        max_bytes: text trained on at most; of more, each source gives a share (see `TextSample`).
        overwrite: replace files that are there.
        on_event: receives `Notice`s.

    Raises:
        TokenizerError: the vocabulary is too small, a special token is none, or the result does not give the ids that
            the `tokenizers` library gives (nothing is written then).
        OutputExistsError: a file is there.
        SourceError: no documents, or none that can be read.
    """
    started = time.monotonic()
    specials = [end_of_text, *special]
    _check_specials(specials, vocab_size)
    path, config = _targets(Path(output), overwrite=overwrite, config=_config(end_of_text))
    named = [sources] if isinstance(sources, str | Path) else sources
    sample = TextSample(named, text_field=text_field, format=format, max_bytes=max_bytes)
    with tempfile.TemporaryFile() as text:
        checked = _write_text(sample, text)
        if not sample.complete:
            message = f"the sources hold more than {max_bytes:,} bytes of text (--max-bytes); each gives a share of it"
            on_event(Notice(kind="sampled", message=message))
        merges = train_merges(text, vocab_size - BYTE_TOKENS - len(specials))
    document = byte_level_bpe(merges, specials)
    _refuse_words(document["model"]["vocab"], specials)
    sha256 = _check(document, config, checked)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_all({path.with_name(CONFIG_NAME): config, path: to_json(document)})
    return TrainingReport(
        path=str(path),
        documents=sample.documents,
        text_bytes=sample.text_bytes,
        complete=sample.complete,
        dropped=dict(sample.dropped),
        places=sample.places,
        vocab_size=len(document["model"]["vocab"]) + len(specials),
        special_tokens={token["content"]: token["id"] for token in document["added_tokens"]},
        sha256=sha256,
        seconds=time.monotonic() - started,
    )


def _check_specials(specials: list[str], vocab_size: int) -> None:
    problems = [
        Problem(f"special token {token!r}", reason)
        for place, token in enumerate(specials)
        if (reason := _why_no_special(token, specials[:place]))
    ]
    if problems:
        raise TokenizerError("wanted special tokens that differ, each a text:", problems=problems, usage=True)
    if vocab_size < (least := BYTE_TOKENS + len(specials)):
        raise TokenizerError(
            f"a vocabulary of {vocab_size:,} ids is too small: wanted at least {least}, for 256 bytes and "
            f"{len(specials)} special token{'s' * (len(specials) > 1)}"
        )


def _why_no_special(token: str, before: list[str]) -> str | None:
    if not token:
        return "it is empty"
    if token in before:
        return "given twice"
    if token in byte_spellings():
        return "the vocabulary spells a byte like this"
    return "it holds a lone surrogate" if any("\ud800" <= character <= "\udfff" for character in token) else None


def _refuse_words(vocab: dict[str, int], specials: list[str]) -> None:
    if words := [token for token in specials if token in vocab]:
        raise TokenizerError(
            f"the special token {words[0]!r} is a word of the text too, and the vocabulary cannot tell the two apart; "
            f"choose one that text does not hold, such as '<|{words[0].strip()}|>'"
        )


def _targets(output: Path, *, overwrite: bool, config: bytes) -> tuple[Path, bytes]:
    """Where to write, refused if something is there."""
    output = output.expanduser()
    path = output if output.suffix == ".json" and not output.is_dir() else output / "tokenizer.json"
    if path.name == CONFIG_NAME:
        raise TokenizerError(f"{CONFIG_NAME} is what the file beside a tokenizer is called; choose another name")
    if path.parent.exists() and not path.parent.is_dir():
        raise TokenizerError(f"{path.parent} is a file; wanted a name that ends in .json, or a folder")
    beside = path.with_name(CONFIG_NAME)
    there = [path] if path.exists() else []
    if beside.exists() and beside.read_bytes() != config:
        there.append(beside)
    if there and not overwrite:
        raise OutputExistsError(f"{there[0]} is there already; pass --overwrite to replace it, or write elsewhere")
    return path, config


def _config(end_of_text: str) -> bytes:
    """What `transformers` and a build want to know beside the vocabulary."""
    return to_json(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end_of_text,
            "clean_up_tokenization_spaces": False,
        }
    )


def _write_text(sample: TextSample, file: IO[bytes]) -> list[bytes]:
    """Write the sample as the trainer reads it; returns its beginning, to compare ids on."""
    beginning: list[bytes] = []
    room = _CHECKED_BYTES
    for part in sample.read():
        for text in part.texts:
            if room <= 0:
                break
            beginning.append(text[:room].decode(errors="ignore").encode())
            room -= len(text)
        file.write(SEPARATOR.join([*part.texts, b""]))
    file.flush()
    return beginning


def _check(document: dict[str, Any], config: bytes, texts: list[bytes]) -> str:
    """Load what is to be written and compare its ids with the `tokenizers` library's; returns its identity."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(to_json(document))
        path.with_name(CONFIG_NAME).write_bytes(config)
        tokenizer = load_tokenizer(os.fspath(path))
        tokenizer.check(texts)
        return tokenizer.ref.sha256
