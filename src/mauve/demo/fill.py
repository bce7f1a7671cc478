"""Store the demo's history through the product's own interfaces, bypassing the limits on the age of events."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final

from mauve.access.passwords import hash_of
from mauve.control import ControlParts, apps, operator, people
from mauve.control.bodies import NewAppBody
from mauve.control.operator import RefusedError
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.core.user import Role
from mauve.core.window import midnight_ms, period_of
from mauve.demo.history import Day, history_of, recent_deliveries
from mauve.demo.population import PROFILES, AppProfile, DateRange, UserEvent
from mauve.load.loader import DayCloser
from mauve.load.runner import note_first_events
from mauve.stores.ingest_stats import ACCEPTED, IngestStats
from mauve.stores.ledger import LoadStep
from mauve.stores.ledger.loading import LoadLedger
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.log import STREAM_MAX
from mauve.stores.warehouse import ITEMS_PER_RECORD_MAX, EventRows, first_seq
from mauve.stores.warehouse.warehouse import ClickHouseWarehouse

EMAIL: Final = "demo@example.com"
_STREAM: Final = STREAM_MAX - 1  # No worker uses it, so the loader never looks for these rows in a log.
_ROWS_PER_STEP: Final = 50_000
_PASSWORD_CHARACTERS: Final = 16
_PROPS: Final = ('{"source": "web"}', '{"source": "app", "version": "2.4"}')


@dataclass(frozen=True, slots=True)
class FillParts:
    control: ControlParts
    warehouse: ClickHouseWarehouse
    ledger: LedgerWriter
    loading: LoadLedger
    days: DayCloser


@dataclass(frozen=True, slots=True)
class DemoOrganization:
    """The organization of the demo, the password of its owner, and its apps."""

    org_id: str
    password: Secret
    apps: Sequence[tuple[AppProfile, App]]


@dataclass(slots=True)
class RowBuffer:
    """Rows to store in one step, each with its own position in the stream."""

    number: int  # of the last record in the buffer
    stored_number: int  # of the last record in the warehouse
    rows: EventRows = field(default_factory=EventRows)
    events_by_period: Counter[str] = field(default_factory=Counter)

    def add(self, project: str, events: Sequence[UserEvent]) -> None:
        rows, count = self.rows, len(events)
        times = [each.at for each in events]
        rows.project += [project] * count
        rows.name.extend([each.name for each in events])
        rows.received_at.extend(times)
        rows.occurred_at.extend(times)
        rows.claimed_at.extend_empty(count)
        rows.user.extend([each.user for each in events])
        rows.id.extend_empty(count)
        rows.props.extend([_PROPS[len(each.user) % len(_PROPS)] for each in events])
        rows.seq.extend(self._sequence_numbers(count))
        self.events_by_period.update(period_of(at) for at in times)

    def _sequence_numbers(self, count: int) -> Iterator[int]:
        for index in range(count):
            if index % ITEMS_PER_RECORD_MAX == 0:
                self.number += 1
            yield first_seq(_STREAM, self.number) + index % ITEMS_PER_RECORD_MAX


def create_demo_organization(control: ControlParts) -> DemoOrganization:
    """Create the organization, an owner who can sign in, and the apps."""
    if control.catalog.passwords.find(EMAIL) is not None:
        raise RefusedError(f"{EMAIL} has an account already: this data directory contains the demo")
    organization = operator.create_organization(control, "Demo")
    owner, _ = people.create_user(control, organization.org_id, EMAIL, Role.OWNER)
    password = Secret(control.randomness.base62(_PASSWORD_CHARACTERS))
    control.catalog.passwords.replace(owner.user_id, hash_of(password))
    created = []
    for profile in PROFILES:
        wanted = NewAppBody(profile.name, profile.ownership, profile.type)
        app, _ = apps.create_app(control, organization.org_id, wanted)
        save_secret(control, app, Environment.LIVE, Provider.BILLER_A, Secret(f"whsec_{control.randomness.base62(32)}"))
        created.append((profile, app))
    return DemoOrganization(organization.org_id, password, created)


def fill(parts: FillParts, organization: DemoOrganization, dates: DateRange, seed: str) -> Iterator[None]:
    """Store the whole history; yield after each day of each app."""
    parts.days.reopen_from(dates.days[0])
    position = parts.loading.positions().get(_STREAM, 0)
    buffer = RowBuffer(position, position)
    for profile, app in organization.apps:
        for date_, day in zip(dates.days, history_of(profile, app, dates, seed), strict=True):
            buffer.add(app.public_id, day.events)
            parts.ledger.record([replace(day.entry, ingest_stats=_accepted(app.public_id, date_, day, dates.now_ms))])
            if len(buffer.rows) >= _ROWS_PER_STEP:
                _store_events(parts, buffer, organization.org_id)
            yield
        parts.ledger.record(recent_deliveries(profile, app.public_id, dates.now_ms))
    _store_events(parts, buffer, organization.org_id)
    note_first_events(parts.loading, parts.control.catalog.apps.note_first_event)


def _accepted(project: str, date_: date, day: Day, now_ms: int) -> IngestStats:
    """Count the day's items as accepted, as if they had been sent."""
    count = len(day.events) + len(day.entry.payments) + len(day.entry.subscriptions)
    last_at = min(midnight_ms(date_) + DAY_MS - 1, now_ms)
    return IngestStats(date_.isoformat(), last_at, {(project, ACCEPTED): count} if count else {})


def _store_events(parts: FillParts, buffer: RowBuffer, org_id: str) -> None:
    """Store the rows and then record the step, in the loader's order, so that a failed step can be detected."""
    if not buffer.rows:
        return
    parts.warehouse.stage(buffer.rows)
    parts.warehouse.commit((), ())
    first_seen: dict[str, int] = {}
    for project, at in zip(buffer.rows.project, buffer.rows.received_at, strict=True):
        first_seen[project] = min(at, first_seen.get(project, at))
    counts = {(org_id, period): count for period, count in buffer.events_by_period.items()}
    before = {_STREAM: buffer.stored_number}
    parts.loading.finish(LoadStep({_STREAM: buffer.number}, counts, first_seen, positions_before=before))
    buffer.stored_number = buffer.number
    buffer.rows, buffer.events_by_period = EventRows(), Counter()
