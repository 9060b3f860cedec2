"""Hints of a query: its row filter in the notations of servers, which skip files by it."""

from __future__ import annotations

from msgspec.structs import replace

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import (
    HintColumns,
    json_hint,
    merge_json_hints,
    sql_hints,
    with_long_integers,
)
from delta_sharing_client.expressions.predicates import is_float
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.scan.data_skipping import scan_spec
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.wire.answers import TableInfo
from delta_sharing_client.wire.requests import QueryRequest


def with_hints(
    request: QueryRequest,
    options: ScanOptions,
    described: TableInfo | StructType,
    what: str,
    *,
    inferred: bool = False,
) -> QueryRequest:
    """Return the request with the row filter as hints for the server.

    Args:
        request: the query.
        options: have the row filter.
        described: the table, or inferred columns of the filter.
        what: the table, for messages.
        inferred: return the hints in the form of those for inferred columns.
    """
    if isinstance(described, StructType):
        inferred, older = True, False
        predicate = bind_filters(options.filters or (), described)
        # Tables are hardly ever partitioned by floating-point columns, whose hints have another form then.
        likely = [column.name for column in described.fields if not is_float(column.type)]
        columns = HintColumns.of(described, likely)
    else:
        spec = scan_spec(options, described.protocol, described.metadata, what)
        predicate, metadata = spec.predicate, described.metadata
        columns = HintColumns.of(metadata.schema, metadata.partition_columns, spec.mapping)
        # Servers that read a table with such features know the newer notation, and some refuse the older one.
        older = not inferred and not described.protocol.required_features
    hint = json_hint(predicate, columns)
    return replace(
        request,
        json_predicate_hints=merge_json_hints(
            options.json_predicate_hints, with_long_integers(hint) if inferred else hint
        ),
        predicate_hints=sql_hints(predicate, columns) if older else (),
    )
