"""`ClientState`: all of a client that changes. `DefaultStates`: those of the functions that take a table URL."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.fork_safe import ForkAware, ForkSafeRLock
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.storage_transport import StorageTransport
from delta_sharing_client.transport.tls import TlsContext, existing_files
from delta_sharing_client.transport.url_rules import is_loopback

if TYPE_CHECKING:
    from delta_sharing_client.iceberg.catalog import IcebergCatalog

#: States that `DefaultStates` keeps; beyond that, the least recently used one is forgotten.
_KEPT: Final = 8


class ClientState:
    """All of one client that changes. May be used by several threads; a forked process has pools of its own.

    Args:
        profile: endpoint and credential.
        options: time-outs, retries, connections.
        credential_provider: returns tokens in place of the profile's credential.

    Attributes:
        rest: the client of the sharing server: its token, its connections, the metadata of tables.
        storage: the reader of files, with the connections to stores.

    Raises:
        InsecureUrlError: a credential would be sent over plain http.
        ValueError: a file of certificates does not exist.
    """

    def __init__(
        self, profile: Profile, options: TransportOptions, credential_provider: CredentialProvider | None = None
    ) -> None:
        tls = TlsContext(options)
        self.rest = RestClient(profile, options, tls=tls, credential_provider=credential_provider)
        transport = StorageTransport(options, is_loopback(profile.endpoint), tls)
        self.storage: StorageReader = DownloadReader(transport, options)
        self._lock = ForkSafeRLock()
        self._catalog: IcebergCatalog | None = None

    def catalog(self, make: Callable[[], IcebergCatalog]) -> IcebergCatalog:
        """Return the Iceberg catalog; `make` makes it on first use."""
        with self._lock:
            if self._catalog is None:
                self._catalog = make()
            return self._catalog

    def close(self) -> None:
        """Close the connections; may be called again. Tokens and metadata stay.

        If the state is used again, it opens new connections.
        """
        self.rest.close()
        self.storage.close()
        if self._catalog is not None:
            self._catalog.close()


class _Use:
    """One use of a state; it ends with the frame that has it, whatever interrupts that."""


class _Entry:
    def __init__(self, state: ClientState, given: object) -> None:
        self.state = state
        #: The objects whose identities are in the key: as long as they live, no other object has these.
        self.given = given
        self.uses: weakref.WeakSet[_Use] = weakref.WeakSet()


class DefaultStates(ForkAware):
    """One state for each profile, options and credential provider: the eight last used ones.

    Tokens, metadata and TLS contexts stay from call to call. The connections are closed when no call uses the
    state. A changed profile is another one. A forked process starts with none.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeRLock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        super().__init__()

    @contextmanager
    def use(
        self, profile: Profile, options: TransportOptions, credential_provider: CredentialProvider | None
    ) -> Iterator[ClientState]:
        """Return the state to use within the block.

        Raises:
            InsecureUrlError, ValueError: as `ClientState`.
        """
        provider, given = _identity(credential_provider)
        # The profile of an entry is compared by its secrets too, and shows none of them.
        key = profile, profile.source, options, existing_files(options), provider
        use = _Use()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(ClientState(profile, options, credential_provider), given)
            self._entries.move_to_end(key)
            entry.uses.add(use)
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        try:
            yield entry.state
        finally:
            with self._lock:  # a new use must not find connections that are being closed
                entry.uses.discard(use)
                if not entry.uses:
                    entry.state.close()

    def clear(self) -> None:
        """Forget the states; those in use are closed when their uses end."""
        with self._lock:
            self._entries.clear()

    def after_fork(self) -> None:
        """Start with no state."""
        self._entries = OrderedDict()


def _identity(provider: Any) -> tuple[Hashable, object]:
    """Return the identity of a credential provider, and the objects that must live as long as it is used.

    A method of an object is made at each access: the object and its function identify it.
    """
    owner, function = getattr(provider, "__self__", None), getattr(provider, "__func__", None)
    if function is not None:
        return (id(owner), id(function)), (owner, function)
    return (None if provider is None else id(provider)), provider


#: The states of this process: functions such as `load_as_pandas` have no client that could own them.
default_states: Final = DefaultStates()
