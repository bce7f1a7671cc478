"""Daily figures of Plausible: CSV files of its export, on their own or in the ZIP file that it makes.

They are sums of visitors whom no id tells apart, so they never enter a count of distinct users: they are kept and
shown as figures of another tool.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

from mauve.core.window import midnight_ms
from mauve.imports.files import skip_mark
from mauve.imports.items import SKIPPED, Bad, Figures, Item, Target, csv_items, time_fault
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.imports import Figure

_VISITORS: Final = re.compile(r"(?:.*/)?imported_visitors[\w-]*\.csv")
_ZIP: Final = b"PK\x03\x04"
_NAMES: Final = ("visitors", "pageviews", "visits", "bounces", "visit_duration")
_DIGITS_MAX: Final = 18
_DATE: Final = Bad("date must be a day such as 2026-01-31")
_NUMBER: Final = Bad("a figure must be a whole number")


def read_plausible(file: io.BufferedReader, target: Target) -> Iterator[Item]:
    """Yield the figures of every day. Of a ZIP file, read the table of visitors: others repeat its sums."""
    if file.peek(4)[:4] != _ZIP:
        yield from _days(file, target)
        return
    try:
        with zipfile.ZipFile(_path_of(file)) as archive:
            names = [name for name in archive.namelist() if _VISITORS.fullmatch(name)]
            if not names:
                raise MaintenanceRefusedError("the ZIP file holds no imported_visitors_….csv: export it again")
            for name in names:
                with archive.open(name) as member:
                    table = io.BufferedReader(member)  # type: ignore[type-var]  # of any stream
                    skip_mark(table)  # type: ignore[arg-type]
                    yield from _days(table, target)  # type: ignore[arg-type]
    # RuntimeError: it is encrypted; NotImplementedError: it is compressed in an unusual way.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise MaintenanceRefusedError(f"the ZIP file is damaged ({error}): export it again") from None


def _path_of(file: io.BufferedReader) -> Path:
    """Return where the archive is: its list of members is at the end."""
    path: Path | None = getattr(file.raw, "path", None)
    if path is None:
        raise MaintenanceRefusedError("the ZIP file is compressed once more: unpack that first")
    return path


def _days(file: io.BufferedReader, target: Target) -> Iterator[Item]:
    return csv_items(file, ("date", "visitors"), lambda _, row: _item(row, target))


def _item(row: dict[str, str], target: Target) -> Item:
    try:
        day = date.fromisoformat(row["date"])
    except ValueError:
        return _DATE
    if (fault := time_fault(midnight_ms(day), target)) is not None:
        return fault
    found = {name: row[name] for name in _NAMES if row.get(name)}
    if any(not text.isdecimal() or len(text) > _DIGITS_MAX for text in found.values()):
        return _NUMBER
    figures = tuple(Figure(day.isoformat(), name, int(text)) for name, text in found.items())
    return Figures(figures) if figures else SKIPPED
