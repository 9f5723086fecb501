"""The wire format of protobuf messages, as far as files that are read here need it."""

from collections.abc import Iterator

__all__ = ["fields", "integers"]

_CONTINUES = 0x80
_MAX_VARINT_BYTES = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message: integers, or bytes.

    Raises:
        ValueError, IndexError: it is no message, or cut.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire == 2:  # noqa: PLR2004  # bytes behind their length
            size, place = _varint(message, place)
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"byte {place}: no field of a message")
        if place + size > len(message):
            raise ValueError(f"byte {place}: a field that ends behind the end")
        yield number, message[place : place + size]
        place += size


def integers(packed: int | bytes) -> list[int]:
    """Return the integers of a repeated field, packed, or a single one that is not.

    Raises:
        ValueError, IndexError: they are cut.
    """
    if isinstance(packed, int):
        return [packed]
    found: list[int] = []
    place = 0
    while place < len(packed):
        value, place = _varint(packed, place)
        found.append(value)
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT_BYTES):
        byte = data[place + shift]
        value |= (byte & ~_CONTINUES) << (7 * shift)
        if not byte & _CONTINUES:
            if value >> 64:
                raise ValueError(f"byte {place}: an integer of more than 64 bits")
            return value, place + shift + 1
    raise ValueError(f"byte {place}: a number without an end")
