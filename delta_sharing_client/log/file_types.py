"""Types in the footers of a table's data files, by which the use of type widening and variant shredding shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.log_schema import maps_columns, name_in_log, schema_of
from delta_sharing_client.log.paths import resolve_path
from delta_sharing_client.log.store_path import LogPath, StorePath
from delta_sharing_client.model.actions import AddFile, Metadata
from delta_sharing_client.model.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

#: Bytes at the end of a file that hold most footers.
_FOOTER: Final = 64 * 1024
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def footer_types(table: LogPath, file: AddFile) -> Any | None:
    """Return the Arrow schema in the footer of a data file; None if it is not in the table, or cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(table, StorePath):
            return pq.read_schema(pa.BufferReader(_footer(table, file)))
        return pq.read_schema(resolve_path(table, file.path))
    except (OSError, ValueError, pa.ArrowException, DeltaLogError):
        return None


def _footer(table: StorePath, file: AddFile) -> bytes:
    """Return the end of a file in a store, with the footer, whose offsets `read_schema` does not use."""
    store = table.store
    path = store.resolve(file.path, absolute=False)
    size = store.status(path).st_size
    data = store.read(path, max(0, size - _FOOTER), size)
    length = int.from_bytes(data[-8:-4], "little") + 8
    return data if length <= len(data) else store.read(path, max(0, size - length), size)


def has_older_types(metadata: Metadata, footer: Any) -> bool:
    """Return whether a file has a column in a type that was widened since, to that of the table."""
    mapped = maps_columns(metadata)
    return any(_is_older(kind, found) for kind, found in _pairs(schema_of(metadata), footer, mapped=mapped))


def has_shredded_variants(metadata: Metadata, footer: Any) -> bool:
    """Return whether a file has a variant of which a part is in columns of its own."""
    mapped = maps_columns(metadata)
    return any(
        kind == PrimitiveType("variant") and "typed_value" in _children(found)
        for kind, found in _pairs(schema_of(metadata), footer, mapped=mapped)
    )


def _pairs(kind: DataType, found: Any, *, mapped: bool) -> Iterator[tuple[DataType, Any]]:
    """Yield each type without parts of a column of the table, with the Arrow type of it in a file."""
    import pyarrow as pa

    if isinstance(kind, StructType):
        children = _children(found)
        for field in kind:
            name = name_in_log(field, mapped=mapped)
            if name in children:
                yield from _pairs(field.type, children[name], mapped=mapped)
    elif isinstance(kind, ArrayType):
        if pa.types.is_list(found) or pa.types.is_large_list(found):
            yield from _pairs(kind.element, found.value_type, mapped=mapped)
    elif isinstance(kind, MapType):
        if pa.types.is_map(found):
            yield from _pairs(kind.key, found.key_type, mapped=mapped)
            yield from _pairs(kind.value, found.item_type, mapped=mapped)
    else:
        yield kind, found


def _children(found: Any) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(found, pa.Schema) or pa.types.is_struct(found):
        return {field.name: field.type for field in found}
    return {}


def _is_older(kind: DataType, found: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, DecimalType):
        is_same = types.is_decimal(found) and (found.precision, found.scale) == (kind.precision, kind.scale)
        return not is_same and bool(types.is_decimal(found) or types.is_integer(found))
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in _BITS:
        return bool(types.is_integer(found) and found.bit_width < _BITS[name])
    if name == "double":
        return bool(types.is_integer(found) or types.is_float32(found))
    return name == "timestamp_ntz" and bool(types.is_date(found))
