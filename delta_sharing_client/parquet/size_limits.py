"""Limits of the parts of a file that are read as a whole: footers and deletion vectors."""

from __future__ import annotations

from typing import Any

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.parquet_footer import footer_problem, thrift_limits


def footer_length(tail: bytes | bytearray | memoryview, size: int, limit: int, file_id: str) -> int:
    """Return the length of the footer of a Parquet file.

    Args:
        tail: the last bytes of the file, at least 8.
        size: the size of the file.
        limit: the maximum bytes of the footer.
        file_id: the file, for messages.

    Raises:
        DataError: the file does not end like a Parquet file, or its footer is longer than the limit.
    """
    length = int.from_bytes(tail[-8:-4], "little")
    if bytes(tail[-4:]) != b"PAR1" or length > size - 8:
        raise DataError("not a readable Parquet file: it does not end as one does", file_id=file_id)
    check_size("footer", length, limit, file_id)
    return length


def footer_limits(data: Any, limit: int, file_id: str) -> dict[str, int]:
    """Return the limits with which the Parquet reader parses the footer of a file.

    Args:
        data: the file, or its end with the whole footer; an object with the buffer protocol.
        limit: the maximum bytes of the footer: `TransportOptions.metadata_limit`.
        file_id: the file, for messages.

    Raises:
        DataError: the footer is longer than the limit, or would take much more memory.
    """
    with memoryview(data) as view, view.cast("B") as content:
        if bytes(content[-4:]) != b"PAR1":  # the reader raises
            return thrift_limits(0)
        length = footer_length(content[-8:], len(content), limit, file_id)
        if problem := footer_problem(bytes(content[len(content) - 8 - length : -8]), limit):
            raise DataError(problem, file_id=file_id)
    return thrift_limits(length)


def check_size(subject: str, size: int, limit: int, file_id: str) -> None:
    """Raise `DataError` if a part of a file that is read as a whole has more bytes than the limit."""
    if size > limit:
        reason = f"its {subject} has {size:,} bytes; TransportOptions.metadata_limit allows {limit:,}"
        raise DataError(reason, file_id=file_id)
