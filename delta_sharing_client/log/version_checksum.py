"""Version checksum files: what the state of a version must be, beside its commit ("Version Checksum File")."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.durable_files import put_if_absent, replace_file
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, checksum_name
from delta_sharing_client.log.snapshot import LogState
from delta_sharing_client.log.store_path import LogPath, StorePath
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.json_text import loads

logger = module_logger(__name__)

_LENIENT: Final = frozenset({"stats", "name", "description", "allFiles"})


def write_checksum(table: LogPath, version: int, state: LogState, in_commit_timestamp: int | None) -> None:
    """Write the checksum of a version that has been committed; an existing one is not changed.

    A failure is logged: the commit is valid without a checksum.
    """
    if state.metadata is None or state.protocol is None:
        return
    files, size = state.totals()
    content: dict[str, Any] = {"tableSizeBytes": size, "numFiles": files, "numMetadata": 1, "numProtocol": 1}
    if in_commit_timestamp is not None:
        content["inCommitTimestampOpt"] = in_commit_timestamp
    content |= {
        "setTransactions": [dict(action.raw) for action in state.transactions.values()],
        "domainMetadata": [dict(action.raw) for action in state.domains.values()],
        "metadata": dict(state.metadata.raw),
        "protocol": dict(state.protocol.raw),
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    target = table / LOG_DIRECTORY / checksum_name(version)
    try:
        if isinstance(target, StorePath):
            replace_file(target, text)  # only the writer of the version writes it
        else:
            put_if_absent(target, text)
    except OSError as error:
        logger.warning("no checksum of version %d of %s was written: %s", version, table, error)


def check_state(file: LogPath, state: LogState) -> None:
    """Compare a replayed state with the checksum of its version; one that cannot be read is ignored.

    Raises:
        DeltaLogError: they differ; the message names the fields.
    """
    try:
        content = loads(file.read_bytes(), lenient=_LENIENT)
        expected = _expected(content) if isinstance(content, dict) else {}
    except (OSError, ValueError, RecursionError) as error:
        logger.info("the checksum %s cannot be read: %s", file, error)
        return
    actual = _actual(state)
    different = [name for name, value in expected.items() if value is not None and value != actual[name]]
    if different:
        shown = ", ".join(
            f"{name} ({expected[name]} there, {actual[name]} by replay)" if name in _NUMBERS else name
            for name in different
        )
        raise DeltaLogError(
            f"the log does not have the content that its checksum {file.name} describes, in {shown}: files of the "
            "log were changed or lost; restore them, or delete the checksum if another tool wrote it wrongly"
        )


_NUMBERS: Final = ("numFiles", "tableSizeBytes")


def _expected(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checksum states; None for absent fields."""
    metadata, protocol = content.get("metadata"), content.get("protocol")
    numbers = {name: content.get(name) for name in _NUMBERS}
    return {
        **{name: value if isinstance(value, int) else None for name, value in numbers.items()},
        "metadata": _essence(Metadata.from_json(metadata)) if isinstance(metadata, dict) else None,
        "protocol": _features(Protocol.from_json(protocol)) if isinstance(protocol, dict) else None,
    }


def _actual(state: LogState) -> dict[str, Any]:
    files, size = state.totals()
    return {
        "numFiles": files,
        "tableSizeBytes": size,
        "metadata": None if state.metadata is None else _essence(state.metadata),
        "protocol": None if state.protocol is None else _features(state.protocol),
    }


def _essence(metadata: Metadata) -> tuple[Any, ...]:
    """Return the fields that determine how the table is read; writers spell the others in several ways."""
    return metadata.id, metadata.schema_string, metadata.partition_columns, dict(metadata.configuration)


def _features(protocol: Protocol) -> tuple[Any, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features),
        frozenset(protocol.writer_features),
    )
