"""Partition specs by which files can be skipped without losing rows.

pyiceberg compares partition values with a filter's literals in ways that fail. A comparison with a null value
raises `TypeError`. Doubles are stored with the precision of floats. Transformed values are assumed to have the
order of the columns' values, but writers wrap the truncated value of a `long` near its minimum around to a large
number, and old writers rounded times before 1970 up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table as OpenTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType

from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate
from delta_sharing_client.model.schema import DecimalType, StructField, StructType

_EPOCH: Final = date(1970, 1, 1).toordinal()
#: Types whose partition values are those of this package.
_EQUAL: Final = frozenset({"boolean", "integer", "long", "string", "timestamp", "timestamp_ntz"})


def metadata_for_planning(metadata: TableMetadata, manifests: Iterable[ManifestFile]) -> TableMetadata:
    """Return a table's metadata whose partition specs have only fields that pyiceberg may evaluate.

    The other fields have the transform `void`, by which nothing is skipped.
    Statistics of columns still skip files.

    Args:
        metadata: the table's metadata.
        manifests: those of the snapshot to read, with summaries of their partition values.
    """
    summaries: defaultdict[int, list[Sequence[PartitionFieldSummary]]] = defaultdict(list)
    for manifest in manifests:
        summaries[manifest.partition_spec_id].append(manifest.partitions or ())
    kinds = {field.field_id: field.field_type for field in metadata.schema().fields}
    specs = [_safe(spec, kinds, summaries[spec.spec_id]) for spec in metadata.specs().values()]
    return metadata.model_copy(update={"partition_specs": specs})


def _safe(
    spec: PartitionSpec, kinds: Mapping[int, IcebergType], summaries: Sequence[Sequence[PartitionFieldSummary]]
) -> PartitionSpec:
    known = all(len(each) == len(spec.fields) for each in summaries)
    fields = [
        field
        if known and _is_safe(field, kinds.get(field.source_id), [each[position] for each in summaries])
        else field.model_copy(update={"transform": VoidTransform()})
        for position, field in enumerate(spec.fields)
    ]
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def _is_safe(field: PartitionField, kind: IcebergType | None, summaries: Sequence[PartitionFieldSummary]) -> bool:
    transform = field.transform
    if isinstance(transform, BucketTransform):
        return True  # compared for equality alone
    if any(summary.contains_null for summary in summaries):
        return False
    if isinstance(transform, TimeTransform):
        return all(_is_positive(summary.lower_bound) for summary in summaries)
    return isinstance(transform, IdentityTransform) and not isinstance(kind, FloatType | DoubleType)


def _is_positive(encoded: bytes | None) -> bool:
    """Whether an encoded integer is known to be positive."""
    return encoded is not None and int.from_bytes(encoded, "little", signed=True) > 0


def partition_filter(opened: OpenTable, schema: StructType, predicate: Predicate) -> Callable[[DataFile], bool]:
    """Return a function that returns whether a file may have rows for which a predicate is true.

    It decides by the partition values of columns without a transform, null values included.
    """
    names = {field.field_id: field.name for field in opened.schema().fields}
    columns: dict[int, list[tuple[int, StructField]]] = {}
    for spec in opened.specs().values():
        found = ((number, field) for number, field in enumerate(spec.fields))
        columns[spec.spec_id] = [
            (number, column)
            for number, field in found
            if isinstance(field.transform, IdentityTransform)
            and (column := schema.find(names.get(field.source_id, ""))) is not None
        ]

    def may_match(file: DataFile) -> bool:
        bounds = {column.name: _bounds(column, file.partition[number]) for number, column in columns[file.spec_id]}
        return bool(outcomes(predicate, lambda column: bounds.get(column.name)) & TRUE)

    return may_match


def _bounds(column: StructField, value: Any) -> ColumnBounds | None:
    """Return the bounds of a column with one value; None if it is not among the values of this package."""
    kind = column.type
    if str(kind) == "date" and isinstance(value, int):
        try:
            return ColumnBounds.constant(date.fromordinal(value + _EPOCH))
        except (ValueError, OverflowError):
            return None
    same = str(kind) in _EQUAL or (isinstance(kind, DecimalType) and isinstance(value, Decimal))
    return ColumnBounds.constant(value) if same or value is None else None
