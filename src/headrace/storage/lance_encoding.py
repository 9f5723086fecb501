"""How the values of a page lie in a Lance file, as far as Headrace reads them without Lance.

Lance tells it as a debugging text, which is no stable format: it must be exactly one of those below, or the page goes
through Lance.
"""

import re
from typing import Any, Literal, NamedTuple

from headrace.storage.lance_dictionary import Coding

__all__ = ["PageForm", "form_of"]


Kind = Literal["flat", "bitpacked", "blocks", "dictionary", "nulls", "other"]


class PageForm(NamedTuple):
    """What is known of a page."""

    kind: Kind
    """`flat`: its first buffer is the values; `bitpacked` and `blocks`: chunks of them, see `lance_packed`; `dictionary`:
    chunks of bit-packed numbers of items, see `lance_dictionary`."""
    rows: int | None = None
    """None where the page does not say."""
    wide: bool = False
    """Whether the table of chunks has four bytes for each, not two."""
    number_bits: int = 0
    """Of the number of an item before it was packed; this and the rest where there is a dictionary."""
    items: int = 0
    """Of the dictionary."""
    coding: Coding = "plain"
    """Of the dictionary."""
    item_bits: int = 0
    """Of an item that is stored as `bits`."""


_SPACE = re.compile(r"\s+")
_VALUES_2_0 = (
    r"Nullable\(Nullable\{nullability:Some\(NoNulls\(NoNull\{values:Some\(ArrayEncoding\{array_encoding:Some\("
    r"%s\),\},\),\},\),\),\},\)"
)
_FLAT_2_0 = _VALUES_2_0 % (
    r"Flat\(Flat\{bits_per_value:(?P<bits>\d+),buffer:Some\(Buffer\{buffer_index:0,buffer_type:Page,\},\),"
    r"compression:None,\},\),"
)
_LIST_2_0 = _VALUES_2_0 % (
    r"FixedSizeList\(FixedSizeList\{dimension:(?P<width>\d+),has_validity:false,items:Some\(ArrayEncoding\{"
    rf"array_encoding:Some\({_FLAT_2_0},\),\}},\),\}},\),"
)
_FLAT_VALUES = r"Flat\(Flat\{bits_per_value:(?P<bits>\d+),data:None,\},\)"
_LIST_VALUES = (
    r"FixedSizeList\(FixedSizeList\{items_per_value:(?P<width>\d+),has_validity:false,values:Some\(CompressiveEncoding\{"
    rf"compression:Some\({_FLAT_VALUES},\),\}},\),\}},\)"
)
_PACKED_VALUES = r"InlineBitpacking\(InlineBitpacking\{uncompressed_bits_per_value:(?P<bits>\d+),values:None,\},\)"
_FULL = (
    r"PageLayout\{layout:Some\(FullZipLayout\(FullZipLayout\{bits_rep:0,bits_def:0,num_items:(?P<rows>\d+),"
    r"num_visible_items:(?P=rows),value_compression:Some\(CompressiveEncoding\{compression:Some\(%s,\),\},\),"
    r"layers:\[RepdefAllValidItem,\],details:Some\(BitsPerValue\(\d+,\),\),\},\),\),\}"
)
_MINI = (
    r"PageLayout\{layout:Some\(MiniBlockLayout\(MiniBlockLayout\{rep_compression:None,def_compression:None,"
    r"value_compression:Some\(CompressiveEncoding\{compression:Some\(%s,\),\},\),dictionary:None,num_dictionary_items:0,"
    r"layers:\[RepdefAllValidItem,\],num_buffers:1,repetition_index_depth:0,num_items:(?P<rows>\d+),"
    r"has_large_chunk:(?P<wide>true|false),\},\),\),\}"
)
_NUMBERED = (
    r"PageLayout\{layout:Some\(MiniBlockLayout\(MiniBlockLayout\{rep_compression:None,def_compression:None,"
    r"value_compression:Some\(CompressiveEncoding\{compression:Some\(InlineBitpacking\(InlineBitpacking\{"
    r"uncompressed_bits_per_value:(?P<number_bits>\d+),values:None,\},\),\),\},\),"
    r"dictionary:Some\(CompressiveEncoding\{compression:Some\((?:%s),\),\},\),num_dictionary_items:(?P<items>\d+),"
    r"layers:\[RepdefAllValidItem,\],num_buffers:1,repetition_index_depth:0,num_items:(?P<rows>\d+),"
    r"has_large_chunk:(?P<wide>true|false),\},\),\),\}"
)
_PLAIN_ITEMS = r"CompressiveEncoding\{compression:Some\(Flat\(Flat\{bits_per_value:(?P<%s>\d+),data:None,\},\),\),\}"
_ITEMS: "dict[Coding, str]" = {
    "plain": _FLAT_VALUES,
    "chunks": _PACKED_VALUES,
    "bits": r"OutOfLineBitpacking\(OutOfLineBitpacking\{uncompressed_bits_per_value:(?P<bits>\d+),values:Some\(%s,\),\},\)"
    % (_PLAIN_ITEMS % "item_bits"),
    "lz4": r"General\(General\{compression:Some\(BufferCompression\{scheme:CompressionAlgorithmLz4,level:None,\},\),"
    r"values:Some\(%s,\),\},\)" % (_PLAIN_ITEMS % "bits"),
}
_ANY_MINI = re.compile(r"MiniBlockLayout\{.*?num_items:(?P<rows>\d+),has_large_chunk")
_FORMS: "tuple[tuple[Kind, re.Pattern[str]], ...]" = (
    ("flat", re.compile(rf"ArrayEncoding\{{array_encoding:Some\({_FLAT_2_0},\),\}}")),
    ("flat", re.compile(rf"ArrayEncoding\{{array_encoding:Some\({_LIST_2_0},\),\}}")),
    ("flat", re.compile(_FULL % _FLAT_VALUES)),
    ("flat", re.compile(_FULL % _LIST_VALUES)),
    ("bitpacked", re.compile(_MINI % _PACKED_VALUES)),
    ("blocks", re.compile(_MINI % _FLAT_VALUES)),
)
_DICTIONARIES: "list[tuple[Coding, re.Pattern[str]]]" = [
    (coding, re.compile(_NUMBERED % items)) for coding, items in _ITEMS.items()
]
_NULLS = re.compile("SomeNulls|AllNulls|RepdefNullableItem")


def form_of(encoding: Any, buffers: list[tuple[int, int]], *, bits: int, width: int) -> PageForm:  # noqa: ANN401  # Lance's
    """Tell how a page lies in its file.

    Args:
        encoding: as Lance tells it.
        buffers: byte offset and bytes of each buffer of the page.
        bits: of a value, as the schema has it.
        width: values a row.
    """
    text = _SPACE.sub("", str(encoding))
    for kind, pattern in _FORMS:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        named = found.groupdict()
        if int(named["bits"]) != bits or int(named.get("width") or 1) != width:
            break
        if kind != "flat":
            return PageForm(kind, int(named["rows"]), named["wide"] == "true")
        rows, rest = divmod(buffers[0][1] * 8, bits * width) if len(buffers) == 1 else (0, 1)
        if rest or int(named.get("rows") or rows) != rows:
            break
        return PageForm(kind, rows)
    for coding, pattern in _DICTIONARIES:
        found = pattern.fullmatch(text)
        if found and int(found["bits"]) == bits and width == 1:
            named = {name: int(value) for name, value in found.groupdict().items() if name != "wide"}
            item_bits, numbers = named.get("item_bits", 0), named["number_bits"]
            return PageForm(
                "dictionary", named["rows"], found["wide"] == "true", numbers, named["items"], coding, item_bits
            )
    found = _ANY_MINI.search(text)
    return PageForm("nulls" if _NULLS.search(text) else "other", int(found["rows"]) if found else None)
