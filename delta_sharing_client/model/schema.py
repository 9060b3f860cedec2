"""A table's schema: Spark SQL's JSON schema, decoded once into frozen types.

Serves the sections "Schema Object" of the Delta Sharing protocol and "Schema Serialization Format" of
the Delta protocol.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from delta_sharing_client.errors import ProtocolError, UnsupportedTypeError
from delta_sharing_client.model.json_text import loads
from delta_sharing_client.representation import representation, short_repr
from delta_sharing_client.shown_text import listed, quoted, shown, similar_name
from delta_sharing_client.views import html_table

MAX_DEPTH: Final = 64
#: Characters of a longer text are not kept for the next time.
_MOST_CACHED: Final = 1024 * 1024
#: Unknown names for which a message suggests known ones, and characters of the names that it lists.
_MOST_UNKNOWN: Final = 3
_MOST_LISTED: Final = 1000
#: Fields without an effect on rows.
_LENIENT: Final = frozenset({"comment"})
#: The `schemaString` of a table without columns.
NO_COLUMNS: Final = '{"type":"struct","fields":[]}'

#: Primitive type names without parameters.
PRIMITIVES: Final = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double", "boolean", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz", "void", "variant"),
    }
)
#: Other names that writers use.
_ALIASES: Final = {"null": "void", "int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)", re.ASCII)
_CHAR = re.compile(r"(?:var)?char\(\s*\d+\s*\)")
_GEOSPATIAL = re.compile(r"geometry\(([^,()]+)\)|geography\(([^,()]+),\s*+(\w++)\s*+\)")


class DataType:
    """Base of the types of a table's columns."""

    __slots__ = ()


class PrimitiveType(DataType, Struct, frozen=True):
    """A type without parameters, by its name in `PRIMITIVES`."""

    name: str

    def __str__(self) -> str:
        return self.name


class DecimalType(DataType, Struct, frozen=True):
    """An exact decimal of at most 38 digits, `scale` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@short_repr
class GeospatialType(DataType, Struct, frozen=True):
    """A geometry or geography; files hold it as well-known binary (WKB).

    Attributes:
        name: the type in the schema, such as ``geometry(OGC:CRS84)``.
        crs: the coordinate reference system.
        edges: the algorithm for the edges of a geography, such as ``spherical``; None for a geometry.
    """

    name: str
    crs: str
    edges: str | None = None

    def __str__(self) -> str:
        return shown(self.name)


class ArrayType(DataType, Struct, frozen=True):
    """A list of elements of one type."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


class MapType(DataType, Struct, frozen=True):
    """A map with keys of one type and values of one type."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@short_repr
class UnknownType(DataType, Struct, frozen=True):
    """An unknown type: its column can be listed and left out, but not read.

    Attributes:
        name: the name in the schema.
        column: the path of the column.
    """

    name: str
    column: str

    def __str__(self) -> str:
        return shown(self.name)

    def error(self) -> UnsupportedTypeError:
        """Return the error for reading a column of this type."""
        at = f"column {quoted(self.column)}" if self.column else "a column"
        return UnsupportedTypeError(
            f"{at} has the type {quoted(self.name)}, which is unknown to this release; "
            "upgrade delta-sharing-client, or leave the column out with columns=[...]",
            type_name=self.name,
        )


@short_repr
@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a struct.

    Attributes:
        name: its logical name.
        type: its type.
        nullable: whether it may be null.
        metadata: its further properties: comment, column mapping, generation expressions.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{shown(self.name)}: {self.type}"

    @representation
    def _repr_html_(self) -> str:
        return StructType((self,))._repr_html_()


@short_repr
@dataclass(frozen=True, slots=True)
class StructType(DataType):
    """Named fields in order: a whole schema, or a struct column."""

    fields: tuple[StructField, ...]
    #: Those of the table, in what `SharedTable.schema` returns; only the view in notebooks uses them.
    partition_columns: tuple[str, ...] = field(default=(), compare=False, repr=False)
    #: The fields by their names in lower case, made when one is first looked up.
    _by_name: dict[str, list[StructField]] | None = field(default=None, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return StructType, (self.fields, self.partition_columns)

    def __str__(self) -> str:
        return "struct<" + ", ".join(str(f) for f in self.fields) + ">"

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @representation
    def _repr_html_(self) -> str:
        partitions = set(self.partition_columns)
        rows = [
            (
                column.name,
                column.type,
                "yes" if column.nullable else "no",
                "yes" if column.name in partitions else "",
                column.metadata.get("comment") or "",
            )
            for column in self.fields
        ]
        return html_table(("name", "type", "nullable", "partition", "comment"), rows)

    def __getitem__(self, name: str) -> StructField:
        """Return the field with a name, in any case; raise `KeyError` if there is none."""
        found = self.find(name)
        if found is None:
            raise KeyError(f"there is no field {quoted(name)}: {self.suggestion([name])}")
        return found

    def __contains__(self, field: object) -> bool:
        """Whether there is a field with this name, in any case, or this field."""
        return self.find(field) is not None if isinstance(field, str) else field in self.fields

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython and Jupyter offer after ``schema["``."""
        return self.names

    @property
    def names(self) -> list[str]:
        """The fields' names in order."""
        return [f.name for f in self.fields]

    def find(self, name: str) -> StructField | None:
        """Return the field with that name, else the first whose name differs only in case."""
        by_name = self._by_name
        if by_name is None:
            by_name = {}
            for item in self.fields:
                by_name.setdefault(item.name.lower(), []).append(item)
            object.__setattr__(self, "_by_name", by_name)
        found = by_name.get(name.lower(), [])
        return next((field for field in found if field.name == name), found[0] if found else None)

    def suggestion(self, unknown: Collection[str]) -> str:
        """Return, for an error message, the names of the fields and those most similar to unknown names."""
        known = {name.lower(): name for name in self.names}
        first = list(unknown)[:_MOST_UNKNOWN]
        of_structs = {name: hint for name in first if (hint := self._of_struct(name))}
        plain = [name for name in first if name not in of_structs]
        close = [found for name in plain if (found := similar_name(name, known)) is not None]
        hint = f"; did you mean {', '.join(map(quoted, close))}?" if close else ""
        return f"it has {listed(self.names, _MOST_LISTED)}{hint}{''.join(of_structs.values())}"

    def _of_struct(self, unknown: str) -> str:
        """Return a hint for an unknown name that begins with the name of a struct."""
        name, dot, rest = unknown.partition(".")
        found = self.find(name) if dot else None
        if found is None or not isinstance(found.type, StructType):
            return ""
        return f"; {quoted(found.name)} is a struct, which is read as a whole: {found.type.suggestion([rest])}"


def nested_types(data_type: DataType) -> Iterator[DataType]:
    """Yield a type and every type in it, the outer ones first."""
    yield data_type
    if isinstance(data_type, StructType):
        for field in data_type:
            yield from nested_types(field.type)
    elif isinstance(data_type, ArrayType):
        yield from nested_types(data_type.element)
    elif isinstance(data_type, MapType):
        yield from nested_types(data_type.key)
        yield from nested_types(data_type.value)


def nested_fields(data_type: DataType) -> Iterator[StructField]:
    """Yield every field of a type and of the types in it."""
    for part in nested_types(data_type):
        if isinstance(part, StructType):
            yield from part


def parse_schema(schema_string: str) -> StructType:
    """Decode a `schemaString`; raise `ProtocolError` if it is not the JSON of a struct."""
    return (_cached_schema if len(schema_string) <= _MOST_CACHED else _decoded_schema)(schema_string)


def _decoded_schema(schema_string: str) -> StructType:
    try:
        node = loads(schema_string, lenient=_LENIENT)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the table's schemaString is not JSON: {error}") from None
    decoded = _parse_type(node, "", 0)
    if not isinstance(decoded, StructType):
        raise ProtocolError(f"the table's schemaString is a {decoded}, not a struct")
    return decoded


_cached_schema: Final = lru_cache(maxsize=256)(_decoded_schema)


def parse_type_name(name: str, column: str = "") -> DataType:
    """Decode the name of a type without structure, such as ``long`` or ``decimal(10,2)``, of a column.

    Returns:
        The type; `UnknownType` for an unknown name.
    """
    plain = _ALIASES.get(name, name)
    if plain in PRIMITIVES:
        return PrimitiveType(plain)
    if match := _DECIMAL.fullmatch(plain):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return DecimalType(precision, scale)
    elif plain == "decimal":
        return DecimalType(10, 0)
    elif _CHAR.fullmatch(plain):
        return PrimitiveType("string")
    elif (match := _GEOSPATIAL.fullmatch(plain)) and (crs := (match[1] or match[2]).strip()):
        return GeospatialType(name, crs, match[3])
    return UnknownType(name, column)


def _parse_type(node: Any, column: str, depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise ProtocolError(f"the table's schema is nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, str):
        return parse_type_name(node, column)
    kind = node.get("type") if isinstance(node, dict) else None
    if kind == "struct" and isinstance(node.get("fields"), list):
        decoded = StructType(tuple(_parse_field(item, column, depth) for item in node["fields"]))
        name, count = Counter(decoded.names).most_common(1)[0] if decoded.fields else ("", 1)
        if count > 1:
            raise ProtocolError(
                f"the table's schema has the name {quoted(name)} twice under {quoted(column or 'its root')}"
            )
        return decoded
    if kind == "array" and "elementType" in node:
        element = _parse_type(node["elementType"], f"{column}.element", depth + 1)
        return ArrayType(element, bool(node.get("containsNull", True)))
    if kind == "map" and "keyType" in node and "valueType" in node:
        return MapType(
            _parse_type(node["keyType"], f"{column}.key", depth + 1),
            _parse_type(node["valueType"], f"{column}.value", depth + 1),
            bool(node.get("valueContainsNull", True)),
        )
    if kind == "udt" and "sqlType" in node:
        return _parse_type(node["sqlType"], column, depth + 1)
    if isinstance(kind, str) and kind not in ("struct", "array", "map", "udt"):
        return UnknownType(kind, column)
    raise ProtocolError(f"the table's schema has a malformed type at {quoted(column or 'its root')}")


def _parse_field(item: Any, parent: str, depth: int) -> StructField:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or "type" not in item:
        raise ProtocolError(
            f"the table's schema has a field without name or type under {quoted(parent or 'its root')}"
        )
    name = item["name"]
    path = f"{parent}.{name}" if parent else name
    metadata = item.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise ProtocolError(f"the metadata of the column {quoted(path)} is not an object")
    return StructField(
        name,
        _parse_type(item["type"], path, depth + 1),
        bool(item.get("nullable", True)),
        metadata or {},
    )
