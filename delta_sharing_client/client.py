"""`SharingClient`: shares, schemas and tables of a profile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Self

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.model.names import Schema, Share, Table, table_named, unquoted
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.state import ClientState
from delta_sharing_client.table.shared_table import SharedTable
from delta_sharing_client.tracebacks import public_class, public_items
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    from delta_sharing_client.iceberg.catalog import IcebergCatalog


@public_class
class SharingClient:
    """Client of a Delta Sharing server for one profile.

    Args:
        profile: a path, an fsspec URL, a dictionary, JSON text, an open file or a `Profile`; by default the value
            of the environment variable `DELTA_SHARING_PROFILE`, or else `DELTA_SHARING_ENDPOINT` and
            `DELTA_SHARING_BEARER_TOKEN`.
        options: time-outs, retries, connections, memory.
        credential_provider: a function that returns a bearer token and its expiration (a datetime, a timedelta
            from now, or None if unknown), for tokens of a vault or a workload identity. One thread at a time calls
            it: for the first token, before a token expires, and after the server has refused one. Only the
            endpoint of the profile is used then. Or a credential of azure-identity, for the scope of the profile.

    Raises:
        ProfileError: the profile cannot be read or used.
        InsecureUrlError: a credential would be sent over plain http.

    Examples:
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
        loaded = load_profile(profile, external=credential_provider is not None, stacklevel=4)
        self._use(ClientState(loaded, checked_options(options), credential_provider))

    @classmethod
    def _of(cls, state: ClientState) -> Self:
        """Return a client with the state of the functions that take a table URL."""
        client = cls.__new__(cls)
        client._use(state)
        return client

    def _use(self, state: ClientState) -> None:
        self._state, self._rest, self._storage = state, state.rest, state.storage

    @property
    def profile(self) -> Profile:
        """The profile; its representation hides secrets."""
        return self._rest.profile

    @property
    def clock_offset(self) -> timedelta:
        """How far the server's clock is ahead of this machine's, by its last answer; zero before the first one."""
        return self._rest.clock_offset

    def list_shares(self) -> list[Share]:
        """Return the shares of the recipient ("List Shares")."""
        return list(self.iter_shares())

    def iter_shares(self) -> Iterator[Share]:
        """Yield the shares; pages are requested lazily, as by all `iter_` methods."""
        return public_items(self._rest.list_shares())

    def get_share(self, name: str) -> Share:
        """Return one share ("Get Share").

        Raises:
            NotFoundError: the share does not exist, or is not shared with this profile.
        """
        return self._rest.get_share(unquoted(name))

    def list_schemas(self, share: Share | str) -> list[Schema]:
        """Return the schemas of a share ("List Schemas in a Share")."""
        return list(self.iter_schemas(share))

    def iter_schemas(self, share: Share | str) -> Iterator[Schema]:
        """Yield the schemas of a share."""
        return public_items(self._rest.list_schemas(_share(share)))

    def list_tables(self, schema: Schema | str) -> list[Table]:
        """Return the tables of a schema, a `Schema` or ``share.schema`` ("List Tables in a Schema")."""
        return list(self.iter_tables(schema))

    def iter_tables(self, schema: Schema | str) -> Iterator[Table]:
        """Yield the tables of a schema."""
        return public_items(self._rest.list_tables(schema if isinstance(schema, Schema) else Schema.parse(schema)))

    def list_all_tables(self, share: Share | str | None = None) -> list[Table]:
        """Return the tables of all schemas of all shares, or of one share ("List all Tables in a Share").

        If the server lacks that endpoint, the tables of each schema are listed.
        """
        return list(self.iter_all_tables(share))

    def iter_all_tables(self, share: Share | str | None = None) -> Iterator[Table]:
        """Yield the tables of all schemas of all shares, or of one share."""
        if share is None:
            return public_items(chain.from_iterable(map(self._rest.list_all_tables, self.iter_shares())))
        return public_items(self._rest.list_all_tables(_share(share)))

    def tables(self, share: Share | str | None = None) -> list[SharedTable]:
        """Return the tables of all schemas of all shares, or of one share, ready to be read."""
        return [self.table(name) for name in self.iter_all_tables(share)]

    def table(self, name: str | Table | tuple[str, str, str]) -> SharedTable:
        """Return a table; sends no request.

        Args:
            name: ``share.schema.table``, a `Table`, or a tuple of the three names. A name in the text may be in
                backticks.

        Raises:
            TableNameError: the name is malformed.
        """
        return SharedTable(table_named(name), self._rest, self._storage)

    def __getitem__(self, name: str | Table | tuple[str, str, str]) -> SharedTable:
        """Return a table, as `table` does: ``client["share.schema.table"]``."""
        return self.table(name)

    @cached_property
    def iceberg(self) -> IcebergCatalog:
        """The provider's Iceberg REST catalog, at the profile's `icebergEndpoint` (extra ``iceberg``).

        It has the same tables under the same names, if the provider shares them through Iceberg.

        Raises:
            ProfileError: the profile has no `icebergEndpoint`.
            MissingDependencyError: pyiceberg is not installed.
        """
        from delta_sharing_client.iceberg.catalog import IcebergCatalog

        return self._state.catalog(lambda: IcebergCatalog(self._rest, self._storage, self._rest.list_shares))

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython and Jupyter offer after ``client["``."""
        return [table.full_name for table in self.iter_all_tables()]

    def close(self) -> None:
        """Close the connections; the client opens new ones if it is used again."""
        if hasattr(self, "_state"):  # the constructor has not failed
            self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @representation
    def __repr__(self) -> str:
        return f"SharingClient(endpoint={self.profile.endpoint!r})"

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, "", None, self.profile._repr_html_())


def checked_options(options: TransportOptions | None) -> TransportOptions:
    """Return the options of a call, or the default ones."""
    if options is not None and not isinstance(options, TransportOptions):
        raise TypeError(f"options takes a TransportOptions, not {type(options).__name__}")
    return options or TransportOptions()


def _share(share: Share | str) -> Share | str:
    return unquoted(share) if isinstance(share, str) else share
