"""Files of corpora, as those of two builds of the same can be compared; and damage to them."""

import hashlib
import re
from contextlib import suppress
from pathlib import Path

import h5py

from headrace.building.output import lance_files
from headrace.in_progress import JOURNAL
from headrace.storage.lance_names import TOKENS, docs_path

RANDOM = re.compile(r"-[0-9a-f]{12}(?=\.lance)|(?<=\d)-[0-9a-f-]{36}(?=\.txn)")
"""The random parts of the names of Lance corpora."""
HINT = "latest_version_hint.json"
"""In Lance data sets, or not: it says no more than the names of their versions."""
WHOLE = {".h5": lambda data: data.startswith(b"\x89HDF\r\n\x1a\n"), ".lance": lambda data: data.endswith(b"LANC")}
"""How files of these kinds look."""


def contents_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder by its name; all but the lock."""
    return {str(path.relative_to(folder)): _sha256(path.read_bytes()) for path in _files(folder)}


def comparable(output: Path) -> dict[str, str]:
    """The same, equal for builds of the same: what Lance names at random has no such part here."""
    found: dict[str, list[str]] = {}
    for path in _files(output):
        if path.name != HINT:
            found.setdefault(_named(path, output), []).append(_sha256(_content(path)))
    # Several of one name are several attempts at it, of which one is left at the end.
    return {f"{name} {n}" if n else name: sha for name, all_of in found.items() for n, sha in enumerate(sorted(all_of))}


def journal_as_of(calm: Path, output: Path) -> bytes:
    """The journal of a corpus, its data files called as those of another that is the same."""
    text = (calm / JOURNAL).read_text()
    for path in lance_files(output):
        text = re.sub(RANDOM.sub(r"-[0-9a-f]{12}(?=\\.lance)", path.name).removesuffix(".lance"), path.stem, text)
    return text.encode()


def shards_in(folder: Path) -> list[Path]:
    """The whole shards that lie in a folder, listed or not, in order."""
    data = folder / TOKENS / "data"
    found = [*sorted(folder.glob("*.h5")), *sorted(data.glob("[0-9]*.lance"))]
    return [path for path in found if WHOLE[path.suffix](path.read_bytes())]


def damage(shard: Path, how: str, *, documents: bool = False) -> None:
    """Damage a shard; a flipped bit is one of its tokens, as they lie there, or in the file of its documents if it has one."""
    if shard.suffix == ".lance":
        shard = docs_path(shard) if documents else shard
    place = shard.stat().st_size // 2
    with suppress(OSError), h5py.File(shard, "r", locking=False) as file:  # it may be damaged already, or another kind
        chunks = file["tokens"].id
        chunk = chunks.get_chunk_info(0)  # which holds a token at its beginning, if no filter is in the way
        place = chunk.byte_offset + chunks.get_create_plist().get_nfilters() * (chunk.size // 2)
    damage_bytes(shard, how, place)


def damage_bytes(path: Path, how: str, at: int) -> None:
    """Put a damaged file in the place of a file."""
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[at] ^= 1
    fresh = path.with_name("damaged")
    fresh.write_bytes({"cut": data[:at], "other": b"other"}.get(how, data))
    fresh.replace(path)  # other names of the same file keep what they have
    if how == "gone":
        path.unlink()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _named(path: Path, output: Path) -> str:
    """A file's name without what is random. Versions are counted: to replace a corpus once more makes one more of them."""
    if path.parent.name in {"_versions", "_transactions"}:
        rank = sorted(path.parent.glob(f"*{path.suffix}")).index(path)
        path = path.with_name(f"{rank}{path.suffix}")
    return RANDOM.sub("", str(path.relative_to(output)))


def _content(path: Path) -> bytes:
    """The bytes of a file, but for what is random or tells the time in those of Lance corpora."""
    if path.parent.name in {"_versions", "_transactions", "tags"}:
        return b""
    data = path.read_bytes()
    if path.suffix in {".json", ".jsonl"}:
        text = re.sub(r'"(docs|loss_mask|tokens)": \d+', r'"\1"', RANDOM.sub("", data.decode()))
        return (re.sub(r'"checksum": "\w+"', "", text) if '"store": "lance"' in text else text).encode()
    return data
