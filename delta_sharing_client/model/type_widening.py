"""Type widening: changes of a column's type that older files may predate.

Serves "Reader Requirements for Type Widening" of the Delta protocol: a reader must check the changes in the
schema, and fail on an unknown one, because it would misread older files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
    parse_type_name,
)

_KEY: Final = "delta.typeChanges"
_INTEGERS: Final = ("byte", "short", "integer", "long")
_OTHERS: Final = {("float", "double"), ("date", "timestamp_ntz"), *((name, "double") for name in _INTEGERS[:3])}
#: Digits that a decimal must have before the point to hold every integer.
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}


def check_type_changes(columns: Iterable[StructField]) -> None:
    """Raise if the type of a column was changed in a way that the protocol does not list.

    Raises:
        UnsupportedFeatureError: the protocol does not list a change.
        ProtocolError: the schema's list of changes is malformed.
    """
    for path, before, after in _changes(columns, ""):
        if not is_widening(parse_type_name(before), parse_type_name(after)):
            raise UnsupportedFeatureError(
                f"column {path!r} was changed from {before} to {after}, and this release cannot read the older "
                "files; upgrade delta-sharing-client, or leave the column out with columns=[...]",
                features=["typeWidening"],
            )


def is_widening(before: DataType, after: DataType) -> bool:
    """Return whether the protocol lists the change of a type as widening."""
    if before == after or (_is_text(before) and _is_text(after)):
        return True
    if isinstance(after, DecimalType):
        if isinstance(before, DecimalType):
            return after.precision - before.precision >= after.scale - before.scale >= 0
        digits = _DIGITS.get(before.name) if isinstance(before, PrimitiveType) else None
        return digits is not None and after.precision - after.scale >= digits
    if not isinstance(before, PrimitiveType) or not isinstance(after, PrimitiveType):
        return False
    if before.name in _INTEGERS and after.name in _INTEGERS:
        return _INTEGERS.index(before.name) < _INTEGERS.index(after.name)
    return (before.name, after.name) in _OTHERS


def _is_text(kind: DataType) -> bool:
    """Whether a type is string; with a collation it has another name."""
    name = kind.name if isinstance(kind, PrimitiveType | UnknownType) else ""
    return name == "string" or name.startswith("string collate ")


def _changes(fields: Iterable[StructField], parent: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, earlier type and later type of each change, of nested fields too."""
    for field in fields:
        path = f"{parent}{field.name}"
        for change in _listed(field.metadata.get(_KEY), path):
            inner = change.get("fieldPath")
            where = f"{path}.{inner}" if inner else path
            before, after = change.get("fromType"), change.get("toType")
            if not isinstance(before, str) or not isinstance(after, str):
                raise ProtocolError(f"the schema lists a change of {where!r} without its types")
            yield where, before, after
        yield from _inside(field.type, f"{path}.")


def _inside(kind: DataType, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(kind, StructType):
        yield from _changes(kind.fields, path)
    elif isinstance(kind, ArrayType):
        yield from _inside(kind.element, f"{path}element.")
    elif isinstance(kind, MapType):
        yield from _inside(kind.key, f"{path}key.")
        yield from _inside(kind.value, f"{path}value.")


def _listed(value: Any, path: str) -> list[dict[str, Any]]:
    """Return the changes in a field's metadata; some writers write the list as a text."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ProtocolError(f"the schema's list of changes of {path!r} is malformed")
    return value
