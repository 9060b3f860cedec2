"""The HTML that notebooks show of clients, tables, scans and results.

Names, comments and properties come from a server, so every text is escaped here. A view sends no
request, and uses inline styles only, because notebooks remove style sheets and scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from delta_sharing_client.shown_text import shown

#: Rows of a table and characters of a cell; a schema may have thousands of columns, and a type may be long.
_MAX_ROWS: Final = 300
_MAX_TEXT: Final = 300
#: Characters of a line of an explanation.
_MAX_FACT: Final = 1000
_TABLE: Final = '<table style="font-size:90%;margin:0.3em 0">'
_CELL: Final = "text-align:left;vertical-align:top;padding:0.1em 0.7em"
_BAR: Final = "display:flex;width:20em;max-width:100%;height:0.7em;margin:0.3em 0;overflow:hidden"
_COLOURS: Final = ("#3f6fd1", "#b9c4d6", "#d9cfb0")


def escaped(value: object) -> str:
    """Return the text of a value for HTML, shortened to what a cell can hold."""
    import html  # its table of entities takes a millisecond, and only notebooks need it

    return html.escape(shown(value, _MAX_TEXT))


def html_view(value: object, name: str = "", facts: Mapping[str, object] | None = None, *parts: str) -> str:
    """Return the HTML of an object.

    Args:
        value: the object; its class is the title.
        name: what identifies it.
        facts: values by their labels; those that are None or empty are left out.
        parts: HTML that follows, of `html_table` and `html_bar`.
    """
    title = f"<code>{type(value).__name__}</code>" + (f" <b>{escaped(name)}</b>" if name else "")
    rows = [fact for fact in (facts or {}).items() if fact[1] is not None and fact[1] != ""]
    return f"<div>{title}{html_table((), rows) if rows else ''}{''.join(parts)}</div>"


def html_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; without heads the first cell of each row is its head."""
    head = "".join(f'<th style="{_CELL}">{escaped(text)}</th>' for text in heads)
    lines = [f"<tr>{head}</tr>"] if heads else []
    for row in rows[:_MAX_ROWS]:
        tags = ["td" if heads or at else "th" for at in range(len(row))]
        cells = zip(tags, row, strict=True)
        lines.append(
            "<tr>" + "".join(f'<{tag} style="{_CELL}">{escaped(cell)}</{tag}>' for tag, cell in cells) + "</tr>"
        )
    left = len(rows) - _MAX_ROWS
    more = f"<div>{left:,} more</div>" if left > 0 else ""
    return f"{_TABLE}{''.join(lines)}</table>{more}"


def html_bar(counts: Sequence[tuple[str, int]]) -> str:
    """Return a bar with one section for each count, as wide as its part of the sum."""
    total = sum(count for _, count in counts)
    sections = [
        f'<div title="{escaped(f"{count:,} {label}")}" '
        f'style="width:{100 * count / total:.2f}%;background:{_COLOURS[at % len(_COLOURS)]}"></div>'
        for at, (label, count) in enumerate(counts)
        if count
    ]
    return f'<div style="{_BAR}">{"".join(sections)}</div>' if sections else ""


class Explanation(str):
    """What a scan reads, as text; in a notebook as a table and a bar."""

    facts: Sequence[tuple[str, str]] = ()
    counts: Sequence[tuple[str, int]] = ()

    @classmethod
    def of(cls, facts: Sequence[tuple[str, str]], counts: Sequence[tuple[str, int]] = ()) -> Explanation:
        """Return the text of some facts, and the counts of the bar."""
        made = cls("\n".join(f"{label:<8} {shown(text, _MAX_FACT)}" for label, text in facts))
        made.facts, made.counts = facts, counts
        return made

    def __repr__(self) -> str:
        return str(self)  # its lines, in an interactive session too

    def _repr_html_(self) -> str:
        return f"<div>{html_bar(self.counts)}{html_table((), self.facts)}</div>"
