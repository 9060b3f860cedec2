"""An encoder of variants for tests, written from the encoding alone and with nothing of the package in it."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def width_of(value: int) -> int:
    return max(1, (value.bit_length() + 7) // 8)


def metadata(names: list[str], *, is_sorted: bool = False, width: int = 0) -> bytes:
    texts = [name.encode() for name in names]
    total = sum(map(len, texts))
    width = width or width_of(max(total, len(texts)))
    offsets = list(accumulate(map(len, texts), initial=0))
    header = bytes([1 | is_sorted << 4 | (width - 1) << 6])
    return header + number(len(texts), width) + b"".join(number(o, width) for o in offsets) + b"".join(texts)


def primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def text(value: str, *, long: bool = False) -> bytes:
    data = value.encode()
    if len(data) < 64 and not long:
        return bytes([len(data) << 2 | 1]) + data
    return primitive(16, number(len(data), 4) + data)


def array(values: list[bytes], *, width: int = 0, wide: bool | None = None) -> bytes:
    offsets = list(accumulate(map(len, values), initial=0))
    width = width or width_of(offsets[-1])
    wide = len(values) > 255 if wide is None else wide
    header = (wide << 2 | (width - 1)) << 2 | 3
    count = number(len(values), 4 if wide else 1)
    return bytes([header]) + count + b"".join(number(o, width) for o in offsets) + b"".join(values)


def mapping(
    fields: dict[str, bytes],
    ids: dict[str, int],
    *,
    width: int = 0,
    id_width: int = 0,
    wide: bool | None = None,
    stored: list[str] | None = None,
) -> bytes:
    """An object; `stored` says in what order its values lie, which need not be that of its names."""
    names = sorted(fields, key=str.encode)
    stored = stored or names
    starts, at = {}, 0
    for name in stored:
        starts[name] = at
        at += len(fields[name])
    width = width or width_of(at)
    id_width = id_width or width_of(max((ids[name] for name in names), default=0))
    wide = len(names) > 255 if wide is None else wide
    header = (wide << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | 2
    return b"".join(
        [
            bytes([header]),
            number(len(names), 4 if wide else 1),
            *(number(ids[name], id_width) for name in names),
            *(number(starts[name], width) for name in names),
            number(at, width),
            *(fields[name] for name in stored),
        ]
    )


@dataclass
class Encoder:
    """Encodes JSON-like values, with what the encoding leaves open drawn by `draw`."""

    draw: random.Random
    names: list[str] = field(default_factory=list)

    def collect(self, value: Any) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                if name not in self.names:
                    self.names.insert(self.draw.randint(0, len(self.names)), name)
                self.collect(item)
        elif isinstance(value, list):
            for item in value:
                self.collect(item)

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        self.collect(value)
        self.names += [f"unused {n}" for n in range(self.draw.choice([0, 0, 3, 300]))]
        is_sorted = self.draw.random() < 0.5
        if is_sorted:
            self.names.sort(key=str.encode)
        least = width_of(max(sum(len(name.encode()) for name in self.names), len(self.names)))
        return metadata(self.names, is_sorted=is_sorted, width=self.draw.randint(least, 4)), self.value(value)

    def value(self, value: Any) -> bytes:
        if value is None:
            return primitive(0)
        if isinstance(value, bool):
            return primitive(1 if value else 2)
        if isinstance(value, int):
            kinds = [(3, 1), (4, 2), (5, 4), (6, 8)]
            kind, width = self.draw.choice([k for k in kinds if -(1 << 8 * k[1] - 1) <= value < 1 << 8 * k[1] - 1])
            return primitive(kind, value.to_bytes(width, "little", signed=True))
        if isinstance(value, float):
            return primitive(7, struct.pack("<d", value))
        if isinstance(value, str):
            return text(value, long=self.draw.random() < 0.3)
        if isinstance(value, list):
            values = [self.value(item) for item in value]
            least = width_of(sum(map(len, values)))
            return array(values, width=self.draw.randint(least, 4), wide=self._wide(value))
        fields = {name: self.value(item) for name, item in value.items()}
        ids = {name: position for position, name in enumerate(self.names)}
        stored = list(fields)
        self.draw.shuffle(stored)
        return mapping(
            fields,
            ids,
            width=self.draw.randint(width_of(sum(map(len, fields.values()))), 4),
            id_width=self.draw.randint(width_of(max((ids[name] for name in fields), default=0)), 4),
            wide=self._wide(value),
            stored=stored,
        )

    def _wide(self, value: Any) -> bool:
        return len(value) > 255 or self.draw.random() < 0.3
