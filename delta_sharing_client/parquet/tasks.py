"""What a reader needs to know of one file; frozen, picklable, without a credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from delta_sharing_client.expressions.predicates import Predicate
from delta_sharing_client.model.actions import DeletionVector, RedactedStruct
from delta_sharing_client.model.column_mapping import MappingMode
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.secrets import SecretUrl

#: What variants are read as: structs of their two binaries, or the text of their JSON.
VariantForm: TypeAlias = Literal["struct", "json"]


def check_variant(value: str) -> VariantForm:
    """Return what variants are read as; raise `ValueError` for anything but ``struct`` and ``json``."""
    if value == "struct":
        return "struct"
    if value == "json":
        return "json"
    raise ValueError(f"variant is {value!r}; it takes 'struct' or 'json'")


#: Shared by all tasks without constants, or of tables without partitions: a dictionary for each of 300,000 takes
#: 20 MB.
NO_VALUES: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class SelectionVector:
    """The rows of a file that a deletion vector marks, here the ones that count.

    Attributes:
        vector: the vector.
        vector_id: the id of its file, where told.
    """

    vector: DeletionVector
    vector_id: str | None = None


class FileScanTask(RedactedStruct, frozen=True, gc=False):
    """One data file to read; `msgspec.structs.replace` makes one with other values.

    A `Struct`, and one that the garbage collector passes over, because a plan may have 300,000 of them: they are
    made in a fifth of the time that a frozen dataclass takes, and are in no cycle of references.

    Attributes:
        url: the pre-signed URL.
        file_id: the file's id in the sharing protocol; what messages show.
        size: bytes of the file; 0 where the server does not tell.
        partition_values: the raw partition values of the file.
        num_records: rows in the file before deletions, where the statistics tell.
        expiration: milliseconds since the epoch at which the URL expires, where told.
        deletion_vector: rows that do not count, where there are any.
        deletion_vector_id: the id of the vector's file, where told.
        constants: columns with one value throughout, such as those of a change.
        all_rows_match: whether every row passes the scan's row filter, by the partition values alone.
        only: the rows that count, less those of `deletion_vector`; None for all of the file. Of a file whose
            vector a change replaced, those are the rows that it deleted, or restored.
    """

    redacted_fields: ClassVar = frozenset({"url", "expiration"})

    url: SecretUrl
    file_id: str
    size: int
    partition_values: Mapping[str, str | None] = msgspec.field(default_factory=lambda: NO_VALUES)
    num_records: int | None = None
    expiration: int | None = None
    deletion_vector: DeletionVector | None = None
    deletion_vector_id: str | None = None
    constants: Mapping[str, str | int | None] = msgspec.field(default_factory=lambda: NO_VALUES)
    all_rows_match: bool = True
    only: SelectionVector | None = None

    def __hash__(self) -> int:
        return hash((self.url, self.file_id, self.size, self.deletion_vector_id, self.only))

    @property
    def row_count(self) -> int | None:
        """Rows that the file holds for the reader, where the statistics tell."""
        if self.only is not None:
            return self.only.vector.cardinality if self.deletion_vector is None else None
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
        unmapped: names of columns that are not the table's: whatever the column mapping, a file has them under
            these names, unless the task gives their value.
    """

    output: StructType
    extra: tuple[StructField, ...] = ()
    partition_columns: frozenset[str] = frozenset()
    mapping: MappingMode = "none"
    predicate: Predicate | None = None
    variant: VariantForm = "struct"
    unmapped: frozenset[str] = frozenset()

    @property
    def fields(self) -> tuple[StructField, ...]:
        """Every column to read: those to return, then those that only the filter needs."""
        return self.output.fields + self.extra
