"""Limits of the parts of a file that are read as a whole: footers and deletion vectors."""

from __future__ import annotations

from delta_sharing_client.errors import DataError


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


def check_size(what: str, size: int, limit: int, file_id: str) -> None:
    """Raise `DataError` if a part of a file that is read as a whole has more bytes than the limit."""
    if problem := size_problem(what, size, limit):
        raise DataError(problem, file_id=file_id)


def size_problem(what: str, size: int, limit: int) -> str:
    """Return what is wrong with the size of such a part; empty if nothing is."""
    if size <= limit:
        return ""
    return f"its {what} has {size:,} bytes; TransportOptions.metadata_limit allows {limit:,}"
