"""What a reader needs to know of one file; frozen, picklable, without a credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

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


#: Shared by all tasks without constants: a dictionary for each of 300,000 takes 20 MB.
_NO_CONSTANTS: Final[Mapping[str, str | int | None]] = {}


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """The rows of a file that a deletion vector marks, here the ones that count.

    Attributes:
        vector: the vector.
        vector_id: the id of its file, where told.
    """

    vector: DeletionVector
    vector_id: str | None = None


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
        only: the rows that count, less those of `deletion_vector`; None for all of the file. Of a file whose
            vector a change replaced, those are the rows that it deleted, or restored.
    """

    url: str = field(repr=False)
    file_id: str
    size: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    num_records: int | None = None
    expiration: int | None = field(default=None, repr=False)
    deletion_vector: DeletionVector | None = None
    deletion_vector_id: str | None = None
    constants: Mapping[str, str | int | None] = field(default_factory=lambda: _NO_CONSTANTS, hash=False)
    all_rows_match: bool = True
    only: MarkedRows | None = None

    @property
    def row_count(self) -> int | None:
        """Rows that the file holds for the reader, where the statistics tell."""
        if self.only is not None:
            return self.only.vector.cardinality if self.deletion_vector is None else None
        if self.num_records is None:
            return None
        deleted = self.deletion_vector.cardinality if self.deletion_vector else 0
        return max(self.num_records - deleted, 0)


class _OpenTask:
    """A `FileScanTask` that is not frozen yet; its slots are the same, so that its class can become that."""

    __slots__ = tuple(item.name for item in fields(FileScanTask))

    def __init__(
        self,
        url: str,
        file_id: str,
        size: int,
        partition_values: Mapping[str, str | None],
        num_records: int | None,
        expiration: int | None,
        deletion_vector: DeletionVector | None,
        deletion_vector_id: str | None,
        all_rows_match: bool,
    ) -> None:
        self.url = url
        self.file_id = file_id
        self.size = size
        self.partition_values = partition_values
        self.num_records = num_records
        self.expiration = expiration
        self.deletion_vector = deletion_vector
        self.deletion_vector_id = deletion_vector_id
        self.constants = _NO_CONSTANTS
        self.all_rows_match = all_rows_match
        self.only = None


def new_task(*values: Any) -> FileScanTask:
    """Make a task without constants in a quarter of the time that its frozen class takes; there may be 300,000."""
    task: Any = _OpenTask(*values)
    task.__class__ = FileScanTask
    return task  # type: ignore[no-any-return]


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
