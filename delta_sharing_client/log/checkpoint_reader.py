"""Checkpoint reader: classic, multi-part and V2 checkpoints with sidecars.

Serves "Checkpoints" and "Checkpoint Schema". A row is converted to the JSON object of a commit, so that replay has
one input form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.actions import Action, OtherAction, make_action
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.log_segment import SIDECARS, Checkpoint, is_v2_name
from delta_sharing_client.log.store_path import LogPath, StorePath

_ACTIONS: Final = ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "remove", "add")
_BATCH_ROWS: Final = 16_384
#: The statistics in the types of their columns.
_TYPED: Final = "stats_parsed"


def read_checkpoint(checkpoint: Checkpoint, *, added_files: bool = True) -> Iterator[Action]:
    """Yield the actions of a checkpoint, those of its sidecars included.

    Args:
        checkpoint: the checkpoint.
        added_files: False to leave out the added files in its Parquet files.

    Raises:
        DeltaLogError: a file of it is missing or damaged.
    """
    names = tuple(name for name in _ACTIONS if added_files or name != "add")
    for item in _top_level(checkpoint, names):
        if isinstance(item, Path | StorePath):
            yield from _read_parquet(item, names)
        else:
            yield item


def sidecars(checkpoint: Checkpoint) -> list[LogPath]:
    """Return the sidecars of a checkpoint; raises as `read_checkpoint`."""
    return [item for item in _top_level(checkpoint, _ACTIONS) if isinstance(item, Path | StorePath)]


def is_v2(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is a V2 checkpoint, by its name or its content; raises as `read_checkpoint`."""
    file = checkpoint.files[0]
    if is_v2_name(file.name):
        return True
    # The name of a classic checkpoint is allowed too.
    return any(True for _ in _read_parquet(file, ("checkpointMetadata",)))


def _top_level(checkpoint: Checkpoint, names: tuple[str, ...]) -> Iterator[Action | LogPath]:
    """Yield the actions in the top-level files of a checkpoint, sidecars as their paths."""
    for file in checkpoint.files:
        for action in read_commit(file) if file.suffix == ".json" else _read_parquet(file, names):
            if not isinstance(action, OtherAction) or action.name != "sidecar":
                yield action
                continue
            # Sidecars are always in `_delta_log/_sidecars`, whatever folder the path has.
            name = unquote(str(action.raw.get("path", ""))).rsplit("/", 1)[-1]
            if name in ("", ".", ".."):
                raise DeltaLogError("a sidecar without a name", path=str(file.parent.parent))
            yield file.parent / SIDECARS / name


@contextmanager
def reading(file: LogPath) -> Iterator[None]:
    """Raise `DeltaLogError` for the errors of reading a Parquet file of a checkpoint."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DeltaLogError(
            f"the checkpoint file {file.name} cannot be read: {error}", path=str(file.parent.parent)
        ) from error


def _read_parquet(file: LogPath, names: tuple[str, ...]) -> Iterator[Action]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(file):
        source = pa.BufferReader(file.read_bytes()) if isinstance(file, StorePath) else file
    # Bounds in 96 bits would overflow as nanoseconds. Arrow buffers ahead on threads of its own, which abort a
    # process that ends just after they have started.
    with (
        reading(file),
        pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False) as parquet,
    ):
        columns = _wanted_columns(parquet.schema_arrow, names)
        for number in range(parquet.num_row_groups):
            present = _with_values(parquet.metadata.row_group(number), columns)
            if not present:
                continue
            for batch in parquet.iter_batches(_BATCH_ROWS, [number], present, use_threads=False):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    yield from actions_of(name, column, file)


def _with_values(group: Any, columns: list[str]) -> list[str]:
    """Return the columns of the actions that a row group has; most row groups have one kind of action."""
    empty = dict.fromkeys((column.partition(".")[0] for column in columns), True)
    for chunk in map(group.column, range(group.num_columns)):
        name = chunk.path_in_schema.partition(".")[0]
        if chunk.statistics is None or chunk.statistics.null_count != group.num_rows:
            empty[name] = False
    return [column for column in columns if not empty[column.partition(".")[0]]]


def _wanted_columns(schema: Any, actions: tuple[str, ...]) -> list[str]:
    """Return the columns to read; typed columns that also have a JSON form are half of a large checkpoint."""
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name not in actions or not pa.types.is_struct(field.type):
            continue
        names = [field.type.field(i).name for i in range(field.type.num_fields)]
        skipped = {"partitionValues_parsed"} | ({_TYPED} if "stats" in names else set())
        columns += [f"{field.name}.{name}" for name in names if name not in skipped]
    return columns


def actions_of(name: str, column: Any, file: LogPath) -> Iterator[Any]:
    """Yield the actions of a column of structs; nulls are skipped."""
    if column.null_count == len(column):
        return
    plain = _plain_form(column.type)
    for value in _values(column.drop_null()):
        raw = value if plain is None else plain(value)
        # Some writers write a struct without values instead of null.
        if raw:
            parsed = raw.pop(_TYPED, None)
            if parsed and "stats" not in raw:
                raw["stats"] = json.dumps(_json_stats(parsed), separators=(",", ":"))
            yield make_action(name, raw, where=file.name)


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        # Typed bounds after the year 9999; statistics are optional.
        import pyarrow as pa

        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        kept = {name: part for name, part in zip(names, column.flatten(), strict=True) if name != _TYPED}
        values = pa.StructArray.from_arrays(list(kept.values()), list(kept)).to_pylist()
    return values


def _plain_form(data_type: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of a type's values to JSON values; None if they need none.

    Maps become objects, and null fields are omitted.
    """
    import pyarrow as pa

    if pa.types.is_struct(data_type):
        children = [data_type.field(i) for i in range(data_type.num_fields)]
        forms = [(child.name, _plain_form(child.type)) for child in children]

        def plain_struct(value: Any) -> Any:
            plain = {}
            for name, form in forms:
                item = value.get(name)
                if item is not None and form is not None:
                    item = form(item)
                if item is not None:
                    plain[name] = item
            # A struct whose fields are all null stands for null, such as an empty deletion vector.
            return plain or None

        return plain_struct
    if pa.types.is_map(data_type):
        return dict
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        inner = _plain_form(data_type.value_type)
        if inner is not None:
            return lambda value: [None if item is None else inner(item) for item in value]
    return None


def _json_stats(value: Any) -> Any:
    """Convert typed statistics to their JSON form, without the values that JSON cannot hold exactly."""
    if isinstance(value, dict):
        converted = {key: _json_stats(item) for key, item in value.items()}
        return {key: item for key, item in converted.items() if item is not None}
    if isinstance(value, datetime):
        # The JSON form has milliseconds; readers expect truncated bounds.
        if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if Decimal(repr(float(value))) == value else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else None
