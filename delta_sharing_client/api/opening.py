"""What the functions of this package share: the table of a URL, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.client import SharingClient, checked_options
from delta_sharing_client.model.names import Table, parse_bare_table, parse_table_url
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.state import default_states
from delta_sharing_client.table.shared_table import SharedTable

#: What a table is read through: the Delta Sharing protocol, or the provider's Iceberg REST catalog.
CatalogName: TypeAlias = Literal["delta", "iceberg"]


@contextmanager
def open_table(
    url: str,
    options: TransportOptions | None,
    credential_provider: CredentialProvider | None,
    profile: ProfileSource = None,
    catalog: CatalogName = "delta",
) -> Iterator[SharedTable]:
    """Open the table of a URL with the state of calls with the same profile, options and credential provider.

    Its connections are closed when the last of these calls ends. With a profile, the URL is a table's name.
    """
    given, name = parse_table_url(url) if profile is None else (profile, parse_bare_table(url))
    loaded = load_profile(given, external=credential_provider is not None, stacklevel=6)
    with default_states.use(loaded, checked_options(options), credential_provider) as state:
        yield table_of(SharingClient._of(state), name, catalog)


def table_of(client: SharingClient, name: Table, catalog: CatalogName) -> SharedTable:
    """Return a table of a client, of its Iceberg catalog if that is chosen."""
    if catalog not in ("delta", "iceberg"):
        raise ValueError(f"catalog is {catalog!r}; it takes 'delta' or 'iceberg'")
    return client.iceberg.table(name) if catalog == "iceberg" else client.table(name)


def spark_variant(variant: str) -> VariantForm:
    """Return the form in which variants are read for Spark."""
    if variant not in ("variant", "json"):
        raise ValueError(f"variant is {variant!r}; it takes 'variant' or 'json'")
    return "json" if variant == "json" else "struct"
