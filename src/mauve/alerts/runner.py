"""Evaluate rules and make digests when they are due, and put their messages into the outbox.

Several machines may do this at the same time: an evaluation and its messages are one transaction, which fails if
another machine was first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
import structlog

from mauve.alerts import digest, evaluate, rules
from mauve.alerts.evaluate import Evaluation, Watch, answers_about
from mauve.alerts.outbox import AlertParts, alert_messages, room_for_alert, to_members
from mauve.alerts.schedule import EVALUATE_EVERY_MS, HOUR_MS, Cadence, digest_window, is_quiet, next_digest_at
from mauve.core.app import App
from mauve.core.organization import Organization
from mauve.core.window import Window, today_at
from mauve.metrics.questions import Question
from mauve.query.numbers import Answers
from mauve.stores import StoreUnavailableError
from mauve.stores.alerts import OrganizationTimes, StoredRule, Subscriber
from mauve.stores.alerts.outbox import Message
from mauve.stores.ingest_stats import ACCEPTED

RUN_EVERY_S: Final = 15.0
_RULES_MAX: Final = 1000  # in a round
_DIGESTS_MAX: Final = 1000
_HISTORY_MS: Final = 90 * 24 * HOUR_MS
_HISTORY_MAX: Final = 1000  # messages of one organization
_PRUNE_EVERY_MS: Final = HOUR_MS
_WAIT_FOR_NUMBERS_MS: Final = 2 * HOUR_MS  # then a digest is sent with what can be read
_LOOK_BACK: Final = timedelta(days=31)  # for the last event

Row = TypeVar("Row", StoredRule, Subscriber)

log = structlog.get_logger()


class AlertRunner:
    def __init__(self, parts: AlertParts) -> None:
        self._parts = parts
        self._pruned_at = 0
        self._unread_since: dict[tuple[str, Cadence], int] = {}  # digests that wait for numbers

    def run_due(self) -> None:
        """Evaluate the rules that are due, make the digests that are due, and delete old messages."""
        parts, now_ms = self._parts, self._parts.clock.now_ms()
        for organization, rules_due in self._by_organization(parts.store.rules.due(now_ms, _RULES_MAX)):
            try:
                self._evaluate_rules(organization, rules_due, now_ms)
            except Exception:
                log.exception("rules_not_evaluated", org_id=organization.org_id)
                for rule in rules_due:  # They must not block those of others.
                    parts.store.rules.postpone(rule, now_ms + EVALUATE_EVERY_MS)
        subscribers = parts.store.subscribers.due(now_ms, _DIGESTS_MAX) if parts.can_mail else []
        for organization, subscribers_due in self._by_organization(subscribers):
            try:
                self._make_due_digests(organization, subscribers_due)
            except Exception:
                log.exception("digests_not_made", org_id=organization.org_id)
        if not 0 <= now_ms - self._pruned_at < _PRUNE_EVERY_MS:
            parts.store.messages.prune(now_ms - _HISTORY_MS, _HISTORY_MAX)
            self._pruned_at = now_ms

    def _by_organization(self, rows: Iterable[Row]) -> Iterator[tuple[Organization, list[Row]]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            found[row.org_id].append(row)
        for org_id, own in found.items():
            organization = self._parts.catalog.organizations.find(org_id)
            if organization is not None:
                yield organization, own

    def _evaluate_rules(self, organization: Organization, due: Sequence[StoredRule], now_ms: int) -> None:
        parts, is_quiet_now = self._parts, is_quiet(self._parts.store.times.find(organization.org_id), now_ms)
        apps = {app.app_id: app for app in parts.catalog.apps.all_of(organization.org_id)}
        watches = [
            (rule, Watch(rules.TERMS.decode(rule.terms), app, rule.created_at, now_ms))
            for rule in due
            if (app := apps.get(rule.app_id)) is not None
        ]
        # Numbers that miss events would look like a fall, and the loader needs the warehouse more than they do.
        is_behind = parts.numbers.is_loading_behind()
        asked: dict[App, list[Question]] = defaultdict(list)
        for _, watch in watches:
            asked[watch.app] += [] if is_behind and evaluate.needs_loading(watch) else evaluate.questions_of(watch)
        answers = answers_about(parts.numbers, asked)
        for rule, watch in watches:
            found = None if is_behind and evaluate.needs_loading(watch) else self._evaluate(watch, answers)
            self._record(organization, rule, watch, found, is_quiet=is_quiet_now)

    def _evaluate(self, watch: Watch, answers: Answers) -> Evaluation | None:
        """Return the evaluation; None if what it needs cannot be read now."""
        parts, project = self._parts, watch.app.public_id
        try:
            match watch.terms:
                case rules.NoEvents() as terms:
                    counts = parts.ingest_stats.counts(project, Window(watch.today - _LOOK_BACK, watch.today))
                    last_at = max((each.last_at for each in counts if each.word == ACCEPTED), default=None)
                    return evaluate.evaluate_silence(watch, terms, last_at)
                case rules.DeliveriesFailing() as terms:
                    return evaluate.evaluate_deliveries(watch, terms, parts.deliveries.tallies(project))
                case rules.Threshold() | rules.Change() as terms:
                    return evaluate.evaluate_metric(watch, terms, answers)
        except StoreUnavailableError as error:
            log.warning("rule_not_evaluated", app_id=watch.app.app_id, reason=str(error))
            return None

    def _record(
        self, organization: Organization, rule: StoredRule, watch: Watch, found: Evaluation | None, *, is_quiet: bool
    ) -> None:
        """Store the new state with the messages that it causes. Without room for them, they wait for the next one."""
        parts, now_ms, messages = self._parts, watch.now_ms, list[Message]()
        state = rules.after_unknown(rules.STATE.decode(rule.state))
        if found is not None:
            state = rules.after_evaluation(state, now_ms, found.found, is_true=found.is_true)
            if rules.should_send(state, now_ms, watch.terms.cooldown_h, is_quiet=is_quiet):
                messages = alert_messages(parts, organization, found.draft, now_ms)
        next_at, room = now_ms + EVALUATE_EVERY_MS, room_for_alert(len(messages), now_ms)
        sent = msgspec.json.encode(rules.after_sending(state, now_ms)).decode()
        if not messages or not parts.store.rules.record(rule, sent, next_at, messages, room):
            parts.store.rules.record(rule, msgspec.json.encode(state).decode(), next_at, [], room)

    def _make_due_digests(self, organization: Organization, due: Sequence[Subscriber]) -> None:
        # The store may have another clock: what is due by it must not come due again by ours.
        now_ms = max(self._parts.clock.now_ms(), *(each.next_at or 0 for each in due))
        times = self._parts.store.times.find(organization.org_id)
        if is_quiet(times, now_ms):
            return
        for cadence in (Cadence.DAILY, Cadence.WEEKLY):
            wanting = [each for each in due if each.digest == cadence]
            if wanting:
                self._make_digests(organization, times, cadence, wanting, now_ms)

    def _make_digests(
        self,
        organization: Organization,
        times: OrganizationTimes,
        cadence: Cadence,
        wanting: Sequence[Subscriber],
        now_ms: int,
    ) -> None:
        parts, window = self._parts, digest_window(cadence, today_at(now_ms))
        is_early = parts.numbers.is_loading_behind()
        if is_early and not self._has_waited(organization.org_id, cadence, now_ms):
            return
        apps = parts.catalog.apps.all_of(organization.org_id)
        asked = digest.questions_about(apps, window)
        answers = answers_about(parts.numbers, asked)
        if not digest.is_complete(asked, answers) and not self._has_waited(organization.org_id, cadence, now_ms):
            return
        self._unread_since.pop((organization.org_id, cadence), None)
        draft = digest.draft_digest(organization, apps, cadence, window, answers, is_early=is_early)
        next_at, subscribers = next_digest_at(times, cadence, now_ms), {each.user_id: each for each in wanting}
        for message in to_members(parts, organization, draft, wanting, now_ms):
            if message.user_id is not None and next_at is not None:
                parts.store.subscribers.record(subscribers[message.user_id], next_at, message)

    def _has_waited(self, org_id: str, cadence: Cadence, now_ms: int) -> bool:
        since = self._unread_since.setdefault((org_id, cadence), now_ms)
        return now_ms - since >= _WAIT_FOR_NUMBERS_MS
