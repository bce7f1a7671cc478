"""What the nodes of a cluster may answer, and when. Every check is a pure function that returns what is wrong."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from support.cluster_history import (
    NO_ANSWER,
    WRITE_KINDS,
    Answer,
    History,
    KeyLife,
    Limit,
    Outcome,
    Stored,
    Takeover,
    Trouble,
    faults_of_data,
)

REVOCATION_S_MAX = 1.0
TAKEOVER_S_MAX = 10.0  # from the loss of a loader until another one holds the lease
# Until it has loaded. A NATS server calls an election 4 to 9 s after the loss of the leader, and calls it again if the
# votes were split: without a leader a stream can be neither written nor read.
LOADED_S_MAX = 30.0
ACCEPTED_S_MAX = 20.0  # until another node accepts events: two elections, or a server that hangs and one election
KEYS_MIN = 2  # that were accepted, revoked, and used after that
LATE_USES_MIN = 8  # of revoked keys, after the time in which they may still be accepted
KEY_USES = ("events", "payments", "objects", "reads")
_INGEST = frozenset({202, 503, NO_ANSWER})
_READ = frozenset({200, 429, 503, NO_ANSWER})
_STATUSES = {
    "events": _INGEST,
    "objects": _INGEST,
    "webhooks": frozenset({200, 503, NO_ANSWER}),
    "keys": frozenset({201, 204, 502, NO_ANSWER}),
    "allowance": _READ,
    "ceiling": _READ,
    "attempts": frozenset({400, 429, 503, NO_ANSWER}),
    "session": frozenset({200, 503, NO_ANSWER}),
}
_RETRY_AFTER = {"events", "payments", "objects", "webhooks"}


def faults_of(history: History, stored: Stored) -> list[str]:
    """Return everything that is wrong, as sentences."""
    checks = (_writes, _keys, _key_statuses, _limits, _sessions, _statuses, _takeover)
    return [*faults_of_data(history, stored), *(fault for check in checks for fault in check(history))]


def patience_s(history: History) -> float:
    """Return how much later than on a quiet machine a promise was kept, at most."""
    late = [
        late_s - REVOCATION_S_MAX for key in history.keys for use in key.uses for late_s in _late(history, key, use)
    ]
    if history.takeover is not None:
        late += [took_s - allowed_s for _, took_s, allowed_s in _steps_of(history.takeover)]
    return max([0.0, *late])


def _writes(history: History) -> Iterator[str]:
    """Check that there was something to lose: writes of each kind were acknowledged, and one soon after the fault."""
    acked = Counter(write.kind for write in history.ended(Outcome.ACKED))
    yield from (f"no {kind} was acknowledged in this run" for kind in WRITE_KINDS if not acked[kind])
    for trouble in history.troubles:
        sent_at, accepted_at = trouble.accepted
        took_s = accepted_at - sent_at
        if took_s > ACCEPTED_S_MAX + history.delays.within(sent_at, accepted_at):
            yield f"no other node accepted an event for {took_s:.1f} s while {trouble.node} was in trouble"


def _keys(history: History) -> Iterator[str]:
    """Find uses of a revoked key that were accepted too late, and check that there were enough that could be.

    A node has contact with its servers unless it is in trouble, and refuses the key a second after both the answer to
    the revocation and the end of its trouble. A node that is cut off from NATS cannot know, and cannot store events.
    """
    late_uses = [use for key in history.keys for use in key.uses if _is_late(key, use)]
    revoked = [key for key in history.keys if key.revoked_at is not None and _was_accepted(key)]
    if len(revoked) < KEYS_MIN:
        yield f"{len(revoked)} keys were accepted and then revoked, not {KEYS_MIN}"
    if len(late_uses) < LATE_USES_MIN:
        yield f"revoked keys were used {len(late_uses)} times after {REVOCATION_S_MAX} s, not {LATE_USES_MIN}"
    yield from _missing_uses(history, late_uses)
    for key in history.keys:
        if key.revoked_at is None:
            yield "the revocation of a key was never answered"
        for use in key.uses:
            yield from _accepted_too_late(history, key, use)


def _missing_uses(history: History, late_uses: Sequence[Answer]) -> Iterator[str]:
    for node in history.nodes:
        for kind in KEY_USES if node in history.apis else KEY_USES[:-1]:
            if not any(use.node == node and use.kind == kind for use in late_uses):
                yield f"no revoked key was used for {kind} on {node} after {REVOCATION_S_MAX} s"


def _accepted_too_late(history: History, key: KeyLife, use: Answer) -> Iterator[str]:
    for late_s in _late(history, key, use):
        waited_s = history.delays.within(use.sent_at - late_s, use.sent_at)
        if late_s > REVOCATION_S_MAX + waited_s:
            yield (
                f"{use.node} accepted a revoked key ({use.kind}) {late_s:.2f} s after it had to know: "
                f"allowed are {REVOCATION_S_MAX} s and {waited_s:.2f} s in which the machine was busy"
            )
    cuts = [each.cut for each in history.troubles if each.node == use.node and each.cut is not None]
    is_cut = any(begun_at < use.sent_at and use.answered_at < healed_at for begun_at, healed_at in cuts)
    if is_cut and use.kind == "events" and _is_accepted(use):
        yield f"{use.node} accepted an event with such a key while it was cut off"


def _late(history: History, key: KeyLife, use: Answer) -> Iterator[float]:
    """Return how long after a node had to know of the revocation it accepted the key, if it did."""
    if key.revoked_at is None or not _is_accepted(use) or use.sent_at < key.revoked_at:
        return
    began_before = max(use.sent_at, key.revoked_at + REVOCATION_S_MAX)
    own = [each for each in history.troubles if each.node == use.node and each.began_at <= began_before]
    yield use.sent_at - max([key.revoked_at, *(each.ended_at for each in own)])


def _is_accepted(use: Answer) -> bool:
    return use.status in {200, 202}


def _is_late(key: KeyLife, use: Answer) -> bool:
    is_answered = use.status != NO_ANSWER
    return is_answered and key.revoked_at is not None and use.sent_at > key.revoked_at + REVOCATION_S_MAX


def _was_accepted(key: KeyLife) -> bool:
    return any(_is_accepted(use) and use.answered_at <= key.revoking_at for use in key.uses)


def _key_statuses(history: History) -> Iterator[str]:
    """Check that a key is accepted, unknown or not stored; and, once a node knows it, not refused until revoked."""
    for key in history.keys:
        known: dict[tuple[str, bool], float] = {}  # since when, by node and process
        for use in sorted(key.uses, key=lambda each: each.sent_at):
            accepted = 200 if use.kind == "reads" else 202
            if use.status not in {accepted, 401, 503, NO_ANSWER}:
                yield f"{use.node} answered {use.status} to {use.kind} with a key"
            if use.status == 503 and not use.has_retry_after and use.kind in _RETRY_AFTER:
                yield f"{use.node} answered 503 to {use.kind} without Retry-After"
            process = use.node, use.kind == "reads"
            since = known.get(process)
            if (
                use.status == 401
                and since is not None
                and use.answered_at < key.revoking_at
                and not _is_troubled(history.troubles, use.node, since, use.answered_at)
            ):
                yield f"{use.node} refused a key that it had accepted and that was not revoked"
            if use.status == accepted:
                known.setdefault(process, use.answered_at)


def _limits(history: History) -> Iterator[str]:
    for limit in history.limits:
        asked = [each for each in history.answers if each.kind == limit.kind]
        yield from _not_reached(history, limit, asked)
        yield from _exceeded(history, limit, asked)
        yield from _refused_early(limit, asked)


def _not_reached(history: History, limit: Limit, asked: Sequence[Answer]) -> Iterator[str]:
    refusing = {each.node for each in asked if each.status == 429}
    yield from (f"{node} never came to refuse {limit.kind}" for node in history.apis if node not in refusing)


def _exceeded(history: History, limit: Limit, asked: Sequence[Answer]) -> Iterator[str]:
    """Count what was answered within a window. A node that cannot reach the meter answers reads without counting."""
    away = [each for each in history.troubles if each.is_without_servers]
    taken = [
        each
        for each in asked
        if each.status == limit.taken and not _is_troubled(away, each.node, each.sent_at, each.answered_at)
    ]
    for first in taken:
        ends_at = first.sent_at + limit.window_s
        count = sum(first.sent_at <= each.sent_at and each.answered_at <= ends_at for each in taken)
        if count > limit.most:
            yield f"{count} of {limit.kind} were answered, allowed are {limit.most}"
            return


def _refused_early(limit: Limit, asked: Sequence[Answer]) -> Iterator[str]:
    """Count what may have been spent before each refusal, with what failed or was not answered."""
    spending = [each for each in asked if each.status in {limit.taken, 503, NO_ANSWER}]
    for refusal in asked:
        if refusal.status != 429:
            continue
        since = refusal.sent_at - limit.memory_s
        spent = sum(each.sent_at < refusal.answered_at and each.answered_at > since for each in spending)
        if spent < limit.least:
            yield f"{refusal.node} refused {limit.kind} after {spent}, allowed are {limit.least}"
            return


def _sessions(history: History) -> Iterator[str]:
    """Check that the session was used on every api machine; any answer that it is unknown is an unexpected status."""
    used = {each.node for each in history.answers if each.kind == "session" and each.status == 200}
    yield from (f"the session was never used on {node}" for node in history.apis if node not in used)


def _statuses(history: History) -> Iterator[str]:
    """Check that every answer is documented for its path."""
    clocks = [trouble for trouble in history.troubles if trouble.is_clock_moved]
    for each in history.answers:
        is_replayed = each.kind == "webhooks" and each.status == 401
        if is_replayed and _is_troubled(clocks, each.node, each.sent_at, each.answered_at):
            continue  # A node whose clock is an hour off takes a delivery for a replayed one.
        if each.status not in _STATUSES[each.kind]:
            yield f"{each.node} answered {each.status} to {each.kind}"
        if each.status == 503 and not each.has_retry_after and each.kind in _RETRY_AFTER:
            yield f"{each.node} answered 503 to {each.kind} without Retry-After"


def _takeover(history: History) -> Iterator[str]:
    """Check that another loader has taken over, and has loaded, soon after the loss of the one that did."""
    found = history.takeover
    if found is None:
        return
    for step, took_s, allowed_s in _steps_of(found):
        waited_s = history.delays.within(found.lost_at, found.lost_at + took_s)
        if took_s > allowed_s + waited_s:
            yield (
                f"{step} {took_s:.1f} s after the loss of the loader: "
                f"allowed are {allowed_s} s and {waited_s:.1f} s in which the machine was busy"
            )


def _steps_of(found: Takeover) -> list[tuple[str, float, float]]:
    """Return the steps of a takeover: in words, how long after the loss, and how long is allowed."""
    return [
        ("another one took over", found.taken_at - found.lost_at, TAKEOVER_S_MAX),
        ("an event was loaded", found.loaded_at - found.lost_at, LOADED_S_MAX),
    ]


def _is_troubled(troubles: Iterable[Trouble], node: str, from_: float, to: float) -> bool:
    return any(each.node == node and each.began_at <= to and from_ <= each.ended_at for each in troubles)
