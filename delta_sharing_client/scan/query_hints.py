"""Hints of a query: its row filter in the notations of servers, which skip files by it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from delta_sharing_client.expressions.hints import (
    HintColumns,
    json_hint,
    merge_json_hints,
    sql_hints,
    with_long_integers,
)
from delta_sharing_client.expressions.predicates import Predicate, columns_of, is_float
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import ReadSpec
from delta_sharing_client.wire.requests import QueryRequest


class Hints(Struct, frozen=True):
    """A row filter in the notations of servers.

    Attributes:
        json: the JSON predicate; None if no part of the filter can be sent.
        sql: the comparisons in SQL.
        inferred: whether the types of the columns were inferred from the filter's values.
    """

    json: str | None
    sql: tuple[str, ...] = ()
    inferred: bool = False

    @classmethod
    def of_table(cls, spec: ReadSpec, protocol: Protocol, metadata: Metadata) -> Hints:
        """Return the hints for a filter that is bound to a table."""
        columns = HintColumns.of(metadata.schema, metadata.partition_columns, spec.mapping)
        # Servers that read a table with such features know the newer notation, and some refuse the older one.
        sql = () if protocol.required_features else sql_hints(spec.predicate, columns)
        return cls(json_hint(spec.predicate, columns), sql)

    @classmethod
    def of_inferred(cls, predicate: Predicate) -> Hints:
        """Return the hints for a filter that is bound to columns of inferred types."""
        schema = StructType(tuple(dict.fromkeys(columns_of(predicate))))
        # Tables are hardly ever partitioned by floating-point columns, whose hints have another form then.
        likely = [column.name for column in schema.fields if not is_float(column.type)]
        return cls(with_long_integers(json_hint(predicate, HintColumns.of(schema, likely))), inferred=True)

    def agree_with(self, right: Hints) -> bool:
        """Return whether these hints are the right ones; inferred ones have no SQL, and one type of integers."""
        return self.json == with_long_integers(right.json) if self.inferred else self == right

    def added_to(self, request: QueryRequest) -> QueryRequest:
        """Return a request with these hints beside its own."""
        json = merge_json_hints(request.json_predicate_hints, self.json)
        return replace(request, json_predicate_hints=json, predicate_hints=self.sql)
