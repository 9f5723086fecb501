"""What makes two commands the same build: their inputs, tokenizer and content options."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.building.job import PART_BYTES, ContentOptions
from headrace.errors import Problem
from headrace.in_progress import Mode, plan_digest
from headrace.manifest import Manifest, TokenizerRef
from headrace.sources import BadInput, Discovery
from headrace.sources.files import CUT_BYTES
from headrace.sources.split import NO_SPLIT

__all__ = ["BuildPlan", "PlannedSource", "manifest_options"]

_FLAGS = {"boundary_token_id": "boundary", "bos_token_id": "bos"}
"""Options whose flags have other names."""
_UNSAID = {"store": "hdf5"}
"""What an option is that is not there."""


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """One input file as it was listed."""

    path: str
    size: int
    kind: str
    """`jsonl`, `text` or another; empty where it is not known any more, likewise ..."""
    mtime_ns: int
    """... when it was last modified, 0; what was read of a file that has another time is hashed before it is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """What decides the content of a build; two commands with equal plans are the same."""

    mode: Mode
    base: str
    """Fingerprint of the corpus that is appended to; else empty."""
    options: Mapping[str, Any]
    tokenizer: TokenizerRef | None
    sources: tuple[PlannedSource, ...]

    @classmethod
    def of(
        cls, mode: Mode, base: str, found: Discovery, options: ContentOptions, tokenizer: TokenizerRef
    ) -> "BuildPlan":
        """The plan of a command."""
        return cls(
            mode=mode,
            base=base,
            options={**manifest_options(options), "boundary_token_id": options.boundary_token_id}
            | {"chunk_tokens": options.chunk_tokens},
            tokenizer=tokenizer,
            sources=tuple(
                PlannedSource(file.label, file.size, file.kind, 0 if file.given else _modified(file.path))
                for file in found.files
            ),
        )

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> "BuildPlan":
        """The plan of the command that would build a finished corpus at once."""
        return cls(
            mode="build",
            base="",
            options={"compression": "none", **manifest.options, "boundary_token_id": manifest.boundary_token_id}
            | {"chunk_tokens": manifest.chunk_size},
            tokenizer=manifest.tokenizer,
            sources=tuple(PlannedSource(source.path, source.size, "", 0) for source in manifest.sources),
        )

    @property
    def has_loss_mask(self) -> bool:
        """Whether it says of each token whether it counts in the loss."""
        return any(self.options.get(name) is not None for name in ("prompt_field", "chat_field"))

    @property
    def digest(self) -> str:
        """Tells it from others: `headrace.in_progress.plan_digest`."""
        return plan_digest(asdict(self))

    def differences(self, command: "BuildPlan", faulty: frozenset[str] = frozenset()) -> list[Problem]:
        """What another command would do otherwise; empty if it is the same.

        Args:
            command: the other one.
            faulty: labels of sources that stopped this build, which may be mended.
        """
        problems = self._option_differences(command)
        if self.mode != command.mode or self.base != command.base:
            problems.append(Problem("mode", f"was {self.doing}, this command would be {command.doing}"))
        if self.tokenizer is None or command.tokenizer is None or self.tokenizer.sha256 != command.tokenizer.sha256:
            problems.append(
                Problem("tokenizer (--tokenizer)", f"was {_called(self.tokenizer)}, is {_called(command.tokenizer)}")
            )
        return problems + self._source_differences(command, faulty)

    @property
    def doing(self) -> str:
        """The mode, for messages."""
        return f"{self.mode} to {self.base[:16]}" if self.base else self.mode

    def _option_differences(self, command: "BuildPlan") -> list[Problem]:
        problems: list[Problem] = []
        for name in sorted({*self.options, *command.options}):
            was, now = (options.get(name, _UNSAID.get(name)) for options in (self.options, command.options))
            # A source that was finished with bad input as an error has none.
            if was == now or (name == "on_bad_input" and was == BadInput.ERROR):
                continue
            flag = _FLAGS.get(name, name).replace("_", "-")
            problems.append(Problem(f"{name} (--{flag})", f"was {was!r}, is {now!r}"))
        return problems

    def _source_differences(self, command: "BuildPlan", faulty: frozenset[str]) -> list[Problem]:
        mine = [source.path for source in self.sources]
        theirs = [source.path for source in command.sources]
        if mine != theirs:
            known, wanted = set(mine), set(theirs)
            problems = [Problem(path, "is not among the inputs any more") for path in mine if path not in wanted]
            problems += [Problem(path, "is a new input") for path in theirs if path not in known]
            return problems or [Problem("inputs", "are given in another order")]
        problems = []
        for old, new in zip(self.sources, command.sources, strict=True):
            if old.path in faulty:
                continue
            if old.size != new.size:
                problems.append(Problem(old.path, f"has changed: it had {old.size:,} bytes, now it has {new.size:,}"))
            elif old.kind and old.kind != new.kind:
                problems.append(Problem(old.path, f"was read as {old.kind}, now as {new.kind} (--format)"))
        return problems


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # whoever reads it will say so
        return 0


def _called(tokenizer: TokenizerRef | None) -> str:
    return f"{tokenizer.name} ({tokenizer.sha256[:16]})" if tokenizer else "not recorded"


def manifest_options(options: ContentOptions) -> dict[str, Any]:
    """The options that decide the content, as `shards.json` keeps them: what came later only where it is used."""
    later: dict[str, Any] = {"text_split": options.text_split} if options.text_split != NO_SPLIT else {}
    later |= {} if options.ids_field is None else {"ids_field": options.ids_field}
    later |= {} if options.id_field is None else {"id_field": options.id_field}
    later |= {} if options.dedup == "none" else {"dedup": options.dedup}
    if options.prompt_field is not None:
        later |= {"prompt_field": options.prompt_field, "response_field": options.response_field}
    if options.chat is not None:
        later |= {
            "chat_field": options.chat_field,
            "chat_template": hashlib.sha256(options.chat.text.encode()).hexdigest(),
            "chat_variables": dict(options.chat.variables),
        }
        later |= {} if options.tools_field is None else {"tools_field": options.tools_field}
        later |= {} if options.chat.date is None else {"chat_date": options.chat.date}
    later |= {} if options.store == "hdf5" else {"store": options.store}
    later |= {} if options.max_documents is None else {"max_documents": options.max_documents}
    later |= {} if options.sample_seed is None else {"sample_seed": options.sample_seed}
    if options.cut_bytes != CUT_BYTES:
        later["cut_bytes"] = options.cut_bytes
    if options.part_bytes != PART_BYTES:
        later["part_bytes"] = options.part_bytes
    return later | {
        "bos_token_id": options.bos_token_id,
        "compression": options.compression,
        "keep_empty": options.keep_empty,
        "max_document_tokens": options.max_document_tokens,
        "on_bad_input": options.on_bad_input,
        "shard_tokens": options.shard_tokens,
        "text_field": options.text_field,
    }
