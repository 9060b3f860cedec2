"""Scan tasks: the data files to read, and what to read of them. Frozen, picklable, without a credential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.column_mapping import MappingMode
from delta_sharing_client.model.partition_values import PartitionValues
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.secrets import SecretUrl

if TYPE_CHECKING:
    from delta_sharing_client.expressions.predicates import Predicate

#: The form that variants are read in: structs of their two binaries, or JSON text.
VariantForm: TypeAlias = Literal["struct", "json"]


def check_variant(value: str) -> VariantForm:
    """Return a valid form of variants; raise `ValueError` for anything but ``struct`` and ``json``."""
    if value == "struct":
        return "struct"
    if value == "json":
        return "json"
    raise ValueError(f"variant is {value!r}; it must be 'struct' or 'json'")


#: Shared by tasks without constants or partition values: 300,000 dictionaries take 20 MB.
NO_VALUES: Final[Mapping[str, Any]] = {}


class SelectionVector(Struct, frozen=True):
    """A deletion vector whose rows are selected, not deleted.

    Attributes:
        vector: the vector.
        vector_id: the id of its file, if known.
    """

    vector: DeletionVector
    vector_id: str | None = None


class FileScanTask(RedactedStruct, frozen=True, gc=False):
    """One data file to read.

    A `Struct` without garbage collection, because a plan may have 300,000 tasks: creating one takes a fifth of the
    time of a frozen dataclass.

    Attributes:
        url: the pre-signed URL.
        file_id: the file's id in the sharing protocol, for messages.
        size: bytes of the file; 0 if unknown.
        partition_values: the raw partition values of the file; `partition_text` looks a column up.
        num_records: rows of the file before deletions, if the statistics have it.
        expiration: the URL's expiration in milliseconds since the epoch, if known.
        deletion_vector: the deleted rows, if any.
        deletion_vector_id: the id of the vector's file, if known.
        constants: columns with a constant value, such as those of a change.
        all_rows_match: whether all rows pass the scan's row filter, by the partition values alone.
        selection: the rows to return, without those of `deletion_vector`; None for all rows. If a change replaced
            a file's deletion vector, these are the rows that it deleted or restored.
    """

    redacted_fields: ClassVar = frozenset({"url", "expiration"})

    url: SecretUrl
    file_id: str
    size: int
    partition_values: PartitionValues = msgspec.field(default_factory=lambda: NO_VALUES)
    num_records: int | None = None
    expiration: int | None = None
    deletion_vector: DeletionVector | None = None
    deletion_vector_id: str | None = None
    constants: Mapping[str, str | int | None] = msgspec.field(default_factory=lambda: NO_VALUES)
    all_rows_match: bool = True
    selection: SelectionVector | None = None

    def __hash__(self) -> int:
        return hash((self.url, self.file_id, self.size, self.deletion_vector_id, self.selection))

    @property
    def row_count(self) -> int | None:
        """The number of rows to return, if the statistics have it."""
        if self.selection is not None:
            return self.selection.vector.cardinality if self.deletion_vector is None else None
        if self.num_records is None:
            return None
        deleted = self.deletion_vector.cardinality if self.deletion_vector else 0
        return max(self.num_records - deleted, 0)

    @property
    def vector_size(self) -> int:
        """The bytes of its deletion vector and its selection vector."""
        if self.deletion_vector is None and self.selection is None:  # most files
            return 0
        vectors = (self.deletion_vector, None if self.selection is None else self.selection.vector)
        return sum(max(vector.size_in_bytes, 0) for vector in vectors if vector is not None)


class ReadSpec(Struct, frozen=True):
    """What to read of each file of a scan.

    Attributes:
        output: the columns to return, in order.
        extra: columns that only the residual filter needs.
        partition_columns: names of the table's partition columns.
        mapping: the column mapping mode.
        predicate: the residual filter, bound to the table's schema.
        variant: the form that variants are read in.
        unmapped: names of columns outside of the table's schema, to which column mapping does not apply. Files
            have them under these names, unless the task has their value.
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
        """All columns to read: those to return, then those that only the filter needs."""
        return self.output.fields + self.extra
