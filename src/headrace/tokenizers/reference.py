"""The `tokenizers` library as the reference: what gigatoken's ids are compared with, and what decodes."""

import pickle
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.children import child_command, child_environment, collect_rarely
from headrace.errors import Problem, TokenizerError
from headrace.tokenizers.alphabet import Alphabet, lost_character

if TYPE_CHECKING:
    from tokenizers import Encoding


__all__ = [
    "CANNOT_ENCODE",
    "PROBE",
    "Reference",
    "UnencodedTextError",
    "compare_elsewhere",
    "require_equal",
    "rust_errors",
    "with_probe",
]

PROBE = (
    "The quick  brown fox\tjumps;\n\n  it's 12345.678 (don't, DON'T, we'LL) --- x_y1 == z\r\n\r\n   end.  \n \u00a0\u2003"
    " caf\u00e9 cafe\u0301 \u212b \ufb01 \uff26\uff55\uff4c\uff4c \u00df \u0130 \u4e2d\u6587\u5b57\u3002 \u304b\u306a\u3099 \ud55c\uae00 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u0639\u0631\u0628\u064a \u05e2\u05d1\u05e8 \u0661\u0662 \u00bd "
    "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001d54f \ufeff\u200b\x00\x7f <s> </s> [INST]  <|im_end|>   "
)
"""A text with what tokenizers treat specially: contractions, digits, runs of white space, composed and decomposed
letters, compatibility forms, scripts without spaces, joined emoji, control characters, spellings of special tokens."""
CANNOT_ENCODE = "the tokenizers library cannot encode the text"
_MAX_SPECIALS = 64
"""Most special tokens spelled in the probe; large vocabularies have a thousand reserved ones."""


@contextmanager
def rust_errors(what: str) -> Generator[None]:
    """Turn what a Rust library raises into a `TokenizerError` of one line that begins with `what`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic in Rust derives from BaseException
        reason = str(error).partition("\n")[0]
        raise TokenizerError(f"{what}: {reason}") from error


class UnencodedTextError(TokenizerError):
    """A text that a tokenizer has no ids for.

    Attributes:
        index: of the text among those that were to be encoded.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class Reference:
    """A tokenizer.json in `tokenizers`: special tokens' spellings encoded as text, nothing cut, padded or added.

    Args:
        text: content of the tokenizer.json.
        label: what errors call it.

    Raises:
        TokenizerError: `tokenizers` refuses the file, or gives an added token another id than the file.
    """

    def __init__(self, text: str, label: str) -> None:
        from tokenizers import Tokenizer, decoders  # noqa: PLC0415  # only where text is decoded or compared

        self._label = label
        with rust_errors(f"{label} is refused by the tokenizers library"):
            self._tokenizer: Any = Tokenizer.from_str(text)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if self._tokenizer.decoder is None and not getattr(self._tokenizer.model, "byte_fallback", True):
            # A byte-level file that names no decoder would come out as its vocabulary spells it: "\u0120the".
            self._tokenizer.decoder = decoders.ByteLevel()
        self._alphabet = Alphabet.of(self._tokenizer)

    def require_added_ids(self, added: Sequence[dict[str, Any]]) -> None:
        """`tokenizers` renumbers added tokens whose ids do not follow the vocabulary's; gigatoken takes them as written.

        Raises:
            TokenizerError: the tokens it renumbered.
        """
        problems = [
            Problem(
                f"added token {token['content']!r}", f"id {token['id']} in the file, {found} in the tokenizers library"
            )
            for token in added
            if (found := self.token_id(token["content"])) != token["id"]
        ]
        if problems:
            raise TokenizerError(f"{self._label}: the ids of added tokens are ambiguous", problems=problems)

    def decode(self, ids: list[int]) -> str:
        """Text of ids; ids without an entry have none."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, on as many threads as there are processors (`TOKENIZERS_PARALLELISM=0`: one).

        Raises:
            UnencodedTextError: the library has no ids for one of them, or would drop a character.
        """
        self._require_whole(texts)
        try:
            with rust_errors(f"{self._label}: {CANNOT_ENCODE}"):
                encodings: list[Encoding] = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except TokenizerError:  # which text it is
            encodings = [self._encoded_alone(index, text) for index, text in enumerate(texts)]
        return [encoding.ids for encoding in encodings]

    def _require_whole(self, texts: list[str]) -> None:
        if self._alphabet is None:
            return
        for index, text in enumerate(texts):
            lost = self._alphabet.first_lost(text)
            if lost:
                raise UnencodedTextError(index, f"{self._label}: {lost_character(lost)}")

    def _encoded_alone(self, index: int, text: str) -> "Encoding":
        try:
            with rust_errors(f"{self._label}: {CANNOT_ENCODE}"):
                return self._tokenizer.encode(text, add_special_tokens=False)
        except TokenizerError as error:
            raise UnencodedTextError(index, error.summary) from error

    def token_id(self, token: str) -> int | None:
        """Id of an entry."""
        return self._tokenizer.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Entry of an id."""
        return self._tokenizer.id_to_token(token_id)

    def compare(self, samples: Sequence[bytes], ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Encode a sample, and compare.

        Args:
            samples: valid UTF-8 each, the last one the probe.
            ids: what gigatoken gave for them, one after another.
            ends: exclusive end of each in `ids`, (len(samples),).

        Raises:
            TokenizerError: the first difference; a document's text is not shown.
        """
        # One text at a time: encode_batch would start a pool of threads.
        wanted: list[Encoding] = [self._tokenizer.encode(text.decode(), add_special_tokens=False) for text in samples]
        characters = [[start for start, _ in encoding.offsets] for encoding in wanted]
        ours = np.split(ids, ends[:-1])
        require_equal(ours, [encoding.ids for encoding in wanted], self._label, "tokenizers", characters=characters)


def require_equal(
    found: Sequence[NDArray[Any]],
    wanted: Sequence[list[int]],
    label: str,
    library: str,
    *,
    characters: Sequence[list[int]] | None = None,
) -> None:
    """Compare gigatoken's ids of a sample with a library's.

    Args:
        found: gigatoken's, text by text; the last one is the probe.
        wanted: the library's.
        label: what the error calls the tokenizer.
        library: its name.
        characters: where in its text each token of `wanted` begins, if that is known.

    Raises:
        TokenizerError: the first difference; a document's text is not shown.
    """
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if ours.tolist() != theirs:
            where = "a built-in probe text" if number == len(found) - 1 else f"document {number + 1} of the sample"
            difference = _first_difference(ours.tolist(), theirs, characters[number] if characters else None)
            raise TokenizerError(
                f"{label}: gigatoken and the {library} library disagree in {where}, {difference}. Such a corpus would "
                f"not fit models of this tokenizer: let that library encode, more slowly, with {library}:{label} as the "
                "tokenizer, or use another version of gigatoken"
            )


def with_probe(texts: Sequence[bytes], specials: Iterable[str]) -> list[bytes]:
    """A sample and, behind it, a built-in text with what tokenizers treat specially.

    Args:
        texts: the sample.
        specials: spellings of special tokens, which are part of the probe.
    """
    spelled = list(islice(specials, _MAX_SPECIALS))
    probe = PROBE + "".join(spelled) + " ".join(spelled) + "a".join(spelled)
    return [*texts, probe.encode()]


def compare_elsewhere(
    text: str,
    label: str,
    added: Sequence[dict[str, Any]],
    *,
    sample: tuple[list[bytes], NDArray[Any], NDArray[np.int64]],
) -> None:
    """`require_added_ids(added)` and `compare(*sample)` of `Reference(text, label)`, in a process of its own.

    The library holds the interpreter's lock while it loads (0.15 s for 50,000 ids) and encodes; here all that is left is
    to wait. The memory goes with the process.

    Raises:
        TokenizerError: what the process found, or that it died.
    """
    done = subprocess.run(
        child_command(__name__),
        input=pickle.dumps((text, label, added, sample)),
        stdout=subprocess.PIPE,
        env=child_environment(),
        process_group=0,  # Ctrl-C is for the parent; this one ends by itself
        check=False,
    )
    if done.returncode:
        raise TokenizerError(
            f"{label}: the process that compares it with the tokenizers library died ({done.returncode})"
        )
    fault: TokenizerError | None = pickle.loads(done.stdout)  # noqa: S301  # by our own process
    if fault is not None:
        raise fault


def _main() -> None:
    """The process of `compare_elsewhere`: arguments on stdin, the error or None on stdout, both pickled."""
    collect_rarely()
    text, label, added, sample = pickle.load(sys.stdin.buffer)  # noqa: S301  # by our own parent
    fault: TokenizerError | None = None
    try:
        reference = Reference(text, label)
        reference.require_added_ids(added)
        reference.compare(*sample)
    except TokenizerError as error:
        fault = error
    sys.stdout.buffer.write(pickle.dumps(fault))


def _first_difference(found: list[int], wanted: list[int], characters: list[int] | None) -> str:
    pairs = zip(found, wanted, strict=False)
    place = next((i for i, (left, right) in enumerate(pairs) if left != right), min(len(found), len(wanted)))
    character = ""
    if characters is not None:
        character = f" (character {characters[place] if place < len(characters) else 'the end'})"
    return f"token {place}{character}: ids {found[place : place + 4]} and {wanted[place : place + 4]}"


if __name__ == "__main__":
    _main()
