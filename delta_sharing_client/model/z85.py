"""Z85 text of deletion vectors and UUIDs: five characters for each four bytes."""

from __future__ import annotations

from typing import Final

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_PADDING: Final = "#"


def z85_encode(data: bytes) -> str:
    """Return the Z85 text of bytes; their number must be a multiple of four."""
    numbers = [int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4)]
    return "".join(_ALPHABET[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def z85_decode(text: str) -> bytes:
    """Decode Z85 text.

    The last group may have fewer bytes: it begins with one `#` for each missing byte, as the Rust crate `z85`
    pads. No other group begins with `#`, because its number would exceed 32 bits.

    Raises:
        ValueError: the length is no multiple of five, a character is not in Z85, or a group's number is too large.
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not a multiple of 5")
    out = bytearray()
    for start in range(0, len(text), 5):
        group = text[start : start + 5]
        missing = 5 - len(group.lstrip(_PADDING)) if start + 5 == len(text) else 0
        number = 0
        for character in group[missing:]:
            value = _VALUES.get(character)
            if value is None:
                raise ValueError(f"{character!r} is not a character of Z85")
            number = number * 85 + value
        size = 4 - missing
        if size < 1 or number >> 8 * size:
            raise ValueError("a group of five characters is out of range")
        out += number.to_bytes(size, "big")
    return bytes(out)
