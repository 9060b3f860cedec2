"""What commands print: tables for people, JSON and CSV for programs.

All output of commands passes through this module, which keeps text of a provider from controlling a terminal.
Files and pipes receive the exact data in CSV, JSON and Arrow.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Any, Final, cast

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from delta_sharing_client.representation import plain
from delta_sharing_client.shown_text import cut, json_printable, listed, printable

#: Width of a cell of a table of rows; longer values are cut.
_CELL: Final = 40
#: Characters of a value that is not cut to a cell, and of the names of the columns that do not fit.
_VALUE: Final = 1000
_REST: Final = 1000
#: Width between two columns.
_GAP: Final = 3
#: Width of the output if it is not a terminal: nothing is cut there but long values.
_NO_TERMINAL: Final = 100_000


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print lines for people on stdout or stderr."""
    click.echo(printable(text, "\n"), err=err, nl=nl)


def stdout_for(file_format: str) -> IO[bytes]:
    """Return stdout for a file of a format; a terminal receives text, with control characters escaped.

    Raises:
        UsageError: the format is binary, and stdout is a terminal.
    """
    if not sys.stdout.isatty():
        return sys.stdout.buffer
    if file_format not in ("csv", "jsonl"):
        raise click.UsageError(f"{file_format} is binary, and stdout is a terminal: redirect it, or give a FILE")
    return cast("IO[bytes]", _Terminal(printable_csv if file_format == "csv" else json_printable))


def printable_csv(text: str) -> str:
    """Return lines of CSV for a terminal."""
    return printable(text, "\n")


class _Terminal(io.RawIOBase):
    """A terminal as a file of bytes: of text in UTF-8, with control characters escaped."""

    def __init__(self, escape: Callable[[str], str]) -> None:
        self._escape = escape
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        sys.stdout.write(self._escape(self._decoder.decode(content)))
        return len(content)

    def flush(self) -> None:
        sys.stdout.flush()


def show_facts(facts: Mapping[str, Any], output: str) -> None:
    """Print named values: one object in JSON, columns `name` and `value` else."""
    if output == "json":
        _echo_json(plain(facts))
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
        table.add_row(*(Text(_value(_cell(row[name]))) for name in used))
    _console().print(table)


def show_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]], output: str) -> None:
    """Print rows of a shared table as JSON or a table; in a terminal only the columns and characters that fit."""
    if output == "json":
        _echo_json([plain(row) for row in rows])
        return
    console = _console()
    items = list(rows)
    cells = [["null" if row[name] is None else _value(_cell(row[name])) for name in names] for row in items]
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
        rest = listed(names[shown:], _REST)
        echo(f"Not shown (--columns selects): {rest}", err=True)


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
        return "\n".join(_value(f"{key} = {_text(item)}") for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(_value(_text(item)) for item in value) or "none"
    return _value(f"{value:,}" if type(value) is int else _text(value, null="unknown"))


def _value(text: str) -> str:
    """Return a value on one line, for people."""
    return cut(printable(cut(text, 2 * _VALUE)), _VALUE)


def _echo_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(json_printable(text) if sys.stdout.isatty() else text)


def _write_csv(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    text = lines.getvalue()
    sys.stdout.write(printable_csv(text) if sys.stdout.isatty() else text)
