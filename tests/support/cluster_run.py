"""One run on a cluster: clients send, a fault happens and is healed, and everything is compared."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import httpx2 as httpx

from support import cluster_faults
from support.cluster import Cluster, Node
from support.cluster_answers import faults_of, patience_s
from support.cluster_app import App, create_app, refuses_deliveries
from support.cluster_clients import TRY_S_MAX, Client, Sender
from support.cluster_delays import measuring
from support.cluster_faults import CUTS, WITHOUT_SERVERS, Fault, Kind
from support.cluster_history import (
    Event,
    History,
    Outcome,
    Payment,
    Stored,
    Takeover,
    Trouble,
    Version,
    Write,
)
from support.cluster_keys import Key, KeyHolder, KeyUser
from support.cluster_readers import LIMITS, Reader, Visitor
from support.service import PATIENCE_S, bearer, eventually

SENDERS = 3
READERS = 2  # on each api machine
READS_MAX = 20
AFTER_S = 0.5  # Clients go on for so long after the fault is healed.
POLL_S = 0.1
PROBE = "probe"  # the event that a fault waits for


@dataclass(frozen=True)
class Run:
    """What the clients of a run saw, what is wrong with it, and what it took."""

    history: History
    faults: list[str]
    cpu_s: dict[str, float]  # by phase
    took_s: float

    def __str__(self) -> str:
        outcomes = {outcome.value: sum(1 for _ in self.history.ended(outcome)) for outcome in Outcome}
        found = self.history.takeover
        steps = found and (found.taken_at - found.lost_at, found.loaded_at - found.lost_at)
        loaded = ", taken over {:.1f} s and loaded {:.1f} s after the loss".format(*steps) if steps else ""
        uses = sum(len(key.uses) for key in self.history.keys)
        cpu = ", ".join(f"{phase} {spent_s:.1f}" for phase, spent_s in self.cpu_s.items())
        return (
            f"{outcomes}, {uses} uses of keys{loaded}; {patience_s(self.history):.2f} s of patience; "
            f"{self.took_s:.0f} s; CPU seconds: {cpu}"
        )


def run(cluster: Cluster, seed: int, fault: Fault | None, data: str) -> Run:
    """Let clients send while a fault happens and is healed; compare what is stored with what they were told."""
    began_at, spent_s = time.monotonic(), [cluster.cpu_s()]
    cluster.wait_until_ready()
    cluster_faults.prepare(cluster, fault)
    app = create_app(cluster, seed, data)
    spent_s.append(cluster.cpu_s())
    with sending(cluster, app, seed, PATIENCE_S if fault is None else TRY_S_MAX) as history:
        if fault is None:
            time.sleep(AFTER_S)
        else:
            _inject(cluster, app, fault, history)
        time.sleep(AFTER_S)
    spent_s.append(cluster.cpu_s())
    cluster.wait_until_ready()
    stored = _stored_when_loaded(cluster, app)
    spent_s.append(cluster.cpu_s())
    phases = zip(("create", "clients", "compare"), spent_s, spent_s[1:], strict=False)
    cpu_s = {phase: after - before for phase, before, after in phases}
    return Run(history, faults_of(history, stored), cpu_s, time.monotonic() - began_at)


@contextmanager
def sending(cluster: Cluster, app: App, seed: int, try_s: float) -> Iterator[History]:
    """Let clients work, and return what they have seen when they have ended."""
    nodes, apis = list(cluster.nodes.values()), cluster.apis
    is_over, is_revoked = threading.Event(), threading.Event()
    keys: list[Key] = []
    clients: list[Client] = [Sender(nodes, f"{seed} s{place}", is_over, app) for place in range(SENDERS)]
    clients += [Reader(node, f"{seed} r{place} {node.name}", is_over, app) for node in apis for place in range(READERS)]
    clients += [Visitor(node, f"{seed} v {node.name}", is_over, app) for node in apis]
    clients.append(KeyHolder(apis, f"{seed} keys", is_over, app, keys))
    users = [KeyUser(node, f"{seed} k {node.name}", is_revoked, keys) for node in nodes]
    names = tuple(node.name for node in nodes)
    with measuring() as delays:
        history = History(limits=LIMITS, nodes=names, apis=tuple(node.name for node in apis), delays=delays)
        for client in (*clients, *users):
            client.try_s = try_s
            client.start()
        try:
            yield history
        finally:
            is_over.set()
            _join(clients)
            is_revoked.set()  # Keys are used until all are revoked, and once more.
            _join(users)
    history.answers += [answer for client in clients for answer in client.answers]
    history.writes += [write for client in (*clients, *users) for write in client.writes]
    history.keys += [key.life for key in keys]


def _join(clients: Sequence[Client]) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    for client in clients:
        client.join(max(0.0, ends_at - time.monotonic()))
    for client in clients:
        if client.error is not None:
            raise client.error
        assert not client.is_alive(), f"the client {client.name!r} has not ended"


def _inject(cluster: Cluster, app: App, fault: Fault, history: History) -> None:
    time.sleep(fault.begins_s)
    node = cluster_faults.pick(cluster, fault)
    began_at = time.monotonic()
    try:
        cluster_faults.begin(cluster, fault, node)
        begun_at = time.monotonic()
        cluster_faults.confirm(cluster, fault, node)
        if fault.kind is Kind.CLOCK_MOVED:
            eventually(lambda: refuses_deliveries(node, app))
        sent_at = time.monotonic()
        accepted_at = _await_acceptance(cluster, app, node, history)
        if fault.stops_loader:
            history.takeover = _await_takeover(cluster, app, node, began_at, accepted_at)
        time.sleep(max(0.0, began_at + fault.lasts_s - time.monotonic()))
    finally:
        healed_at = time.monotonic()
        cluster_faults.heal(cluster, fault, node)
    cluster.wait_until_ready()
    trouble = Trouble(
        node.name,
        began_at,
        time.monotonic(),
        accepted=(sent_at, accepted_at),
        cut=(begun_at, healed_at) if fault.kind in CUTS else None,
        is_clock_moved=fault.kind is Kind.CLOCK_MOVED,
        is_without_servers=fault.kind in WITHOUT_SERVERS,
    )
    history.troubles.append(trouble)


def _await_acceptance(cluster: Cluster, app: App, troubled: Node, history: History) -> float:
    """Send an event until another node has accepted it, and return when that was."""
    event = Event(_probe_id(app), PROBE)
    others = [node for node in cluster.nodes.values() if node is not troubled]
    body = {"name": "view", "id": event.id, "user": event.user}
    accepted_at = _when(lambda: any(_accepts(node, app, body) for node in others), "no other node accepts an event")
    history.writes.append(Write(Outcome.ACKED, PROBE, (event,)))
    return accepted_at


def _probe_id(app: App) -> str:
    return f"{app.project}-{PROBE}"


def _await_takeover(cluster: Cluster, app: App, lost: Node, began_at: float, accepted_at: float) -> Takeover:
    """Wait until another loader has stored the event that was sent after the loss."""
    taken_at = _when(lambda: cluster.loader() not in {None, lost}, "no other loader has taken over")
    loaded_at = _when(lambda: cluster.is_stored(app.project, _probe_id(app)), "no other loader has loaded")
    return Takeover(began_at, accepted_at, taken_at, loaded_at)


def _when(check: Callable[[], bool], otherwise: str) -> float:
    ends_at = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < ends_at, otherwise
        time.sleep(POLL_S)
    return time.monotonic()


def _accepts(node: Node, app: App, event: dict[str, str]) -> bool:
    try:
        reply = httpx.post(f"{node.ingest_url}/v1/events", json=event, headers=bearer(app.key), timeout=TRY_S_MAX)
    except httpx.TransportError:
        return False
    return reply.status_code == HTTPStatus.ACCEPTED


def _stored_when_loaded(cluster: Cluster, app: App) -> Stored:
    """Return what is stored; twice the same, because what a client gave up on may still arrive."""
    before = None
    for _ in range(READS_MAX):
        cluster.until_loaded()
        after = _stored(cluster, app)
        if after == before:
            return after
        before = after
    raise AssertionError("what is stored still changes, although the clients have ended")


def _stored(cluster: Cluster, app: App) -> Stored:
    payments = cluster.rows(
        "SELECT id, amount, currency, earned FROM payments WHERE project = %s ORDER BY id", app.project
    )
    versions = cluster.rows(
        "SELECT id, at, mrr, currency FROM subscriptions WHERE project = %s ORDER BY id", app.project
    )
    return Stored(
        events=sorted(tuple(row) for row in cluster.events_of(app.project)),
        payments=[Payment(_text(id_), amount, currency, earned) for id_, amount, currency, earned in payments],
        versions={_text(id_): Version(_text(id_), _number(at), mrr, currency) for id_, at, mrr, currency in versions},
        mau=max((row["mau"] for row in _read(cluster, app, "mau")), default=0),
        dau=sum(row["dau"] for row in _read(cluster, app, "dau") if row["day"] == app.day),
        revenue=_by_currency(_read(cluster, app, "revenue"), "revenue"),
        volume=_by_currency(_read(cluster, app, "volume"), "volume"),
        mrr=_by_currency(_read(cluster, app, "mrr"), "mrr"),
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


def _number(at_us: int) -> int:
    return at_us // 1_000_000 - int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def _read(cluster: Cluster, app: App, metric: str) -> list[dict[str, Any]]:
    """Read a metric with the server key, which spends no allowance, from any node that answers."""
    today = datetime.now(UTC).date()
    # Times are moved to at most seven days before receipt, which may have been yesterday by now.
    window = f"date_from={today - timedelta(days=8)}&date_to={today + timedelta(days=1)}"

    def answer() -> httpx.Response | None:
        for node in cluster.apis:
            reply = httpx.get(f"{node.api_url}/v1/metrics/{metric}?{window}", headers=bearer(app.key))
            if reply.status_code == 200:
                return reply
            assert reply.status_code == 503, reply.text
        return None

    rows: list[dict[str, Any]] = eventually(answer).json()["data"]
    return rows


def _by_currency(rows: list[dict[str, Any]], name: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row["currency"]] = sums.get(row["currency"], 0) + row[name]
    return {currency: amount for currency, amount in sums.items() if amount}
