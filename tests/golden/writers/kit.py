"""Registry of the golden cases, and the table that a case fills."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType, VariantType


@dataclass(frozen=True)
class Case:
    """One golden table: its name, what it is about, and the function that writes it."""

    name: str
    about: str
    key: tuple[str, ...]
    write: Callable[[GoldenTable], None]


CASES: dict[str, Case] = {}


def case(about: str, *, key: str | tuple[str, ...] = "id") -> Callable[[Callable[[GoldenTable], None]], Any]:
    """Register a function as the case of its name; `key` are the columns that identify its rows."""

    def register(function: Callable[[GoldenTable], None]) -> Callable[[GoldenTable], None]:
        name = function.__name__
        if name in CASES:
            raise ValueError(f"two cases have the name {name}")
        CASES[name] = Case(name, about, (key,) if isinstance(key, str) else key, function)
        return function

    return register


@dataclass
class GoldenTable:
    """A Delta table in the making."""

    spark: SparkSession
    path: Path
    versions: set[int] = field(default_factory=set)
    changes: list[tuple[int, int]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The table as SQL names it."""
        return f"delta.`{self.path}`"

    def sql(self, *statements: str) -> None:
        """Run statements; `$T` stands for the table."""
        for statement in statements:
            self.spark.sql(statement.replace("$T", self.name))

    def create(
        self,
        columns: str,
        *,
        partitioned_by: str = "",
        cluster_by: str = "",
        properties: dict[str, str] | None = None,
    ) -> None:
        """Create the table; its properties are `delta.` properties without that prefix."""
        text = f"CREATE TABLE $T ({columns}) USING delta"
        if partitioned_by:
            text += f" PARTITIONED BY ({partitioned_by})"
        if cluster_by:
            text += f" CLUSTER BY ({cluster_by})"
        self.sql(text + _properties(properties, "TBLPROPERTIES"))

    def set(self, **properties: str) -> None:
        """Set `delta.` properties, dots written as two underscores."""
        named = {name.replace("__", "."): value for name, value in properties.items()}
        self.sql("ALTER TABLE $T SET" + _properties(named, "TBLPROPERTIES"))

    def insert(self, *rows: str) -> None:
        """Insert rows, each the text of a tuple: one commit, one file (one for each partition value)."""
        self.sql("INSERT INTO $T VALUES " + ", ".join(rows))

    def append(self, query: str, *, files: int = 1, mode: str = "append", **options: str) -> None:
        """Write what a query gives, as so many files."""
        frame = self.spark.sql(query)
        frame = frame.repartition(files) if files > 1 else frame.coalesce(1)
        frame.write.format("delta").mode(mode).options(**options).save(str(self.path))

    def expect(self, *versions: int) -> None:
        """Keep the rows of these versions beside those of the latest one."""
        self.versions.update(versions)

    def expect_all(self) -> None:
        """Keep the rows of every version so far.

        Not of versions without data: a first one that only creates the table, and all but the last of
        several that follow each other.
        """
        data = [bool({"add", "remove"} & self.actions(v)) for v in range(self.version() + 1)]
        for version, here in enumerate(data):
            if here or (version and all(data[version + 1 : version + 2])):
                self.versions.add(version)

    def expect_changes(self, first: int, last: int | None = None) -> None:
        """Keep the change rows of a range of versions, both ends included."""
        self.changes.append((first, self.version() if last is None else last))

    def note(self, **notes: Any) -> None:
        """Keep something in `case.json`."""
        self.notes.update(notes)

    def version(self) -> int:
        """The latest version."""
        return max(int(f.stem) for f in self.log.glob("*.json") if f.stem.isdigit())

    def actions(self, version: int) -> set[str]:
        """The names of the actions of a commit."""
        lines = (self.log / f"{version:020}.json").read_text().splitlines()
        return {name for line in lines for name in json.loads(line)}

    @property
    def log(self) -> Path:
        """The log's directory."""
        return self.path / "_delta_log"

    @contextmanager
    def conf(self, settings: dict[str, str]) -> Iterator[None]:
        """Run with these settings of the session."""
        before = {name: self.spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, old)

    @contextmanager
    def hadoop(self, settings: dict[str, str]) -> Iterator[None]:
        """Run with these settings of Hadoop: those of the Parquet writer."""
        configuration = self.spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in settings.items():
            configuration.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                configuration.unset(name)

    @contextmanager
    def zone(self, name: str) -> Iterator[None]:
        """Run in a time zone: the session's and Java's own."""
        zones = self.spark._jvm.java.util.TimeZone
        before = zones.getDefault()
        zones.setDefault(zones.getTimeZone(name))
        try:
            with self.conf({"spark.sql.session.timeZone": name}):
                yield
        finally:
            zones.setDefault(before)


def _properties(properties: dict[str, str] | None, word: str) -> str:
    if not properties:
        return ""
    return f" {word} (" + ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items()) + ")"


def quoted(name: str) -> str:
    """A column's name as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def comparable(frame: DataFrame) -> tuple[DataFrame, list[str]]:
    """Return the frame with variants as JSON text and without `void` columns, whose names come with it."""
    fields = frame.schema.fields
    void = [f.name for f in fields if isinstance(f.dataType, NullType)]
    kept = [f for f in fields if f.name not in void]
    if not void and not any(_holds_variant(f.dataType) for f in kept):
        return frame, void
    texts = [f"{_as_json(quoted(f.name), f.dataType, 0)} AS {quoted(f.name)}" for f in kept]
    return frame.selectExpr(*texts), void


def _holds_variant(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_variant(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_variant(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_variant(kind.valueType)
    return isinstance(kind, VariantType)


def _as_json(column: str, kind: DataType, depth: int) -> str:
    if not _holds_variant(kind):
        return column
    if isinstance(kind, StructType):
        parts = [f"'{f.name}', {_as_json(column + '.' + quoted(f.name), f.dataType, depth)}" for f in kind.fields]
        return f"if(isnull({column}), null, named_struct({', '.join(parts)}))"
    item = f"x{depth}"
    if isinstance(kind, ArrayType):
        return f"transform({column}, {item} -> {_as_json(item, kind.elementType, depth + 1)})"
    if isinstance(kind, MapType):
        return f"transform_values({column}, (k{depth}, {item}) -> {_as_json(item, kind.valueType, depth + 1)})"
    return f"to_json({column})"
