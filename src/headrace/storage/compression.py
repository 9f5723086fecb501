"""How the tokens of a shard are compressed: the option as users write it, and the HDF5 filters that a file has.

Only `/tokens` is ever compressed, chunk by chunk, by one filter: HDF5's byte shuffle is not put before it, for it makes
ids of a real vocabulary larger.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.errors import FormatError, MissingExtraError, WriterError

__all__ = ["Compression", "filters_of", "parse_compression", "require_filters"]

ZSTD_FILTER = 32015
"""The number of zstd in the HDF Group's list of filters."""
_NAMES = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf", ZSTD_FILTER: "zstd"}
_FORM = re.compile(r"(none|gzip|zstd)(?::(0|[1-9][0-9]?))?")
_LEVELS = {"none": range(1), "gzip": range(10), "zstd": range(1, 23)}
_DEFAULTS = {"none": 0, "gzip": 4, "zstd": 3}
_EXTRA = "which needs hdf5plugin: pip install 'headrace[zstd]'"


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression as the option `--compression` names it; `str()` gives that name, with the level."""

    name: Literal["none", "gzip", "zstd"] = "none"
    level: int = 0

    def __str__(self) -> str:
        return self.name if self.name == "none" else f"{self.name}:{self.level}"

    def dataset_options(self) -> dict[str, Any]:
        """What `h5py.File.create_dataset` needs for it."""
        if self.name == "gzip":
            return {"compression": "gzip", "compression_opts": self.level}
        if self.name == "zstd":
            return {"compression": ZSTD_FILTER, "compression_opts": (self.level,)}
        return {}


def parse_compression(text: str) -> Compression:
    """Read `none`, `gzip`, `gzip:0` to `gzip:9`, `zstd`, `zstd:1` to `zstd:22`; without a level, gzip:4 and zstd:3.

    Raises:
        WriterError: (a ValueError) it is none of them.
        MissingExtraError: (an ImportError) zstd is asked for, and hdf5plugin is not installed.
    """
    found = _FORM.fullmatch(text)
    name: Any = found[1] if found else ""
    level = int(found[2]) if found and found[2] else _DEFAULTS.get(name, 0)
    if not found or level not in _LEVELS[name] or (name == "none" and found[2]):
        raise WriterError(
            f"compression {text!r}: wanted none, gzip, gzip:0 to gzip:9, zstd, or zstd:1 to zstd:22", usage=True
        )
    if name == "zstd":
        _load_hdf5plugin(f"compression {text!r} is zstd")
    return Compression(name, level)


def filters_of(dataset: Any) -> str:  # noqa: ANN401  # an h5py.Dataset, which has no useful static type
    """What stands between the tokens and the bytes of a data set, in the order of writing.

    Returns:
        `none`, or as `parse_compression` takes it; filters that we do not write by their names, several joined by `+`.
    """
    names: list[str] = []
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, values, label = properties.get_filter(number)
        name = _name(code, label)
        names.append(f"{name}:{values[0]}" if name in _DEFAULTS and values else name)
    return "+".join(names) or "none"


def _name(code: int, label: bytes) -> str:
    """What a filter is called; `label` is what the file says of it."""
    return _NAMES.get(code) or label.decode("ascii", "replace").split(";")[0] or f"filter {code}"


def require_filters(path: Path, dataset: Any) -> None:  # noqa: ANN401  # an h5py.Dataset
    """Make sure that this process can decode a data set.

    Args:
        path: the file, for the message.
        dataset: the data set.

    Raises:
        MissingExtraError: (an ImportError) a filter may be one of hdf5plugin's, which is not installed.
        FormatError: a filter that is not even among those.
    """
    import h5py  # noqa: PLC0415  # this module is imported to parse options

    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, label = properties.get_filter(number)
        if h5py.h5z.filter_avail(code):
            continue
        name = _name(code, label)
        _load_hdf5plugin(f"{path}: its tokens are compressed with {name} (HDF5 filter {code})")
        if not h5py.h5z.filter_avail(code):
            raise FormatError(
                f"{path}: its tokens are compressed with {name} (HDF5 filter {code}), which neither HDF5 nor hdf5plugin "
                "knows: put the filter's library into the folder that HDF5_PLUGIN_PATH names, or copy the file "
                "uncompressed with h5repack"
            )


def _load_hdf5plugin(wanted: str) -> None:
    """Give HDF5 the filters of hdf5plugin, which registers them when it is imported."""
    try:
        import hdf5plugin  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingExtraError(f"{wanted}, {_EXTRA}") from error
