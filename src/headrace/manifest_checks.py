"""Checks of a decoded `shards.json`: every problem is collected, each fault once."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from headrace.errors import Problem
from headrace.manifest import (
    FORMAT_VERSION,
    NO_HASH,
    Append,
    By,
    CutEntry,
    LanceVersions,
    Manifest,
    SourceEntry,
    Split,
    Store,
    TokenizerRef,
    dtype_name_for,
    is_sha256,
)
from headrace.shards import ShardEntry, ShardTable, column

__all__ = ["ManifestChecker"]


class ManifestChecker:
    """Reads a decoded manifest, collecting every problem.

    Args:
        name: what to call the file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def _problem(self, place: str, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def _integer(
        self, row: Mapping[str, Any], key: str, place: str, *, low: int = 0, default: int | None = None
    ) -> int:
        value = row.get(key, default)
        if type(value) is not int or value < low or value >= 1 << 63:
            self._problem(f"{place}{key}", f"wanted an integer from {low} to 2**63 - 1, found {_found(row, key)}")
            return low
        return value

    def _text(self, row: Mapping[str, Any], key: str, place: str, *, default: str | None = None) -> str:
        value = row.get(key, default)
        if not isinstance(value, str):
            self._problem(f"{place}{key}", f"wanted a string, found {_found(row, key)}")
            return ""
        return value

    def _sha(self, row: Mapping[str, Any], key: str, place: str, *, default: str | None = None) -> str:
        value = self._text(row, key, place, default=default)
        if isinstance(row.get(key, default), str) and value != default and not is_sha256(value):
            self._problem(f"{place}{key}", f"wanted 64 lower-case hex digits, found {value[:80]!r}")
            return NO_HASH
        return value

    def manifest(self, body: object) -> Manifest | None:
        """The manifest that a decoded file means; None, or not to be used, where `problems` then holds any."""
        if not isinstance(body, dict):
            self._problem(self.name, f"wanted a JSON object, found {type(body).__name__}")
            return None
        body = cast("dict[str, Any]", body)
        version = body.get("version")
        if type(version) is not int or version not in {1, FORMAT_VERSION}:
            self._problem("version", f"wanted 1 or {FORMAT_VERSION}, found {_found(body, 'version')}")
            return None
        rows = body.get("shards")
        if not isinstance(rows, list):
            self._problem("shards", f"wanted a list, found {_found(body, 'shards')}")
            return None
        table = ShardTable.of_rows(cast("list[Any]", rows)) if version == FORMAT_VERSION else None
        shards = tuple(self._shards(cast("list[Any]", rows), version)) if table is None else table
        manifest = Manifest(
            version=version,
            chunk_size=self._integer(body, "chunk_size", "", low=1),
            shards=shards,
            **(self._version_2(body) if version == FORMAT_VERSION else {}),
        )
        self._total(body, "total_tokens", "token_count", table)
        if version == FORMAT_VERSION:
            self._total(body, "total_documents", "document_count", table)
            self._source_indices(manifest)
            self._loss_masks(manifest)
        return manifest

    def _total(self, body: Mapping[str, Any], key: str, part: str, table: ShardTable | None) -> None:
        total = self._integer(body, key, "")
        rows: list[Any] = body["shards"]
        parts: Sequence[Any] = table.column(part) if table else [row.get(part) for row in rows if isinstance(row, dict)]
        known = table is not None or (len(parts) == len(rows) and all(map(_is_count, parts)))
        if _is_count(body.get(key)) and known and total != sum(parts):
            self._problem(key, f"says {total}, but the shards add up to {sum(parts)}")

    def _source_indices(self, manifest: Manifest) -> None:
        known = len(manifest.sources)
        for number, source in enumerate(column(manifest.shards, "source")):
            if known and source >= known:
                self._problem(f"shards[{number}].source", f"{source} is not one of the {known} sources")

    def _loss_masks(self, manifest: Manifest) -> None:
        for number, digest in enumerate(column(manifest.shards, "loss_mask_sha256") if manifest.has_loss_mask else ()):
            if not digest:
                self._problem(f"shards[{number}].loss_mask_sha256", "is not there, but other shards have a loss mask")
        if manifest.lance is not None and bool(manifest.lance.loss_mask) != manifest.has_loss_mask:
            fault = (
                "is not there, but the shards have one" if manifest.has_loss_mask else "is there, but no shard has one"
            )
            self._problem("lance.loss_mask", fault)

    def _version_2(self, body: Mapping[str, Any]) -> dict[str, Any]:
        vocab_size = self._integer(body, "vocab_size", "", low=1)
        dtype = self._text(body, "dtype", "")
        boundary = self._integer(body, "boundary_token_id", "")
        if vocab_size > 1 << 32:
            self._problem("vocab_size", f"wanted at most 2**32, found {vocab_size}")
        elif isinstance(body.get("dtype"), str) and dtype != dtype_name_for(vocab_size):
            self._problem(
                "dtype", f"a vocabulary of {vocab_size} is stored as {dtype_name_for(vocab_size)}, not {dtype!r}"
            )
        if boundary >= vocab_size:
            self._problem("boundary_token_id", f"{boundary} is not below vocab_size {vocab_size}")
        store = self._text(body, "store", "")
        if store not in get_args(Store):
            self._problem("store", f"this version reads {' and '.join(map(repr, get_args(Store)))}, found {store!r}")
        options = body.get("options", {})
        if not isinstance(options, dict):
            self._problem("options", f"wanted an object, found {_found(body, 'options')}")
        return {
            "dtype": dtype,
            "vocab_size": vocab_size,
            "boundary_token_id": boundary,
            "tokenizer": self._tokenizer(body.get("tokenizer")),
            "options": options,
            "sources": tuple(self._sources(body.get("sources", []))),
            "appends": tuple(self._appends(body.get("appends", []), "appends")),
            "splits": tuple(self._splits(body.get("splits", []))),
            "store": store,
            "lance": self._lance(body.get("lance"), wanted=store == "lance"),
        }

    def _lance(self, row: object, *, wanted: bool) -> LanceVersions | None:
        if not wanted and row is None:
            return None
        if not wanted or not isinstance(row, dict):
            self._problem("lance", f"wanted {'an object' if wanted else 'nothing'}, found {type(row).__name__}")
            return None
        row = cast("dict[str, Any]", row)
        return LanceVersions(
            tokens=self._integer(row, "tokens", "lance.", low=1),
            docs=self._integer(row, "docs", "lance.", low=1),
            data_storage_version=self._text(row, "data_storage_version", "lance."),
            loss_mask=self._integer(row, "loss_mask", "lance.", low=1) if "loss_mask" in row else 0,
        )

    def _tokenizer(self, row: object) -> TokenizerRef | None:
        if row is None:
            return None
        if not isinstance(row, dict):
            self._problem("tokenizer", f"wanted an object, found {type(row).__name__}")
            return None
        row = cast("dict[str, Any]", row)
        return TokenizerRef(
            kind=self._text(row, "kind", "tokenizer."),
            name=self._text(row, "name", "tokenizer."),
            sha256=self._sha(row, "sha256", "tokenizer."),
            vocab_size=self._integer(row, "vocab_size", "tokenizer.", low=1),
        )

    def _objects(self, rows: object, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The objects of a list, each with the beginning of its keys' names; what is none is told."""
        if not isinstance(rows, list):
            self._problem(name, f"wanted a list, found {type(rows).__name__}")
            return
        for number, row in enumerate(cast("list[Any]", rows)):
            if isinstance(row, dict):
                yield f"{name}[{number}].", cast("dict[str, Any]", row)
            else:
                self._problem(f"{name}[{number}]", f"wanted an object, found {type(row).__name__}")

    def _sources(self, rows: object) -> Iterator[SourceEntry]:
        for place, row in self._objects(rows, "sources"):
            known = len(self.problems)
            source = self.source(row, place)
            if len(self.problems) > known:
                yield source
                continue
            stops = [0, *(cut.stop for cut in source.cuts)]
            if [cut.start for cut in source.cuts] != stops[:-1] or [*stops, source.size] != sorted(
                [*stops, source.size]
            ):
                self._problem(f"{place}cuts", f"wanted parts of the {source.size} bytes, one behind the other from 0")
            yield source

    def source(self, row: Mapping[str, Any], place: str, *, part: bool = False) -> SourceEntry:
        """One entry of the list of sources, or a part of one, which may have no hash."""
        dropped = row.get("dropped", {})
        if not isinstance(dropped, dict) or not all(
            type(count) is int for count in cast("dict[str, Any]", dropped).values()
        ):
            self._problem(f"{place}dropped", "wanted an object of counts")
            dropped = {}
        return SourceEntry(
            path=self._text(row, "path", place),
            size=self._integer(row, "size", place),
            sha256=self._sha(row, "sha256", place, default="" if part or row.get("sha256") == "" else None),
            documents=self._integer(row, "documents", place),
            dropped=cast("dict[str, int]", dropped),
            cuts=tuple(self._cuts(row.get("cuts", []), f"{place}cuts")),
        )

    def _cuts(self, rows: object, place: str) -> Iterator[CutEntry]:
        for of_cut, row in self._objects(rows, place):
            yield CutEntry(
                start=self._integer(row, "start", of_cut),
                stop=self._integer(row, "stop", of_cut),
                sha256=self._sha(row, "sha256", of_cut),
            )

    def _appends(self, rows: object, name: str) -> Iterator[Append]:
        if not isinstance(rows, list):
            self._problem(name, f"wanted a list, found {type(rows).__name__}")
            return
        for number, row in enumerate(cast("list[Any]", rows)):
            place = f"{name}[{number}]."
            if not isinstance(row, dict) or not isinstance(cast("dict[str, Any]", row).get("options", {}), dict):
                self._problem(place[:-1], "wanted an object with an object `options`")
                continue
            row = cast("dict[str, Any]", row)
            yield Append(
                base=self._sha(row, "base", place),
                sources=self._integer(row, "sources", place),
                shards=self._integer(row, "shards", place),
                options=row.get("options", {}),
            )

    def _splits(self, rows: object) -> Iterator[Split]:
        for place, row in self._objects(rows, "splits"):
            by: Any = self._text(row, "by", place)
            if by not in get_args(By):
                self._problem(f"{place}by", f"wanted text or tokens, found {_found(row, 'by')}")
            yield Split(
                base=self._sha(row, "base", place),
                part=self._text(row, "part", place),
                seed=self._integer(row, "seed", place),
                by=by,
                fractions=tuple(self._fractions(row.get("fractions"), f"{place}fractions")),
                rest=self._text(row, "rest", place),
                appends=tuple(self._appends(row.get("appends", []), f"{place}appends")),
            )

    def _fractions(self, rows: object, place: str) -> Iterator[tuple[str, str]]:
        pairs = cast("list[Any]", rows) if isinstance(rows, list) else [None]
        for pair in pairs:
            words = cast("list[Any]", pair) if isinstance(pair, list) else []
            if len(words) == 2 and all(isinstance(word, str) for word in words):  # noqa: PLR2004  # a pair
                yield words[0], words[1]
            else:
                self._problem(place, "wanted a list of pairs of a name and a fraction")
                return

    def _shards(self, rows: list[Any], version: int) -> Iterator[ShardEntry]:
        start: int | None = 0
        names: set[str] = set()
        for number, row in enumerate(rows):
            place = f"shards[{number}]."
            if not isinstance(row, dict):
                self._problem(place[:-1], f"wanted an object, found {type(row).__name__}")
                start = None
                continue
            row = cast("dict[str, Any]", row)
            shard = self.shard(row, place, version)
            counted = _is_count(row.get("token_count")) and _is_count(row.get("global_start"))
            if shard.shard_id in names:
                self._problem(f"{place}shard_id", f"{shard.shard_id!r} is listed twice")
            if counted and start is not None and shard.global_start != start:
                self._problem(
                    f"{place}global_start", f"says {shard.global_start}, but the shards before it hold {start}"
                )
            names.add(shard.shard_id)
            # From its own start on, so that one fault is reported once.
            start = shard.global_stop if counted else None
            yield shard

    def shard(self, row: Mapping[str, Any], place: str, version: int = FORMAT_VERSION) -> ShardEntry:
        """One entry of the list of shards."""
        path = self._text(row, "path", place)
        if isinstance(row.get("path"), str) and (not path or "\0" in path):
            self._problem(f"{place}path", f"wanted a path, found {_found(row, 'path')}")
        elif version != 1 and (path.startswith("/") or ".." in path.split("/")):
            self._problem(f"{place}path", f"{path!r} leaves the index's folder")
        return ShardEntry(
            shard_id=self._text(row, "shard_id", place),
            path=path,
            token_count=self._integer(row, "token_count", place),
            document_count=self._integer(row, "document_count", place, default=0 if version == 1 else None),
            sha256=self._sha(row, "sha256", place),
            global_start=self._integer(row, "global_start", place),
            documents_sha256=self._sha(row, "documents_sha256", place, default="" if version == 1 else None),
            sources_sha256=self._sha(row, "sources_sha256", place, default=""),
            loss_mask_sha256=self._sha(row, "loss_mask_sha256", place, default=""),
            docs_sha256=self._sha(row, "docs_sha256", place, default=""),
            source=self._integer(row, "source", place, default=0),
            row_base=self._integer(row, "row_base", place, default=0),
        )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _found(row: Mapping[str, Any], key: str) -> str:
    if key not in row:
        return "nothing"
    return reprlib.repr(row[key])
