"""Rows → a sheet of comma-separated values."""

import csv
import io
from collections.abc import Sequence
from typing import Final

from mauve.dashboard.charts.series import Rows

# What begins so, a spreadsheet would run as a formula: clients choose the names of events.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def sheet_from(columns: Sequence[str], rows: Rows) -> bytes:
    """Return the rows with a line of headings; whole numbers keep any size, money stays in minor units."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: str | int) -> str | int:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
