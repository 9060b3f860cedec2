"""Functions that return a table's version, metadata and protocol."""

from __future__ import annotations

from delta_sharing_client.api.opening import open_table
from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.scan.options import OnFuture
from delta_sharing_client.tracebacks import public
from delta_sharing_client.wire.requests import Timestamp


@public
def get_table_version(
    url: str,
    starting_timestamp: Timestamp | None = None,
    *,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> int:
    """Return a shared table's latest version, or the first one at or after `starting_timestamp`.

    With ``on_future="latest"`` the latest version is returned for a time after its commit, too.
    """
    with open_table(url, options, credential_provider) as table:
        return table.version(starting_timestamp, on_future=on_future)


@public
def get_table_metadata(
    url: str,
    use_delta_format: bool = True,
    *,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Metadata:
    """Return a shared table's metadata: id, schema, partition columns, properties.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        use_delta_format: accept delta format, which has more fields; False requests parquet format.
        options: as for `load_as_pandas`, like `credential_provider`.
        credential_provider: a function that returns a bearer token and its expiration.
    """
    with open_table(url, options, credential_provider) as table:
        return table.metadata(use_delta_format=use_delta_format)


@public
def get_table_protocol(
    url: str,
    use_delta_format: bool = True,
    *,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Protocol:
    """Return a shared table's protocol: reader version and features; arguments as for `get_table_metadata`."""
    with open_table(url, options, credential_provider) as table:
        return table.protocol(use_delta_format=use_delta_format)
