"""Every error this package raises, under one base class.

    DeltaSharingError
    ├── ProfileError                    a profile cannot be read, parsed or used
    │   └── UnsupportedProfileError     a newer version, or a credential type this release does not know
    ├── TokenError                      no access token: the token endpoint is down or refuses
    ├── TableNameError (ValueError)     "<profile>#<share>.<schema>.<table>" or a name in it is malformed
    ├── ColumnError (ValueError)        a column asked for is not in the table, or is asked for twice
    ├── FilterError (ValueError)        a filter cannot be understood, or does not fit its column
    ├── RestError                       the sharing server answered with an error status
    │   ├── BadRequestError             400
    │   ├── AuthenticationError         401
    │   ├── ForbiddenError              403
    │   ├── NotFoundError               404
    │   ├── RateLimitError              429, after all retries
    │   └── ServerError                 5xx, after all retries
    ├── QueryError                      the server began an answer and then reported an error in it
    ├── TransportError                  no usable answer: connection, TLS, name resolution
    │   ├── RequestTimeoutError         nothing came in time
    │   └── InsecureUrlError            a URL that this client refuses to send to
    ├── ProtocolError                   the answer breaks the protocol
    │   ├── IncompleteResponseError     the answer was cut; its rows are not used
    │   ├── ResponseFormatError         asked for parquet format, got delta
    │   └── VersionMismatchError        the answer is for another version than the one asked for
    ├── UnsupportedTableError           the table needs something this release cannot read
    │   ├── UnsupportedFeatureError     reader features, by name
    │   └── UnsupportedTypeError        a column type, by name
    ├── DirectoryAccessError            a table offered by directory only cannot be read that way
    ├── SchemaChangedError              a column was renamed or dropped, or changed its type, within some changes
    ├── ChangesGoneError                changes that a poller needs can no longer be had
    │   └── TableReplacedError          the table is another one than before (its id changed)
    ├── CheckpointError                 a poller's checkpoint cannot be read or written, or another one uses it
    ├── StorageError                    a data file could not be downloaded
    │   ├── UrlExpiredError             the store says that the pre-signed URL has expired
    │   └── FileGoneError               the store says that there is no such file
    ├── DataError                       a data file arrived, but does not hold what the table says
    ├── DeltaLogError                   a local Delta table cannot be read or written
    │   ├── DeltaTableNotFoundError     there is no Delta table at that path
    │   ├── VersionNotFoundError        the local table does not have that version (any more)
    │   ├── CommitConflictError         somebody else committed that version first
    │   └── DiskFullError               there is no room; what was committed before is as it was
    ├── SinkError                       a sink cannot take a batch; nothing of it was stored
    │   └── SinkKeyError                the key columns do not tell the rows apart: null, twice, missing
    ├── SparkError                      Spark cannot do it: no Java, too old a release, too many files for one plan
    │   └── StreamError                 a streaming query cannot go on, or cannot start where it is asked to
    └── MissingDependencyError (ImportError)   an extra of this package is not installed

Misuse of an argument raises `ValueError` or `TypeError`; the subclasses marked so are both. Each error
keeps what it knows as attributes, writes its own sentence, never holds a token or the query string of a
signed URL, and survives pickling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from delta_sharing_client.secrets import SecretUrl, redact_text, redact_url

#: Characters of a server's message that are kept.
_MAX_SAID: Final = 2000


def _rebuild(cls: type[DeltaSharingError], message: str, state: dict[str, Any]) -> DeltaSharingError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


def _said(message: str) -> str:
    """What a server said, redacted and of bearable length."""
    text = redact_text(message[: 10 * _MAX_SAID])
    return text if len(text) <= _MAX_SAID else text[:_MAX_SAID] + " ..."


class DeltaSharingError(Exception):
    """Base of every error of this package.

    Args:
        message: what happened, where, and what to do; redacted before it is kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact_text(message))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), dict(self.__dict__))


class ProfileError(DeltaSharingError):
    """A profile cannot be read, parsed or used.

    Attributes:
        field: the field at fault, where one is.
        source: where the profile came from, without any secret.
    """

    def __init__(self, reason: str, *, field: str | None = None, source: str | None = None) -> None:
        self.field = field
        self.source = source
        where = f"profile {source}: " if source else "profile: "
        super().__init__(where + reason)


class UnsupportedProfileError(ProfileError):
    """The profile is of a newer version or of a credential type that this release does not know."""


class TokenError(DeltaSharingError):
    """No access token for the sharing server could be had.

    Attributes:
        status: the token endpoint's HTTP status, where it answered.
        error_code: its `error`, such as ``invalid_client``, where it sent one.
    """

    def __init__(self, reason: str, *, status: int | None = None, error_code: str | None = None) -> None:
        self.status = status
        self.error_code = _said(error_code) if error_code else None
        super().__init__(reason)


class TableNameError(DeltaSharingError, ValueError):
    """A table URL or a name in it is malformed."""


class ColumnError(DeltaSharingError, ValueError):
    """Columns asked for are unknown, ambiguous or asked for twice.

    Attributes:
        columns: the names at fault.
    """

    def __init__(self, message: str, *, columns: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        super().__init__(message)


class FilterError(DeltaSharingError, ValueError):
    """A filter or predicate hint cannot be understood, or does not fit its column's type."""


class RestError(DeltaSharingError):
    """The sharing server answered a request with an error status.

    Attributes:
        status: the HTTP status.
        error_code: the server's `errorCode`, where it sent one, redacted.
        server_message: the server's `message`, where it sent one, redacted.
        what: the thing asked for, such as ``table share.schema.name``.
    """

    def __init__(
        self,
        *,
        status: int,
        what: str,
        error_code: str | None = None,
        server_message: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.status = status
        self.what = what
        self.error_code = error_code = _said(error_code) if error_code else None
        self.server_message = _said(server_message) if server_message else None
        said = ": ".join(part for part in (error_code, self.server_message) if part)
        sentence = f"{what}: the sharing server answered {status}"
        if said:
            sentence += f" ({said})"
        super().__init__(sentence + (f". {hint}" if hint else ""))


class BadRequestError(RestError):
    """400: the server did not accept the request."""


class AuthenticationError(RestError):
    """401: the token is missing, wrong or expired."""


class ForbiddenError(RestError):
    """403: the token is good, but not for this."""


class NotFoundError(RestError):
    """404: the server has no such share, schema, table or endpoint."""


class RateLimitError(RestError):
    """429: the server asked to slow down, and went on asking until the retries ran out."""


class ServerError(RestError):
    """5xx: the server failed, and went on failing until the retries ran out."""


class QueryError(DeltaSharingError):
    """The server reported an error in an answer it had begun, or a query that it ran asynchronously failed.

    Raised too when an asynchronous query is not answered in time.

    Attributes:
        what: the thing asked for.
        server_message: the server's message, redacted.
        status: `httpStatusErrorCode`, where the server sent one.
    """

    def __init__(self, *, what: str, server_message: str, status: int | None = None) -> None:
        self.what = what
        self.server_message = _said(server_message)
        self.status = status
        code = f" (status {status})" if status is not None else ""
        super().__init__(f"{what}: the sharing server failed while answering{code}: {self.server_message}")


class TransportError(DeltaSharingError):
    """No usable answer came: connection refused or reset, TLS, name resolution.

    Attributes:
        url: the URL without its query string.
    """

    def __init__(self, reason: str, *, url: str | SecretUrl | None = None) -> None:
        self.url = redact_url(url) if url else None
        super().__init__(f"{self.url}: {reason}" if self.url else reason)


class RequestTimeoutError(TransportError):
    """Nothing came within the time-out, on every attempt."""


class InsecureUrlError(TransportError):
    """A URL that this client refuses: plain http to another machine, `file:`, user info, metadata addresses."""


class ProtocolError(DeltaSharingError):
    """The server's answer breaks the Delta Sharing protocol; nothing of it is used."""


class IncompleteResponseError(ProtocolError):
    """The answer was cut before its end, on every attempt; none of its rows are used."""


class ResponseFormatError(ProtocolError):
    """The client asked for parquet format and the server answered in delta format."""


class VersionMismatchError(ProtocolError):
    """The answer is for another version than the one asked for, or a later time, or moved between pages.

    Attributes:
        expected: the version asked for.
        actual: the version answered.
    """

    def __init__(self, message: str, *, expected: int | None = None, actual: int | None = None) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(message)


class UnsupportedTableError(DeltaSharingError):
    """The table needs something that this release cannot read."""


class UnsupportedFeatureError(UnsupportedTableError):
    """The table needs reader features that this release does not support.

    Attributes:
        features: their names, as the Delta protocol spells them.
    """

    def __init__(self, message: str, *, features: Sequence[str] = ()) -> None:
        self.features = tuple(features)
        super().__init__(message)


class UnsupportedTypeError(UnsupportedTableError):
    """A column has a type that this release does not know.

    Attributes:
        type_name: the type as the schema spells it.
    """

    def __init__(self, message: str, *, type_name: str = "") -> None:
        self.type_name = type_name
        super().__init__(message)


class DirectoryAccessError(DeltaSharingError):
    """A table is offered by its directory only (temporary credentials), and cannot be read that way.

    Attributes:
        location: the directory's URL, where the server told.
        access_modes: how the server offers the table, where it told.
    """

    def __init__(self, reason: str, *, location: str | None = None, access_modes: Sequence[str] = ()) -> None:
        self.location = redact_url(location) if location else None
        self.access_modes = tuple(access_modes)
        super().__init__(f"{self.location}: {reason}" if self.location else reason)


class SchemaChangedError(DeltaSharingError):
    """The table's schema changed within the changes asked for so that one schema cannot hold their rows.

    Attributes:
        version: the version that changed it, where the server told.
        columns: the columns at fault.
    """

    def __init__(self, message: str, *, version: int | None = None, columns: Sequence[str] = ()) -> None:
        self.version = version
        self.columns = tuple(columns)
        super().__init__(message)


class ChangesGoneError(DeltaSharingError):
    """The changes that come next can no longer be had: their versions were cleaned up, or are another table's.

    Attributes:
        version: the first version that is missing, where it is known.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        self.version = version
        super().__init__(message)


class TableReplacedError(ChangesGoneError):
    """The table was made anew under its name: its id is another one than before.

    Attributes:
        expected: the id that the table had.
        actual: the id that it has.
    """

    def __init__(
        self, message: str, *, version: int | None = None, expected: str | None = None, actual: str | None = None
    ) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(message, version=version)


class CheckpointError(DeltaSharingError):
    """A poller's checkpoint cannot be read or written, is another table's, or is in use by another poller.

    Attributes:
        path: the checkpoint's file.
    """

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        self.path = path
        super().__init__(f"checkpoint {path}: {reason}" if path else reason)


class StorageError(DeltaSharingError):
    """A data file could not be downloaded.

    Attributes:
        file_id: the file's id in the sharing protocol.
        status: the store's HTTP status, where it answered.
        table: the table's full name, where a table is being loaded.
    """

    def __init__(self, reason: str, *, file_id: str | None = None, status: int | None = None) -> None:
        self.file_id = file_id
        self.status = status
        self.table: str | None = None
        super().__init__(f"file {file_id}: {reason}" if file_id else reason)


class UrlExpiredError(StorageError):
    """The store refuses a pre-signed URL because it has expired."""


class FileGoneError(StorageError):
    """The store has no such file; the provider may have vacuumed the table."""


class DataError(DeltaSharingError):
    """A data file arrived but does not hold what the table promises.

    Attributes:
        file_id: the file's id in the sharing protocol.
        table: the table's full name, where a table is being loaded.
    """

    def __init__(self, reason: str, *, file_id: str | None = None) -> None:
        self.file_id = file_id
        self.table: str | None = None
        super().__init__(f"file {file_id}: {reason}" if file_id else reason)


def name_table(error: StorageError | DataError, table: str) -> None:
    """Put the table's name before an error's sentence; what reads files does not know it."""
    if error.table is None:
        error.table = table
        error.args = (f"table {table}, {error}",)


class DeltaLogError(DeltaSharingError):
    """A local Delta table cannot be read or written.

    Attributes:
        path: the table's directory.
    """

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}" if path else reason)


class DeltaTableNotFoundError(DeltaLogError):
    """There is no Delta table at that path."""


class VersionNotFoundError(DeltaLogError):
    """The local table does not have that version, or its log has been cleaned up."""


class CommitConflictError(DeltaLogError):
    """Another writer committed that version of a local table first; nothing of this commit was written.

    Attributes:
        version: the version that the other writer took.
    """

    def __init__(self, reason: str, *, path: str | None = None, version: int | None = None) -> None:
        self.version = version
        super().__init__(reason, path=path)


class DiskFullError(DeltaLogError):
    """There is no room for a file of a local table; what was committed before is as it was."""


class SinkError(DeltaSharingError):
    """A sink cannot take a batch: columns or types do not fit, or the store refuses. Nothing of it was stored.

    Attributes:
        target: the table that is written to.
        columns: the columns at fault, where some are.
    """

    def __init__(self, reason: str, *, target: str | None = None, columns: Sequence[str] = ()) -> None:
        self.target = target
        self.columns = tuple(columns)
        super().__init__(f"{target}: {reason}" if target else reason)


class SinkKeyError(SinkError):
    """The key columns of a sink do not tell the rows apart: one is null or missing, or two rows have one key."""


class SparkError(DeltaSharingError):
    """Spark cannot do what was asked: there is no Java, its release is too old, or a plan is too large for it."""


class StreamError(SparkError):
    """A streaming query cannot go on: a version changes what it may not, or its checkpoint is of another query.

    Attributes:
        version: the version at which it stopped, where it is one.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        self.version = version
        super().__init__(message)


class MissingDependencyError(DeltaSharingError, ImportError):
    """A package that an optional feature needs is not installed.

    Attributes:
        package: the package that is missing.
        extra: the extra of this package that brings it.
    """

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"{purpose} needs {package}, which is not installed: pip install 'delta-sharing-client[{extra}]'"
        )


def no_thread(error: RuntimeError) -> DeltaSharingError:
    """Return the error for a load that can start no thread: the interpreter exits, or the system has no more."""
    return DeltaSharingError(f"the load was stopped: no thread can be started ({error})")
