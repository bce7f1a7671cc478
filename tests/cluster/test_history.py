"""The comparison after a run finds every fault that it is meant to find, in histories written for that."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.cluster_answers import ACCEPTED_S_MAX, KEY_USES, faults_of, patience_s
from support.cluster_app import checked_day
from support.cluster_delays import Delays, measuring
from support.cluster_faults import HOUR_S
from support.cluster_history import (
    NO_ANSWER,
    WRITE_KINDS,
    Answer,
    Event,
    History,
    KeyLife,
    Limit,
    Outcome,
    Payment,
    Stored,
    Takeover,
    Trouble,
    Version,
    Write,
)

PAID, VOLUME, LOST = Payment("p1", 500, "eur"), Payment("p2", 70, "usd", is_earned=False), Payment("p3", 9, "eur")
OLD, NEW = Version("s1", 1, 100, "eur"), Version("s1", 2, 300, "eur")
ALLOWANCE = Limit("allowance", 2, 2)
CEILING = Limit("ceiling", 2, 2, window_s=60.0, memory_s=60.0)
ATTEMPTS = Limit("attempts", 2, 3, window_s=60.0, taken=400)


def answer(kind="events", status=202, *, node="n1", at=0.0, has_retry_after=True):
    return Answer(node, kind, status, at, at + 0.1, has_retry_after)


def spent(kind, taken=200, *, begins_at=0.0):
    """Two are answered, then every api machine refuses."""
    statuses = [(taken, "n1"), (taken, "n2"), (429, "n1"), (429, "n2")]
    return [answer(kind, status, node=node, at=begins_at + at) for at, (status, node) in enumerate(statuses)]


def key_life(*more, revoked_at=10.0):
    """Return the life of a key that was accepted everywhere, revoked, and refused everywhere since then."""
    uses = [
        answer(kind, status, node=node, at=at)
        for kind in KEY_USES
        for node in ("n1", "n2")
        for at, status in ((8.0, 200 if kind == "reads" else 202), (12.0, 401))
    ]
    return KeyLife(9.0, revoked_at, [*uses, *more])


def sound():
    """Return a history in which everything is as promised, and what is stored after it."""
    history = History(
        writes=[
            Write(Outcome.ACKED, "mixed", (Event("e1", "ann", is_dated=True), Event("e2", "bob")), (PAID,)),
            Write(Outcome.UNKNOWN, "mixed", (Event("e3", "cid"),), (VOLUME,)),
            Write(Outcome.UNKNOWN, "mixed", (Event("e4", "dan"),), (LOST,)),
            Write(Outcome.REFUSED, "event", (Event("e5", "eve"),)),
            Write(Outcome.ACKED, "subscription", versions=(OLD,)),
            Write(Outcome.UNKNOWN, "subscription", versions=(NEW,)),
            *(Write(Outcome.ACKED, kind) for kind in WRITE_KINDS),
        ],
        answers=[
            answer(),
            answer(at=25.0),
            answer(status=503),
            *spent("allowance"),
            *spent("ceiling"),
            *spent("ceiling", begins_at=61.0),
            *spent("attempts", 400),
            answer("session", 200, node="n1"),
            answer("session", 503, node="n2"),
            answer("session", 200, node="n2"),
        ],
        keys=[key_life(answer(at=10.5), answer(at=30.0, node="n2")), key_life(answer(status=503, at=15.0))],
        troubles=[Trouble("n2", 20.0, 40.0)],
        limits=(ALLOWANCE, CEILING, ATTEMPTS),
        nodes=("n1", "n2"),
        apis=("n1", "n2"),
        takeover=Takeover(20.0, 21.0, 25.0, 28.0),
    )
    stored = Stored(
        events=[("e1", "ann", 1), ("e1", "ann", 0), ("e2", "bob", 1), ("e3", "cid", 1)],
        payments=[PAID, VOLUME],
        versions={"s1": NEW},
        mau=3,
        dau=1,
        revenue={"eur": 500},
        volume={"usd": 70},
        mrr={"eur": 300},
    )
    return history, stored


def test_a_sound_history_has_no_fault():
    assert faults_of(*sound()) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"events": [("e1", "ann", 1), ("e3", "cid", 1)], "mau": 2}, "event e2 was acknowledged and is lost"),
        ({"events": [*sound()[1].events, ("e2", "bob", 1)]}, "event e2 counts 2 times"),
        ({"events": [("e2", "bob", 0), *sound()[1].events[:2], ("e3", "cid", 1)]}, "event e2 counts 0 times"),
        ({"events": [*sound()[1].events, ("e5", "ann", 1)]}, "event e5 is stored and was refused or never sent"),
        ({"payments": [VOLUME], "revenue": {}}, "was acknowledged and is lost"),
        ({"payments": [PAID, PAID, VOLUME]}, "payment p1 is stored 2 times"),
        ({"payments": [replace(PAID, amount=501), VOLUME], "revenue": {"eur": 501}}, "is stored and was refused"),
        ({"revenue": {"eur": 501}}, "stored payments add up to {'eur': 500}"),
        ({"payments": [PAID, VOLUME, LOST], "revenue": {"eur": 510}}, "not 500 to 509"),
        ({"volume": {}}, "volume is {}"),
        ({"versions": {}, "mrr": {}}, "subscription s1 is lost"),
        ({"versions": {"s1": Version("s1", 0, 5, "eur")}, "mrr": {"eur": 5}}, "its last acknowledged version is 1"),
        ({"mrr": {"eur": 100}}, "stored subscriptions add up to {'eur': 300}"),
        ({"mau": 4}, "mau is 4"),
        ({"dau": 2}, "dau is 2"),
    ],
)
def test_wrong_data_is_found(change, found):
    history, stored = sound()
    faults = faults_of(history, replace(stored, **change))
    assert any(found in fault for fault in faults), faults


@pytest.mark.parametrize("kind", WRITE_KINDS)
def test_a_run_without_an_acknowledged_write_of_each_kind_is_found(kind):
    history, stored = sound()
    writes = [write for write in history.writes if (write.kind, write.outcome) != (kind, Outcome.ACKED)]
    assert f"no {kind} was acknowledged in this run" in faults_of(replace(history, writes=writes), stored)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"troubles": []}, "n2 accepted a revoked key (events) 20.00 s after it had to know"),
        ({"troubles": [Trouble("n2", 30.05, 40.0)]}, "n2 accepted a revoked key"),
        ({"troubles": [Trouble("n2", 20.0, 28.0)]}, "n2 accepted a revoked key"),
        ({"troubles": [Trouble("n1", 20.0, 40.0)]}, "n2 accepted a revoked key"),
        ({"troubles": [Trouble("n2", 20.0, 40.0, cut=(21.0, 35.0))]}, "n2 accepted an event with such a key"),
        ({"keys": [key_life()]}, "1 keys were accepted and then revoked, not 2"),
        ({"keys": [key_life(), key_life(revoked_at=None)]}, "the revocation of a key was never answered"),
        ({"keys": [key_life(answer("reads", 200, at=11.2)), key_life()]}, "n1 accepted a revoked key (reads) 1.20 s"),
        ({"keys": [key_life(answer("objects", at=11.2)), key_life()]}, "allowed are 1.0 s and 0.00 s in which"),
        ({"keys": [key_life(answer(status=403)), key_life()]}, "n1 answered 403 to events with a key"),
        ({"keys": [key_life(answer(status=503, has_retry_after=False)), key_life()]}, "503 to events without"),
        ({"keys": [key_life(answer(status=401, at=8.5)), key_life()]}, "n1 refused a key that it had accepted"),
    ],
)
def test_wrong_uses_of_keys_are_found(change, found):
    history, stored = sound()
    faults = faults_of(replace(history, **change), stored)
    assert any(found in fault for fault in faults), faults


def test_an_event_that_is_accepted_while_a_cut_is_being_made_is_no_fault():
    history, stored = sound()
    trouble = Trouble("n2", 20.0, 40.0, cut=(30.5, 35.0))
    assert faults_of(replace(history, troubles=[trouble]), stored) == []


def test_keys_that_were_never_accepted_or_not_used_after_their_revocation_show_nothing():
    history, stored = sound()
    refused = [replace(key, uses=[use for use in key.uses if use.status == 401]) for key in history.keys]
    assert "0 keys were accepted and then revoked, not 2" in faults_of(replace(history, keys=refused), stored)
    unused = [replace(key, uses=[use for use in key.uses if use.sent_at < 11.0]) for key in history.keys]
    faults = faults_of(replace(history, keys=unused), stored)
    assert "revoked keys were used 0 times after 1.0 s, not 8" in faults
    assert "no revoked key was used for payments on n2 after 1.0 s" in faults
    unanswered = [replace(key, uses=[replace(use, status=NO_ANSWER) for use in key.uses]) for key in history.keys]
    assert "no revoked key was used for reads on n1 after 1.0 s" in faults_of(replace(history, keys=unanswered), stored)


@pytest.mark.parametrize("limit", [ALLOWANCE, CEILING, ATTEMPTS])
def test_a_limit_that_is_not_reached_exceeded_or_refused_early_is_found(limit):
    history, stored = sound()
    kind, taken = limit.kind, limit.taken
    others = [each for each in history.answers if each.kind != kind]

    def found(*answers):
        return faults_of(replace(history, answers=[*others, *answers]), stored)

    assert found(*spent(kind, taken)) == []
    assert found() == [f"{node} never came to refuse {kind}" for node in ("n1", "n2")]
    assert found(*spent(kind, taken)[:3]) == [f"n2 never came to refuse {kind}"]
    more = [answer(kind, taken, at=5.0 + at) for at in range(limit.most - 1)]
    assert found(*spent(kind, taken), *more) == [f"{limit.most + 1} of {kind} were answered, allowed are {limit.most}"]
    assert found(*spent(kind, taken)[1:]) == [f"n1 refused {kind} after 1, allowed are 2"]
    failed = [answer(kind, 503), answer(kind, NO_ANSWER)]
    assert found(*failed, *spent(kind, taken)[2:]) == [], "what failed may have been counted"


def test_reads_that_cannot_be_counted_are_allowed_only_where_the_meter_is_out_of_reach():
    history, stored = sound()
    answers = [*history.answers, answer("allowance", 200, node="n2", at=30.0)]
    assert faults_of(replace(history, answers=answers), stored) == ["3 of allowance were answered, allowed are 2"]
    away = [replace(history.troubles[0], is_without_servers=True)]
    assert faults_of(replace(history, answers=answers, troubles=away), stored) == []


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (answer(status=500), "n1 answered 500 to events"),
        (answer(status=401), "n1 answered 401 to events"),
        (answer("webhooks", 401), "n1 answered 401 to webhooks"),
        (answer(status=503, has_retry_after=False), "without Retry-After"),
        (answer("session", 303), "n1 answered 303 to session"),
        (answer("attempts", 303), "n1 answered 303 to attempts"),
        (answer("keys", 404), "n1 answered 404 to keys"),
        (answer("ceiling", 500), "n1 answered 500 to ceiling"),
    ],
)
def test_wrong_answers_are_found(more, found):
    history, stored = sound()
    faults = faults_of(replace(history, answers=[*history.answers, more]), stored)
    assert len(faults) == 1
    assert found in faults[0]


def test_a_session_that_was_not_used_on_every_api_machine_shows_nothing():
    history, stored = sound()
    answers = [each for each in history.answers if (each.kind, each.node, each.status) != ("session", "n2", 200)]
    assert faults_of(replace(history, answers=answers), stored) == ["the session was never used on n2"]


def test_a_fault_after_which_no_other_node_accepts_anything_for_long_is_found():
    history, stored = sound()
    (trouble,) = history.troubles
    late = replace(trouble, accepted=(21.0, 21.0 + ACCEPTED_S_MAX + 0.6))
    (fault,) = faults_of(replace(history, troubles=[late]), stored)
    assert fault == "no other node accepted an event for 20.6 s while n2 was in trouble"
    busy = Delays([(21.0, 21.7)])
    assert faults_of(replace(history, troubles=[late], delays=busy), stored) == []


def test_a_node_whose_clock_was_moved_may_take_a_delivery_for_a_replayed_one():
    history, stored = sound()
    clock = Trouble("n1", 0.0, 5.0, is_clock_moved=True)
    answers = [*history.answers, answer("webhooks", 401), answer(node="n2")]
    assert faults_of(replace(history, answers=answers, troubles=[*history.troubles, clock]), stored) == []


def test_a_loader_that_takes_over_late_is_found():
    history, stored = sound()
    (fault,) = faults_of(replace(history, takeover=Takeover(20.0, 21.0, 30.5, 31.0)), stored)
    assert "another one took over 10.5 s after the loss of the loader: allowed are 10.0 s and 0.0 s" in fault


def test_a_loader_that_loads_late_is_found():
    history, stored = sound()
    (fault,) = faults_of(replace(history, takeover=Takeover(20.0, 21.0, 24.0, 50.5)), stored)
    assert "an event was loaded 30.5 s after the loss of the loader: allowed are 30.0 s and 0.0 s" in fault


def test_only_delays_of_the_machine_within_the_interval_excuse_a_late_answer():
    history, stored = sound()
    late = replace(
        history, takeover=Takeover(20.0, 21.0, 30.5, 31.0), keys=[key_life(answer(at=11.2)), key_life()], troubles=[]
    )
    assert len(faults_of(late, stored)) == 2
    before_and_after = Delays([(2.0, 9.9), (11.2, 19.9), (30.6, 90.0)])
    assert len(faults_of(replace(late, delays=before_and_after), stored)) == 2
    within = Delays([(10.2, 10.3), (10.5, 10.7), (19.0, 20.5), (25.0, 25.2)])
    assert faults_of(replace(late, delays=within), stored) == []
    assert patience_s(late) == pytest.approx(0.5)


def test_delays_are_measured_while_the_machine_runs_other_processes_or_nothing():
    with measuring() as delays:
        assert delays.within(0.0, 1e12) == 0.0
    assert all(began_at < ended_at for began_at, ended_at in delays.waits)


@pytest.mark.parametrize("hour", [0, 12, 23])
def test_no_event_without_a_time_falls_on_the_checked_day_with_a_clock_that_is_an_hour_off(hour):
    now = datetime(2026, 11, 16, hour, 30, tzinfo=UTC)
    assert checked_day(now) not in {(now + timedelta(seconds=s)).date() for s in (-HOUR_S, 0, HOUR_S)}
