"""Short tracebacks: public calls raise the errors of this package from their own frame.

The frames below that one are removed, unless the logger `delta_sharing_client` is enabled for DEBUG, as it is with
`--debug` of the command line. Causes (`__cause__`) are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Final, ParamSpec, TypeVar

from delta_sharing_client.errors import DeltaSharingError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_LOGGER: Final = logging.getLogger("delta_sharing_client")
#: Methods that are decorated besides those whose names have no underscore.
_SPECIAL: Final = frozenset({"__init__", "__iter__", "__getitem__", "__arrow_c_stream__"})


def public(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: errors have its frame, and none of the frames below."""
    if isgeneratorfunction(call):

        @wraps(call)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return (yield from call(*args, **kwargs))
            except DeltaSharingError as error:
                _shorten(error)
                raise

        return generate

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except DeltaSharingError as error:
            _shorten(error)
            raise

    return run


def public_class(kind: type[T]) -> type[T]:
    """Decorate a class: its public methods and properties are `public`."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isfunction(member):
            setattr(kind, name, public(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(kind, name, member.getter(public(member.fget)))
        elif isinstance(member, classmethod):
            setattr(kind, name, classmethod(public(member.__func__)))
    return kind


@public
def public_items(items: Iterator[T]) -> Iterator[T]:
    """Yield items of an iterator that is returned to the caller."""
    yield from items


def _shorten(error: DeltaSharingError) -> None:
    """Remove the frames below the decorated function, and that of the decorator, from an error's traceback."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is None or _LOGGER.isEnabledFor(logging.DEBUG):
        return
    error.__traceback__ = trace.tb_next
    error.__traceback__.tb_next = None
