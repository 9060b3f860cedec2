"""The way in: a profile's shares, schemas and tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import Self

from delta_sharing_client.auth.external import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.errors import TableNameError
from delta_sharing_client.model.names import Schema, Share, Table, check_name
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.presigned import StorageReader
from delta_sharing_client.table.shared_table import SharedTable
from delta_sharing_client.transport.transports import StorageTransport
from delta_sharing_client.transport.url_rules import is_loopback


class SharingClient:
    """A recipient's view of a Delta Sharing server.

    Args:
        profile: where the profile is: a path, an fsspec URL, a dictionary, JSON text, an open file or a
            `Profile`; by default what the environment variable `DELTA_SHARING_PROFILE` holds.
        options: time-outs, retries, connections, memory; the defaults fit most.
        credential_provider: a function that returns a bearer token and when it expires (a datetime, a timedelta
            from now on, or None where that is not known), for tokens of a vault or a workload identity. It is
            asked when the first token is needed, ahead of each one's end, and when the server refuses one; by one
            thread at a time. Of the profile only the endpoint counts then.

    Raises:
        ProfileError: the profile cannot be read or used.
        InsecureUrlError: a credential would travel in clear text.

    Example:
        >>> client = SharingClient("config.share")  # doctest: +SKIP
        >>> client.list_all_tables()  # doctest: +SKIP
        [Table(name='orders', share='retail', schema='sales')]
    """

    def __init__(
        self,
        profile: ProfileSource = None,
        *,
        options: TransportOptions | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        self._profile = load_profile(profile, external=credential_provider is not None, stacklevel=3)
        if options is not None and not isinstance(options, TransportOptions):
            raise TypeError(f"options takes a TransportOptions, not {type(options).__name__}")
        options = options or TransportOptions()
        self._rest = RestClient(self._profile, options, credential_provider=credential_provider)
        transport = StorageTransport(options, is_loopback(self._profile.endpoint))
        self._storage = StorageReader(transport, options)

    @property
    def profile(self) -> Profile:
        """The profile in use; its secrets do not show."""
        return self._profile

    def list_shares(self) -> list[Share]:
        """Return the shares that the profile gives access to ("List Shares")."""
        return list(self.iter_shares())

    def iter_shares(self) -> Iterator[Share]:
        """Yield the shares page by page, as the server gives them."""
        return self._rest.list_shares()

    def get_share(self, name: str) -> Share:
        """Return one share ("Get Share").

        Raises:
            NotFoundError: there is none of that name, or it is not shared with this profile.
        """
        return self._rest.get_share(check_name(name, "share"))

    def list_schemas(self, share: Share | str) -> list[Schema]:
        """Return the schemas of a share ("List Schemas in a Share")."""
        return list(self.iter_schemas(share))

    def iter_schemas(self, share: Share | str) -> Iterator[Schema]:
        """Yield the schemas of a share page by page."""
        return self._rest.list_schemas(share if isinstance(share, Share) else Share(check_name(share, "share")))

    def list_tables(self, schema: Schema | str) -> list[Table]:
        """Return the tables of a schema, given as a `Schema` or as ``share.schema``."""
        return list(self.iter_tables(schema))

    def iter_tables(self, schema: Schema | str) -> Iterator[Table]:
        """Yield the tables of a schema page by page."""
        return self._rest.list_tables(schema if isinstance(schema, Schema) else Schema.parse(schema))

    def list_all_tables(self, share: Share | str | None = None) -> list[Table]:
        """Return the tables of all schemas of all shares, or of one share ("List all Tables in a Share").

        A server without that endpoint is asked for its schemas and their tables instead.
        """
        return list(self.iter_all_tables(share))

    def iter_all_tables(self, share: Share | str | None = None) -> Iterator[Table]:
        """Yield all tables page by page."""
        if share is None:
            return chain.from_iterable(map(self._rest.list_all_tables, self.iter_shares()))
        return self._rest.list_all_tables(share if isinstance(share, Share) else Share(check_name(share, "share")))

    def table(self, name: str | Table | tuple[str, str, str]) -> SharedTable:
        """Return a table; the server is not asked until something of it is wanted.

        Args:
            name: ``share.schema.table``, a `Table` of a listing, or the three names.

        Raises:
            TableNameError: the name is malformed.
        """
        if isinstance(name, str):
            profile, _, rest = name.rpartition("#")
            if profile.endswith((".share", ".json")):
                raise TableNameError(
                    f"{name!r} is a table's URL, and a client has its profile already: leave out what stands "
                    f"before {rest}"
                )
            table = Table.parse(name)
        elif isinstance(name, Table):
            table = name
        elif isinstance(name, tuple) and len(name) == 3:
            share, schema, table_name = name
            table = Table(
                check_name(table_name, "table"), check_name(share, "share"), check_name(schema, "schema")
            )
        else:
            raise TypeError(
                f"a table is named by 'share.schema.table', a Table or a tuple of three names, not {name!r}"
            )
        return SharedTable(table, self._rest, self._storage)

    def close(self) -> None:
        """Close the connections; the client opens new ones if it is used again."""
        for name in ("_rest", "_storage"):  # of a client whose constructor failed there may be neither
            if (opened := getattr(self, name, None)) is not None:
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @representation
    def __repr__(self) -> str:
        return f"SharingClient(endpoint={self._profile.endpoint!r})"
