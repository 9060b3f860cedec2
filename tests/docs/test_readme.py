"""README.md and docs/: the code runs, links resolve, tables match the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from frame_helpers import to_pandas

import delta_sharing_client as ds
from delta_sharing_client.model.reader_features import SUPPORTED_FEATURES, UNKNOWN_TYPE_FEATURES
from delta_sharing_client.model.schema import parse_schema
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.server import SharingServer

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The line numbers and contents of the fenced Python blocks."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


def run_blocks(path: Path) -> dict[str, Any]:
    """Run a text's Python blocks one after the other, in one namespace; return it.

    Blocks marked `py` are not run: they wait for something, or need another machine.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, block in python_blocks(path.read_text(encoding="utf-8")):
        # Empty lines before the block make a traceback point into the text.
        exec(compile("\n" * (line - 1) + block, str(path), "exec"), namespace)
    return namespace


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a text's only table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_readme_runs(workplace: SharingServer, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = run_blocks(ROOT / "README.md")
    output = capsys.readouterr().out
    assert "Table(name='orders', share='retail', schema='sales')" in output
    assert "2 listed by the server" not in output, "explain() of one day lists one file"
    assert "1 listed by the server" in output
    assert "NotFoundError - table retail.sales.order:" in output
    assert list(namespace["frame"].columns) == ["order_id", "amount"]
    assert workplace.profile["bearerToken"] not in output
    run_blocks(ROOT / "README.md")  # a second run
    assert capsys.readouterr().out.count("NotFoundError - table retail.sales.order:") == 1


def test_the_page_about_errors_runs(workplace: SharingServer, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        run_blocks(ROOT / "docs" / "errors.md")
        first, second = capsys.readouterr().out.splitlines()
        assert first == "table retail.sales.order"
        assert second.startswith("table retail.sales.order: the sharing server answered 404")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).is_file(), target


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_outside_tables_are_short(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        assert line.startswith("|") or len(line) <= 120, f"line {number} has {len(line)} characters"


def test_make_targets_named_in_the_texts_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in TEXTS:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, path.name


def test_options_are_listed_with_their_defaults() -> None:
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "Options")
    listed: dict[str, str] = {}
    for names, defaults, _ in rows(text):
        # One default for each name, or one for all.
        each = defaults.split(", ")
        options = code(names)
        listed.update(zip(options, each if len(each) == len(options) else each * len(options), strict=True))
    actual = {}
    for field in fields(ds.TransportOptions):
        value = getattr(ds.TransportOptions(), field.name)
        if isinstance(value, timedelta):
            value = f"{value.total_seconds():g} s"
        elif field.name in ("memory_budget", "batch_memory_limit", "metadata_limit"):
            value = f"{value // 2**20} MiB"
        elif value is False:
            value = "off"
        elif field.name == "user_agent":
            value = "names this package"
        actual[field.name] = "none" if value is None or value == {} else str(value)
    assert listed == actual


def test_reader_features_are_those_that_the_client_advertises() -> None:
    text = section((ROOT / "README.md").read_text(encoding="utf-8"), "Features")
    cells = dict(rows(text))
    named = {name.replace(" ", "").rstrip("s") for name in cells["Delta reader features"].lower().split(", ")}
    assert named == {feature.rstrip("s") for feature in SUPPORTED_FEATURES - UNKNOWN_TYPE_FEATURES}


SAMPLES: dict[str, Any] = {
    "byte": 1,
    "short": 1,
    "integer": 1,
    "long": 2**60 + 1,
    "float": 0.5,
    "double": 0.5,
    "decimal(10,2)": Decimal("1.50"),
    "boolean": True,
    "string": "a",
    "binary": b"a",
    "date": date(2024, 1, 1),
    "timestamp": datetime(2024, 1, 1),
    "timestamp_ntz": datetime(2024, 1, 1),
    "array": [1],
    "struct": {"a": 1},
    "map": [("a", 1)],
    "variant": {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"},
    "void": None,
}
NESTED: dict[str, Any] = {
    "array": {"type": "array", "elementType": "long", "containsNull": True},
    "struct": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
    "map": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
}
KINDS = {"Decimal": Decimal, "bytes": bytes, "date": date, "dictionaries": dict}


def _sample(delta: str) -> tuple[str, str]:
    """The name of the sample for a type in the table, and the type's JSON."""
    import json

    name = delta.split("<")[0].replace("(p,s)", "(10,2)")
    kind = NESTED.get(name, name)
    return name, json.dumps(
        {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    )


def _types() -> list[tuple[str, str, str, str]]:
    """One row for each Delta type of docs/types.md: Delta, Arrow, pandas, pandas with nulls."""
    found = []
    for delta, arrow, plain, nulls in rows((ROOT / "docs" / "types.md").read_text(encoding="utf-8")):
        deltas, arrows, plains = code(delta), code(arrow), code(plain)
        nullable = code(nulls)
        for n, name in enumerate(deltas):
            dtype = plains[n] if len(plains) == len(deltas) else plain
            with_nulls = nullable[n] if len(nullable) == len(deltas) else dtype
            found.append((name, arrows[n], dtype, with_nulls))
    return found


def test_every_type_is_in_the_table() -> None:
    assert {_sample(delta)[0] for delta, *_ in _types()} == set(SAMPLES)


@pytest.mark.parametrize(("delta", "arrow", "plain", "nulls"), _types())
def test_types(delta: str, arrow: str, plain: str, nulls: str) -> None:
    name, schema = _sample(delta)
    arrow_field = arrow_schema(parse_schema(schema)).field("c")
    shown = re.sub(r"<.*>", "<...>", str(arrow_field.type)).replace("10, 2", "p, s")
    assert shown == {"float32": "float", "float64": "double"}.get(arrow, arrow)

    def dtype_of(values: list[Any]) -> tuple[str, Any]:
        series = to_pandas(pa.table({"c": pa.array(values, arrow_field.type)}))["c"]
        return str(series.dtype), series.iloc[0]

    def as_stated(cell: str) -> str:
        if "pandas 2" in cell:
            return "str" if int(pd.__version__.split(".")[0]) >= 3 else "object"
        return code(cell)[0] if "`" in cell else cell

    value = SAMPLES[name]
    dtype, kept = dtype_of([value, value])
    assert dtype == as_stated(plain)
    if " of `" in plain:
        assert isinstance(kept, KINDS[code(plain)[1]])
    dtype, kept = dtype_of([value, None])
    assert dtype == as_stated(nulls)
    if name not in ("float", "double", "void", "array", "map", "struct", "timestamp", "timestamp_ntz"):
        assert kept == value


def test_the_module_functions_take_the_official_arguments() -> None:
    parameters = list(inspect.signature(ds.load_as_pandas).parameters)
    official = ["url", "limit", "version", "timestamp", "jsonPredicateHints", "use_delta_format"]
    assert parameters[:7] == [*official, "convert_in_batches"]
    ours = ["options", "credential_provider"]
    version = ["url", "starting_timestamp", "on_future"]
    assert list(inspect.signature(ds.get_table_version).parameters) == [*version, *ours]
    assert list(inspect.signature(ds.get_table_metadata).parameters) == ["url", "use_delta_format", *ours]
    assert list(inspect.signature(ds.get_table_protocol).parameters) == ["url", "use_delta_format", *ours]
