"""What commands print: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from delta_sharing_client.representation import plain

#: Width of a cell of a table of rows; longer values are cut.
_CELL: Final = 40
#: Width between two columns.
_GAP: Final = 3
#: Width of the output if it is not a terminal: nothing is cut there but long values.
_NO_TERMINAL: Final = 100_000


def printable(text: str) -> str:
    """Return a text with its control characters escaped, so that they cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_facts(facts: Mapping[str, Any], output: str) -> None:
    """Print named values: one object in JSON, columns `name` and `value` else."""
    if output == "json":
        click.echo(json.dumps(plain(facts), ensure_ascii=False, indent=2))
        return
    if output == "csv":
        _write_csv(["name", "value"], ([name, _text(value)] for name, value in facts.items()))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), Text(_lines(value)))
    _console().print(table)


def show_records(names: Sequence[str], rows: Iterable[Mapping[str, Any]], output: str) -> None:
    """Print objects with few fields, such as the columns of a table; long values are wrapped."""
    if output == "csv":
        _write_csv(names, ([_csv_cell(row[name]) for name in names] for row in rows))
        return
    if output == "json":
        show_rows(names, rows, output)
        return
    items = list(rows)
    used = [name for name in names if not items or any(row[name] is not None for row in items)]
    table = _table()
    for name in used:
        justify: JustifyMethod = "right" if _is_numeric(row[name] for row in items) else "left"
        table.add_column(name.replace("_", " "), overflow="fold", justify=justify)
    for row in items:
        table.add_row(*(Text(printable(_cell(row[name]))) for name in used))
    _console().print(table)


def show_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]], output: str) -> None:
    """Print rows of a shared table as JSON or a table; in a terminal only the columns and characters that fit."""
    if output == "json":
        click.echo(json.dumps([plain(row) for row in rows], ensure_ascii=False, indent=2))
        return
    console = _console()
    items = list(rows)
    cells = [["null" if row[name] is None else printable(_cell(row[name])) for name in names] for row in items]
    shown = _fitting(names, cells, console.width)
    table = _table()
    for name in names[:shown]:
        table.add_column(
            Text(printable(name)),
            max_width=_CELL,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if _is_numeric(row[name] for row in items) else "left",
        )
    for row in cells:
        table.add_row(*map(Text, row[:shown]))
    console.print(table)
    if shown < len(names):
        rest = ", ".join(printable(name) for name in names[shown:])
        click.echo(f"Not shown (--columns selects): {rest}", err=True)


def _fitting(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> int:
    """Return how many columns fit into the width, at least one."""
    used = 0
    for index, name in enumerate(names):
        used += min(_CELL, max([cell_len(name), *(cell_len(row[index]) for row in cells)]))
        if used > width and index:
            return index
        used += _GAP
    return len(names)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)


def _console() -> Console:
    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, highlight=False, markup=False, width=None if terminal else _NO_TERMINAL)


def _is_numeric(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )


def _cell(value: Any) -> str:
    """Return a value as people read it in a table."""
    return value.isoformat(" ").replace("+00:00", "Z") if isinstance(value, datetime) else _text(value)


def _csv_cell(value: Any) -> str:
    """Return a value as text; a time as in the CSV files of `export`."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}" if isinstance(value, datetime) else _text(value)


def _text(value: Any, null: str = "") -> str:
    if value is None:
        return null
    simple = plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def _lines(value: Any) -> str:
    """Return the elements of a list or mapping as lines."""
    if isinstance(value, Mapping):
        return "\n".join(printable(f"{key} = {_text(item)}") for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(printable(_text(item)) for item in value) or "none"
    return printable(f"{value:,}" if type(value) is int else _text(value, null="unknown"))


def _write_csv(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
