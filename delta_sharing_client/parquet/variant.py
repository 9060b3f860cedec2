"""Variant columns of Parquet files as Arrow structs or JSON text.

The Arrow form of a variant is a struct of two binaries, `metadata` and `value`. A null struct is SQL's NULL; a
variant that is JSON's null is a valid struct.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.arrow_types import VARIANT
from delta_sharing_client.parquet.row_sizes import BeyondLimitError
from delta_sharing_client.parquet.variant_binary import NULL_VALUE, MalformedVariantError, MetadataCache
from delta_sharing_client.parquet.variant_json import json_names, to_json
from delta_sharing_client.parquet.variant_shredding import Dictionaries, binaries, columns_of, plain, rebuild

#: Rows and bytes that are converted to Python objects at a time.
_ROWS: Final = 65_536
_BYTES: Final = 4 * 1024 * 1024
#: Maximum characters of the JSON texts of a batch: a few bytes can repeat a long name many times.
_MOST_TEXT: Final = 256 * 1024 * 1024


def cast_variant(array: pa.Array, *, file_id: str | None = None, column: str = "") -> pa.StructArray:
    """Return variants in their Arrow form, `VARIANT`; values that are not shredded are not validated.

    The array is a struct of `metadata` and `value`, perhaps of an extension type; if shredded, with `typed_value`,
    and with or without `value`. The other arguments are for messages.

    Raises:
        DataError: the column is no variant, or breaks the rules of shredding.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), VARIANT)
    try:
        if not pa.types.is_struct(kind):
            raise MalformedVariantError(f"the file holds {kind} where metadata and value are expected")
        columns = columns_of(array)
        if "metadata" not in columns:
            raise MalformedVariantError(f"the file holds {kind}, which has no metadata")
        metadata = binaries(columns["metadata"])
        if "typed_value" in columns and columns["typed_value"].null_count < len(array):
            value = _rebuilt(array, metadata)
        elif "value" in columns:
            value = binaries(columns["value"])
        elif "typed_value" in columns:
            value = pa.nulls(len(array), pa.binary())
        else:
            raise MalformedVariantError(f"the file holds {kind}, which has neither value nor typed_value")
        return _checked(array, metadata, value)
    except (MalformedVariantError, pa.ArrowException) as error:
        raise _data_error(str(error), file_id, column) from None


def variant_to_json(array: pa.Array, *, file_id: str | None = None, column: str = "") -> pa.StringArray:
    """Return variants as JSON text in the format of Spark's `to_json`, in the time zone UTC; see `cast_variant`.

    Raises:
        DataError: a variant is malformed.
        BeyondLimitError: the texts exceed the limit; the caller may try fewer rows.
    """
    array = cast_variant(array, file_id=file_id, column=column)
    names_of = MetadataCache(json_names)
    row = size = 0
    parts = []
    try:
        for part in _parts(array):
            texts: list[str | None] = []
            valid = part.is_valid().to_pylist()
            for present, metadata, value in zip(valid, *map(pa.Array.to_pylist, part.flatten()), strict=True):
                if not present:
                    texts.append(None)
                else:
                    text = to_json(value, names_of(metadata))
                    texts.append(text)
                    size += len(text)
                    if size > _MOST_TEXT and len(array) > 1:
                        raise BeyondLimitError(
                            f"the JSON texts of its variants have more than {_MOST_TEXT:,} characters together"
                        )
                row += 1
            parts.append(pa.array(texts, pa.large_string()).cast(pa.string()))
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    except MalformedVariantError as error:
        raise _data_error(f"row {row} of its batch: {error}", file_id, column) from None
    except pa.ArrowException as error:
        raise _data_error(str(error), file_id, column) from None


def _data_error(reason: str, file_id: str | None, column: str) -> DataError:
    named = f"variant column {column!r}" if column else "a variant column"
    return DataError(f"{named} cannot be read: {reason}", file_id=file_id)


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """Yield slices that are small enough to be converted to Python objects."""
    rows = max(1, min(_ROWS, len(array) * _BYTES // max(array.nbytes, 1)))
    for start in range(0, len(array), rows):
        yield array.slice(start, rows)


def _rebuilt(array: pa.StructArray, metadata: pa.Array) -> pa.Array:
    """Return the encoded values of shredded variants."""
    parts = []
    start = 0
    for part in _parts(array):
        dictionaries = Dictionaries(metadata.slice(start, len(part)).to_pylist(), start)
        parts.append(pa.array(rebuild(part, dictionaries), pa.large_binary()).cast(pa.binary()))
        start += len(part)
    return pa.concat_arrays(parts)


def _checked(array: pa.StructArray, metadata: pa.Array, value: pa.Array) -> pa.StructArray:
    """Return variants of these bytes; null where `array` is null."""
    valid = array.is_valid()
    if metadata.null_count and pc.any(pc.and_(valid, metadata.is_null())).as_py():
        raise MalformedVariantError("a variant has no metadata")
    if value.null_count:
        # A required variant without a value is a JSON null.
        value = pc.if_else(pc.and_(valid, value.is_null()), pa.scalar(NULL_VALUE, pa.binary()), value)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([metadata, value], fields=list(VARIANT), mask=mask)
