"""CSV files: any table by a map of its columns, the raw exports of Umami and PostHog, and the figures of Plausible.

Plausible's figures are sums of visitors without ids, so they never enter a count of distinct users: they are kept and
shown as figures of another tool.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import msgspec

from mauve.core.events import PAYMENT
from mauve.core.times import parse_time_ms
from mauve.core.window import midnight_ms
from mauve.imports.files import lines_of, skip_mark
from mauve.imports.items import SKIPPED, Bad, Figures, Item, Target, csv_items, event_from, flat_props, time_fault
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.imports import Figure

_VISITORS: Final = re.compile(r"(?:.*/)?imported_visitors[\w-]*\.csv")
_ZIP: Final = b"PK\x03\x04"
_NAMES: Final = ("visitors", "pageviews", "visits", "bounces", "visit_duration")
_DIGITS_MAX: Final = 18
_DATE: Final = Bad("date must be a day such as 2026-01-31")
_NOT_WHOLE: Final = Bad("a figure must be a whole number")
FIELDS: Final = ("name", "user", "id", "at")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,9})?")
_LITERAL: Final = "="
_PROPS: Final = "props."
_TIME: Final = Bad(
    "the time cannot be read: write it as --times says (iso, utc, s or ms), such as 2026-01-31T09:30:00Z"
)
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}
_JSON: Final = msgspec.json.Decoder()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Cells = Mapping[str, str]


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
        return _NOT_WHOLE
    figures = tuple(Figure(day.isoformat(), name, int(text)) for name, text in found.items())
    return Figures(figures) if figures else SKIPPED


def checked_map(columns: Mapping[str, str]) -> Mapping[str, str]:
    """Return the map if it names what an event needs, else refuse it."""
    unknown = [name for name in columns if name not in FIELDS and not name.startswith(_PROPS)]
    if unknown:
        raise MaintenanceRefusedError(f"--map does not support {unknown[0]!r}: use name, user, id, at and props.NAME")
    missing = [name for name in ("name", "at") if name not in columns]
    if missing:
        raise MaintenanceRefusedError(
            f"--map lacks {missing[0]}: add {missing[0]}=COLUMN, or name==TEXT for a fixed name"
        )
    return columns


def read_table(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every row, by the map of columns."""
    needed = [each for each in target.columns.values() if not each.startswith(_LITERAL)]
    return csv_items(file, needed, lambda _, cells: _mapped(cells, target))


def read_umami(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every row of the table `website_event`: a custom event, or a page view."""
    return csv_items(file, ["event_id", "session_id", "created_at"], lambda _, cells: _umami(cells, target))


def read_posthog(file: BufferedReader, target: Target) -> Iterator[Item]:
    """Yield an item for every event of an export: CSV with a header, or one JSON object per line."""
    if file.peek(1)[:1] == b"{":
        return (_posthog_line(line, target) for line in lines_of(file))
    return csv_items(file, ["event", "distinct_id", "timestamp"], lambda _, cells: _posthog(cells, target))


def _mapped(cells: Cells, target: Target) -> Item:
    fields: dict[str, Any] = {}
    props: dict[str, Any] = {}
    for name, column in target.columns.items():
        text = column[len(_LITERAL) :] if column.startswith(_LITERAL) else cells[column]
        if name.startswith(_PROPS):
            props[name.removeprefix(_PROPS)] = text
        else:
            fields[name] = text
    at = _time_ms(fields["at"], target.times)
    if at is None:
        return _TIME
    fields["at"] = at
    if target.renames.get(fields["name"], fields["name"]) == PAYMENT:
        props = _as_money(props)
    return event_from(fields | ({"props": props} if props else {}), target)


def _as_money(props: Mapping[str, str]) -> dict[str, Any]:
    """Return the props of a payment, whose amount is a number; what is not one is refused later."""
    amount, earned = props.get("amount", ""), props.get("earned", "")
    numbers = {"amount": int(amount)} if amount.isdecimal() and len(amount) < 17 else {}  # noqa: PLR2004 - see the limit
    truths = {"earned": _TRUTHS[earned.lower()]} if earned.lower() in _TRUTHS else {}
    return {**props, **numbers, **truths}


def _time_ms(text: str, form: str) -> int | None:
    """Return a time in epoch milliseconds, or None if it is not written in this form."""
    if form in {"s", "ms"}:
        return _epoch_ms(text, 1000 if form == "s" else 1)
    return parse_time_ms(text) if form == "iso" else utc_ms(text)


def _epoch_ms(text: str, ms: int) -> int | None:
    """Return a time written as a number of seconds or milliseconds, perhaps with a fraction."""
    found = _NUMBER.fullmatch(text.strip())
    return None if found is None else int(Decimal(found[0]) * ms)


def utc_ms(text: str) -> int | None:
    """Return a time of ISO 8601, which is UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _umami(cells: Cells, target: Target) -> Item:
    at = utc_ms(cells["created_at"])
    if at is None:
        return Bad("created_at cannot be read: export it as a timestamp in UTC")
    shown = {"path": "url_path", "referrer": "referrer_domain", "title": "page_title", "hostname": "hostname"}
    props = {name: cells[column] for name, column in shown.items() if cells.get(column)}
    fields = {
        "name": cells.get("event_name") or "pageview",
        "user": cells["session_id"],
        "id": cells["event_id"],
        "at": at,
        "props": flat_props(props),
    }
    return event_from(fields, target)


class _PosthogEvent(msgspec.Struct, frozen=True):
    event: str
    timestamp: str
    distinct_id: str | None = None
    uuid: str | None = None
    properties: dict[str, Any] | str | None = None


_POSTHOG: Final = msgspec.json.Decoder(_PosthogEvent)


def _posthog_line(line: bytes, target: Target) -> Item:
    if not line.strip():
        return SKIPPED
    try:
        found = _POSTHOG.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Bad("the line is not an event of PostHog: it needs event and timestamp")
    return _posthog_event(found, target)


def _posthog(cells: Cells, target: Target) -> Item:
    found = _PosthogEvent(
        cells["event"], cells["timestamp"], cells["distinct_id"], cells.get("uuid"), cells.get("properties")
    )
    return _posthog_event(found, target)


def _posthog_event(found: _PosthogEvent, target: Target) -> Item:
    at = utc_ms(found.timestamp)
    if at is None:
        return Bad("timestamp cannot be read: export it as ISO 8601")
    properties = found.properties
    try:
        properties = _JSON.decode(properties) if isinstance(properties, str) and properties else properties
    except (msgspec.DecodeError, RecursionError):
        return Bad("properties is not JSON: export it as PostHog writes it")
    fields = {
        "name": found.event,
        "user": found.distinct_id,
        "id": found.uuid,
        "at": at,
        "props": flat_props(properties) if isinstance(properties, dict) else {},
    }
    return event_from(fields, target)
