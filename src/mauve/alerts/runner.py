"""Judge rules and make digests when they are due, and put what they say into the outbox.

Several machines may do this at once: a judgment and its messages are one transaction, which fails if another machine
was first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import structlog

from mauve.alerts import digest
from mauve.alerts.compose import Draft, alert_messages, members_by_id, room_for_alert, to_member
from mauve.alerts.figures import Answers, answers_about
from mauve.alerts.judge import (
    Judgment,
    Watch,
    judge_deliveries,
    judge_numbers,
    judge_silence,
    needs_loading,
    questions_of,
)
from mauve.alerts.parts import AlertParts
from mauve.alerts.rule_state import (
    after_judgment,
    after_sending,
    after_unknown,
    packed_state,
    should_send,
    state_from,
)
from mauve.alerts.schedule import HOUR_MS, JUDGE_EVERY_MS, Cadence, digest_window, is_quiet, next_digest_at
from mauve.alerts.terms import DeliveriesFailing, NoEvents, kind_of, terms_from
from mauve.core.app import App
from mauve.core.organization import Organization
from mauve.core.window import Window, today_at
from mauve.metrics.questions import Question
from mauve.stores import StoreUnavailableError
from mauve.stores.alerts import NewMessage, OrganizationTimes, StoredRule, Subscriber
from mauve.stores.ingest_stats import ACCEPTED

JUDGE_EVERY_S: Final = 15.0
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

    def judge_due(self) -> None:
        """Judge the rules that are due, make the digests that are due, and forget old messages."""
        now_ms = self._parts.clock.now_ms()
        _by_organization(self._parts.store.rules.due(now_ms, _RULES_MAX), self._judge_organization)
        if self._parts.can_mail:
            _by_organization(self._parts.store.subscribers.due(now_ms, _DIGESTS_MAX), self._digest_organization)
        if not 0 <= now_ms - self._pruned_at < _PRUNE_EVERY_MS:
            self._parts.store.messages.prune(now_ms - _HISTORY_MS, _HISTORY_MAX)
            self._pruned_at = now_ms

    def _judge_organization(self, org_id: str, rules: Sequence[StoredRule]) -> None:
        parts, now_ms = self._parts, self._parts.clock.now_ms()
        try:
            organization = parts.catalog.organizations.find(org_id)
            if organization is not None:
                self._judge_rules(organization, rules, now_ms)
        except Exception:
            for rule in rules:  # A rule that cannot be judged must not keep others from it.
                parts.store.rules.postpone(rule, now_ms + JUDGE_EVERY_MS)
            raise

    def _judge_rules(self, organization: Organization, rules: Sequence[StoredRule], now_ms: int) -> None:
        parts = self._parts
        apps = {app.app_id: app for app in parts.catalog.apps.all_of(organization.org_id)}
        times = parts.store.times.find(organization.org_id)
        watches = [
            (rule, Watch(terms_from(rule.terms), app, rule.created_at, now_ms, today_at(now_ms)))
            for rule in rules
            if (app := apps.get(rule.app_id)) is not None
        ]
        # Numbers that miss events would look like a fall, and the loader needs the warehouse more than they do.
        is_behind = parts.numbers.is_loading_behind()
        early = {rule.rule_id for rule, watch in watches if is_behind and needs_loading(watch)}
        asked: dict[App, list[Question]] = defaultdict(list)
        for rule, watch in watches:
            asked[watch.app] += [] if rule.rule_id in early else questions_of(watch)
        answers = answers_about(parts.numbers, asked)
        for rule, watch in watches:
            judgment = None if rule.rule_id in early else self._judgment(watch, answers)
            self._conclude(organization, times, rule, watch, judgment)

    def _judgment(self, watch: Watch, answers: Answers) -> Judgment | None:
        """Return the judgment; None if what it needs cannot be read now."""
        parts, project = self._parts, watch.app.public_id
        try:
            if isinstance(watch.terms, NoEvents):
                counts = parts.ingest_stats.counts(project, Window(watch.today - _LOOK_BACK, watch.today))
                return judge_silence(
                    watch, max((each.last_at for each in counts if each.word == ACCEPTED), default=None)
                )
            if isinstance(watch.terms, DeliveriesFailing):
                return judge_deliveries(watch, parts.deliveries.tallies(project))
        except StoreUnavailableError as error:
            log.warning("rule_not_judged", app_id=watch.app.app_id, reason=str(error))
            return None
        return judge_numbers(watch, answers)

    def _conclude(
        self,
        organization: Organization,
        times: OrganizationTimes,
        rule: StoredRule,
        watch: Watch,
        judgment: Judgment | None,
    ) -> None:
        """Store the judgment with the messages that it causes. Without room for them, they wait for the next one."""
        parts, now_ms, state = self._parts, watch.now_ms, state_from(rule.state)
        next_at, messages = now_ms + JUDGE_EVERY_MS, list[NewMessage]()
        if judgment is None:
            parts.store.rules.record(rule, packed_state(after_unknown(state)), next_at, [], room_for_alert(0, now_ms))
            return
        judged = after_judgment(state, now_ms, judgment.found, is_true=judgment.is_true)
        if should_send(judged, now_ms, watch.terms.cooldown_h, is_quiet=is_quiet(times, now_ms)):
            draft = Draft(kind_of(watch.terms), judgment.title, judgment.reason, judgment.facts, judgment.path)
            messages = alert_messages(parts, organization, draft, now_ms)
        sent = after_sending(judged, now_ms) if messages else judged
        room = room_for_alert(len(messages), now_ms)
        if not parts.store.rules.record(rule, packed_state(sent), next_at, messages, room):
            parts.store.rules.record(rule, packed_state(judged), next_at, [], room)

    def _digest_organization(self, org_id: str, due: Sequence[Subscriber]) -> None:
        # The store may have another clock: what is due by it must not come due again by ours.
        parts, now_ms = self._parts, max(self._parts.clock.now_ms(), *(each.next_at or 0 for each in due))
        organization, times = parts.catalog.organizations.find(org_id), parts.store.times.find(org_id)
        if organization is None or is_quiet(times, now_ms):
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
        wanting: Iterable[Subscriber],
        now_ms: int,
    ) -> None:
        parts, window = self._parts, digest_window(cadence, today_at(now_ms))
        is_behind = parts.numbers.is_loading_behind()
        if is_behind and not self._has_waited(organization.org_id, cadence, now_ms):
            return
        apps = parts.catalog.apps.all_of(organization.org_id)
        asked = digest.questions_about(apps, window)
        answers = answers_about(parts.numbers, asked)
        if not digest.is_complete(asked, answers) and not self._has_waited(organization.org_id, cadence, now_ms):
            return
        self._unread_since.pop((organization.org_id, cadence), None)
        draft = digest.draft_digest(organization, apps, cadence, window, answers)
        draft = digest.marked_early(draft) if is_behind else draft
        members, next_at = members_by_id(parts, organization.org_id), next_digest_at(times, cadence, now_ms)
        for subscriber in wanting:
            member = members.get(subscriber.user_id)
            if member is not None and next_at is not None:
                message = to_member(parts, organization, draft, subscriber, member, now_ms=now_ms)
                parts.store.subscribers.record(subscriber, next_at, message)

    def _has_waited(self, org_id: str, cadence: Cadence, now_ms: int) -> bool:
        since = self._unread_since.setdefault((org_id, cadence), now_ms)
        return now_ms - since >= _WAIT_FOR_NUMBERS_MS


def _by_organization(rows: Iterable[Row], work: Callable[[str, Sequence[Row]], None]) -> None:
    """Do the work of each organization. A failure of one does not stop the others."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.org_id].append(row)
    for org_id, own in found.items():
        try:
            work(org_id, own)
        except Exception:
            log.exception("alerts_failed", org_id=org_id)
