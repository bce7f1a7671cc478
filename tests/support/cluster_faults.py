"""The faults of a cluster: which, where and when is a pure function of a run's seed; how is done here, too."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from support.cluster import CLOCK_CACHE_S, INGEST_PORT, NATS_PORT, Cluster, Node
from support.network import can_connect
from support.service import eventually

HOUR_S = 3600
LOADER = "loader"  # whichever node holds the lease when the fault begins
NODES = ("n1", "n2", "n3")
LONG_PAUSE_S = 60.0
_CONFIRM_S = 10.0
_CONNECT_S = 0.3  # On this host, an answer takes a fraction of a millisecond.


class Kind(StrEnum):
    KILLED = "killed"
    THROWN_AWAY = "thrown away"  # killed, and started again with an empty disk
    CUT_OFF = "cut off from all"
    CUT_FROM_SERVERS = "cut off from the servers"
    CUT_FROM_NODES = "cut off from the other nodes"  # but not from the databases
    CUT_FROM_CLIENTS = "cut off from the clients"
    MUTE = "mute"  # What it sends is lost.
    DEAF = "deaf"  # What is sent to it is lost.
    PAUSED = "paused"
    CLOCK_MOVED = "clock moved"
    DISK_FULL = "disk full"


KINDS = tuple(Kind)
CUTS = {Kind.CUT_OFF, Kind.CUT_FROM_SERVERS, Kind.CUT_FROM_NODES}
WITHOUT_SERVERS = {Kind.CUT_OFF, Kind.CUT_FROM_SERVERS, Kind.MUTE, Kind.DEAF, Kind.PAUSED}


@dataclass(frozen=True)
class Fault:
    kind: Kind
    target: str  # a node, or LOADER
    begins_s: float
    lasts_s: float
    clock_s: int = 0

    @property
    def stops_loader(self) -> bool:
        """Return whether another node must load before the fault is healed, however long that takes."""
        stops = self.kind in {Kind.KILLED, Kind.THROWN_AWAY, Kind.CUT_OFF, Kind.CUT_FROM_SERVERS, Kind.PAUSED}
        return self.target == LOADER and stops

    def __str__(self) -> str:
        moved = f" by {self.clock_s:+d} s" if self.clock_s else ""
        return f"{self.target} {self.kind}{moved} after {self.begins_s:.1f} s for {self.lasts_s:.1f} s"


def fault_of(seed: int) -> Fault:
    """Return the fault of a run. Seeds that follow each other go through all kinds, on any node and on the loader's."""
    chance = random.Random(f"fault {seed}")
    turn, place = divmod(seed, len(KINDS))
    kind = KINDS[place]
    is_long = kind is Kind.PAUSED and turn % 10 == 0
    target = LOADER if turn % 2 or is_long else chance.choice(NODES)
    clock_s = chance.choice([-HOUR_S, HOUR_S]) if kind is Kind.CLOCK_MOVED else 0
    lasts_s = LONG_PAUSE_S if is_long else chance.uniform(2, 4)
    return Fault(kind, target, chance.uniform(0.3, 0.8), lasts_s, clock_s)


def prepare(cluster: Cluster, fault: Fault | None) -> None:
    """Restart the nodes whose clock this run may move so that it can be, and those of an earlier run as usual."""
    moved = fault.target if fault is not None and fault.kind is Kind.CLOCK_MOVED else None
    for node in cluster.nodes.values():
        is_clock_movable = moved in {node.name, LOADER}
        if node.is_clock_movable is not is_clock_movable:
            node.restart_mauve(is_clock_movable=is_clock_movable)
            cluster.wait_until_ready()


def begin(cluster: Cluster, fault: Fault, node: Node) -> None:
    match fault.kind:
        case Kind.KILLED | Kind.THROWN_AWAY:
            node.kill()
        case Kind.PAUSED:
            node.pause()
        case Kind.CLOCK_MOVED:
            node.set_clock(fault.clock_s)
        case Kind.DISK_FULL:
            eventually(lambda: _is_filled(node))
        case _:
            eventually(lambda: all(is_answered for _, is_answered in _attempts(cluster, fault.kind, node)))
            _cut(cluster, fault.kind, node)


def _is_filled(node: Node) -> bool:
    node.fill_disk()
    return node.is_disk_full()  # A process may have removed a file.


def _cut(cluster: Cluster, kind: Kind, node: Node) -> None:
    servers, clients = cluster.network.others(node.machine), [cluster.network.clients]
    nodes = [each.machine.address for each in cluster.nodes.values() if each is not node]
    cut = {Kind.CUT_FROM_SERVERS: servers, Kind.CUT_FROM_NODES: nodes, Kind.CUT_FROM_CLIENTS: clients}
    others = cut.get(kind, servers + clients)
    cluster.network.cut(node.machine, others, sends=kind is not Kind.DEAF, hears=kind is not Kind.MUTE)


def confirm(cluster: Cluster, fault: Fault, node: Node) -> None:
    """Fail unless the fault has the effect that it is meant to have."""
    try:
        eventually(lambda: is_effective(cluster, fault.kind, node), _CONFIRM_S)
    except AssertionError:
        raise AssertionError(f"{fault}: this had no effect on {node.name}") from None


def is_effective(cluster: Cluster, kind: Kind, node: Node) -> bool:
    """Return whether a node is as a fault leaves it. That its clock was moved, only clients see."""
    match kind:
        case Kind.KILLED | Kind.THROWN_AWAY:
            return not node.machine.pids()
        case Kind.PAUSED:
            return node.machine.states() == {"T"}
        case Kind.DISK_FULL:
            return node.is_disk_full()
        case Kind.CLOCK_MOVED:
            return True
        case _:
            return not any(is_answered for _, is_answered in _attempts(cluster, kind, node))


def _attempts(cluster: Cluster, kind: Kind, node: Node) -> list[tuple[str, bool]]:
    """Try the connections that a cut prevents; return whether each was answered."""
    nodes = [(each.machine.address, NATS_PORT) for each in cluster.nodes.values() if each is not node]
    far = {Kind.CUT_FROM_NODES: nodes, Kind.CUT_FROM_CLIENTS: []}.get(kind, nodes + cluster.engines)
    tries = [(f"{host}:{port}", partial(node.machine.can_connect, host, port, _CONNECT_S)) for host, port in far]
    if kind not in {Kind.CUT_FROM_SERVERS, Kind.CUT_FROM_NODES}:
        tries.append(("the clients", partial(can_connect, node.machine.address, INGEST_PORT, _CONNECT_S)))
    with ThreadPoolExecutor(len(tries)) as threads:
        answered = threads.map(lambda each: each[1](), tries)
        return list(zip([place for place, _ in tries], answered, strict=True))


def heal(cluster: Cluster, fault: Fault, node: Node) -> None:
    cluster.network.heal()
    match fault.kind:
        case Kind.THROWN_AWAY:
            node.empty()
        case Kind.PAUSED:
            node.resume()
        case Kind.CLOCK_MOVED:
            node.set_clock(0)
            time.sleep(CLOCK_CACHE_S + 0.5)  # Until then, the old time may be told.
        case Kind.DISK_FULL:
            node.free_disk()
            if not node.has_storage():
                node.restart_nats()
    node.keep_running()


def pick(cluster: Cluster, fault: Fault) -> Node:
    """Return the node that the fault hits."""
    if fault.target != LOADER:
        return cluster.nodes[fault.target]
    return eventually(cluster.loader)
