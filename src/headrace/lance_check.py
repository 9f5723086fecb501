"""What can be judged of a Lance data set that has no `shards.json`: whether its files are there, whole and readable."""

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import CorruptShardError, FormatError, HeadraceError, MissingShardError, TokenIdError
from headrace.verdicts import ShardReport, Status

if TYPE_CHECKING:
    from headrace.lance_data import LanceCorpus
    from headrace.manifest import ShardEntry

__all__ = ["check_lance"]

_PIECE = 1 << 20
"""Tokens read at once."""


def check_lance(corpus: "LanceCorpus", *, quick: bool = False) -> list[ShardReport]:
    """Judge every fragment: its file's size, and, unless `quick`, whether all of its tokens can be read and are ids.

    Returns:
        One report for each fragment, in order, if any is not ok.

    Raises:
        FormatError: nothing was found wrong; but Lance stores no checksums, so no token was compared with anything.
    """
    reports = [_judge(corpus, entry, quick=quick) for entry in corpus.entries]
    if all(report.ok for report in reports):
        read = "their sizes are those that its manifest says" if quick else "every token could be read"
        raise FormatError(
            f"{corpus.path}: its {len(reports)} data files are there and {read}, but Lance stores no checksums, so there is "
            "nothing to verify the tokens against; a corpus that `headrace build` writes has its hashes in shards.json"
        )
    return reports


def _judge(corpus: "LanceCorpus", entry: "ShardEntry", *, quick: bool) -> ShardReport:
    status: Status = "ok"
    reason = ""
    read = 0
    try:
        read = Path(entry.path).stat().st_size
        for start in range(entry.global_start, entry.global_stop, _PIECE) if not quick else ():
            corpus.get_slice(start, min(start + _PIECE, entry.global_stop))
    except (MissingShardError, FileNotFoundError) as error:
        status, reason = "missing", str(error)
    except (CorruptShardError, TokenIdError, FormatError) as error:
        status, reason = "corrupt", str(error)
    except (HeadraceError, OSError) as error:
        status, reason = "unreadable", str(error)
    return ShardReport(
        shard_id=entry.shard_id, path=entry.path, status=status, reason=reason, bytes_read=0 if quick else read
    )
