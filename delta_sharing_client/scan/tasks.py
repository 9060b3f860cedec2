"""What a reader needs to know of one file; frozen, picklable, without a credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from delta_sharing_client.protocol.actions import DeletionVector
from delta_sharing_client.protocol.column_mapping import MappingMode
from delta_sharing_client.protocol.predicates import Predicate
from delta_sharing_client.protocol.schema import StructField, StructType

#: What variants are read as: structs of their two binaries, or the text of their JSON.
VariantForm: TypeAlias = Literal["struct", "json"]


def check_variant(value: str) -> VariantForm:
    """Return what variants are read as; raise `ValueError` for anything but ``struct`` and ``json``."""
    if value == "struct":
        return "struct"
    if value == "json":
        return "json"
    raise ValueError(f"variant is {value!r}; it takes 'struct' or 'json'")


@dataclass(frozen=True, slots=True)
class FileScanTask:
    """One data file to read.

    Attributes:
        url: the pre-signed URL; never shown.
        file_id: the file's id in the sharing protocol; what messages show.
        size: bytes of the file; 0 where the server does not tell.
        partition_values: the raw partition values of the file.
        num_records: rows in the file before deletions, where the statistics tell.
        expiration: milliseconds since the epoch at which the URL expires, where told.
        deletion_vector: rows that do not count, where there are any.
        deletion_vector_id: the id of the vector's file, where told.
        constants: columns with one value throughout, such as those of a change.
        all_rows_match: whether every row is known to pass the scan's row filter.
    """

    url: str = field(repr=False)
    file_id: str
    size: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    num_records: int | None = None
    expiration: int | None = field(default=None, repr=False)
    deletion_vector: DeletionVector | None = None
    deletion_vector_id: str | None = None
    constants: Mapping[str, str | int] = field(default_factory=dict, hash=False)
    all_rows_match: bool = True

    @property
    def row_count(self) -> int | None:
        """Rows that the file holds for the reader, where the statistics tell."""
        if self.num_records is None:
            return None
        deleted = self.deletion_vector.cardinality if self.deletion_vector else 0
        return max(self.num_records - deleted, 0)


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What to make of every file of a scan.

    Attributes:
        output: the columns to return, in order.
        extra: columns that only the row filter looks at.
        partition_columns: names of the table's partition columns.
        mapping: how columns are found in files.
        predicate: the exact row filter, bound to the table's schema.
        variant: what variants are read as.
    """

    output: StructType
    extra: tuple[StructField, ...] = ()
    partition_columns: frozenset[str] = frozenset()
    mapping: MappingMode = "none"
    predicate: Predicate | None = None
    variant: VariantForm = "struct"

    @property
    def fields(self) -> tuple[StructField, ...]:
        """Every column to read: those to return, then those that only the filter needs."""
        return self.output.fields + self.extra
