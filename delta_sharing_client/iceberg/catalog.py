"""`IcebergCatalog`: the shares of a profile in the provider's Iceberg REST catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from delta_sharing_client.errors import MissingDependencyError, ProfileError
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.iceberg.table import IcebergTable
from delta_sharing_client.model.names import Schema, Share, Table, table_named, unquoted
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.calls import Caller
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.transport.rest_transport import ApiTransport
from delta_sharing_client.transport.retry import Retrier
from delta_sharing_client.transport.url_rules import url_origin

if TYPE_CHECKING:
    from pyiceberg.table import Table as OpenTable

    from delta_sharing_client.iceberg.rest_catalog import SharedCatalog


@public_class
class IcebergCatalog:
    """The provider's Iceberg REST catalog, at the `icebergEndpoint` of a profile (extra ``iceberg``).

    A share is a warehouse of the catalog, and a schema is a namespace. `SharingClient.iceberg` returns it; its
    methods are those of the client. The sharing server lists the shares.

    Args:
        rest: the client of the sharing server, with the profile, its credential and the options.
        storage: as for `SharedTable`.
        iter_shares: yields the shares.

    Raises:
        ProfileError: the profile has no `icebergEndpoint`.
        MissingDependencyError: pyiceberg is not installed.
        InsecureUrlError: a credential would be sent over plain http.
    """

    def __init__(
        self, rest: RestClient, storage: StorageReader, iter_shares: Callable[[], Iterator[Share]]
    ) -> None:
        profile = rest.profile
        if profile.iceberg_endpoint is None:
            raise ProfileError(
                "it has no 'icebergEndpoint', so the provider offers no Iceberg catalog; read the tables without "
                "it, or ask the provider for a profile with one",
                field="icebergEndpoint",
                source=profile.source,
            )
        try:
            import pyiceberg  # noqa: F401
        except ImportError:
            raise MissingDependencyError(
                package="pyiceberg", extra="iceberg", purpose="The Iceberg catalog"
            ) from None
        self._endpoint = profile.iceberg_endpoint
        self._rest = rest
        self._storage = storage
        self.iter_shares = iter_shares
        # The catalog may have paths outside its endpoint, on the same host.
        self._transport = ApiTransport(url_origin(self._endpoint), rest.authorizer, rest.options, rest.tls)
        self._shares: dict[str, SharedCatalog] = {}
        self._lock = ForkSafeLock()

    def list_shares(self) -> list[Share]:
        """Return the shares, as the sharing server lists them."""
        return list(self.iter_shares())

    def list_schemas(self, share: Share | str) -> list[Schema]:
        """Return the schemas of a share: the namespaces at the top of its warehouse."""
        from delta_sharing_client.iceberg.reader import reading

        name = share.name if isinstance(share, Share) else unquoted(share)
        with reading(f"Iceberg share {name}"):
            return [Schema(namespace[0], name) for namespace in self._share(name).list_namespaces()]

    def list_tables(self, schema: Schema | str) -> list[Table]:
        """Return the tables of a schema, a `Schema` or ``share.schema``."""
        from delta_sharing_client.iceberg.reader import reading

        within = schema if isinstance(schema, Schema) else Schema.parse(schema)
        with reading(f"Iceberg schema {within.full_name}"):
            found = self._share(within.share).list_tables((within.name,))
        return [Table(identifier[-1], within.share, within.name) for identifier in found]

    def list_all_tables(self, share: Share | str | None = None) -> list[Table]:
        """Return the tables of all schemas of all shares, or of one share."""
        shares = self.iter_shares() if share is None else [share]
        schemas = chain.from_iterable(map(self.list_schemas, shares))
        return list(chain.from_iterable(map(self.list_tables, schemas)))

    def tables(self, share: Share | str | None = None) -> list[IcebergTable]:
        """Return the tables of all schemas of all shares, or of one share, ready to be read."""
        return [self.table(name) for name in self.list_all_tables(share)]

    def table(self, name: str | Table | tuple[str, str, str]) -> IcebergTable:
        """Return a table; sends no request. The name is as for `SharingClient.table`.

        Raises:
            TableNameError: the name is malformed.
        """
        return IcebergTable(table_named(name), self._rest, self._storage, self)

    def __getitem__(self, name: str | Table | tuple[str, str, str]) -> IcebergTable:
        """Return a table, as `table` does: ``client.iceberg["share.schema.table"]``."""
        return self.table(name)

    def load(self, name: Table) -> OpenTable:
        """Return a table of pyiceberg: its current metadata, with access to its files.

        Raises:
            NotFoundError: there is no such share, schema or table.
        """
        from delta_sharing_client.iceberg.reader import reading

        with reading(f"Iceberg table {name.full_name}"):
            opened: OpenTable = self._share(name.share).load_table((name.schema, name.name))
            return opened

    def close(self) -> None:
        """Close the connections; the catalog opens new ones if it is used again."""
        self._transport.close()

    @representation
    def __repr__(self) -> str:
        return f"IcebergCatalog({self._endpoint!r})"

    def _share(self, name: str) -> SharedCatalog:
        from delta_sharing_client.iceberg.rest_catalog import SharedCatalog

        with self._lock:
            known = self._shares.get(name)
            if known is None:
                caller = Caller(self._transport, Retrier(self._rest.options))
                known = self._shares[name] = SharedCatalog(name, self._endpoint, caller)
            return known
