"""Types of columns that are inferred from the values of a filter."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from delta_sharing_client.expressions.inferred_columns import inferred_predicate
from delta_sharing_client.expressions.predicates import columns_of


def types(filters):
    predicate = inferred_predicate(filters)
    return None if predicate is None else {column.name: column.type.name for column in columns_of(predicate)}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "long"),
        (np.int32(1), "long"),
        (pa.scalar(1), "long"),
        (True, "boolean"),
        (1.5, "double"),
        ("Europe", "string"),
        ("2024", "string"),
        ("2024-01-05", "date"),
        (date(2024, 1, 5), "date"),
    ],
    ids=repr,
)
def test_the_type_of_a_value(value, kind):
    assert types([("c", "=", value)]) == {"c": kind}
    assert types([[("c", "in", [value, value])], [("d", "=", 1)]]) == {"c": kind, "d": "long"}


@pytest.mark.parametrize(
    "filters",
    [
        None,
        [],
        "c = 1",
        [("c", "=", datetime(2024, 1, 5))],
        [("c", "=", pd.Timestamp("2024-01-05"))],
        [("c", "=", np.datetime64("2024-01-05"))],
        [("c", "=", "2024-01-05 10:00:00")],
        [("c", "=", "2024-01-05T10:00:00Z")],
        [("c", "=", Decimal(1))],
        [("c", "=", b"x")],
        [("c", "is", None)],
        [("c", "in", [])],
        [("c", "in", [1, "x"])],
        [("c", ">", 1), ("c", "<", 2.5)],
        [("c", "=", 1), ("d", "=", Decimal(1))],
        [("c", "=", "2024-02-30")],
        [("c", "between", 1)],
        [("c", "=")],
        [1],
        [()],
        [("c", "in", 5)],
        [{"c": 1}],
    ],
    ids=repr,
)
def test_no_types(filters):
    assert types(filters) is None


def test_nulls_have_no_type():
    assert types([("c", "is not", None), ("c", ">", 1), ("d", "in", [None, "x"])]) == {"c": "long", "d": "string"}
