"""What the files of a mirror hold, by their footers, and how Spark's own Parquet reader is to be asked for it.

Spark takes a column of a file by its name and, more or less, in its stored type. So it is told of each file the
names and types that stand in its footer, and what comes is cast to the table's types: columns mapped by id have
any names, and those of a widened type other types. Files that Spark would read otherwise than this package, or
not at all, are told apart here; this package's own reader takes them then.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.model.type_widening import is_widening
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, holds_variant, is_variant
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar, find_zone
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.storage.local import LocalFile

#: The first Spark that opens Parquet files in which a group is marked as a variant.
VARIANT_FILES_SINCE: Final = (4, 1)

_THRIFT_LIMIT: Final = 256 * 1024 * 1024
_THREADS: Final = 8
_KEPT: Final = 4096
_STORED: Final = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


class NotForSparkError(Exception):
    """A file that Spark would read otherwise than this package does, or not at all."""


@dataclass(frozen=True)
class Footer:
    """What a file's footer tells.

    Attributes:
        schema: its columns, with their field ids. Instants stored in 96 bits have the unit s, which no other
            has in Parquet.
        calendar: what it tells of times in the legacy calendar.
    """

    schema: pa.Schema
    calendar: LegacyCalendar | None


def read_footers(tasks: Sequence[FileScanTask]) -> list[Footer]:
    """Read the footers of local files; those that were read before are remembered, since files never change.

    Raises:
        FileGoneError: a file is not there.
        DataError: a file is damaged, or is no Parquet file.
    """
    if len(tasks) < _THREADS:
        return [_footer_of(task) for task in tasks]
    with ThreadPoolExecutor(_THREADS, "delta-sharing-footers") as pool:
        return list(pool.map(_footer_of, tasks))


def stored_columns(
    footer: Footer, wanted: Sequence[StructField], mode: MappingMode, file_id: str, version: tuple[int, int]
) -> StructType | None:
    """Say in which names and types a file holds columns, for Spark's Parquet reader to ask for them.

    Args:
        footer: the file's.
        wanted: columns of the table that lie in its files.
        mode: the table's column mapping.
        file_id: the file, for messages.
        version: Spark's.

    Returns:
        A field for each column, in that order; for one that the file lacks, a name that it does not have. None
        where Spark would read the file otherwise than this package does, or not at all.

    Raises:
        DataError: the table maps columns by id, and the file has no ids.
        UnsupportedTypeError: a column has a type that this release does not know.
    """
    calendar = footer.calendar
    if calendar is not None and (
        "maybe" in (calendar.times, calendar.int96)
        or calendar.time_zone is None
        or find_zone(calendar.time_zone) is None
    ):
        return None
    fields = [footer.schema.field(i) for i in range(len(footer.schema))]
    if version < VARIANT_FILES_SINCE and (
        any(_may_be_variant(field.type) for field in fields) or any(holds_variant(field.type) for field in wanted)
    ):
        return None
    finder = FieldFinder(mode, file_id)
    try:
        return _struct(StructType(tuple(wanted)), fields, finder)
    except NotForSparkError:
        return None


def _footer_of(task: FileScanTask) -> Footer:
    try:
        stat = Path(task.url.reveal()).stat()
        key = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    except OSError:
        key = (0, 0, 0)
    return _kept_footer(task.url.reveal(), task.file_id, task.size, key)


@lru_cache(maxsize=_KEPT)
def _kept_footer(path: str, file_id: str, size: int, _fingerprint: tuple[int, int, int]) -> Footer:
    data = LocalFile(path, file_id, size, None).whole()
    try:
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data)),
            coerce_int96_timestamp_unit="s",
            thrift_string_size_limit=_THRIFT_LIMIT,
            thrift_container_size_limit=_THRIFT_LIMIT,
        )
        schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"not a readable Parquet file: {str(error)[:300]}", file_id=file_id) from None
    return Footer(schema.remove_metadata(), LegacyCalendar.of(metadata.metadata))


def _struct(wanted: StructType, fields: Sequence[pa.Field], finder: FieldFinder) -> StructType:
    """The fields of a struct, or of the table, as a file holds them."""
    places = [finder.find(field, fields) for field in wanted]
    found = [place for place in places if place is not None]
    taken = {field.name.lower() for field in fields}
    if len(taken) != len(fields) or len(set(found)) != len(found):
        # Names that differ only by case are one name to Spark.
        raise NotForSparkError
    stored = []
    for field, place in zip(wanted, places, strict=True):
        if place is None:
            _check_known(field.type)
            stored.append(StructField(_absent(physical_name(field, finder.mode), taken), field.type))
        else:
            kind = _stored(field.type, fields[place].type, finder)
            stored.append(StructField(fields[place].name, kind))
    return StructType(tuple(stored))


def _absent(name: str, taken: set[str]) -> str:
    """A name that the file does not have: its own may belong to another column there."""
    while name.lower() in taken:
        name = f"_{name}"
    taken.add(name.lower())
    return name


def _check_known(kind: DataType) -> None:
    """Raise for a column that no Parquet reader can be asked for."""
    arrow_type(kind)
    if _holds_void(kind):
        raise NotForSparkError


def _holds_void(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_void(field.type) for field in kind)
    if isinstance(kind, ArrayType):
        return _holds_void(kind.element)
    if isinstance(kind, MapType):
        return _holds_void(kind.key) or _holds_void(kind.value)
    return kind == PrimitiveType("void")


def _stored(wanted: DataType, arrow: pa.DataType, finder: FieldFinder) -> DataType:
    if is_variant(wanted):
        # Spark finds its parts, whether it is shredded or not.
        if not _may_be_variant(arrow):
            raise NotForSparkError
        return wanted
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if isinstance(wanted, StructType):
        if not pa.types.is_struct(arrow):
            raise NotForSparkError
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        if all(finder.find(field, fields) is None for field in wanted):
            # Of such a struct Spark before 4.1 says that it is null.
            raise NotForSparkError
        return _struct(wanted, fields, finder)
    if isinstance(wanted, ArrayType):
        if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow)):
            raise NotForSparkError
        return ArrayType(_stored(wanted.element, arrow.value_type, finder))
    if isinstance(wanted, MapType):
        if not pa.types.is_map(arrow):
            raise NotForSparkError
        key = _stored(wanted.key, arrow.key_type, finder)
        if key == PrimitiveType("date") != wanted.key:
            # Spark 3.5 does not cast the keys of a map so.
            raise NotForSparkError
        return MapType(key, _stored(wanted.value, arrow.item_type, finder))
    stored = _leaf_type(arrow)
    if is_widening(stored, wanted):
        return stored
    raise NotForSparkError


def _leaf_type(arrow: pa.DataType) -> DataType:
    """The type in which Spark reads a column without structure."""
    name = _STORED.get(arrow)
    if pa.types.is_decimal128(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        if arrow.unit == "s" or (arrow.unit != "ns" and arrow.tz is not None):
            name = "timestamp"
        elif arrow.unit != "ns":
            name = "timestamp_ntz"
    if name is None:
        raise NotForSparkError
    return PrimitiveType(name)


def _may_be_variant(arrow: pa.DataType) -> bool:
    """Whether a type is, or holds, what may be a variant: a group of `metadata` and the value's parts."""
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if pa.types.is_struct(arrow):
        names = {arrow.field(i).name for i in range(arrow.num_fields)}
        if "metadata" in names and names <= {"metadata", "value", "typed_value"}:
            return True
        return any(_may_be_variant(arrow.field(i).type) for i in range(arrow.num_fields))
    if pa.types.is_map(arrow):
        return _may_be_variant(arrow.key_type) or _may_be_variant(arrow.item_type)
    return bool(pa.types.is_nested(arrow)) and _may_be_variant(arrow.value_type)
