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


def spark_variant(variant: str) -> VariantForm:
    """Return the form in which variants are read for Spark."""
    if variant not in ("variant", "json"):
        raise ValueError(f"variant is {variant!r}; it takes 'variant' or 'json'")
    return "json" if variant == "json" else "struct"
