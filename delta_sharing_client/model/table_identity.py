"""Comparison of a table's id with the known one: a table that was created again has the same name and another id.

Each answer with metadata has the id. It is compared wherever the id of an earlier answer is known.
"""

from __future__ import annotations

from delta_sharing_client.errors import TableReplacedError
from delta_sharing_client.model.actions import Metadata


def is_same_table(known: str | None, metadata: Metadata) -> bool:
    """Return whether metadata are those of the table with a known id; a server that sends no id is believed."""
    return not known or not metadata.id or known == metadata.id


def check_same_table(
    known: str | None, metadata: Metadata, subject: str, advice: str, *, version: int | None = None
) -> None:
    """Raise `TableReplacedError` if metadata are not those of the table with a known id.

    Args:
        known: the id; None or empty if none is known.
        metadata: the metadata of a later answer.
        subject: the table, for the message.
        advice: the remedy, a sentence without its full stop.
        version: the version of the metadata, if known.
    """
    if not is_same_table(known, metadata):
        where = "" if version is None else f" in version {version}"
        raise TableReplacedError(
            f"{subject}: it was replaced{where} by another table of this name (its id was {known}, and is "
            f"{metadata.id}). {advice}",
            version=version,
            expected=known,
            actual=metadata.id,
        )
