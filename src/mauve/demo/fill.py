"""Storing a made-up history: through the seams that the product itself writes to, past the limits of time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mauve.access.passwords import hash_of
from mauve.control import apps, operator, people
from mauve.control.bodies import NewAppBody
from mauve.control.operator import RefusedError
from mauve.control.parts import ControlParts
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.core.user import Role
from mauve.core.window import period_of
from mauve.demo.calendar import Calendar
from mauve.demo.deliveries import deliveries_of
from mauve.demo.history import Day, Place, history_of
from mauve.demo.stories import STORIES, Story
from mauve.demo.visitors import Occurrence
from mauve.load.close_days import DayCloser
from mauve.load.runner import note_first_events
from mauve.stores.ledger import LedgerWriter, LoadLedger, LoadStep
from mauve.stores.log import STREAM_MAX
from mauve.stores.warehouse import ITEMS_PER_RECORD_MAX, EventRows, WarehouseWriter, first_seq

EMAIL: Final = "demo@example.com"
_STREAM: Final = STREAM_MAX - 1  # No worker has it: the loader never looks for these rows in a log.
_ROWS_AT_ONCE: Final = 50_000
_PASSWORD_CHARACTERS: Final = 16
_PROPS: Final = ('{"source": "web"}', '{"source": "app", "version": "2.4"}')


@dataclass(frozen=True, slots=True)
class FillParts:
    control: ControlParts
    warehouse: WarehouseWriter
    ledger: LedgerWriter
    loading: LoadLedger
    days: DayCloser


@dataclass(frozen=True, slots=True)
class Stage:
    """The organization, its owner and its apps, before anything has happened."""

    org_id: str
    password: Secret
    apps: Sequence[tuple[Story, App]]


@dataclass(slots=True)
class Pile:
    """Rows that wait to be stored together, each with its own place in the stream."""

    number: int  # of the last record that was begun
    stored_number: int  # of the last that was remembered
    rows: EventRows = field(default_factory=EventRows)
    events_by_period: Counter[str] = field(default_factory=Counter)

    def add(self, project: str, occurrences: Sequence[Occurrence]) -> None:
        rows, count = self.rows, len(occurrences)
        moments = [each.at for each in occurrences]
        rows.project += [project] * count
        rows.name.extend([each.name for each in occurrences])
        rows.received_at.extend(moments)
        rows.occurred_at.extend(moments)
        rows.claimed_at.extend_empty(count)
        rows.user.extend([each.user for each in occurrences])
        rows.id.extend_empty(count)
        rows.props.extend([_PROPS[len(each.user) % len(_PROPS)] for each in occurrences])
        rows.seq.extend(self._places(count))
        self.events_by_period.update(period_of(moment) for moment in moments)

    def _places(self, count: int) -> Iterator[int]:
        for place in range(count):
            if place % ITEMS_PER_RECORD_MAX == 0:
                self.number += 1
            yield first_seq(_STREAM, self.number) + place % ITEMS_PER_RECORD_MAX


def set_stage(control: ControlParts) -> Stage:
    """Make the organization, an owner who can sign in, and the apps."""
    if control.catalog.passwords.find(EMAIL) is not None:
        raise RefusedError(f"{EMAIL} has an account already: the demo is in this data directory")
    organization = operator.create_organization(control, "Demo")
    owner, _ = people.create_user(control, organization.org_id, EMAIL, Role.OWNER)
    password = Secret(control.randomness.base62(_PASSWORD_CHARACTERS))
    control.catalog.passwords.replace(owner.user_id, hash_of(password))
    made = []
    for story in STORIES:
        app, _ = apps.create_app(control, organization.org_id, NewAppBody(story.name, story.ownership, story.type))
        save_secret(control, app, Environment.LIVE, Provider.BILLER_A, Secret(f"whsec_{control.randomness.base62(32)}"))
        made.append((story, app))
    return Stage(organization.org_id, password, made)


def fill(parts: FillParts, stage: Stage, calendar: Calendar, seed: str) -> Iterator[None]:
    """Store everything; yield after each day of each app."""
    parts.days.reopen_from(calendar.days[0])
    position = parts.loading.positions().get(_STREAM, 0)
    pile = Pile(position, position)
    for story, app in stage.apps:
        place = Place(stage.org_id, app.public_id)
        for day in history_of(story, place, calendar, seed):
            _store_day(parts, pile, place, day)
            if len(pile.rows) >= _ROWS_AT_ONCE:
                _store_events(parts, pile, stage.org_id)
            yield
        parts.ledger.record(deliveries_of(story, place, calendar.now_ms))
    _store_events(parts, pile, stage.org_id)
    note_first_events(parts.loading, parts.control.catalog.apps.note_first_event)


def _store_day(parts: FillParts, pile: Pile, place: Place, day: Day) -> None:
    pile.add(place.project, day.occurrences)
    if day.entry.payments or day.entry.subscriptions:
        parts.ledger.record([day.entry])


def _store_events(parts: FillParts, pile: Pile, org_id: str) -> None:
    """Store the rows, then remember them, in the loader's order: a step that fails can be seen."""
    if not pile.rows:
        return
    parts.warehouse.stage(pile.rows)
    parts.warehouse.commit((), ())
    first_seen: dict[str, int] = {}
    for project, at in zip(pile.rows.project, pile.rows.received_at, strict=True):
        first_seen[project] = min(at, first_seen.get(project, at))
    counts = {(org_id, period): count for period, count in pile.events_by_period.items()}
    before = {_STREAM: pile.stored_number}
    parts.loading.finish(LoadStep({_STREAM: pile.number}, counts, first_seen, positions_before=before))
    pile.stored_number = pile.number
    pile.rows, pile.events_by_period = EventRows(), Counter()
