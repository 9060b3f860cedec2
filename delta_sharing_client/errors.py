"""The tree of errors under `DeltaSharingError`.

    DeltaSharingError
    ├── ProfileError                    a profile cannot be read, parsed or used
    │   └── UnsupportedProfileError     newer profile version or unsupported credential type
    ├── ConfigurationError (ValueError) malformed environment variable or Spark configuration
    ├── TokenError                      the token endpoint returns no access token
    │   └── SignInRequiredError         a person has to sign in (again)
    ├── TableNameError (ValueError)     malformed table URL or table name
    ├── ColumnError (ValueError)        unknown, ambiguous or repeated column
    ├── FilterError (ValueError)        malformed filter, or a value that does not fit its column
    ├── RestError                       error status of the sharing server
    │   ├── BadRequestError             400
    │   ├── AuthenticationError         401
    │   ├── ForbiddenError              403
    │   ├── NotFoundError               404
    │   ├── RateLimitError              429, after all retries
    │   └── ServerError                 5xx, after all retries
    ├── QueryError                      error within an answer, or of an asynchronous query
    ├── TransportError                  no usable response: connection, TLS, name resolution
    │   ├── RequestTimeoutError         no response within the time-out
    │   └── InsecureUrlError            a URL that this client does not request
    ├── ProtocolError                   the answer breaks the Delta Sharing protocol
    │   ├── IncompleteResponseError     the answer ends early; its rows are not used
    │   ├── ResponseFormatError         delta format where parquet format was requested
    │   └── VersionMismatchError        the answer is for another version than the requested one
    ├── UnsupportedTableError           this release cannot read the table
    │   ├── UnsupportedFeatureError     unsupported reader features
    │   ├── UnsupportedTypeError        unsupported column type
    │   └── ViewChangesError            the changes of a view have no versions
    ├── IcebergError                    a table cannot be read through the Iceberg catalog, or not that way
    ├── DirectoryAccessError            a table shared by directory only cannot be read that way
    ├── SchemaChangedError              a column is renamed, dropped or retyped within a range of changes
    ├── ChangesGoneError                changes that a poller needs are no longer available
    │   └── TableReplacedError          another table has the name; its id differs
    ├── FutureVersionError (ValueError) a poller starts after the latest version of the table
    ├── CheckpointError                 the checkpoint of a poller cannot be read, written or locked
    ├── StorageError                    a data file cannot be downloaded
    │   ├── UrlExpiredError             the store refuses an expired pre-signed URL
    │   └── FileGoneError               the store has no such file
    ├── DataError                       the contents of a data file do not match the table
    ├── DeltaLogError                   a Delta table's log cannot be read or written
    │   ├── DeltaTableNotFoundError     no Delta table at that path
    │   ├── VersionNotFoundError        the table has no such version
    │   ├── CommitConflictError         another writer committed that version first
    │   ├── CommitUnknownError          an object store does not answer; the version may be written
    │   ├── ExclusiveCreateError        an object store in which a commit could replace another one
    │   └── DiskFullError               no space; earlier commits are unchanged
    ├── SinkError                       a sink cannot store a batch; nothing of it was stored
    │   ├── SinkKeyError                key columns are null or not unique
    │   └── SinkKeyColumnError (ValueError)   key columns are unknown, or of a type that is no key
    ├── SparkError                      Spark cannot run the request: no Java, old release, oversized plan
    │   └── StreamError                 a streaming query cannot start or continue
    └── MissingDependencyError (ImportError)   an extra of this package is not installed

An error holds its data as attributes and writes its own sentence. It never contains a token or the query string of
a signed URL, and it can be pickled. An invalid argument raises `ValueError` or `TypeError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delta_sharing_client.extras import how_to_install
from delta_sharing_client.messages import message_text
from delta_sharing_client.secrets import SecretUrl, redact_url
from delta_sharing_client.shown_text import cut, shown

#: Characters of a server's message that are kept.
_MAX_SERVER_TEXT: Final = 600


def _new(kind: type[DeltaSharingError], *args: str) -> DeltaSharingError:
    return kind.__new__(kind, *args)


def _server_text(text: str) -> str:
    """Return a text of a server as a message, cut to `_MAX_SERVER_TEXT` characters."""
    return cut(message_text(text), _MAX_SERVER_TEXT)


def _located(place: str | None, reason: str) -> str:
    return f"{place}: {reason}" if place else reason


class DeltaSharingError(Exception):
    """Base class of all errors of this package.

    `message` is redacted, its control characters are escaped, and what is long in it is cut. Attributes that name
    columns, paths and ids are exact; those that are texts of a server are as in the message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message_text(message))

    def __str__(self) -> str:
        return message_text(self._sentence())

    def _sentence(self) -> str:
        """Return the message, with what was set after the error was made."""
        return super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _new, (type(self), *self.args), self.__dict__


class ProfileError(DeltaSharingError):
    """A profile cannot be read, parsed or used; `field` is invalid, and `source` is its path or kind."""

    def __init__(self, reason: str, *, field: str | None = None, source: str | None = None) -> None:
        super().__init__(_located(f"profile {source}" if source else "profile", reason))
        self.field = field
        self.source = source


class UnsupportedProfileError(ProfileError):
    """The profile has a newer version or a credential type that this release does not support."""


class ConfigurationError(DeltaSharingError, ValueError):
    """An environment variable, an option as text or Spark's configuration is malformed; `setting` is its name."""

    def __init__(self, message: str, *, setting: str) -> None:
        super().__init__(message)
        self.setting = setting


class TokenError(DeltaSharingError):
    """There is no access token; `status` and `error_code` are those of the token endpoint's answer."""

    def __init__(self, reason: str, *, status: int | None = None, error_code: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.error_code = _server_text(error_code) if error_code else None


class SignInRequiredError(TokenError):
    """There is no sign-in, or it has ended; `command` is the command that starts one."""

    def __init__(self, reason: str, *, command: str, error_code: str | None = None) -> None:
        super().__init__(f"{reason}; run: {command}", error_code=error_code)
        self.command = command


class TableNameError(DeltaSharingError, ValueError):
    """A table URL or a name in it is malformed."""


class ColumnError(DeltaSharingError, ValueError):
    """The requested `columns` of `subject`, a table, are unknown, ambiguous or repeated."""

    def __init__(self, message: str, *, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.columns = tuple(columns)
        self.subject: str | None = None  # set by the planner, which knows it

    def _sentence(self) -> str:
        return _located(self.subject, super()._sentence())


class FilterError(DeltaSharingError, ValueError):
    """A filter or predicate hint is malformed, or a value in it does not fit its column in `subject`, a table."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.subject: str | None = None  # set by the planner, which knows it

    def _sentence(self) -> str:
        return _located(self.subject, super()._sentence())


class RestError(DeltaSharingError):
    """The sharing server answered a request with an error status.

    Attributes:
        status: HTTP status.
        error_code: the server's `errorCode`, redacted, or None.
        server_message: the server's `message`, redacted, or None.
        subject: the requested object, such as ``table share.schema.name``.
    """

    def __init__(
        self,
        *,
        status: int,
        subject: str,
        error_code: str | None = None,
        server_message: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.status = status
        self.subject = subject
        self.error_code = _server_text(error_code) if error_code else None
        self.server_message = _server_text(server_message) if server_message else None
        answer = ": ".join(part for part in (self.error_code, self.server_message) if part)
        sentence = f"{subject}: the sharing server answered {status}" + (f" ({answer})" if answer else "")
        super().__init__(sentence + (f". {hint}" if hint else ""))


class BadRequestError(RestError):
    """Status 400: the server does not accept the request."""


class AuthenticationError(RestError):
    """Status 401: the token is missing, wrong or expired."""


class ForbiddenError(RestError):
    """Status 403: the token is valid, but does not permit this request."""


class NotFoundError(RestError):
    """Status 404: the server has no such share, schema, table or endpoint.

    Attributes:
        missing: which of these four is missing, by the listings of the server; None if they do not tell.
    """

    missing: str | None = None


class RateLimitError(RestError):
    """Status 429 on every attempt."""


class ServerError(RestError):
    """Status 5xx on every attempt."""


class QueryError(DeltaSharingError):
    """The server reported an error within an answer, or an asynchronous query failed or timed out.

    Attributes:
        subject: the requested object.
        server_message: the server's message, redacted.
        status: `httpStatusErrorCode` of the answer, or None.
    """

    def __init__(self, *, subject: str, server_message: str, status: int | None = None) -> None:
        self.subject = subject
        self.server_message = _server_text(server_message)
        self.status = status
        code = f" (status {status})" if status is not None else ""
        super().__init__(f"{subject}: the sharing server failed while answering{code}: {self.server_message}")


class TransportError(DeltaSharingError):
    """`url` gives no usable response: connection refused or reset, TLS or name resolution failed."""

    def __init__(self, reason: str, *, url: str | SecretUrl | None = None) -> None:
        self.url = redact_url(url) if url else None
        super().__init__(_located(self.url, reason))


class RequestTimeoutError(TransportError):
    """No response arrived within the time-out, on every attempt."""


class InsecureUrlError(TransportError):
    """The client refuses the URL: plain http to another machine, `file:`, user info or a metadata address."""


class ProtocolError(DeltaSharingError):
    """The server's answer breaks the Delta Sharing protocol; none of it is used."""


class IncompleteResponseError(ProtocolError):
    """The answer was cut before its end on every attempt; none of its rows are used."""


class ResponseFormatError(ProtocolError):
    """The client requested parquet format and the server answered in delta format."""


class VersionMismatchError(ProtocolError):
    """The answer is for version `actual` and not for `expected`, or the table changed between two pages."""

    def __init__(self, message: str, *, expected: int | None = None, actual: int | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class UnsupportedTableError(DeltaSharingError):
    """The table requires something that this release cannot read."""


class UnsupportedFeatureError(UnsupportedTableError):
    """The table requires reader `features` that this release does not support."""

    def __init__(self, message: str, *, features: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.features = tuple(map(shown, features))


class UnsupportedTypeError(UnsupportedTableError):
    """A column has the type `type_name`, which this release does not support."""

    def __init__(self, message: str, *, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = shown(type_name)


class ViewChangesError(UnsupportedTableError):
    """The changes of a shared view were requested by versions, or for something that needs versions."""


class IcebergError(DeltaSharingError):
    """A table cannot be read through the provider's Iceberg catalog, or a method is not available there."""


class DirectoryAccessError(DeltaSharingError):
    """The table is shared by its directory `location` only, and cannot be read with its `access_modes`."""

    def __init__(self, reason: str, *, location: str | None = None, access_modes: Sequence[str] = ()) -> None:
        self.location = redact_url(location) if location else None
        self.access_modes = tuple(access_modes)
        super().__init__(_located(self.location, reason))


class SchemaChangedError(DeltaSharingError):
    """`columns` changed in `version`, so that one schema cannot represent the requested changes."""

    def __init__(self, message: str, *, version: int | None = None, columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.version = version
        self.columns = tuple(columns)


class ChangesGoneError(DeltaSharingError):
    """The changes from `version` on are no longer available: cleaned up, or of another table."""

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class TableReplacedError(ChangesGoneError):
    """Another table now has the name: its id is `actual` and not `expected`."""

    def __init__(
        self, message: str, *, version: int | None = None, expected: str | None = None, actual: str | None = None
    ) -> None:
        super().__init__(message, version=version)
        self.expected = expected
        self.actual = actual


class FutureVersionError(DeltaSharingError, ValueError):
    """The requested `version` is later than `latest`, the latest version of the table."""

    def __init__(self, message: str, *, version: int | None = None, latest: int | None = None) -> None:
        super().__init__(message)
        self.version = version
        self.latest = latest


class CheckpointError(DeltaSharingError):
    """The checkpoint at `path` cannot be read or written, belongs to another table, or is in use."""

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        super().__init__(_located(f"checkpoint {path}" if path else None, reason))
        self.path = path


class StorageError(DeltaSharingError):
    """The data file `file_id` of `table` cannot be downloaded; `status` is the HTTP status of the store."""

    def __init__(self, reason: str, *, file_id: str | None = None, status: int | None = None) -> None:
        super().__init__(_located(f"file {file_id}" if file_id else None, reason))
        self.file_id = file_id
        self.status = status
        self.table: str | None = None  # set by the planner, which knows it

    def _sentence(self) -> str:
        return _with_table(self.table, super()._sentence())


class UrlExpiredError(StorageError):
    """The store refuses a pre-signed URL because it has expired."""


class FileGoneError(StorageError):
    """The store has no such file; the provider may have vacuumed the table."""


class DataError(DeltaSharingError):
    """The contents of the data file `file_id` do not match `table`."""

    def __init__(self, reason: str, *, file_id: str | None = None) -> None:
        super().__init__(_located(f"file {file_id}" if file_id else None, reason))
        self.file_id = file_id
        self.table: str | None = None  # set by the planner, which knows it
        self.remedy: str | None = None  # likewise

    def _sentence(self) -> str:
        sentence = _with_table(self.table, super()._sentence())
        return f"{sentence}; {self.remedy}" if self.remedy else sentence


class DeltaLogError(DeltaSharingError):
    """The Delta table in the directory `path`, or at the URL, cannot be read or written."""

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        super().__init__(_located(path, reason))
        self.path = path


class DeltaTableNotFoundError(DeltaLogError):
    """There is no Delta table at that path."""


class VersionNotFoundError(DeltaLogError):
    """The table does not have that version, or its log has been cleaned up."""


class CommitConflictError(DeltaLogError):
    """Another writer committed `version` of a table first; nothing of this commit was written.

    `commit_info` is the `commitInfo` of that commit, empty if unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        version: int | None = None,
        commit_info: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason, path=path)
        self.version = version
        self.commit_info = dict(commit_info or {})


class CommitUnknownError(DeltaLogError):
    """An object store did not answer a commit, which may be written now or later as `version`: read the log again.

    It was written if the `commitInfo` of that version has `txn_id` as its ``txnId``.
    """

    def __init__(
        self, reason: str, *, path: str | None = None, version: int | None = None, txn_id: str | None = None
    ) -> None:
        super().__init__(reason, path=path)
        self.version = version
        self.txn_id = txn_id


class ExclusiveCreateError(DeltaLogError):
    """The store or its driver does not refuse the second create of a file, so commits are refused."""


class DiskFullError(DeltaLogError):
    """There is no space for a file of a local table; earlier commits are unchanged."""


class SinkError(DeltaSharingError):
    """A sink cannot store a batch in the table `target`, because of its `columns` or because the store refuses."""

    def __init__(self, reason: str, *, target: str | None = None, columns: Sequence[str] = ()) -> None:
        super().__init__(_located(target, reason))
        self.target = target
        self.columns = tuple(columns)


class SinkKeyError(SinkError):
    """The key columns of a sink do not identify each row: one is null, or two rows have equal keys."""


class SinkKeyColumnError(SinkError, ValueError):
    """A key column of a sink is not in the shared table, or has a type that cannot identify a row."""


class SparkError(DeltaSharingError):
    """Spark cannot run the request: there is no Java, its release is too old, or the plan is too large."""


class StreamError(SparkError):
    """A streaming query cannot continue at `version`, or its checkpoint belongs to another query."""

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class MissingDependencyError(DeltaSharingError, ImportError):
    """A feature needs `package`, which is not installed; `extra` of this package installs it."""

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{purpose} needs {package}, which is not installed: {how_to_install(extra)}")


def _with_table(table: str | None, sentence: str) -> str:
    return f"table {table}, {sentence}" if table else sentence


def no_thread(error: RuntimeError) -> BaseException:
    """Return the error of a load that cannot start a thread: the interpreter exits, or the system has no more.

    Python raises a `RuntimeError` too if an interrupt comes while a thread starts; then it is the interrupt.
    """
    if isinstance(error.__context__, KeyboardInterrupt):
        return error.__context__
    return DeltaSharingError(f"the load was stopped: no thread can be started ({error})")
