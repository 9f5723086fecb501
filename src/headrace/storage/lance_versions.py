"""The data sets of a Lance corpus: their versions, committed once, and made to last.

Lance calls fsync for nothing; here, what a commit wrote is on disk before anything tells of it.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import BuildError, HeadraceError, Problem
from headrace.manifest import LanceVersions, Manifest, ShardEntry
from headrace.storage.atomic import fsync_file, fsync_folder
from headrace.storage.lance_file import read_lance_file
from headrace.storage.lance_names import COLUMN, DATA_SETS, DOCS, MASKS, TOKENS, docs_path, mask_path
from headrace.storage.lance_open import lance_panics, lance_reason
from headrace.storage.lance_shard import Head
from headrace.storage.lance_values import DATA_STORAGE_VERSION, values_schema
from headrace.storage.lance_writer import docs_schema, import_lance
from headrace.storage.layout import LOSS_MASK

__all__ = ["check_data_sets", "commit", "forget_before", "roll_back", "tag_name"]

_JOB = "headrace.job"
"""Property of the transactions of builds."""
_MANIFEST = re.compile(r"(\d+)\.manifest")
_TRANSACTION = re.compile(r"(\d+)-.*\.txn")
_DIGITS = 20
"""Of the names of manifests that count down from the largest integer of 64 bits."""
_TAGS = Path("_refs") / "tags"
"""Holds a file for each tag."""
_HINT = "latest_version_hint.json"
_ALWAYS = ("headrace.vocab_size", "headrace.boundary_token_id")
"""Metadata of a data set that no append to a corpus changes."""


class _DataSet(NamedTuple):
    """What one of them is to be."""

    folder: Path
    schema: Any
    fragments: list[Any]
    """In order."""
    before: int
    """How many of them the version has that is added to."""
    job: str


_VERSION_OF = {DOCS: "docs", MASKS: "loss_mask", TOKENS: "tokens"}
"""What `LanceVersions` calls the version of each data set."""


def _pinned(versions: LanceVersions | None) -> dict[str, int]:
    """The version of each data set, in the order in which they are committed; 0 where there is none."""
    return {name: getattr(versions, _VERSION_OF[name], 0) for name in DATA_SETS}


def tag_name(fingerprint: str) -> str:
    """The tag that a published version of each data set has."""
    return f"headrace-{fingerprint[:16]}"


def commit(corpus: Path, manifest: Manifest, there: Manifest | None = None, *, append: bool = False) -> LanceVersions:
    """Make the shards of a corpus a version of its data sets, and tag it; tokens last. Done before, it is not repeated.

    Args:
        corpus: its folder, in which the data files lie.
        manifest: of all shards.
        there: the corpus that is published there, if one is; what came after it was not published, and goes.
        append: whether `manifest` begins with the shards of `there`.

    Raises:
        BuildError: somebody else has changed the data sets, or they cannot be written.
    """
    pinned = _pinned(there.lance if there else None)
    wanted = _wanted(corpus, manifest, there if append else None)
    versions = {one.folder.name: _committed(one, pinned[one.folder.name], manifest) for one in wanted}
    for name, version in versions.items():
        _tag(corpus / name, tag_name(manifest.fingerprint.hex), version)
    made: Any = {_VERSION_OF[name]: version for name, version in versions.items()}
    return LanceVersions(**made, data_storage_version=DATA_STORAGE_VERSION)


def roll_back(corpus: Path, pinned: LanceVersions | None) -> None:
    """Remove the versions that a build has committed and not published; `pinned` are those that are, if any are.

    Raises:
        BuildError: somebody else has changed the data sets.
    """
    for name, version in _pinned(pinned).items():
        if max(_versions(corpus / name), default=0) > version:
            _settle(corpus / name, version, "")


def forget_before(corpus: Path, versions: LanceVersions) -> None:
    """Remove the versions, and their tags, of a corpus that was replaced. Their data files are the caller's."""
    for name, version in _pinned(versions).items():
        if version:
            _remove(corpus / name, lambda number, newest=version: number < newest)
        else:
            shutil.rmtree(corpus / name, ignore_errors=True)


def check_data_sets(corpus: Path, manifest: Manifest) -> list[Problem]:
    """Whether the pinned versions are what the index says: exactly its data files, in order, whole, nothing deleted."""
    import_lance(f"{corpus}: a Lance corpus, of which the data sets are verified,")
    assert manifest.lance is not None  # noqa: S101  # the manifest was checked
    pinned = {corpus / name: version for name, version in _pinned(manifest.lance).items() if version}
    faults = {folder: _fault(folder, version, manifest) for folder, version in pinned.items()}
    return [Problem(str(folder), fault) for folder, fault in faults.items() if fault]


def _fault(folder: Path, version: int, manifest: Manifest) -> str:
    """Why a version of a data set is not the shards of an index; empty where it is."""
    count = "document_count" if folder.name == DOCS else "token_count"
    wanted = [(Path(entry.path).name, getattr(entry, count)) for entry in _filled(manifest)]
    try:
        with lance_panics():
            dataset = import_lance("a Lance corpus").dataset(str(folder), version=version)
            schema = dataset.schema
            there = [(_file_of(fragment, folder), fragment.count_rows()) for fragment in dataset.get_fragments()]
    except (ValueError, OSError, RuntimeError) as error:
        return f"version {version} cannot be opened: {lance_reason(error)}"
    if there != wanted:
        odd = next((n for n, pair in enumerate(zip(there, wanted, strict=False)) if pair[0] != pair[1]), len(there))
        return f"version {version} is not the shards of the index: {len(there)} fragments, from number {odd} on others"
    if schema.remove_metadata() != _schema(folder.name, manifest):
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        return f"version {version} has other columns than the shards of the index: {columns}"
    said = _said(manifest)
    other = [name for name in _ALWAYS if (schema.metadata or {}).get(name.encode()) != said[name].encode()]
    return f"version {version} says another {', '.join(other)} than the index" if other else ""


def _file_of(fragment: Any, folder: Path) -> str:  # noqa: ANN401  # Lance's has no types
    """The name of its data file; or what is odd about it."""
    files = fragment.data_files()
    if len(files) != 1:
        return f"{len(files)} files"
    file = files[0]
    name = Path(str(file.path)).name
    fields = list(file.fields)
    expected = sorted({0, *fields} & set(range(len(docs_schema())))) if folder.name == DOCS else [0]
    sound = (
        fields == expected
        and list(file.column_indices) == list(range(len(fields)))
        and f"{file.file_major_version}.{file.file_minor_version}" == DATA_STORAGE_VERSION
        and _size_of(folder / "data" / name) in {None, file.file_size_bytes}
    )
    return name if sound else f"{name}, as another file"


def _size_of(path: Path) -> int | None:
    """The bytes of a data file that is whole; None for one that is not, which is told of by its shard."""
    try:
        return read_lance_file(path).size
    except HeadraceError:
        return None


# -- committing -------------------------------------------------------------------------------------------------------


def _wanted(corpus: Path, manifest: Manifest, base: Manifest | None) -> Iterator[_DataSet]:
    """All data sets that there are to be, in the order in which they are committed."""
    job = hashlib.sha256("\n".join(entry.path for entry in manifest.shards).encode()).hexdigest()
    shards = _filled(manifest)
    before = len(_filled(base)) if base else 0
    said = _said(manifest)
    docs = _schema(DOCS, manifest).with_metadata(said)
    fragments = [_docs_fragment(docs_path(corpus / entry.path), entry.document_count, docs) for entry in shards]
    yield _DataSet(corpus / DOCS, docs, fragments, before, job)
    if manifest.has_loss_mask:
        masks = _schema(MASKS, manifest).with_metadata(said)
        fragments = [_fragment(mask_path(corpus / entry.path), entry.token_count, [0]) for entry in shards]
        yield _DataSet(corpus / MASKS, masks, fragments, before, job)
    tokens = _schema(TOKENS, manifest).with_metadata(said)
    fragments = [_fragment(corpus / entry.path, entry.token_count, [0]) for entry in shards]
    yield _DataSet(corpus / TOKENS, tokens, fragments, before, job)


def _schema(name: str, manifest: Manifest) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Of a data set, without metadata."""
    if name == DOCS:
        return docs_schema()
    if name == MASKS:
        return values_schema(LOSS_MASK, np.dtype(np.uint8))
    return values_schema(COLUMN, np.dtype(manifest.dtype))


def _said(manifest: Manifest) -> dict[str, str]:
    """What a data set says of itself, as metadata of its schema."""
    return {
        "headrace.format": str(manifest.version),
        "headrace.vocab_size": str(manifest.vocab_size),
        "headrace.boundary_token_id": str(manifest.boundary_token_id),
        "headrace.tokenizer": manifest.tokenizer.name if manifest.tokenizer else "",
        "headrace.tokenizer_sha256": manifest.tokenizer.sha256 if manifest.tokenizer else "",
    }


def _filled(manifest: Manifest) -> list[ShardEntry]:
    """Its shards that are fragments: a data set has none without rows."""
    return [entry for entry in manifest.shards if entry.token_count]


def _docs_fragment(path: Path, rows: int, schema: Any) -> Any:  # noqa: ANN401  # Lance's
    names: list[str] = schema.names
    return _fragment(path, rows, [names.index(name) for name in Head.of(read_lance_file(path)).columns])


def _fragment(path: Path, rows: int, fields: list[int]) -> Any:  # noqa: ANN401  # Lance's
    from lance.fragment import DataFile, FragmentMetadata  # noqa: PLC0415  # heavy

    major, minor = map(int, DATA_STORAGE_VERSION.split("."))
    file = DataFile(
        path=path.name,
        fields=fields,
        column_indices=list(range(len(fields))),
        file_major_version=major,
        file_minor_version=minor,
        file_size_bytes=path.stat().st_size,
    )
    return FragmentMetadata(id=0, files=[file], physical_rows=rows)


def _committed(wanted: _DataSet, pinned: int, manifest: Manifest) -> int:
    """The version that a data set is, committed now unless it was."""
    lance = import_lance("a Lance corpus")
    newest, done = _settle(wanted.folder, pinned, wanted.job)
    if done and _fault(wanted.folder, newest, manifest):  # its manifest was damaged since
        _remove(wanted.folder, lambda number, damaged=newest: number == damaged)
        newest, done = _settle(wanted.folder, pinned, wanted.job)
    if done:
        _make_durable(wanted.folder)
        return newest
    adds = wanted.before > 0 and newest == pinned > 0
    operation = (
        lance.LanceOperation.Append(wanted.fragments[wanted.before :])
        if adds
        else lance.LanceOperation.Overwrite(wanted.schema, wanted.fragments)
    )
    transaction = lance.Transaction(read_version=newest, operation=operation, transaction_properties={_JOB: wanted.job})
    with _reporting(wanted.folder):
        made = lance.LanceDataset.commit(str(wanted.folder), transaction, enable_v2_manifest_paths=True)
        version = int(made.version)
    _make_durable(wanted.folder)
    return version


def _settle(folder: Path, pinned: int, job: str) -> tuple[int, bool]:
    """Remove versions that a build has committed and not published, and those that nobody can open.

    Args:
        folder: the data set; there may be none yet.
        pinned: the version that is published; 0 for none.
        job: one whose version stays.

    Returns:
        The newest version, 0 for none; and whether it is that job's.
    """
    for version in sorted(_versions(folder), reverse=True):
        found = _job_of(folder, version)
        if found is None:  # as where the power failed before its bytes were on disk
            _remove(folder, lambda number, damaged=version: number == damaged)
            continue
        if job and found == job:
            return version, True
        if version <= pinned:
            return version, False
        if not found:
            raise BuildError(
                f"{folder}: has a version {version} that no build has made; the corpus is version {pinned}: it is not touched. "
                "Build elsewhere, or remove that version"
            )
        _remove(folder, lambda number, left=version: number == left)
    return 0, False


def _job_of(folder: Path, version: int) -> str | None:
    """The job that has committed a version, empty if no build has; None if the version cannot be opened."""
    lance = import_lance("a Lance corpus")
    try:
        with lance_panics():
            transaction = lance.dataset(str(folder), version=version).read_transaction(version)
    except (ValueError, OSError, RuntimeError):
        return None
    properties = transaction.transaction_properties if transaction is not None else None
    return str((properties or {}).get(_JOB, ""))


def _versions(folder: Path) -> dict[int, Path]:
    """The manifests of a data set, by version."""
    found: dict[int, Path] = {}
    with suppress(FileNotFoundError):
        for path in (folder / "_versions").iterdir():
            name = _MANIFEST.fullmatch(path.name)
            if name:
                number = int(name[1])
                found[(1 << 64) - 1 - number if len(name[1]) == _DIGITS else number] = path
    return found


def _remove(folder: Path, wanted: Callable[[int], bool]) -> None:
    """Remove versions, and their transactions and tags: another version may get their number."""
    gone = [path for version, path in _versions(folder).items() if wanted(version)]
    if not gone:
        return
    # The manifests last: as long as one is there, a build that was killed is known to have more to remove.
    with suppress(FileNotFoundError):
        for path in (folder / "_transactions").iterdir():
            name = _TRANSACTION.fullmatch(path.name)
            if name and wanted(int(name[1]) + 1):  # it is named by the version that it was made from
                path.unlink(missing_ok=True)
    for path in (folder / _TAGS).glob("*.json"):
        with suppress(ValueError, KeyError, FileNotFoundError):
            if wanted(int(json.loads(path.read_bytes())["version"])):
                path.unlink()
                fsync_folder(path.parent)
    for path in (folder / "_versions" / _HINT, *gone):
        path.unlink(missing_ok=True)
    fsync_folder(folder / "_versions")


# -- making it last ---------------------------------------------------------------------------------------------------


def _make_durable(folder: Path) -> None:
    """Wait until the newest version of a data set is on disk: its transaction first, then what names it."""
    for name in ("_transactions", "_versions"):
        with suppress(FileNotFoundError):
            _fsync_all(folder / name)
    fsync_folder(folder)
    fsync_folder(folder.parent)


def _fsync_all(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            fsync_file(path)
    fsync_folder(folder)


def _tag(folder: Path, name: str, version: int) -> None:
    """Name a version, so that Lance does not clean it up."""
    with _reporting(folder):
        tags = import_lance("a Lance corpus").dataset(str(folder), version=version).tags
        known = tags.list().get(name)
        if known is None:
            tags.create(name, version)
        elif known["version"] != version:
            tags.update(name, version)
    _fsync_all(folder / _TAGS)
    fsync_folder(folder / "_refs")
    fsync_folder(folder)


@contextmanager
def _reporting(folder: Path) -> Generator[None]:
    """Let what Lance refuses name the data set."""
    try:
        with lance_panics():
            yield
    except (ValueError, OSError, RuntimeError) as error:
        raise BuildError(f"{folder}: Lance cannot write it: {lance_reason(error)}; nothing was published") from error
