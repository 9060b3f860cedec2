"""How a table may be read ("accessModes"): its files by pre-signed URLs, or its directory with credentials."""

from __future__ import annotations

from typing import Final

from delta_sharing_client.errors import DirectoryAccessError
from delta_sharing_client.model.names import Table

URL_ACCESS: Final = "url"
DIRECTORY_ACCESS: Final = "dir"


def offers_directory_alone(modes: tuple[str, ...]) -> bool:
    """Return whether a table's access modes allow its directory only; a table without modes allows URLs."""
    folded = {mode.lower() for mode in modes}
    return DIRECTORY_ACCESS in folded and URL_ACCESS not in folded


def directory_only(
    table: Table,
    why: str = "this needs the URLs of its files",
    instead: str = "scans, changes and mirrors read it",
) -> DirectoryAccessError:
    """Return the error for an operation that a table shared by directory does not support."""
    return DirectoryAccessError(
        f"table {table.full_name} is offered by its directory only (temporary credentials): {why}, and {instead}",
        location=table.location,
        access_modes=table.access_modes or (DIRECTORY_ACCESS,),
    )


def need_urls(table: Table) -> None:
    """Raise `DirectoryAccessError` if the listing of the table offers its directory only."""
    if offers_directory_alone(table.access_modes):
        raise directory_only(table)
