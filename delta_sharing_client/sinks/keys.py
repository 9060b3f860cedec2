"""Key columns: validation, lookup, and the net change per key of a batch.

Keys are compared by dense numbers: one for each distinct value of a column, and one for each distinct combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import SinkError, SinkKeyColumnError, SinkKeyError
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructType

Numbers = npt.NDArray[np.int64]

#: Whether a change deletes (0) or inserts (1) a row. Within a version, deletions come first.
_INSERTS: Final = {"delete": 0, "update_preimage": 0, "insert": 1, "update_postimage": 1}
_NO_KEYS: Final = frozenset({"float", "double", "void", "variant"})


def key_columns(schema: StructType, keys: Sequence[str], target: str) -> tuple[str, ...]:
    """Return the key columns, spelled as in the schema; case is ignored.

    Raises:
        SinkKeyColumnError: a column is missing, or of a type without exact equality.
    """
    names: list[str] = []
    for key in keys:
        field = schema.find(key)
        if field is None:
            raise SinkKeyColumnError(
                f"the key column {key!r} is not in the batch; it has {', '.join(schema.names)}",
                target=target,
                columns=[key],
            )
        kind = field.type
        exact = isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.name not in _NO_KEYS)
        if not exact:
            raise SinkKeyColumnError(
                f"the column {field.name!r} is {kind}, which cannot identify a row: a key is an integer, a "
                "decimal, a text, bytes, a boolean, a date or a time",
                target=target,
                columns=[field.name],
            )
        names.append(field.name)
    return tuple(names)


def check_no_nulls(table: pa.Table, keys: Sequence[str], target: str) -> None:
    """Raise `SinkKeyError` if a key is null."""
    for key in keys:
        if table.column(key).null_count:
            raise SinkKeyError(
                f"the key column {key!r} is null in {table.column(key).null_count} rows; a null key "
                "identifies no row",
                target=target,
                columns=[key],
            )


def numbers_of(table: pa.Table, columns: Sequence[str]) -> Numbers:
    """Return a number for each row; equal for equal rows. Nulls are equal."""
    total = np.zeros(table.num_rows, np.int64)
    for name in columns:
        encoded = table.column(name).combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):  # older releases, for no rows
            encoded = pa.concat_arrays(encoded.chunks or [pa.array([], encoded.type)])
        encoded = encoded.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        total = np.unique(total * max(len(encoded.dictionary), 1) + codes, return_inverse=True)[1].astype(np.int64)
    return total.reshape(table.num_rows)


@dataclass(frozen=True, kw_only=True)
class NetChanges:
    """The net change per key of a batch.

    Attributes:
        touched: the changed keys, each once; their rows in the target are deleted.
        new: the keys whose first change is an insert; the target must not have them.
        rows: the final rows of changed keys.
    """

    touched: pa.Table
    new: pa.Table
    rows: pa.Table


def net_changes(changes: pa.Table, keys: Sequence[str], columns: Sequence[str], target: str) -> NetChanges:
    """Return the net change per key. Changes are ordered by version; within a version, deletions come first.

    Raises:
        SinkKeyError: a key is null, or inserted twice without a deletion in between.
        SinkError: a change type is unknown.
    """
    check_no_nulls(changes, keys, target)
    inserted = _insert_flags(changes, target)
    kinds = changes.column("_change_type")
    inserts = np.asarray(pc.equal(kinds, "insert").to_numpy(), np.bool_)
    versions = np.asarray(changes.column("_commit_version").to_numpy(), np.int64)
    ids = numbers_of(changes, keys)
    steps = versions * 2 + inserted
    order = np.lexsort((steps, ids))
    ids, steps, inserted, inserts = ids[order], steps[order], inserted[order], inserts[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    last = np.ones(len(order), np.bool_)
    last[:-1] = first[1:]
    # Two rows of one version that insert the key, or an insert of an existing key.
    twice = np.zeros(len(order), np.bool_)
    twice[1:] = ~first[1:] & (inserted[1:] == 1) & (inserted[:-1] == 1) & ((steps[1:] == steps[:-1]) | inserts[1:])
    if twice.any():
        at = int(order[int(np.argmax(twice))])
        raise SinkKeyError(
            f"the shared table has two rows with the key {show_key(changes, keys, at)} at version "
            f"{int(versions[at])}: {', '.join(keys)} do not identify its rows",
            target=target,
            columns=keys,
        )
    named = changes.select(list(keys))
    return NetChanges(
        touched=named.take(order[first]),
        new=named.take(order[first & inserts]),
        rows=changes.select(list(columns)).take(np.sort(order[last & (inserted == 1)])),
    )


def _insert_flags(changes: pa.Table, target: str) -> Numbers:
    kinds = changes.column("_change_type")
    names = pa.array(list(_INSERTS), pa.string())
    found = pc.index_in(kinds, value_set=names)
    if found.null_count:
        unknown = pc.unique(kinds.filter(pc.is_null(found))).to_pylist()
        raise SinkError(
            f"the batch has changes of an unknown kind: {', '.join(map(repr, unknown))}", target=target
        )
    return np.array(list(_INSERTS.values()), np.int64)[np.asarray(found.to_numpy(), np.int64)]


def check_unique(keys: pa.Table, target: str) -> None:
    """Raise `SinkKeyError` if a key is not unique."""
    ids = numbers_of(keys, keys.column_names)
    _, first = np.unique(ids, return_index=True)
    again = np.ones(len(ids), np.bool_)
    again[first] = False
    if again.any():
        raise duplicate(keys, int(np.argmax(again)), target)


def duplicate(keys: pa.Table, row: int, target: str) -> SinkKeyError:
    """Return the error for the duplicate key at `row` of `keys`."""
    names = keys.column_names
    return SinkKeyError(
        f"two rows have the key {show_key(keys, names, row)}: {', '.join(names)} do not identify the "
        "rows of the shared table, or the target has rows of another source",
        target=target,
        columns=names,
    )


def show_key(table: pa.Table, keys: Sequence[str], row: int) -> str:
    """Return the text of a row's key, truncated to 200 characters."""
    text = ", ".join(f"{key}={table.column(key)[row]!s}" for key in keys)
    return f"({text if len(text) <= 200 else text[:200] + ' ...'})"
