"""Reader of the files that a Delta log names: local files, and files behind https URLs."""

from __future__ import annotations

from functools import cached_property

from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import UNSHARED, ByteSource, StorageReader, Transfers
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.storage.local import LocalSource
from delta_sharing_client.transport.storage_transport import StorageTransport


class LogFileReader(StorageReader):
    """Opens files by local paths and by pre-signed URLs, those of servers on this machine included."""

    @cached_property
    def _web(self) -> StorageReader:
        return DownloadReader(StorageTransport(self.options, endpoint_is_loopback=True), self.options)

    def source(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = UNSHARED,
        *,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file to be read; see `StorageReader.source`."""
        if is_web(url):
            return self._web.source(url, file_id, size, transfers, etag=etag)
        return LocalSource(url.reveal(), file_id, size, transfers.cancelled)

    def abort(self) -> None:
        """Abort the active transfers."""
        self._web.abort()

    def close(self) -> None:
        """Close the connections."""
        self._web.close()


def is_web(url: SecretUrl) -> bool:
    """Return whether a file is behind a URL, and not on a local disk."""
    return url.reveal().lower().startswith(("https://", "http://"))
