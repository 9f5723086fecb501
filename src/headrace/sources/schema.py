"""Whether a column of an Arrow table has what is wanted, by its type alone."""

from collections.abc import Sequence
from typing import Any

from headrace.sources.field import Field, split_field
from headrace.sources.files import label

__all__ = ["MOST_CHARACTERS", "column_fault"]

_MOST_NAMES = 20
MOST_CHARACTERS = 200
"""Of a type or a message, that are shown."""


def column_fault(schema: Any, field: Field) -> str | None:  # noqa: ANN401  # as above
    """Say why a schema has no texts, or ids, under a field, or return None where it has."""
    import pyarrow as pa  # noqa: PLC0415  # the caller has a schema of it

    for name, flag in zip(field.texts, (field.flag, "--response-field"), strict=False):
        kind = _kind_of(schema, name, flag)
        if isinstance(kind, str):
            return kind
        value = (
            _stored(kind.value_type)
            if field.ids is None and field.chat is None and pa.types.is_dictionary(kind)
            else kind
        )
        holds = _holds_messages if field.chat else _holds_ids if field.ids else _is_string
        if not pa.types.is_null(value) and not holds(value):
            return _wrong_kind(name, kind, field.wanted, flag)
    beside = (
        (field.tools, "--tools-field", _holds_tools, "lists of tools, or their JSON text"),
        (field.id_name, "--id-field", _holds_names, "strings or integers"),
    )
    for name, flag, holds, wanted in beside:
        kind = None if name is None else _kind_of(schema, name, flag)
        if isinstance(kind, str):
            return kind
        value = _stored(kind.value_type) if kind is not None and pa.types.is_dictionary(kind) else kind
        if value is not None and not pa.types.is_null(value) and not holds(value):
            return _wrong_kind(name or "", kind, wanted, flag)
    return None


def _wrong_kind(name: str, kind: object, wanted: str, flag: str) -> str:
    return f"the column {label(name)} holds {label(str(kind))[:MOST_CHARACTERS]}; wanted {wanted} ({flag})"


def _kind_of(schema: Any, dotted: str, flag: str) -> Any:  # noqa: ANN401  # as above
    """The type of a column; a string says why there is none."""
    import pyarrow as pa  # noqa: PLC0415  # the caller has a schema of it

    names: list[str] = schema.names
    kind, above = None, ""
    for key in split_field(dotted):
        if kind is not None and not pa.types.is_struct(kind):
            what = f"{label(above[:-1])} holds {label(str(kind))[:MOST_CHARACTERS]}, which has no fields"
            return f"no column {label(dotted)}; {what} ({flag})"
        if names.count(key) > 1:
            return f"{names.count(key)} columns are named {label(above + key)}; wanted one"
        if key not in names:
            shown = ", ".join(label(above + name) for name in names[:_MOST_NAMES])
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            have = f"its columns are {shown}{more}" if names else "it has no columns"
            # A dot leads into a struct, as in JSON into an object.
            whole = "; a name with a dot in it cannot be given, rename the column" if dotted in schema.names else ""
            return f"no column {label(dotted)}; {have} ({flag}){whole}"
        kind = _stored((schema if kind is None else kind).field(key).type)
        above += f"{key}."
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return kind


def _is_string(kind: Any) -> bool:  # noqa: ANN401  # as above
    return any(test(kind) for test in _strings())


def _holds_ids(kind: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    return _is_list(kind) and pa.types.is_integer(_stored(kind.value_type))


def _holds_messages(kind: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    return _is_list(kind) and pa.types.is_struct(_stored(kind.value_type))


def _holds_tools(kind: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return _holds_messages(kind) or any(test(kind) for test in texts)


def _holds_names(kind: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    return pa.types.is_integer(kind) or _is_string(kind)


def _is_list(kind: Any) -> bool:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    types = pa.types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(test(kind) for test in lists)


def _strings() -> Sequence[Any]:
    import pyarrow as pa  # noqa: PLC0415  # as above

    types = pa.types
    return (
        *(types.is_string, types.is_large_string, types.is_string_view, types.is_fixed_size_binary),
        *(types.is_binary, types.is_large_binary, types.is_binary_view),
    )


def _stored(kind: Any) -> Any:  # noqa: ANN401  # as above
    import pyarrow as pa  # noqa: PLC0415  # as above

    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind
