"""Opening a Lance data set at one version, and errors of Lance with the name of what it was about."""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import CorruptShardError, HeadraceError, MissingExtraError, MissingShardError, UnreadableShardError

if TYPE_CHECKING:
    from lance import LanceDataset

__all__ = ["is_lance", "lance_panics", "lance_reason", "naming", "open_dataset", "split_version"]

_MANIFESTS = "_versions"
"""The folder in a data set that holds a manifest for each version."""
_NUMBER = re.compile(r"v(\d+)")


def is_lance(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a Lance data set."""
    return (Path(path) / _MANIFESTS).is_dir()


def split_version(path: str | os.PathLike[str]) -> tuple[Path, str | None] | None:
    """Take `data.lance@v3` or `data.lance@tag` apart.

    Returns:
        The data set's folder, and the version as it was asked for; None where this is no Lance data set.
    """
    whole = os.fspath(path)
    if is_lance(whole):
        return Path(whole), None
    folder, at, version = whole.rpartition("@")
    if at and version and not Path(whole).exists() and is_lance(folder):
        return Path(folder), version
    return None


def open_dataset(path: Path, version: str | int | None = None) -> "LanceDataset":
    """Open a data set, pinned to a version: what is appended later changes nothing.

    Args:
        path: its folder.
        version: a number, `v` and a number, or a tag; the newest by default.

    Raises:
        MissingExtraError: Lance is not installed.
        MissingShardError: there is no such data set, or no such version; those that there are are named.
        UnreadableShardError: Lance cannot open it.
    """
    try:
        import lance  # noqa: PLC0415  # heavy, and an extra
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: a Lance data set, which needs pylance: pip install 'headrace[lance]'"
        ) from error
    if not is_lance(path):
        raise MissingShardError(f"{path}: no such Lance data set: it has no folder {_MANIFESTS}")
    number = _NUMBER.fullmatch(version) if isinstance(version, str) else None
    try:
        with lance_panics():
            return lance.dataset(str(path), version=int(number[1]) if number else version)
    except (OSError, ValueError, RuntimeError) as error:
        _require_version(path, version)
        raise UnreadableShardError(
            f"{path}: Lance cannot open it: {lance_reason(error)}; if its newest manifest in {_MANIFESTS} is cut or empty, "
            "open the version before it (@v and its number)"
        ) from error


def _require_version(path: Path, version: str | int | None) -> None:
    """Say which versions there are, if the one that was asked for is not."""
    import lance  # noqa: PLC0415  # as above

    if version is None:
        return
    try:
        with lance_panics():
            newest = lance.dataset(str(path))
            names = [f"v{one['version']}" for one in newest.versions()] + sorted(newest.tags.list())
    except (OSError, ValueError, RuntimeError):
        return
    wanted = f"v{version}" if isinstance(version, int) else version
    if wanted not in names:
        shown = ", ".join(names[-20:])
        raise MissingShardError(f"{path}: has no version or tag {wanted}; the last ones that it has are {shown}")


@contextmanager
def naming(path: str | os.PathLike[str], what: str = "") -> Generator[None]:
    """Name a file, and what of it was wanted, in what Lance raises.

    Raises:
        MissingShardError, CorruptShardError: in place of it.
    """
    try:
        with lance_panics():
            yield
    except HeadraceError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if not Path(path).exists():
            raise MissingShardError(f"{path}: no such file") from error
        raise CorruptShardError(f"{path}: {what}Lance cannot read it: {lance_reason(error)}") from error


@contextmanager
def lance_panics() -> Generator[None]:
    """Let a panic in Lance's Rust, which is no Exception, be one, as its other errors are.

    Raises:
        RuntimeError: in place of it.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # it is in no module to import
            raise
        raise RuntimeError(str(error)) from error


def lance_reason(error: BaseException) -> str:
    """What Lance says, without the place in its own source, nor that it is an error of the system."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    text = re.sub(r",? ?/[^ ]*\.rs:\d+:\d+.*", "", text)
    return re.sub(r"^LanceError\(IO\): (.+) \(os error \d+\)$", r"\1", text)[:300]
