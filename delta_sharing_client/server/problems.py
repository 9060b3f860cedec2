"""Error answers: status, `errorCode` and `message`, without stack traces and local paths."""

from __future__ import annotations

from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError, VersionNotFoundError


class Problem(Exception):  # noqa: N818 - a response, not a failure of the server
    """An error response: its HTTP status, `errorCode` and `message`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def bad_request(message: str) -> Problem:
    """400: a parameter is malformed or not supported."""
    return Problem(400, "INVALID_PARAMETER_VALUE", message)


def not_found(message: str) -> Problem:
    """404: the resource does not exist."""
    return Problem(404, "RESOURCE_DOES_NOT_EXIST", message)


def forbidden(message: str) -> Problem:
    """403: the resource is not shared."""
    return Problem(403, "PERMISSION_DENIED", message)


def unauthenticated(message: str) -> Problem:
    """401: the bearer token is missing, wrong or expired."""
    return Problem(401, "UNAUTHENTICATED", message)


def internal(message: str = "The server failed to answer this request.") -> Problem:
    """500: the server failed, or the table is damaged."""
    return Problem(500, "INTERNAL_ERROR", message)


def problem_of(error: Exception, table_name: str) -> Problem:
    """Return the response for an error of a table's request, without local paths."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, OSError):
        return internal(f"The files of table {table_name} cannot be read.")
    if not isinstance(error, DeltaLogError):
        return internal()
    reason = str(error).removeprefix(f"{error.path}: ")
    if isinstance(error, VersionNotFoundError):
        return bad_request(f"Table {table_name}: {reason}.")
    if isinstance(error, DeltaTableNotFoundError):
        return not_found(f"Table {table_name} is no longer there.")
    if not error.path or error.path in reason:
        return internal(f"The log of table {table_name} cannot be read.")
    return internal(f"The log of table {table_name} cannot be read: {reason}.")
