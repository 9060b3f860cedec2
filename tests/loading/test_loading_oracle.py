"""Random filters against an oracle that evaluates them row by row in plain Python.

One table is written by deltalake, statistics and all, so that hints, file pruning and the exact filter have
their say; the other is one large file, of which row groups are pruned by their own statistics.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("day", pa.date32()),
        ("small", pa.int16()),
        ("ratio", pa.float64()),
        ("single", pa.float32()),
        ("word", pa.string()),
        ("on", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
    ]
)
SPARK_TYPES = [
    *("long", "string", "date", "short", "double", "float", "string", "date", "timestamp", "boolean"),
    "decimal(10,2)",
]
DRAW = random.Random(20240229)
WORDS = ["", "a", "z" * 31 + "\U0001f30d", "z" * 40, "z" * 41, "ä", "A", "'quoted'", "\U0010ffff"]


def value(name: str) -> Any:
    if DRAW.random() < 0.2:
        return None
    return {
        "part": lambda: DRAW.choice(["x", "y z", "'"]),
        "day": lambda: None,
        "small": lambda: DRAW.randrange(-3, 4),
        "ratio": lambda: DRAW.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1.5, -2.25]),
        "single": lambda: DRAW.choice([math.nan, 0.10000000149011612, 1.5, -1.0]),
        "word": lambda: DRAW.choice(WORDS),
        "on": lambda: date(2024, 1, 1) + timedelta(days=DRAW.randrange(5)),
        "at": lambda: START + timedelta(microseconds=DRAW.choice([0, 1, 999, 1000, 1999, 86_400_000_000])),
        "flag": lambda: DRAW.random() < 0.5,
        "price": lambda: Decimal(DRAW.randrange(-200, 200)).scaleb(-2),
    }[name]()


ROWS: list[dict[str, Any]] = [
    {"id": number} | {name: value(name) for name in SCHEMA.names if name != "id"} for number in range(300)
]
COMMIT = 50
#: Some commits have one value throughout, or none, for the statistics' sake.
for number, row in enumerate(ROWS):
    commit = number // COMMIT
    row["day"] = date(2024, 1, 1 + commit) if commit else None
    if commit == 1:
        row |= {"small": 2, "ratio": 1.5, "word": "a", "flag": True, "price": Decimal("0.50")}
    elif commit == 2:
        row |= dict.fromkeys(("small", "ratio", "single", "word", "on", "at", "flag", "price"))


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory,
    serve: Callable[..., SharingServer],
    connect: Callable[..., SharingClient],
) -> SharingClient:
    root = tmp_path_factory.mktemp("oracle")
    for first in range(0, len(ROWS), COMMIT):
        rows = pa.Table.from_pylist(ROWS[first : first + COMMIT], schema=SCHEMA)
        write_deltalake(str(root / "files"), rows, mode="append", partition_by=["part", "day"])
    whole = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    padding = pa.array([DRAW.randbytes(20_000) for _ in ROWS])  # makes the file large enough to be read in pieces
    grouped = File(
        rows=whole.append_column("padding", padding),
        name="a.parquet",
        options={"row_group_size": COMMIT // 5, "compression": "none"},
    )
    kinds = dict(zip(SCHEMA.names, SPARK_TYPES, strict=True)) | {"padding": "binary"}
    write_table(root / "groups", [column(name, kind) for name, kind in kinds.items()], [grouped])
    return connect(serve({"s.s.files": root / "files", "s.s.groups": root / "groups"}))


def pool(name: str) -> list[Any]:
    """Literals to compare a column with: its values, their neighbours, and other spellings of them."""
    values = sorted({row[name] for row in ROWS if row[name] is not None and row[name] == row[name]})
    more: dict[str, list[Any]] = {
        "small": [0.5, -4, 10**20, "1", Decimal("1.5"), math.inf, math.nan],
        "ratio": [math.nan, 1, Decimal("0.1"), 10**30],
        "single": [0.1, math.nan, 1],
        "on": ["2024-01-03", datetime(2024, 1, 2), date(1, 1, 1), date(9999, 12, 31)],
        "at": ["2024-01-01T00:00:00.000001Z", "2024-01-01 01:00:00+01:00", START - timedelta(microseconds=1)],
        "price": [1, "0.505", Decimal("0.505"), 0.5, 10**12],
        "word": ["z" * 32, "z" * 33, "\U0010fffe"],
        "part": ["", "y"],
        "day": ["2024-01-02", date(2024, 2, 1)],
    }
    return [*values, *more.get(name, [])]


POOLS = {name: pool(name) for name in SCHEMA.names if name != "id"} | {"id": [0, 49, 50, 299, 300, -1]}
OPERATORS = ["=", "==", "!=", "<>", "<", "<=", ">", ">="]


def term(name: str) -> st.SearchStrategy[tuple[str, str, Any]]:
    literals = st.sampled_from(POOLS[name])
    return st.one_of(
        st.tuples(st.just(name), st.sampled_from(OPERATORS), literals),
        st.tuples(st.just(name), st.just("in"), st.lists(st.none() | literals, max_size=4)),
        st.tuples(st.just(name), st.just("not in"), st.lists(literals, max_size=4)),
        st.tuples(st.just(name.upper()), st.sampled_from(["is", "is not"]), st.none()),
    )


TERMS = st.sampled_from(SCHEMA.names).flatmap(term)
GROUPS = st.lists(TERMS, min_size=1, max_size=3)
FILTERS = GROUPS | st.lists(GROUPS, min_size=1, max_size=3)


def as_column(name: str, literal: Any) -> Any:
    """What a literal means for a column, in Python's terms."""
    kind = SCHEMA.field(name).type
    if isinstance(literal, str) and not pa.types.is_string(kind):
        if pa.types.is_date(kind):
            return date.fromisoformat(literal)
        if pa.types.is_timestamp(kind):
            return datetime.fromisoformat(literal)
        return Decimal(literal)
    if isinstance(literal, datetime) and pa.types.is_date(kind):
        return literal.date()
    if pa.types.is_floating(kind):
        return float(literal)
    return literal


def holds(row: dict[str, Any], name: str, op: str, literal: Any) -> bool:
    """Whether a comparison is true, with SQL's NULL and IEEE's NaN."""
    found = row[name.lower()]
    if op in ("is", "is not"):
        return (found is None) == (op == "is")
    if found is None:
        return False
    if op in ("in", "not in"):
        known = [as_column(name, item) for item in literal if item is not None]
        among = any(found == item for item in known)
        return among == (op == "in")
    wanted = as_column(name, literal)
    return {
        "=": found == wanted,
        "==": found == wanted,
        "!=": found != wanted,
        "<>": found != wanted,
        "<": found < wanted,
        "<=": found <= wanted,
        ">": found > wanted,
        ">=": found >= wanted,
    }[op]


def matches(row: dict[str, Any], filters: Any) -> bool:
    groups = [filters] if isinstance(filters[0], tuple) else filters
    return any(all(holds(row, *one) for one in group) for group in groups)


@pytest.mark.parametrize("table", ["files", "groups"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=FILTERS, response_format=st.sampled_from(["auto", "delta"]), count=st.booleans())
@example(filters=[("ratio", "in", [-0.0])], response_format="auto", count=False)  # both zeros
@example(filters=[("ratio", "not in", [0.0])], response_format="auto", count=False)
def test_a_filter_gives_exactly_the_rows_that_match(
    client: SharingClient, table: str, filters: Any, response_format: Any, count: bool
) -> None:
    expected = [row["id"] for row in ROWS if matches(row, filters)]
    scan = client.table(f"s.s.{table}").scan(columns=["id"], filters=filters, response_format=response_format)
    if count:
        assert scan.count() == len(expected)
    else:
        assert sorted(scan.to_arrow()["id"].to_pylist()) == expected


def test_row_groups_are_pruned(client: SharingClient) -> None:
    """So that the test above is one of pruning."""
    text = client.table("s.s.groups").scan(columns=["id"], filters=[("id", "<", COMMIT)]).explain()
    assert f"{len(ROWS) // 10 - 5} of their {len(ROWS) // 10} row groups skipped" in text
