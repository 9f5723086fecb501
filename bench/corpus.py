"""Collect the benchmarks' corpus: unique UTF-8 text files of this machine's Python and /usr/share, as JSON Lines.

The order is fixed (roots in the order below, then byte-wise path order), so the same machine gives the same file.
Text from here is code and documentation: JSON escapes are frequent and nearly all of it is ASCII.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"
LARGEST_FILE = 1_000_000  # bytes; larger ones are tables, not documents


@dataclass(frozen=True, slots=True)
class Corpus:
    """One collected JSON Lines file."""

    path: str
    """Relative to the benchmarks' folder."""
    documents: int
    text_bytes: int
    """UTF-8 bytes of the texts, without JSON."""
    bytes: int
    """Size of the file."""
    sha256: str
    """Hash of the file, hex."""

    @property
    def file(self) -> Path:
        """The file's absolute path."""
        return Path(__file__).parent / self.path


def roots() -> list[Path]:
    """Return the folders that are searched, outer ones first, each once."""
    return list(dict.fromkeys(Path(folder).resolve() for folder in (sys.base_prefix, sys.prefix, "/usr/share")))


def _files(root: Path) -> Iterator[Path]:
    """Yield the regular files below `root`, byte-wise by path within each folder; links are not followed."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: os.fsencode(entry.name))
    except PermissionError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False) and 0 < entry.stat().st_size <= LARGEST_FILE:
            yield Path(entry.path)


def texts() -> Iterator[str]:
    """Yield the text of every readable UTF-8 file, no text twice."""
    seen: set[bytes] = set()
    for root in roots():
        for path in _files(root):
            try:
                content = path.read_bytes()
                text = content.decode()
            except (PermissionError, UnicodeDecodeError):
                continue
            digest = hashlib.sha256(content).digest()
            if b"\0" in content or digest in seen:
                continue
            seen.add(digest)
            yield text


def collect(megabytes: int = 200, *, again: bool = False) -> Corpus:
    """Write `megabytes` (10**6 bytes) of text to `out/corpus-<megabytes>.jsonl`, unless an earlier call did.

    Args:
        megabytes: text to collect, without JSON; the document that passes it is the last.
        again: collect even if the file is there.

    Raises:
        RuntimeError: this machine has less text than that.
    """
    OUT.mkdir(exist_ok=True)
    path = OUT / f"corpus-{megabytes}.jsonl"
    record = path.with_suffix(".json")
    if not again and path.exists() and record.exists():
        found = Corpus(**json.loads(record.read_text()))
        if path.stat().st_size == found.bytes:
            return found
    documents = text_bytes = size = 0
    digest = hashlib.sha256()
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for text in texts():
            line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
            file.write(line)
            digest.update(line)
            documents += 1
            text_bytes += len(text.encode())
            size += len(line)
            if text_bytes >= megabytes * 1_000_000:
                break
        else:
            raise RuntimeError(f"wanted {megabytes} MB of unique text, found {text_bytes / 1e6:.0f} MB in {roots()}")
    partial.replace(path)
    corpus = Corpus(f"out/{path.name}", documents, text_bytes, size, digest.hexdigest())
    record.write_text(json.dumps(asdict(corpus), indent=2) + "\n")
    return corpus


def main() -> None:
    """Collect, and print what was collected as JSON."""
    parser = argparse.ArgumentParser(description="Collect the benchmarks' corpus.")
    parser.add_argument("--megabytes", type=int, default=200, help="text to collect, in 10**6 bytes")
    parser.add_argument("--again", action="store_true", help="collect even if the file is there")
    options = parser.parse_args()
    print(json.dumps(asdict(collect(options.megabytes, again=options.again)), indent=2))


if __name__ == "__main__":
    main()
