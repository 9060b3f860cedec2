"""Files of a Delta log in the form that a server would list them, for planning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from delta_sharing_client.delta.log import AddFile as LogFile
from delta_sharing_client.delta.log import deletion_vector_uri
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.secrets import SecretUrl


def shared_file(
    file: LogFile, url_of: Callable[[str], SecretUrl], *, file_id: str, vector_file_id: str | None = None
) -> AddFile:
    """Return a file of a log as a file of an answer.

    Args:
        file: the file.
        url_of: returns the URL of a data file or deletion vector for its URI in the log.
        file_id: the file's id.
        vector_file_id: the id of the file of its deletion vector, if that has one.

    Raises:
        DeltaLogError: the storage type of the deletion vector is unknown, or its UUID is no Z85 text.
    """
    vector = file.deletion_vector
    if vector is not None:
        uri = deletion_vector_uri(vector)
        if uri is not None:
            vector = replace(vector, storage_type="p", path_or_inline=url_of(uri))
    return AddFile(
        url_of(file.path),
        file_id,
        file.partition_values,
        file.size or 0,
        file.stats,
        deletion_vector=vector,
        deletion_vector_file_id=vector_file_id,
        data_change=file.data_change,
    )
