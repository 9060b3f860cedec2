"""`VendedFileIO`: the files of an Iceberg table, opened only with the credentials that the catalog vends."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from copy import copy
from typing import Final, NoReturn
from urllib.parse import urlsplit

from pyarrow.fs import FileSystem, LocalFileSystem
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFile

from delta_sharing_client.errors import DirectoryAccessError, IcebergError
from delta_sharing_client.iceberg.avro_size import decompressed_size
from delta_sharing_client.model.numbers import as_time
from delta_sharing_client.model.storage_credentials import (
    AwsCredentials,
    AzureSas,
    GcpToken,
    StorageCredential,
    TemporaryCredentials,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import Secret, redact_url
from delta_sharing_client.storage.file_systems import Directory, open_directory

_S3: Final = ("s3", "s3a", "s3n")
_AZURE: Final = ("abfs", "abfss", "wasb", "wasbs")
_SAS: Final = "adls.sas-token"
_GCS_EXPIRY: Final = "gcs.oauth2.token-expires-at"


#: The decompressed size of a metadata file is at most so many times `TransportOptions.metadata_limit`.
_EXPANSION: Final = 4


class _LimitedFile(PyArrowFile):
    """A file of at most `limit` bytes, read as a whole; `open` raises `IcebergError` for a longer one."""

    def __init__(self, location: str, path: str, system: FileSystem, limit: int) -> None:
        super().__init__(location, path, system)
        self._limit = limit

    def open(self, seekable: bool = True) -> InputStream:
        with super().open() as file:
            size = file.seek(0, os.SEEK_END)
            self._check(size, self._limit, "bytes")
            file.seek(0)
            data = file.read(size)
        most = _EXPANSION * self._limit
        self._check(decompressed_size(data, most), most, "bytes or more when decompressed")
        return io.BytesIO(data)

    def _check(self, size: int, most: int, unit: str) -> None:
        if size > most:
            raise IcebergError(
                f"the metadata file {redact_url(self.location)} has {size:,} {unit}; "
                f"TransportOptions.metadata_limit allows {most:,}"
            )


class VendedFileIO(FileIO):
    """Opens files by pyarrow, with the transport options and the temporary credentials of the catalog's answer.

    It ignores the credentials of this machine, and a file system that the catalog names (`py-io-impl`). Its files
    are manifests and the like, which pyiceberg reads as a whole, of at most `metadata_limit` bytes;
    `data_files` opens the others.

    Args:
        properties: of the catalog's configuration and the loaded table.
        options: time-outs, proxies, certificates.
        catalog_is_loopback: whether the catalog is on this machine; only then local files are read.
    """

    def __init__(
        self, properties: Mapping[str, str], options: TransportOptions, *, catalog_is_loopback: bool
    ) -> None:
        super().__init__(dict(properties))
        self._options = options
        self._is_loopback = catalog_is_loopback
        self._stores: dict[str, Directory] = {}
        self._limit: int | None = options.metadata_limit

    def __repr__(self) -> str:
        return "VendedFileIO()"

    def data_files(self) -> VendedFileIO:
        """Return the same with files of any size."""
        unlimited = copy(self)
        unlimited._limit = None
        return unlimited

    def new_input(self, location: str) -> InputFile:
        """Return a file of the table.

        Raises:
            DirectoryAccessError: the catalog vends no credentials for it.
            InsecureUrlError: a credential would be sent in clear text, or to a metadata service.
        """
        parts = urlsplit(location)
        if self._is_loopback and parts.scheme in ("", "file"):
            return self._file(location, location.removeprefix("file://"), LocalFileSystem())
        root = f"{parts.scheme}://{parts.netloc}"
        store = self._stores.get(root)
        if store is None:
            store = self._stores[root] = self._opened(root)
        return self._file(location, store.root + location[len(root) :], store.system)

    def _file(self, location: str, path: str, system: FileSystem) -> InputFile:
        if self._limit is None:
            return PyArrowFile(location, path, system)
        return _LimitedFile(location, path, system, self._limit)

    def _opened(self, root: str) -> Directory:
        credential = self._credential(root)
        if credential is None:
            shown = redact_url(root)
            raise DirectoryAccessError(
                "the Iceberg catalog returned no temporary credentials for this store; read the table without the "
                "Iceberg catalog, or ask the provider to vend credentials",
                location=shown,
            )
        expires = self.properties.get(_GCS_EXPIRY)
        until = as_time(int(expires[:20])) if expires is not None and expires.isdecimal() else None
        return open_directory(
            TemporaryCredentials(root, credential, until),
            self._options,
            endpoint_is_loopback=self._is_loopback,
            endpoint=self.properties.get("s3.endpoint"),
            region=self.properties.get("s3.region") or self.properties.get("client.region"),
        )

    def _credential(self, root: str) -> StorageCredential | None:
        scheme = root.partition(":")[0]
        key, secret = (self.properties.get(f"s3.{name}") for name in ("access-key-id", "secret-access-key"))
        if scheme in _S3 and key and secret:
            return AwsCredentials(Secret(key), Secret(secret), Secret(self.properties.get("s3.session-token", "")))
        host = root.rpartition("@")[2]
        token = self.properties.get(f"{_SAS}.{host}") or self.properties.get(_SAS)
        if scheme in _AZURE and token:
            return AzureSas(Secret(token.removeprefix("?")))
        oauth = self.properties.get("gcs.oauth2.token")
        return GcpToken(Secret(oauth)) if scheme == "gs" and oauth else None

    def new_output(self, location: str) -> NoReturn:
        """Raise `IcebergError`: shared tables are not written."""
        raise IcebergError("tables of a share are not written")

    def delete(self, location: object) -> NoReturn:
        """Raise `IcebergError`: shared tables are not written."""
        raise IcebergError("files of a share are not deleted")
