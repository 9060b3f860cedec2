"""From the columns that Spark's Parquet reader gives to those of the table: names, types, variants as text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from delta_sharing_client.model.schema import ArrayType, DataType, MapType, StructType
from delta_sharing_client.parquet.cast import holds_variant, is_variant
from delta_sharing_client.spark.code_distribution import distribute_code
from delta_sharing_client.spark.entry_points import variant_text_function
from delta_sharing_client.spark.session import worker_python

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType as SparkType

#: Makes a column of texts of one of variants.
Text: TypeAlias = "Callable[[Column], Column]"


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def as_wanted(column: Column, stored: DataType, wanted: DataType, spark_type: SparkType) -> Column:
    """Return a column in the table's type; inside of it names go by position, and values do not change.

    Args:
        column: as Spark reads it.
        stored: the type that it was read with.
        wanted: its type in the table.
        spark_type: the same in Spark's terms.
    """
    return column if _same(stored, wanted) else column.cast(spark_type)


def has_text(kind: DataType) -> bool:
    """Whether `as_text` can do a column: Spark calls no function of Python for the elements of lists and maps."""
    if isinstance(kind, StructType):
        return all(has_text(field.type) for field in kind)
    return is_variant(kind) or not holds_variant(kind)


def as_text(column: Column, kind: DataType, text: Text) -> Column:
    """Return a column with its variants as JSON text.

    Args:
        column: a column whose variants are of Spark's own type.
        kind: its type in the table; `has_text` is true of it.
        text: what `variant_text` returned.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if is_variant(kind):
        return text(column)
    if isinstance(kind, StructType) and holds_variant(kind):
        parts = [as_text(column.getField(field.name), field.type, text).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column


def variant_text(session: SparkSession) -> Text:
    """Return what makes JSON text of variants, the same that this package's own reader gives.

    Spark's `to_json` writes one of a thousand floats with other digits, as many as its Java does.
    """
    from pyspark.sql import functions as F  # noqa: N812

    distribute_code(session)
    function = variant_text_function()

    def text(column: Column) -> Column:
        with worker_python(session), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark warns of releases of pandas, which is not used
            return F.udf(function, "string", useArrow=False)(column)

    return text


def _same(stored: DataType, wanted: DataType) -> bool:
    """Whether two types have the same names and types throughout."""
    if isinstance(stored, StructType) and isinstance(wanted, StructType):
        pairs = zip(stored, wanted, strict=True)
        return all(a.name == b.name and _same(a.type, b.type) for a, b in pairs)
    if isinstance(stored, ArrayType) and isinstance(wanted, ArrayType):
        return _same(stored.element, wanted.element)
    if isinstance(stored, MapType) and isinstance(wanted, MapType):
        return _same(stored.key, wanted.key) and _same(stored.value, wanted.value)
    return stored == wanted
