"""From what a user names to a tokenizer, and to the ids of its boundary and BOS."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

from headrace.errors import BoundaryError, TokenizerError
from headrace.manifest import TokenizerRef
from headrace.tokenizers.base import REF_NAME, BatchTokenizer, NamedTokens, TextEncoder
from headrace.tokenizers.bytes import Tokenizer
from headrace.tokenizers.file_tokenizer import FileTokenizer, read_file
from headrace.tokenizers.hub import fetch_tokenizer, looks_like_hub_name
from headrace.tokenizers.objects import files_of
from headrace.tokenizers.own import OwnTokenizer
from headrace.tokenizers.ranks import looks_like_ranks
from headrace.tokenizers.ready import NO_TOKENIZER, NoTokenizer
from headrace.tokenizers.sentencepiece import SentencePieceTokenizer
from headrace.tokenizers.sentencepiece_model import looks_like_model
from headrace.tokenizers.tiktoken import TiktokenTokenizer
from headrace.tokenizers.tokenizer_json import CONFIG_NAME, JsonTokenizer

__all__ = ["load_from_corpus", "load_tokenizer", "resolve_bos", "resolve_boundary"]

_MAX_LISTED = 20
_KINDS: tuple[type[FileTokenizer], ...] = (JsonTokenizer, TiktokenTokenizer, SentencePieceTokenizer)
_LIBRARIES = {"hf": "tokenizers", **{kind.library: kind.library for kind in _KINDS}}
"""What may stand before a path, and which library then encodes."""


def load_tokenizer(
    spec: str | os.PathLike[str] | BatchTokenizer | TextEncoder = "bytes",
    *,
    on_notice: Callable[[str], None] | None = None,
) -> BatchTokenizer:
    """Load a tokenizer that encodes.

    Args:
        spec: `bytes`; a tokenizer.json, tiktoken file or sentencepiece model, whatever its name, or a folder that holds
            one under its usual name; the name of a Hugging Face hub model; or a tokenizer: a `BatchTokenizer` is
            returned as it is, an object of a library that `files_of` knows is what its file would be, and another one
            becomes an `OwnTokenizer`. What exists as a path is a path; a folder named
            `bytes` is `./bytes`. With `hf:`, `tiktoken:` or `sentencepiece:` before a path that library encodes: it runs
            more kinds of models than gigatoken, and is slower. It also does where gigatoken refuses the file.
        on_notice: told if gigatoken refuses it.

    Raises:
        TokenizerError: nothing there, nothing that can be read as a tokenizer, or one that is not supported.
        MissingExtraError: a tiktoken file or sentencepiece model without its library.
    """
    if not isinstance(spec, (str, os.PathLike)):
        if callable(getattr(spec, "encode_documents", None)):
            return cast("BatchTokenizer", spec)
        found = files_of(spec)
        return OwnTokenizer(spec) if found is None else _of_files(*found, on_notice)
    if spec == "bytes":
        return Tokenizer()
    tokenizer = _open(spec)
    if not isinstance(tokenizer, FileTokenizer):
        return tokenizer
    if tokenizer.by_library:
        tokenizer.load_encoder()
        return tokenizer
    return _that_encodes(tokenizer, on_notice)


def _of_files(name: str, files: Mapping[str, bytes], on_notice: Callable[[str], None] | None) -> FileTokenizer:
    """The tokenizer of some files, the first of which is it; they are read at once and not needed later."""
    with TemporaryDirectory(prefix="headrace-") as folder:
        for file, content in files.items():
            (Path(folder) / file).write_bytes(content)
        return _that_encodes(_open_file(Path(folder) / next(iter(files)), name=name), on_notice)


def _that_encodes(tokenizer: FileTokenizer, on_notice: Callable[[str], None] | None) -> FileTokenizer:
    """With gigatoken, else with the library: a build learns now, not after an hour, that one refuses it."""
    try:
        tokenizer.load_encoder()
    except TokenizerError as refusal:
        by_library = tokenizer.run_by_library()
        try:
            by_library.load_encoder()
        except TokenizerError as error:
            raise TokenizerError(f"{refusal.summary}; {error.summary}", problems=error.problems) from error
        if on_notice is not None:
            on_notice(f"{refusal.summary}; the {tokenizer.library} library encodes, which is slower")
        return by_library
    return tokenizer


def load_from_corpus(folder: str | os.PathLike[str]) -> BatchTokenizer:
    """Load the copy of the tokenizer that lies in a corpus.

    Args:
        folder: the corpus' folder.

    Raises:
        TokenizerError: it holds no copy, or one that is no longer what it was.
    """
    copy = Path(folder) / "tokenizer"
    if not (copy / REF_NAME).is_file():
        raise TokenizerError(f"{folder} holds no copy of its tokenizer ({copy / REF_NAME}); name the tokenizer instead")
    return _open_copy(copy)


def _open(spec: str | os.PathLike[str]) -> BatchTokenizer:
    if not os.fspath(spec):
        raise TokenizerError("wanted the path or the name of a tokenizer, got an empty one", usage=True)
    path = Path(spec).expanduser()
    if path.is_dir():
        if (path / REF_NAME).is_file():
            return _open_copy(path)
        return _open_file(_file_in(path))
    if path.is_file():
        return _open_file(path)
    if path.exists():
        raise TokenizerError(f"{path} is neither a file nor a folder; wanted a tokenizer.json")
    if isinstance(spec, str):
        library, _, rest = spec.partition(":")
        if rest and library in _LIBRARIES:
            return _by_library(_open(rest), _LIBRARIES[library])
        if looks_like_hub_name(spec):
            return JsonTokenizer(fetch_tokenizer(spec), name=spec)
    raise TokenizerError(
        f"there is no tokenizer at {path}; wanted bytes, a tokenizer.json, a tiktoken file, a sentencepiece model, a folder "
        "that holds one, or the name of a Hugging Face hub model"
    )


def _by_library(tokenizer: BatchTokenizer, library: str) -> BatchTokenizer:
    if not isinstance(tokenizer, FileTokenizer) or tokenizer.library != library:
        raise TokenizerError(f"{_label(tokenizer)} is no tokenizer of the {library} library")
    return tokenizer.run_by_library()


def _file_in(folder: Path) -> Path:
    for kind in _KINDS:
        if (folder / kind.usual_name).is_file():
            return folder / kind.usual_name
    raise TokenizerError(
        f"{folder} holds no tokenizer.json, tokenizer.tiktoken or tokenizer.model; {_what_is_there(folder)}"
    )


def _open_file(path: Path, *, name: str | None = None) -> FileTokenizer:
    """By its content: people call these files as they like."""
    data = read_file(path)
    if looks_like_ranks(data):
        return TiktokenTokenizer(path, name=name)
    if looks_like_model(data):
        return SentencePieceTokenizer(path, name=name)
    return JsonTokenizer(path, name=name)


def _what_is_there(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return f"it holds {', '.join(names[:_MAX_LISTED])}" if names else "it is empty"


def _open_copy(folder: Path) -> BatchTokenizer:
    ref, run_by = _read_ref(folder / REF_NAME)
    kinds = {kind.kind: kind for kind in _KINDS}
    if ref.kind == "bytes":
        tokenizer: BatchTokenizer = Tokenizer()
    elif ref.kind == "own":
        return OwnTokenizer(None, ref=ref)
    elif ref.kind == NO_TOKENIZER:
        tokenizer = NoTokenizer(ref.vocab_size)
    elif ref.kind in kinds:
        kind = kinds[ref.kind]
        tokenizer = kind(folder / kind.usual_name, name=ref.name, by_library=run_by == kind.library)
    else:
        raise TokenizerError(
            f"{folder / REF_NAME} names a tokenizer of kind {ref.kind!r}, which this version cannot read"
        )
    if tokenizer.ref != ref:
        raise TokenizerError(
            f"{folder} is not the tokenizer that it says: {REF_NAME} has sha256 {ref.sha256} and {ref.vocab_size} ids, "
            f"the files give {tokenizer.ref.sha256} and {tokenizer.ref.vocab_size}"
        )
    return tokenizer


def _read_ref(path: Path) -> tuple[TokenizerRef, str | None]:
    """Which tokenizer a copy is, and the library that encoded with it, if it was not gigatoken."""
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        ref = TokenizerRef(
            kind=str(fields["kind"]),
            name=str(fields["name"]),
            sha256=str(fields["sha256"]),
            vocab_size=int(fields["vocab_size"]),
        )
        return ref, fields.get("run_by")
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise TokenizerError(f"{path} is damaged: {error!r}") from None


def resolve_boundary(tokenizer: BatchTokenizer, option: str | int | None = None) -> int:
    """Id of the token that ends each document.

    Args:
        tokenizer: of the corpus.
        option: an id, also in digits, else a vocabulary entry as the vocabulary spells it; `id:` or `token:` before it forces
            one or the other. None for the tokenizer's own: 0 of bytes, `eos_token` of the tokenizer_config.json beside
            a tokenizer.json. It is never guessed from a spelling.

    Raises:
        BoundaryError: no such id or entry, or None where the tokenizer does not say.
    """
    if option is not None:
        return _resolve(tokenizer, str(option), "boundary")
    token = _named(tokenizer, "eos")
    if isinstance(tokenizer, NoTokenizer):
        raise BoundaryError(
            "the boundary token is not known, for there is no tokenizer to say it: give the id that ends each document, 0 to "
            f"{tokenizer.vocab_size - 1}, by --boundary"
        )
    if token is None:
        raise BoundaryError(
            f"the boundary token is not known: {_label(tokenizer)} does not say what ends a document (no eos_token in a "
            f"{CONFIG_NAME} beside it; --boundary gives one). Pass one: {_choices(tokenizer)}"
        )
    return _entry(tokenizer, token, f"boundary (eos_token of {CONFIG_NAME})")


def resolve_bos(tokenizer: BatchTokenizer, option: str | None = None) -> int | None:
    """Id of the token that begins each document, or None for none.

    Args:
        tokenizer: of the corpus.
        option: None for none; `auto` for `bos_token` of the tokenizer_config.json; else as for `resolve_boundary`.

    Raises:
        BoundaryError: no such id or entry, or `auto` where the tokenizer does not say.
    """
    if option is None:
        return None
    if option != "auto":
        return _resolve(tokenizer, option, "BOS")
    token = _named(tokenizer, "bos")
    if token is None:
        raise BoundaryError(
            f"the BOS token is not known: {_label(tokenizer)} does not say what begins a document (no bos_token in a "
            f"{CONFIG_NAME} beside it); leave out --bos, or name the token there"
        )
    return _entry(tokenizer, token, f"BOS (bos_token of {CONFIG_NAME})")


def _resolve(tokenizer: BatchTokenizer, option: str, role: str) -> int:
    kind, _, rest = option.partition(":")
    if kind == "token" and rest:
        return _entry(tokenizer, rest, role)
    digits = rest if kind == "id" else option
    if digits.isascii() and digits.isdigit():
        if int(digits) >= tokenizer.vocab_size:
            raise BoundaryError(
                f"the {role} id {digits} is not in the vocabulary of {_label(tokenizer)}, which has the ids 0 to "
                f"{tokenizer.vocab_size - 1}. Pass one: {_choices(tokenizer)}"
            )
        return int(digits)
    if kind == "id":
        raise BoundaryError(f"wanted digits behind id:, found {option!r}", usage=True)
    return _entry(tokenizer, option, role)


def _entry(tokenizer: BatchTokenizer, token: str, role: str) -> int:
    token_id = tokenizer.token_id(token)
    if token_id is None:
        raise BoundaryError(
            f"the {role} token {token!r} is not in the vocabulary of {_label(tokenizer)}. Pass one: {_choices(tokenizer)}"
        )
    return token_id


def _named(tokenizer: BatchTokenizer, role: Literal["bos", "eos"]) -> str | None:
    return tokenizer.named_token(role) if isinstance(tokenizer, NamedTokens) else None


def _label(tokenizer: BatchTokenizer) -> str:
    ref = getattr(tokenizer, "ref", None)
    return f"tokenizer {ref.name}" if isinstance(ref, TokenizerRef) else type(tokenizer).__name__


def _choices(tokenizer: BatchTokenizer) -> str:
    """What could be passed: the special tokens, else how to write an id."""
    specials = tokenizer.special_tokens if isinstance(tokenizer, NamedTokens) else {}
    listed = [f"{token} (id {token_id})" for token, token_id in specials.items()]
    if not listed:
        return "an id or an entry of its vocabulary (it has no special tokens)"
    more = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
    return ", ".join(listed[:_MAX_LISTED]) + more
