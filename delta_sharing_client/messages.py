"""Messages of this package: errors, log records and warnings, with secrets masked and text of others made safe."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from delta_sharing_client.secrets import redact_text
from delta_sharing_client.shown_text import MAX_MESSAGE, MAX_PIECE, cut, printable

#: Characters of a message that are redacted. A secret that a cut halves is longer than what is shown of it.
_READ: Final = 40_000
#: Links of an exception's chain that are looked at.
_MOST_CAUSES: Final = 32
#: Stands for what is left out before redaction; it ends no value that is masked.
_GAP: Final = "__"
#: A word that is no sentence: a name or a path of a provider.
_LONG_WORD: Final = re.compile(rf"\S{{{MAX_PIECE + 60},}}+")


def message_text(text: str) -> str:
    """Return a message with secrets masked, control characters escaped and long parts cut.

    A long word is cut to `MAX_PIECE` characters and a long message to `MAX_MESSAGE`, in the middle: it begins with
    what failed and ends with the remedy.
    """
    if len(text) > _READ:
        text = f"{text[: _READ // 2]}{_GAP}{text[-_READ // 2 :]}"
    return _short(printable(redact_text(text)))


def _short(text: str) -> str:
    if len(text) > MAX_PIECE:
        text = _LONG_WORD.sub(lambda word: cut(word[0], MAX_PIECE), text)
    return cut(text, MAX_MESSAGE)


def make_printable(error: BaseException) -> None:
    """Escape and cut the texts of a library's exception, and of its causes; line ends are kept."""
    link: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if link is None:
            return
        args = tuple(_foreign(value) for value in link.args)
        if any(new is not old for new, old in zip(args, link.args, strict=True)):
            with suppress(Exception):  # a class may refuse
                link.args = args
        if notes := getattr(link, "__notes__", None):
            link.__notes__ = [_foreign(note) for note in notes]
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _foreign(value: Any) -> Any:
    if type(value) is not str or (len(value) <= MAX_MESSAGE and value.isprintable()):
        return value
    return cut(printable(cut(value, _READ), "\n\t"), MAX_MESSAGE)


def module_logger(name: str) -> logging.Logger:
    """Return the logger of a module; the texts in its records are `message_text`."""
    logger = logging.getLogger(name)
    logger.addFilter(_FILTER)
    return logger


def warn(message: str, category: type[Warning], stacklevel: int) -> None:
    """Issue a warning; `stacklevel` is that of `warnings.warn` in the calling function."""
    warnings.warn(message_text(message), category, stacklevel=stacklevel + 1)


def log_argument(value: object) -> object:
    """Return an argument of a log record: numbers unchanged, the text of anything else made safe."""
    return value if value is None or isinstance(value, bool | int | float) else message_text(str(value))


class _MessageFilter(logging.Filter):
    """Makes the texts of records safe."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(log_argument, record.args))
        elif isinstance(record.args, Mapping):
            record.args = {name: log_argument(value) for name, value in record.args.items()}
        if not record.args:
            record.msg = message_text(str(record.msg))
        if record.exc_info and record.exc_info[1] is not None:
            make_printable(record.exc_info[1])
        return True


_FILTER: Final = _MessageFilter("")
