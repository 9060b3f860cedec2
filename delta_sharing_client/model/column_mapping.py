"""Column mapping: names and ids of columns in data files, partition values and statistics.

Serves "Column Mapping" of the Delta protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.model.schema import StructField

MappingMode: TypeAlias = Literal["none", "name", "id"]

_MODES: Final[Mapping[str, MappingMode]] = {"": "none", "none": "none", "name": "name", "id": "id"}
_MODE: Final = "delta.columnMapping.mode"
_NAME: Final = "delta.columnMapping.physicalName"
_ID: Final = "delta.columnMapping.id"


def mapping_mode(configuration: Mapping[str, str]) -> MappingMode:
    """Return the mode in a table's properties; raise `UnsupportedFeatureError` for an unknown mode."""
    mode = configuration.get(_MODE, "none").lower()
    if mode not in _MODES:
        raise UnsupportedFeatureError(
            f"the table's column mapping mode {mode!r} is unknown", features=["columnMapping"]
        )
    return _MODES[mode]


def physical_name(field: StructField, mode: MappingMode) -> str:
    """Return a column's name in partition values and statistics, and in files unless they are mapped by id.

    Raises:
        ProtocolError: the table maps columns, and this one has no physical name.
    """
    if mode == "none":
        return field.name
    name = field.metadata.get(_NAME)
    if not isinstance(name, str) or not name:
        raise ProtocolError(f"the table maps columns, but {field.name!r} has no physical name")
    return name


def field_id(field: StructField) -> int:
    """Return the Parquet field id of a column; raise `ProtocolError` if it has none."""
    value = field.metadata.get(_ID)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"the table maps columns by id, but {field.name!r} has none")
    return value
