"""Variant columns of Spark's own type as JSON text, by a function of this package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from delta_sharing_client.model.schema import DataType, StructType
from delta_sharing_client.parquet.cast import holds_variant, is_variant
from delta_sharing_client.spark.code_distribution import distribute_code
from delta_sharing_client.spark.entry_points import variant_text_function
from delta_sharing_client.spark.session import worker_python

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

#: Converts a column of variants to text.
Text: TypeAlias = "Callable[[Column], Column]"


def has_text(kind: DataType) -> bool:
    """Whether `as_text` supports a type: Spark runs no Python function on the elements of lists and maps."""
    if isinstance(kind, StructType):
        return all(has_text(field.type) for field in kind)
    return is_variant(kind) or not holds_variant(kind)


def as_text(column: Column, kind: DataType, text: Text) -> Column:
    """Return a column with its variants as JSON text; `kind` is its type in the table."""
    from pyspark.sql import functions as F  # noqa: N812

    if is_variant(kind):
        return text(column)
    if isinstance(kind, StructType) and holds_variant(kind):
        parts = [as_text(column.getField(field.name), field.type, text).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column


def variant_text(session: SparkSession) -> Text:
    """Return the function that converts variants to the JSON text of this package's own reader.

    Spark's `to_json` writes about one float in a thousand with other digits, those of its Java.
    """
    from pyspark.sql import functions as F  # noqa: N812

    distribute_code(session)
    function = variant_text_function()

    def text(column: Column) -> Column:
        with worker_python(session), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark warns about releases of pandas, which is not used
            return F.udf(function, "string", useArrow=False)(column)

    return text
