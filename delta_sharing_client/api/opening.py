"""What the functions of this package share: the table of a URL, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource
from delta_sharing_client.client import SharingClient
from delta_sharing_client.model.names import parse_bare_table, parse_table_url
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.table.shared_table import SharedTable
from delta_sharing_client.wire.requests import RequestedFormat


@contextmanager
def open_table(
    url: str,
    options: TransportOptions | None,
    credential_provider: CredentialProvider | None,
    profile: ProfileSource = None,
) -> Iterator[SharedTable]:
    """Open the table of a URL; closes its connections at the end. With a profile, the URL is a table's name."""
    given, name = parse_table_url(url) if profile is None else (profile, parse_bare_table(url))
    with SharingClient(given, options=options, credential_provider=credential_provider) as client:
        yield client.table(name)


def response_format(use_delta_format: bool | None) -> RequestedFormat:
    """Return the response format that the argument `use_delta_format` requests."""
    if use_delta_format is None:
        return "auto"
    return "delta" if checked(use_delta_format) else "parquet"


def checked(use_delta_format: bool) -> bool:
    """Return the argument; raises `TypeError` if it is no boolean."""
    if not isinstance(use_delta_format, bool):
        raise TypeError(f"use_delta_format is True, False or None, not {use_delta_format!r}")
    return use_delta_format


def spark_variant(variant: str) -> VariantForm:
    """Return the form in which variants are read for Spark."""
    if variant not in ("variant", "json"):
        raise ValueError(f"variant is {variant!r}; it takes 'variant' or 'json'")
    return "json" if variant == "json" else "struct"
