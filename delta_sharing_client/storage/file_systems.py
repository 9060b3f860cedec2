"""File systems of pyarrow for a table's directory, opened only with the server's temporary credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from delta_sharing_client.errors import DirectoryAccessError
from delta_sharing_client.model.storage_credentials import (
    AwsCredentials,
    AzureSas,
    GcpToken,
    StorageCredential,
    TemporaryCredentials,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.url_rules import check_data_url

#: Environment variables of the AWS tools with the endpoint of an S3-compatible store.
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_SCHEMES: Final[dict[type[StorageCredential], frozenset[str]]] = {
    AwsCredentials: frozenset({"s3", "s3a", "s3n"}),
    AzureSas: frozenset({"abfs", "abfss", "wasb", "wasbs"}),
    GcpToken: frozenset({"gs"}),
}
#: Assumed lifetime of a Google token without an expiration time.
_LIFETIME: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Directory:
    """A table's directory in a store.

    Attributes:
        system: the file system.
        root: the directory's path in it, without a slash at its end.
        location: its URL.
    """

    system: Any
    root: str
    location: str

    def path_of(self, uri: str) -> str:
        """Return the path in the file system of a URI from the log: relative to the directory, or a URL in it.

        Raises:
            DirectoryAccessError: it is outside the directory.
        """
        path = uri
        if "://" in uri:
            prefix = _normalized(self.location) + "/"
            if not is_within(uri, self.location):
                raise DirectoryAccessError(
                    "the table has files outside its directory and outside its auxiliary locations, which the "
                    "credentials do not open; ask the provider to share it by URL",
                    location=self.location,
                )
            path = _normalized(uri)[len(prefix) :]
        return self.join(unquote(path))

    def join(self, relative: str) -> str:
        """Return the path in the file system of a path relative to the directory.

        Raises:
            DirectoryAccessError: it leads out of the directory.
        """
        if relative.startswith("/") or any(part in ("", ".", "..") for part in relative.split("/")):
            raise DirectoryAccessError("the table's log names a file by an unusable path", location=self.location)
        return f"{self.root}/{relative}"


def is_within(uri: str, location: str) -> bool:
    """Return whether a URL is below a location in the same store."""
    return _normalized(uri).startswith(_normalized(location).rstrip("/") + "/")


def open_directory(
    credentials: TemporaryCredentials,
    options: TransportOptions,
    *,
    endpoint_is_loopback: bool,
    endpoint: str | None = None,
    region: str | None = None,
) -> Directory:
    """Open a table's directory.

    Args:
        credentials: from the sharing server.
        options: time-outs, proxies, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine; only then the store may be.
        endpoint: URL of an S3-compatible store; by default that of the environment, or AWS.
        region: region of S3; by default found out.

    Raises:
        DirectoryAccessError: the location is malformed or not of the credential's cloud, or pyarrow lacks the
            file system.
        InsecureUrlError: the credential would be sent in clear text, or to a metadata service.
    """
    location = credentials.location.rstrip("/")
    credential = credentials.credential
    try:
        parts = urlsplit(location)
        usable = bool(parts.hostname) and not parts.query and not parts.fragment and parts.port is None
    except ValueError:
        raise DirectoryAccessError("the location of the table is malformed") from None
    if parts.scheme not in _SCHEMES[type(credential)] or not usable or parts.password is not None:
        kind = {AwsCredentials: "S3", AzureSas: "Azure", GcpToken: "Google"}[type(credential)]
        raise DirectoryAccessError(
            f"the server returned credentials for {kind} and a location elsewhere", location=location
        )
    path = unquote(parts.path).strip("/")
    if isinstance(credential, AwsCredentials):
        bucket = parts.netloc
        endpoint = endpoint or next((value for name in _S3_ENDPOINTS if (value := os.environ.get(name))), None)
        system = _s3(credential, bucket, options, endpoint_is_loopback, endpoint, region)
        return Directory(system, f"{bucket}/{path}".rstrip("/"), location)
    if isinstance(credential, AzureSas):
        return Directory(_azure(credential, parts), f"{parts.username}/{path}".rstrip("/"), location)
    return Directory(_gcs(credential, credentials.expires), f"{parts.netloc}/{path}".rstrip("/"), location)


def _s3(
    credential: AwsCredentials,
    bucket: str,
    options: TransportOptions,
    endpoint_is_loopback: bool,
    endpoint: str | None,
    region: str | None,
) -> Any:
    s3_type = _file_system("S3FileSystem", f"s3://{bucket}")
    from pyarrow.fs import AwsStandardS3RetryStrategy

    settings: dict[str, Any] = {
        "connect_timeout": options.connect_timeout.total_seconds(),
        "request_timeout": options.read_timeout.total_seconds(),
        # `Download` retries; retries of the SDK would multiply its attempts.
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=1),
    }
    if endpoint is None:
        settings["region"] = region or _region(bucket)
    else:
        check_data_url(
            SecretUrl(endpoint), endpoint_is_loopback=endpoint_is_loopback, allow_http=options.allow_http
        )
        parts = urlsplit(endpoint)
        settings |= {"scheme": parts.scheme, "endpoint_override": parts.netloc, "region": region or _own_region()}
    if proxy := options.proxies.get("https"):
        settings["proxy_options"] = proxy
    if options.ca_bundle is not None:
        settings["tls_ca_file_path"] = os.fspath(options.ca_bundle)
    return _opened(
        s3_type,
        f"s3://{bucket}",
        access_key=credential.access_key_id.reveal(),
        secret_key=credential.secret_access_key.reveal(),
        session_token=credential.session_token.reveal(),
        **settings,
    )


def _own_region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _region(bucket: str) -> str:
    """The bucket's region from AWS, without credentials; else that of the environment."""
    from pyarrow.fs import resolve_s3_region

    try:
        region: str = resolve_s3_region(bucket)
    except (OSError, ValueError):
        return _own_region()
    return region


def _azure(credential: AzureSas, parts: SplitResult) -> Any:
    location = f"{parts.scheme}://{parts.hostname}"
    account, dot, rest = (parts.hostname or "").partition(".")
    service, _, suffix = rest.partition(".")
    if not parts.username or not dot or service not in ("dfs", "blob") or not suffix:
        raise DirectoryAccessError(
            "the location in Azure is not of the form abfss://container@account.dfs.core.windows.net/path",
            location=location,
        )
    check_data_url(SecretUrl(f"https://{parts.hostname}/"), endpoint_is_loopback=False, allow_http=False)
    return _opened(
        _file_system("AzureFileSystem", location),
        location,
        account_name=account,
        sas_token=f"?{credential.token.reveal()}",  # pyarrow appends it to the URL
        blob_storage_authority=f".blob.{suffix}",
        dfs_storage_authority=f".dfs.{suffix}",
    )


def _gcs(credential: GcpToken, expires: int | None) -> Any:
    until = datetime.now(UTC) + _LIFETIME if expires is None else datetime.fromtimestamp(expires / 1000, UTC)
    return _opened(
        _file_system("GcsFileSystem", "gs://"),
        "gs://",
        access_token=credential.token.reveal(),
        credential_token_expiration=until.replace(tzinfo=None),
        retry_time_limit=timedelta(seconds=60),
    )


def _file_system(name: str, location: str) -> Any:
    import pyarrow.fs

    try:
        return getattr(pyarrow.fs, name)  # some builds of pyarrow lack some file systems
    except (AttributeError, ImportError):
        raise DirectoryAccessError(
            f"this build of pyarrow has no {name}, which the table's directory requires; install pyarrow "
            "from PyPI or conda-forge, or ask the provider to share the table by URL",
            location=location,
        ) from None


def _opened(kind: Any, location: str, **settings: Any) -> Any:
    try:
        return kind(**settings)
    except (OSError, ValueError, TypeError, NotImplementedError) as error:
        # Its text may contain a credential.
        raise DirectoryAccessError(
            f"{kind.__name__} of this pyarrow cannot be opened with the server's credentials "
            f"({type(error).__name__}); a newer pyarrow may",
            location=location,
        ) from None


def _normalized(url: str) -> str:
    """The URL with one scheme for all schemes of the same store."""
    scheme, separator, rest = url.partition("://")
    same = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
    return f"{same.get(scheme, scheme)}{separator}{rest}"
