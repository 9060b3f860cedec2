"""Short tracebacks: public calls raise the errors of this package from their own frame.

The frames below that one are removed, unless the logger `delta_sharing_client` is enabled for DEBUG, as it is with
`--debug` of the command line. Causes (`__cause__`) are kept.

Exceptions of libraries may quote names of a provider: control characters in their messages are escaped, and long
ones are cut.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Final, ParamSpec, TypeVar

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.messages import make_printable

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
            except Exception as error:
                _prepare(error)
                raise

        return generate

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            _prepare(error)
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


def without_frames(error: BaseException) -> BaseException:
    """Return an error of a worker thread as it is stored until another thread raises it.

    Frames of the worker hold what stores the error. In this cycle a dropped client would keep its connections
    until the garbage collector runs. Errors of other kinds keep their frames, which show the cause.
    """
    if isinstance(error, DeltaSharingError) and not _LOGGER.isEnabledFor(logging.DEBUG):
        error.__traceback__ = None
        if error.__suppress_context__:
            error.__context__ = None
    return error


def clear_frames(*errors: BaseException | None, outer: BaseException | None) -> None:
    """Clear the variables of the frames below errors of a library that are caught for good, and of their causes.

    A library's errors and frames hold each other, and with them the connections of a dropped client, until the
    garbage collector runs.

    Args:
        errors: the errors.
        outer: `sys.exception()` before the library was called: an error that the caller handles, and the last
            context of the others.
    """
    waiting = list(errors)
    while waiting:
        error = waiting.pop()
        if error is not None and error is not outer and error.__traceback__ is not None:
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = None  # and each error is visited once
            waiting += error.__cause__, error.__context__


def _prepare(error: Exception) -> None:
    """Make the texts of libraries printable, and shorten the traceback of an error of this package.

    Removed are the frames below the decorated function, and that of the decorator. A context that is not shown is
    removed too: its frames would keep the client, and its connections, until the garbage collector runs.
    """
    make_printable(error)
    trace = error.__traceback__
    if not isinstance(error, DeltaSharingError) or trace is None or trace.tb_next is None:
        return
    if _LOGGER.isEnabledFor(logging.DEBUG):
        return
    if error.__suppress_context__:
        error.__context__ = None
    error.__traceback__ = trace.tb_next
    error.__traceback__.tb_next = None
