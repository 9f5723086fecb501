"""What a corpus must be: a list of documents for each version, made of the commands that were asked for."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace.testing.strategies import InputFile


@dataclass(frozen=True)
class Document:
    """A document of the byte tokenizer, and where it is from."""

    tokens: tuple[int, ...]
    label: str
    line: int
    byte: int


@dataclass(frozen=True)
class Command:
    """A build that is asked for."""

    mode: str
    """`build`, `append` or `overwrite`."""
    inputs: Path
    files: tuple[InputFile, ...]
    options: dict[str, Any]

    @property
    def asked(self) -> dict[str, Any]:
        """The options of `headrace.build`."""
        flag = {} if self.mode == "build" else {self.mode: True}
        return {**self.options, **flag, "on_bad_input": "skip", "max_bad": 1}

    @property
    def kept_options(self) -> dict[str, Any]:
        """Those that a manifest lists."""
        return {name: value for name, value in self.options.items() if name != "chunk_tokens"}

    @property
    def store(self) -> str:
        """Of the corpus."""
        return self.options.get("store", "hdf5")

    @property
    def labels(self) -> list[str]:
        """Of the files."""
        return [f"{number}.{file.suffix}" for number, file in enumerate(self.files)]

    @property
    def sources(self) -> list[tuple[str, int, str]]:
        """Label, size and SHA-256 of the files."""
        return [
            (label, len(file.data), hashlib.sha256(file.data).hexdigest())
            for label, file in zip(self.labels, self.files, strict=True)
        ]

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for commands that build the same."""
        return sorted(self.options.items(), key=str), self.sources

    @cached_property
    def documents(self) -> list[Document]:
        """What must come of it."""
        found: list[Document] = []
        for label, file in zip(self.labels, self.files, strict=True):
            for text in file.texts:
                ids = [byte + 1 for byte in text.text.encode()]
                if ids or self.options["keep_empty"]:
                    tokens = (*ids[: self.options["max_document_tokens"]], 0)
                    found.append(Document(tokens, label, text.line, text.byte))
        return found

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """Documents, empty ones that are dropped, and bad ones of each file."""
        found = []
        for file in self.files:
            empty = 0 if self.options["keep_empty"] else sum(not text.text for text in file.texts)
            found.append((len(file.texts) - empty, empty, file.bad))
        return found


@dataclass(frozen=True)
class Version:
    """A corpus that was published."""

    commands: tuple[Command, ...]
    """The build and the appends that it is made of."""

    @property
    def store(self) -> str:
        """That all of them have."""
        return self.commands[0].store

    @cached_property
    def documents(self) -> list[Document]:
        """All, in order."""
        return [document for command in self.commands for document in command.documents]

    @cached_property
    def line(self) -> np.ndarray:
        """All tokens."""
        return np.array([token for document in self.documents for token in document.tokens], dtype=np.uint16)

    @cached_property
    def starts(self) -> list[int]:
        """Where each document begins."""
        return np.cumsum([0, *(len(document.tokens) for document in self.documents)])[:-1].tolist()

    def served_by(self, corpus: headrace.Corpus) -> bool:
        """Whether a corpus is this one, to the last origin and count."""
        manifest = corpus.manifest
        sources = [source for command in self.commands for source in command.sources]
        counts = [count for command in self.commands for count in command.counts]
        return (
            np.array_equal(corpus.get_slice(0, corpus.token_count), self.line)
            and [manifest.options, *(append.options for append in manifest.appends)]
            == [{**manifest.options, **command.kept_options} for command in self.commands]
            and manifest.chunk_size == self.commands[0].options["chunk_tokens"]
            and [(source.path, source.size, source.sha256) for source in manifest.sources] == sources
            and [
                (source.documents, source.dropped.get("empty", 0), sum(source.dropped.values()))
                for source in manifest.sources
            ]
            == [(kept, empty, empty + bad) for kept, empty, bad in counts]
            and self._documents_of(corpus)
        )

    def _documents_of(self, corpus: headrace.Corpus) -> bool:
        if len(corpus.documents) != len(self.documents):
            return False
        for number, (start, document) in enumerate(zip(self.starts, self.documents, strict=True)):
            found = corpus.locate(start + len(document.tokens) - 1)
            at = (found.document, found.start, found.source, found.line, found.byte)
            if at != (number, start, document.label, document.line, document.byte):
                return False
            if corpus.documents[number].tolist() != list(document.tokens):
                return False
        return True
