"""How text of other origin is shown: control characters escaped, long text cut.

A name, comment or message of a provider may contain sequences that control a terminal or reverse the direction of
text, or have millions of characters. What is shown for people passes through this module; data never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: Characters of one piece of a provider's text, such as a name.
MAX_PIECE: Final = 300
#: Characters of a whole message.
MAX_MESSAGE: Final = 3000
#: Limits of a search for similar names, whose time grows with the square of their length.
_MOST_NAMES: Final = 2000
_LONGEST_NAME: Final = 64


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with its control characters escaped, as ``\x1b`` or ``\u202e``.

    Escaped are what Unicode calls control, format (bidirectional controls, zero-width characters), separator other
    than space, surrogate, private and unassigned, except those in `keep`.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def json_printable(text: str) -> str:
    r"""Return a JSON text with its control characters escaped as ``\u001b``; it remains the same JSON."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n" else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def cut(text: str, most: int) -> str:
    """Return a text of at most about `most` characters: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail]}...({len(text) - most:,} characters)...{text[-tail:]}"


def shown(value: object, most: int = MAX_PIECE) -> str:
    """Return the text of a value on one line, escaped and cut."""
    text = str(value)
    return cut(printable(text if len(text) <= 2 * most else cut(text, 2 * most)), most)


def quoted(name: str) -> str:
    """Return a name in quotes, escaped and cut."""
    return repr(cut(name, MAX_PIECE))


def listed(names: Iterable[str], most: int = MAX_PIECE) -> str:
    """Return names with commas between them, as many as `most` characters hold, and the number of the others."""
    texts: list[str] = []
    length = left = 0
    for name in names:
        if left or length > most:
            left += 1
            continue
        texts.append(shown(name, most // 3))
        length += len(texts[-1]) + 2
    return ", ".join(texts) + (f" and {left:,} more" if left else "")


def similar_name(name: str, known: Mapping[str, str]) -> str | None:
    """Return the name that is most similar to an unknown one, for a message; None if no name is.

    Args:
        name: the unknown name.
        known: names by what they are in lower case.
    """
    if len(name) > _LONGEST_NAME:
        return None
    from difflib import get_close_matches

    short = [each for each in known if len(each) <= _LONGEST_NAME][:_MOST_NAMES]
    return next((known[match] for match in get_close_matches(name.lower(), short, 1)), None)
