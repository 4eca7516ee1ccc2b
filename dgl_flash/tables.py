"""Small tables for terminals and notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence

Row = Sequence[str]


def as_text(rows: Sequence[Row]) -> str:
    """Columns of equal width, one line a row."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def as_html(rows: Sequence[Row]) -> str:
    """A table of HTML whose first row is its head."""

    def line(cells: Row, kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(c)}</{kind}>" for c in cells) + "</tr>"

    return f"<table>{line(rows[0], 'th')}{''.join(line(row, 'td') for row in rows[1:])}</table>"
