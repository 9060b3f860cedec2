"""Why the server answered 404: the name that it does not list and the most similar one, or the endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeVar

from delta_sharing_client.errors import DeltaSharingError, NotFoundError
from delta_sharing_client.model.names import MAX_NAME
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.calls import Caller
from delta_sharing_client.rest.resources import Resource
from delta_sharing_client.shown_text import similar_name
from delta_sharing_client.transport.retry import Retrier

T = TypeVar("T")

_KINDS: Final = {"shares": "share", "schemas": "schema", "tables": "table"}
#: Names of a listing that are compared.
_MOST: Final = 2000


@contextmanager
def names_checked(caller: Caller, options: TransportOptions, resource: Resource) -> Iterator[None]:
    """Raise a `NotFoundError` with the reason.

    This lists the tables of the schema; if there is no such schema the schemas of the share; if there is no such
    share the shares.
    """
    try:
        yield
    except NotFoundError as error:
        lister = Caller(caller.transport, Retrier(replace(options, api_attempts=1)))
        reason = _reason(lister, resource, error.server_message or "")
        if reason is None:
            raise
        missing, hint = reason
        explained = NotFoundError(
            status=error.status,
            subject=error.subject,
            error_code=error.error_code,
            server_message=error.server_message,
            hint=hint,
        )
        explained.missing = missing
        raise explained from None


def listed(caller: Caller, options: TransportOptions, resource: Resource, items: Iterator[T]) -> Iterator[T]:
    """Yield the items of a listing; raises as `names_checked`."""
    with names_checked(caller, options, resource):
        yield from items


def _reason(caller: Caller, resource: Resource, said: str) -> tuple[str, str] | None:
    """Return what is missing, and a hint of more than the server said; None if it lists the names, or fails."""
    for depth in (5, 3, 1):
        if len(resource.path) <= depth:
            continue
        collection, wanted = resource.path[:depth], resource.path[depth]
        try:
            names = list(islice(caller.items(_name, Resource(collection, resource.subject, {}), None), _MOST))
        except NotFoundError:
            continue
        except DeltaSharingError:
            return None
        known = {name.lower(): name for name in names if 0 < len(name) <= MAX_NAME}
        if wanted.lower() in known:
            return None
        close = similar_name(wanted, known)
        question = f"you mean {close!r}? " if close else ""
        advice, kind = resource.advice.get(404, ""), _KINDS[collection[-1]]
        sentence = f"There is no {kind} {wanted!r}"
        if sentence in said:
            hint = f"Did {question}" if close else ""
        else:
            hint = f"{sentence}; did {question}" if close else f"{sentence}. "
        return kind, (hint + advice).rstrip()
    return (
        "endpoint",
        f"Check the endpoint in the profile: there is no sharing server at {caller.transport.endpoint}",
    )


def _name(item: Mapping[str, Any]) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else ""
