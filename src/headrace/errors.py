"""Every exception that Headrace raises.

Each also subclasses the built-in that a caller would catch anyway, so `except ValueError` or `except FileNotFoundError`
keeps working. Messages say what was wanted, what was found and where, and what to do. This module imports nothing of
the package.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "BoundaryError",
    "BuildError",
    "CorruptShardError",
    "FormatError",
    "GrowingShardError",
    "HeadraceError",
    "ManifestError",
    "MissingExtraError",
    "MissingShardError",
    "NoDocumentsError",
    "NoLossMaskError",
    "OutOfRangeError",
    "OutputExistsError",
    "PlanError",
    "Problem",
    "SourceError",
    "SourceNotFoundError",
    "SplitError",
    "TokenIdError",
    "TokenizerError",
    "TrainingError",
    "UnreadableShardError",
    "WriterError",
]

MAX_LISTED = 20
"""Most problems that a message lists; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, at one place."""

    place: str
    """Where: `file`, `file:line`, `file: byte N`, or a path inside a document such as `shards[3].sha256`."""
    reason: str
    """What is wrong there, without the text of any document."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class HeadraceError(Exception):
    """Base class of all errors of this package.

    Attributes:
        problems: every fault found, in order; empty where the message says it all.
        usage: whether the arguments are at fault, whatever they are applied to: the command's exit code is then 2.
    """

    def __init__(self, message: str, *, problems: Sequence[Problem] = (), usage: bool = False) -> None:
        self.summary = message
        self.problems = tuple(problems)
        self.usage = usage
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.summary, *(f"  {problem}" for problem in self.problems[:MAX_LISTED])]
        if len(self.problems) > MAX_LISTED:
            lines.append(f"  ... and {len(self.problems) - MAX_LISTED} more")
        return "\n".join(lines)


class ManifestError(HeadraceError, ValueError):
    """`shards.json` is no manifest, or one that contradicts itself; `problems` lists all faults."""


class FormatError(HeadraceError, ValueError):
    """The path holds nothing that Headrace can read as tokens."""


class MissingShardError(HeadraceError, FileNotFoundError):
    """A shard that the manifest names is not there."""


class CorruptShardError(HeadraceError, ValueError):
    """A shard's bytes contradict the manifest or its own attributes."""


class GrowingShardError(CorruptShardError):
    """A shard whose writer has not closed it: it is still being written, or was killed."""


class UnreadableShardError(HeadraceError, OSError):
    """A shard could not be judged: the file is there but cannot be opened or read."""


class OutOfRangeError(HeadraceError, IndexError, ValueError):
    """A token position, slice or document number outside the corpus."""


class NoDocumentsError(HeadraceError, LookupError):
    """The corpus stores no document index."""


class NoLossMaskError(HeadraceError, LookupError):
    """The corpus stores no loss mask."""


class TokenIdError(HeadraceError, ValueError):
    """A token id that the vocabulary or the stored dtype cannot hold; nothing is wrapped."""


class WriterError(HeadraceError, ValueError):
    """A shard writer was used in a way that would lose or blur documents."""


class SourceError(HeadraceError, ValueError):
    """Input documents that cannot be read as asked; `problems` lists file, line and reason of each."""


class SourceNotFoundError(SourceError, FileNotFoundError):
    """An input path, pattern or folder that yields no file."""


class TokenizerError(HeadraceError, ValueError):
    """A tokenizer that cannot be loaded, or that disagrees with its reference implementation."""


class BoundaryError(TokenizerError):
    """No boundary token was given and none may be guessed."""


class BuildError(HeadraceError, RuntimeError):
    """A build that could not be finished; nothing was published."""


class OutputExistsError(BuildError, FileExistsError):
    """The output already holds something that this build would not produce."""


class PlanError(HeadraceError, ValueError):
    """A sampling plan that is impossible for this corpus, or does not match it."""


class SplitError(HeadraceError, ValueError):
    """Parts, fractions or a seed by which no corpus, or not this one, can be split."""


class TrainingError(HeadraceError, ValueError):
    """A training run that is impossible as asked, or that is not the one in its folder."""


class MissingExtraError(HeadraceError, ImportError):
    """An optional dependency is not installed; the message names the extra."""
