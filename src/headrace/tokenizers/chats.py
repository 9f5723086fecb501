"""Conversations as a chat template wrote them, to the ids that Hugging Face gives them, and what counts in the loss."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TokenizerError
from headrace.sources.chat import Chat, ChatTemplate, chat_of
from headrace.tokenizers.alphabet import Alphabet, lost_character
from headrace.tokenizers.base import BatchTokenizer, DocumentMasks, joined_ids
from headrace.tokenizers.chat_template import TEMPLATE_NAME
from headrace.tokenizers.identity import parse_tokenizer_json, without_special_tokens
from headrace.tokenizers.reference import CANNOT_ENCODE, UnencodedTextError, rust_errors
from headrace.tokenizers.stand_in import StandIn
from headrace.tokenizers.tokenizer_json import JsonTokenizer

__all__ = ["Conversations"]

_Token = tuple[int, int, int]
"""Its id, and the characters [start, stop) that it is of."""


class Conversations(StandIn):
    """A tokenizer of documents that `ChatTemplate.document` has made; the `tokenizers` library encodes them.

    Special tokens that the template wrote are special; those that a message spells are ordinary text. A token counts where
    any of its characters is the assistant's. The boundary that ends a conversation, and the BOS that begins it, are left out
    where the build adds them.

    Args:
        tokenizer: a tokenizer.json.
        template: that wrote them; a corpus keeps it beside the copy of the tokenizer.
        boundary: id that the build puts behind each document.
        bos: id that it puts before each, if it does.
    """

    def __init__(self, tokenizer: BatchTokenizer, template: ChatTemplate, *, boundary: int, bos: int | None) -> None:
        super().__init__(tokenizer)
        self.template = template
        self._boundary = boundary
        self._bos = bos

    def __getstate__(self) -> dict[str, Any]:
        loaded = {"_by_id", "_special", "_plain", "_within", "_alphabets"}
        return {name: value for name, value in vars(self).items() if name not in loaded}

    def files(self) -> dict[str, bytes]:
        """Of the tokenizer, and the template."""
        return {**self.tokenizer.files(), TEMPLATE_NAME: self.template.text.encode()}

    def check(self, texts: Sequence[bytes]) -> None:
        """The reference itself encodes, so there is nothing to compare."""

    def encode_masked(self, documents: Sequence[bytes]) -> tuple[NDArray[Any], NDArray[np.int64], DocumentMasks]:
        """See `MaskingTokenizer`.

        Args:
            documents: what `ChatTemplate.document` has made.

        Raises:
            UnencodedTextError: the library has no ids for one of them, or would drop a character.
        """
        rows: list[list[int]] = []
        masks: list[NDArray[np.bool_]] = []
        ends: list[bool] = []
        for index, chat in enumerate(map(chat_of, documents)):
            try:
                ids, mask, counts = self._encoded(chat)
            except TokenizerError as error:
                raise UnencodedTextError(index, error.summary) from error
            rows.append(ids)
            masks.append(mask)
            ends.append(counts)
        ids, stops = joined_ids(rows, self.vocab_size, "the chat template")
        text = np.concatenate([*masks, np.empty(0, np.bool_)]).astype(np.uint8)
        return ids, stops, DocumentMasks(text, np.array(ends, np.bool_))

    def _encoded(self, chat: Chat) -> tuple[list[int], NDArray[np.bool_], bool]:
        """Ids, which of them count, and whether the boundary does."""
        tokens = list(self._tokens(chat))
        ids = [token for token, _, _ in tokens]
        counts = np.zeros(len(chat.text) + 1, np.int64)
        for start, stop in chat.counts:
            counts[start + 1 : stop + 1] = 1
        until = np.cumsum(counts)
        edges = np.array([edge[1:] for edge in tokens], np.int64).reshape(-1, 2)
        mask = until[edges[:, 1]] > until[edges[:, 0]]
        if self._bos is not None and ids[:1] == [self._bos]:
            ids, mask = ids[1:], mask[1:]
        if ids[-1:] == [self._boundary]:
            return ids[:-1], mask[:-1], bool(mask[-1])
        counted = np.flatnonzero(mask)
        # Where the assistant's turn has ended with the same token already, it is not to be learned once more.
        said = len(counted) > 0 and ids[int(counted[-1])] == self._boundary
        return ids, mask, chat.ends and not said

    def _tokens(self, chat: Chat) -> Iterator[_Token]:
        """Tokens of the text, with their characters in it as it is."""
        text = chat.text
        found = self._by(self._special, text)
        tokens = [(token, start, stop) for token, (start, stop) in zip(found.ids, found.offsets, strict=True)]
        if not chat.spelled and self._alphabets is None:
            yield from tokens
            return
        between: list[_Token] = []
        begun = 0
        for token, start, stop in tokens:
            if self._by_id.get(token) != text[start:stop].strip():
                between.append((token, start, stop))
                continue
            yield from self._piece(chat, begun, start, between)
            yield token, start, stop
            between, begun = [], stop
        yield from self._piece(chat, begun, len(text), between)

    def _piece(self, chat: Chat, start: int, stop: int, tokens: list[_Token]) -> Iterator[_Token]:
        """Tokens of characters between two special tokens: as they are, but where a message spells a special token."""
        piece = chat.text[start:stop]
        spelled = any(character in piece for character in chat.spelled)
        written = [chat.spelled.get(character, character) for character in piece] if spelled else [piece]
        if self._alphabets is not None:
            self._require_whole("".join(written), self._alphabets[start == 0])
        if not spelled:
            yield from tokens
            return
        lengths = np.array([len(text) for text in written], np.int64)
        place = np.append(np.repeat(np.arange(start, stop), lengths), stop)
        encoder = self._within if start else self._plain
        found = self._by(encoder, "".join(written))
        for token, (begin, end) in zip(found.ids, found.offsets, strict=True):
            first = int(place[begin])
            yield token, first, max(int(place[end - 1]) + 1, first) if end > begin else first

    def _require_whole(self, text: str, alphabet: Alphabet) -> None:
        lost = alphabet.first_lost(text)
        if lost:
            raise TokenizerError(f"{self.ref.name}: {lost_character(lost)}")

    def _by(self, encoder: Any, text: str) -> Any:  # noqa: ANN401  # of and by the tokenizers library
        with rust_errors(f"{self.ref.name}: {CANNOT_ENCODE}"):
            return encoder.encode(text, add_special_tokens=False)

    @cached_property
    def _by_id(self) -> dict[int, str]:
        return {token: spelling for spelling, token in self.special_tokens.items()}

    @cached_property
    def _special(self) -> Any:  # noqa: ANN401  # a tokenizers.Tokenizer
        """Takes spellings of special tokens for these."""
        return self._loaded(first=True, special=True)

    @cached_property
    def _plain(self) -> Any:  # noqa: ANN401  # likewise
        """Takes them for text; and ..."""
        return self._loaded(first=True, special=False)

    @cached_property
    def _within(self) -> Any:  # noqa: ANN401  # likewise
        """... puts nothing before it that belongs before the first word of a text alone."""
        return self._loaded(first=False, special=False)

    @cached_property
    def _alphabets(self) -> tuple[Alphabet, Alphabet] | None:
        """Of texts, and of what comes later in them (at 1 and at 0); None where nothing is dropped."""
        within, whole = Alphabet.of(self._within), Alphabet.of(self._plain)
        return within and whole and (within, whole)

    def _loaded(self, *, first: bool, special: bool) -> Any:  # noqa: ANN401  # likewise
        from tokenizers import Tokenizer  # noqa: PLC0415  # only where conversations are encoded

        assert isinstance(self.tokenizer, JsonTokenizer)  # noqa: S101  # it has a template
        document = parse_tokenizer_json(self.tokenizer.text, str(self.tokenizer.path))
        if not special and document["model"]["type"] != "BPE":
            document = without_special_tokens(document)
        document |= {"post_processor": None, "truncation": None, "padding": None}
        if not first:
            _put_nothing_first(document.get("pre_tokenizer"))
        with rust_errors(f"{self.tokenizer.path} is refused by the tokenizers library"):
            encoder: Any = Tokenizer.from_str(json.dumps(document))
        encoder.encode_special_tokens = not special
        return encoder


def _put_nothing_first(part: Any) -> None:  # noqa: ANN401  # of a tokenizer.json
    """Let a pre-tokenizer put no space before the first word of what it gets."""
    if isinstance(part, list):
        for one in part:
            _put_nothing_first(one)
    elif isinstance(part, dict):
        if part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
        for one in part.values():
            _put_nothing_first(one)
