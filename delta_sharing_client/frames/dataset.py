"""Scans as pyarrow datasets that push projections, filters and limits down to the scan.

The classes override the methods of pyarrow's, as Lance's datasets do, so that DuckDB, polars and others use them.
Arrow's own scanner does not serve: it reads ahead on threads of its own, which continue when the reader is closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from pyarrow.fs import LocalFileSystem

from delta_sharing_client.expressions.predicates import Predicate
from delta_sharing_client.expressions.substrait import pushed_predicate
from delta_sharing_client.model.schema import StructType

#: Names of columns, or expressions by the names of their results.
Projection: TypeAlias = Sequence[str] | Mapping[str, pc.Expression]

#: pyarrow writes each operand of AND and OR twice, so a message doubles with each level of nesting.
_MAX_NESTING: Final = 12
_NOT_READABLE: Final = "a shared table; read it with its own scanner(), to_table() or to_batches()"


class PushdownSource(Protocol):
    """Rows of which columns, rows and a number of rows can be selected."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""

    @property
    def columns(self) -> StructType:
        """The same columns, as the table's schema has them."""

    def read(self, columns: Sequence[str], predicate: Predicate | None, limit: int | None) -> pa.RecordBatchReader:
        """Return a reader of columns, of at least the rows for which a predicate is true, at most `limit`."""

    def count(self) -> int:
        """Return the number of rows."""


#: The options of Arrow's scanners beside columns and filter.
_ARROW_OPTIONS: Final = frozenset(
    (
        *("batch_size", "batch_readahead", "fragment_readahead", "fragment_scan_options"),
        *("use_threads", "cache_metadata", "memory_pool"),
    )
)


class SharedDataset(pds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """A `pyarrow.dataset.Dataset` over a scan; made by `TableScan.to_dataset`.

    Each scanner requests the files again. It reads the columns that the projection and the filter name, and leaves
    out files and row groups that the filter excludes; Arrow applies the filter to the rows.
    """

    def __init__(self, source: PushdownSource, filter: pc.Expression | None = None) -> None:  # noqa: A002
        # Functions of Arrow's C++ code do not call overridden methods. They find a missing file, whose name is an
        # error message, where an uninitialized dataset would end the process.
        missing = pds.FileSystemDataset.from_paths(
            [_NOT_READABLE], schema=source.schema, format=pds.ParquetFileFormat(), filesystem=LocalFileSystem()
        )
        super().__init__(source.schema, [missing])
        self._source = source
        self._filter = filter

    def __reduce__(self) -> NoReturn:
        raise TypeError("a dataset of a shared table cannot be pickled: use the scan's to_dask() or to_ray()")

    def filter(self, expression: pc.Expression) -> SharedDataset:
        """Return the dataset of the rows that match an expression."""
        return SharedDataset(self._source, self._combined(expression))

    def scanner(
        self,
        columns: Projection | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **_options: Any,
    ) -> SharedScanner:
        """Return a scanner of columns and rows.

        Args:
            columns: names of columns, or expressions by the names of their results; all columns by default.
            filter: rows to return; all by default.
            _options: Arrow's options for batches, threads and memory, which the options of the client replace.

        Raises:
            TypeError: an option is none of Arrow's.
        """
        unknown = _options.keys() - _ARROW_OPTIONS
        if unknown:
            raise TypeError(f"a scanner has no option {', '.join(map(repr, sorted(unknown)))}")
        return SharedScanner(self._source, columns, self._combined(filter))

    def _combined(self, expression: pc.Expression | None) -> pc.Expression | None:
        if self._filter is None or expression is None:
            return self._filter if expression is None else expression
        return self._filter & expression

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read columns and rows, with the arguments of `scanner`, into a table."""
        return self.scanner(*args, **options).to_table()

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read columns and rows, with the arguments of `scanner`, batch by batch."""
        return self.scanner(*args, **options).to_batches()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """Read the first rows, with the arguments of `scanner`, and fetch no more than they need."""
        return self.scanner(*args, **options).head(num_rows)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Read rows by their numbers, with the arguments of `scanner`."""
        return self.scanner(*args, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:  # noqa: A002
        """Return the number of rows; without a filter from the statistics, if the server has them."""
        return self.scanner(columns=[], filter=filter, **options).count_rows()

    def sort_by(self, sorting: Any, **options: Any) -> pds.InMemoryDataset:
        """Read all rows, and return them sorted."""
        return pds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *args: Any, **options: Any) -> pds.InMemoryDataset:
        """Read all rows, and return them joined with a dataset or table; arguments as for `pyarrow.Table.join`."""
        return pds.InMemoryDataset(self.to_table().join(_table(right_dataset), *args, **options))

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> pds.InMemoryDataset:
        """As `join`, by the nearest value; arguments as for `pyarrow.Table.join_asof`."""
        return pds.InMemoryDataset(self.to_table().join_asof(_table(right_dataset), *args, **options))

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raise `NotImplementedError`."""
        raise NotImplementedError("the types of a shared table are those of its schema: cast() the table instead")

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:  # noqa: A002
        """Raise `NotImplementedError`."""
        raise NotImplementedError("the files of a shared table are no fragments: use the scan's files()")


class SharedScanner:
    """Reads columns and rows of a `SharedDataset`; has the methods of `pyarrow.dataset.Scanner`."""

    def __init__(
        self, source: PushdownSource, columns: Projection | None, expression: pc.Expression | None
    ) -> None:
        self.dataset_schema = source.schema
        self._source = source
        self._expression = expression
        names = source.schema.names
        self._projection: Projection = names if columns is None else columns
        # Arrow checks names and types here.
        empty = pds.InMemoryDataset(source.schema.empty_table())
        self.projected_schema = empty.scanner(columns=columns, filter=expression).projected_schema
        results = columns.values() if isinstance(columns, Mapping) else []
        needed = _names_in([*results, *([] if expression is None else [expression])], names)
        plain = set() if isinstance(columns, Mapping) else set(self._projection)
        self._columns = [name for name in names if name in needed or name in plain]

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches and decodes as it is read; lists the files at once."""
        return self._reader(None)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        yield from self.to_reader()

    def to_table(self) -> pa.Table:
        """Read all rows."""
        if not self.projected_schema:
            return pa.table({"rows": pa.nulls(self.count_rows())}).select([])
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows."""
        batches: list[pa.RecordBatch] = []
        left = num_rows
        with self._reader(num_rows if self._expression is None else None) as reader:
            while left > 0 and (batch := next(reader, None)) is not None:
                batches.append(batch.slice(0, left))
                left -= batches[-1].num_rows
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Read rows by their numbers; reads all rows before them."""
        numbers = pa.array(indices, pa.int64())
        return self.head(pc.max(numbers).as_py() + 1 if len(numbers) else 0).take(numbers)

    def count_rows(self) -> int:
        """Return the number of rows."""
        if self._expression is None:
            return self._source.count()
        return sum(len(rows) for rows in self._rows(self._read(None), []))

    def _reader(self, limit: int | None) -> pa.RecordBatchReader:
        reader = self._read(limit)
        batches = (batch for rows in self._rows(reader, self._projection) for batch in rows.to_batches())
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)

    def _read(self, limit: int | None) -> pa.RecordBatchReader:
        """Return a reader of the columns that are needed, of all rows that may match."""
        return self._source.read(self._columns, self._predicate(), limit)

    def _rows(self, reader: pa.RecordBatchReader, columns: Projection) -> Iterator[pa.Table]:
        """Yield the rows that match, with the columns of a projection."""
        with reader:
            for batch in reader:
                yield pds.InMemoryDataset(batch).to_table(
                    columns=columns, filter=self._expression, use_threads=False
                )

    def _predicate(self) -> Predicate | None:
        """Return what can be pushed down; None if Substrait cannot express the filter, or is too large for it."""
        if self._expression is None or _nesting(str(self._expression)) > _MAX_NESTING:
            return None
        # Without the other columns, because Substrait lacks some types.
        needed = _names_in([self._expression], self.dataset_schema.names)
        columns = StructType(tuple(column for column in self._source.columns if column.name in needed))
        try:
            message = self._expression.to_substrait(
                pa.schema([self.dataset_schema.field(n) for n in columns.names])
            )
        except pa.ArrowException:
            return None
        return pushed_predicate(bytes(message), columns)


def _names_in(expressions: Iterable[pc.Expression], names: Sequence[str]) -> set[str]:
    """Return the names that occur in the text of expressions, and so all columns that these need."""
    text = "\n".join(map(str, expressions))
    if "FieldPath" in text:  # columns by their numbers
        return set(names)
    return {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}


def _nesting(text: str) -> int:
    """Return the depth of parentheses."""
    return max(accumulate((character == "(") - (character == ")") for character in text), default=0)


def _table(dataset: Any) -> pa.Table:
    return dataset if isinstance(dataset, pa.Table) else dataset.to_table()
