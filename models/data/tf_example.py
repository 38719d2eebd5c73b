"""Writes and reads a serialised tf.train.Example of an array `x` and a few floats `y`; reads it without the array.

Protocol buffers' encoding: https://protobuf.dev/programming-guides/encoding; messages: tensorflow, core/example.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence, Tuple, Union

import numpy as np

Span = Tuple[int, int]  # where something begins in an Example, and where it ends

BYTES_LIST, FLOAT_LIST = 1, 2  # fields of a Feature
VARINT, EIGHT_BYTES, PREFIXED, FOUR_BYTES = 0, 1, 2, 5  # wire types; PREFIXED begins with its length


class Malformed(Exception):
    """A record is damaged. The text calls the record "it"; a DataCorrupt with the file's name is made of it."""


def serialise(features: Mapping[str, Union[bytes, Sequence[float]]]) -> bytes:
    """Return an Example with these features, each of bytes or of floats."""
    entries = (_field(1, name.encode()) + _field(2, _feature(value)) for name, value in features.items())
    return _field(1, b"".join(_field(1, entry) for entry in entries))


@dataclass(frozen=True)
class Example:
    """A serialised Example of `length` bytes; `data` lacks those in `hole`, the array's."""

    data: bytes
    length: int
    hole: Span

    def find_array(self) -> Span:
        """Return where the bytes of feature x are, and read nothing behind their beginning. Raises Malformed."""
        for name, feature in self._features():
            if name == b"x":
                for span in self._arrays(feature):
                    return span
        raise Malformed("it has no feature x of bytes")

    def read_numbers(self, y: Any) -> None:
        """Copy feature y to an array of float32. Feature x must be exactly the hole.

        Raises Malformed, also for another number of floats than y has, and where one is not finite.
        """
        entries = list(self._features())
        features = dict(entries)
        if len(features) < len(entries):
            raise Malformed("it has a feature twice")
        if list(self._arrays(features.get(b"x", (0, 0)))) != [self.hole]:
            raise Malformed("its feature x is not one array")
        numbers = np.frombuffer(self._floats(features.get(b"y", (0, 0))), "<f4")
        if len(numbers) != len(y):
            raise Malformed(f"its feature y has {len(numbers)} floats, and {len(y)} are expected")
        if not np.isfinite(numbers).all():
            raise Malformed(f"its feature y is not finite: {numbers.tolist()}")
        y[:] = numbers

    def _features(self) -> Iterator[Tuple[bytes, Span]]:
        """Yield name and place of each feature of the map, in any order; a name stands before its feature."""
        for features in self._inside((0, self.length), 1):
            for entry in self._inside(features, 1):
                name = b""
                for number, wire, span in self._fields(entry):
                    if (number, wire) == (1, PREFIXED):
                        name = self._bytes(*span)
                    elif (number, wire) == (2, PREFIXED):
                        yield name, span

    def _arrays(self, feature: Span) -> Iterator[Span]:
        for values in self._inside(feature, BYTES_LIST):
            yield from self._inside(values, 1)

    def _floats(self, feature: Span) -> bytes:
        """Return the bytes of the floats, which may be packed or one by one."""
        floats = []
        for values in self._inside(feature, FLOAT_LIST):
            for number, wire, (start, stop) in self._fields(values):
                is_packed = wire == PREFIXED and (stop - start) % 4 == 0
                if number == 1 and (is_packed or wire == FOUR_BYTES):
                    floats.append(self._bytes(start, stop))
        return b"".join(floats)

    def _inside(self, message: Span, field: int) -> Iterator[Span]:
        return (span for number, wire, span in self._fields(message) if (number, wire) == (field, PREFIXED))

    def _fields(self, message: Span) -> Iterator[Tuple[int, int, Span]]:
        """Yield number, wire type and place of each field, also of unknown ones."""
        at, end = message
        while at < end:
            tag, at = self._varint(at, end)
            number = tag >> 3
            wire = tag & 7
            if wire == VARINT:
                stop = self._varint(at, end)[1]
            elif wire == PREFIXED:
                size, at = self._varint(at, end)
                stop = at + size
            elif wire in (EIGHT_BYTES, FOUR_BYTES):
                stop = at + (8 if wire == EIGHT_BYTES else 4)
            else:
                raise Malformed(f"it is no tf.train.Example (wire type {wire})")
            if not number or stop > end:
                raise Malformed("it is no tf.train.Example (a field cannot be)")
            yield number, wire, (at, stop)
            at = stop

    def _varint(self, at: int, end: int) -> Span:
        """Return the number that begins at `at`, and where it ends."""
        value = 0
        shift = 0
        while at < end and shift < 64:
            (byte,) = self._bytes(at, at + 1)
            value |= (byte & 127) << shift
            at += 1
            shift += 7
            if byte < 128:
                return value, at
        raise Malformed("it is no tf.train.Example (a number has no end)")

    def _bytes(self, start: int, stop: int) -> bytes:
        begin, end = self.hole
        if start >= end:
            return self.data[start - end + begin : stop - end + begin]
        if stop > begin:
            raise Malformed(f"its feature x does not begin in its first {begin:,} bytes")
        return self.data[start:stop]


def _feature(value: Union[bytes, Sequence[float]]) -> bytes:
    if isinstance(value, bytes):
        return _field(BYTES_LIST, _field(1, value))
    return _field(FLOAT_LIST, _field(1, struct.pack(f"<{len(value)}f", *value)))


def _field(number: int, content: bytes) -> bytes:
    size = len(content)
    head = bytearray([number << 3 | PREFIXED])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + content
