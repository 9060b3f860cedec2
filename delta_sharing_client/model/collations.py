"""Collations of string columns ("Collated String Type"): how a column's values compare.

A collation changes no stored value. `UTF8_BINARY`, the default, orders strings by their bytes. `UTF8_LCASE` orders
them so after a conversion to lower case, code point by code point. Others need the library ICU.
"""

from __future__ import annotations

from typing import Final

from delta_sharing_client.model.schema import StructField

LOWER_CASE: Final = "UTF8_LCASE"
_BINARY: Final = "UTF8_BINARY"
_KEY: Final = "__COLLATIONS"


def collation_of(column: StructField) -> str | None:
    """Return the collation of a column of strings; None if its strings compare as bytes.

    A collation of another provider than Spark keeps its provider: ``icu.UNICODE``. A malformed one is its text.
    """
    given = column.metadata.get(_KEY)
    if not given:
        return None
    names = set(map(str, given.values())) if isinstance(given, dict) else {str(given)}
    name = names.pop() if len(names) == 1 else str(given)
    provider, _, rest = name.partition(".")
    known = (rest if provider.lower() == "spark" else name).upper()
    if known in (_BINARY, LOWER_CASE):
        return None if known == _BINARY else LOWER_CASE
    return name
