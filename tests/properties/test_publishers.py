"""Publishers on several machines: whatever happens between their steps, the edge ends with what the catalog says.

Before each step of a publisher others may act: change a row, publish as a whole, lose the edge. Then the machine may
die, which leaves its work to the others.
"""

import random
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mauve.control.publish import Publisher
from mauve.core.organization import Standing
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import PublishedOrganization
from support.clocks import ManualClock

ROWS = ("org_1", "org_2", "org_3")
DEPTH_MAX = 3


class DiedError(Exception):
    """The machine died at this step."""


class Rows:
    """The rows of the catalog. Each method is one transaction."""

    def __init__(self):
        self.versions = dict.fromkeys(ROWS, 1)
        self.marked = dict.fromkeys(ROWS, False)
        self.edge = None

    def change(self, row):
        self.versions[row] += 1
        self.marked[row] = False

    def pending(self, count_max):
        pending = [row for row in ROWS if not self.marked[row]]
        return [record(row, self.versions[row]) for row in pending[:count_max]]

    def mark_published(self, records, at, edge_id):
        del at
        if edge_id != self.edge:
            return False
        for each in records:
            self.marked[each.org_id] |= each.version == self.versions[each.org_id]
        return True

    def edge_id(self):
        return self.edge

    def use_edge(self, edge_id):
        self.edge, self.marked = edge_id, dict.fromkeys(ROWS, False)


def record(row, version):
    return PublishedOrganization(row, version, Standing.LIVE, None, version, 600, 1, 1)


class Edge:
    """An edge that may be lost, and is then replaced by an empty one."""

    def __init__(self):
        self.number = 0
        self.stored = {}

    def lose(self):
        self.number += 1
        self.stored = {}

    def edge_id(self):
        return f"edge {self.number}"

    def store(self, each):
        if self.stored.get(each.org_id, 0) <= each.version:
            self.stored[each.org_id] = each.version


class World:
    """Machines that share a catalog and an edge; a seed decides what happens."""

    def __init__(self, seed, rows, edge):
        self._random = random.Random(seed)
        self._depth = 0
        self.rows, self.edge = rows, edge

    def publisher(self):
        return Publisher(SimpleNamespace(publications=RowsOfMachine(self)), EdgeOfMachine(self), ManualClock())

    def interrupt(self):
        """Let others act before a step of a machine, or let that machine die."""
        if self._depth >= DEPTH_MAX:
            return
        self._depth += 1
        try:
            while self._random.random() < 0.4:
                self.act()
        finally:
            self._depth -= 1
        if self._random.random() < 0.05:
            raise DiedError

    def act(self):
        match self._random.randrange(6):
            case 0:
                self.edge.lose()
                if self._random.random() < 0.5:  # A machine notices it at once, and dies.
                    self.rows.use_edge(self.edge.edge_id())
            case 1 | 2:
                self.rows.change(self._random.choice(ROWS))
            case 3 | 4:
                self.run(Publisher.publish_pending)
            case _:
                self.run(Publisher.refill_if_lost)

    def run(self, work):
        publisher = self.publisher()
        with suppress(DiedError, StoreUnavailableError):
            work(publisher)
        publisher.close()

    def settle(self):
        self._depth = DEPTH_MAX
        self.run(Publisher.refill_if_lost)


class RowsOfMachine:
    """The catalog as a machine reaches it, with others before each step."""

    def __init__(self, world):
        self._world = world

    def __getattr__(self, name):
        self._world.interrupt()
        return getattr(self._world.rows, name)


class EdgeOfMachine:
    """The edge likewise. Publishing takes several steps."""

    def __init__(self, world):
        self._world = world

    def edge_id(self):
        self._world.interrupt()
        return self._world.edge.edge_id()

    def publish(self, records):
        before = self.edge_id()
        for each in records:
            self._world.interrupt()
            self._world.edge.store(each)
        if self.edge_id() != before:
            raise StoreUnavailableError("it was replaced")
        return before


def violation(seed, rows=Rows, edge=Edge):
    """Return what is wrong after a run of this seed, or None."""
    world = World(seed, rows(), edge())
    for _ in range(6):
        world.act()
    world.settle()
    if world.edge.stored != world.rows.versions:
        return f"the catalog has {world.rows.versions}, the edge {world.edge.stored}"
    return None if all(world.rows.marked.values()) else "a published row is not marked"


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_edge_ends_with_what_the_catalog_says(seed):
    assert violation(seed) is None


class MarksForAnyEdge(Rows):
    """The bug: a mark counts although the record went to an edge that was lost."""

    def mark_published(self, records, at, edge_id):
        del edge_id
        return super().mark_published(records, at, self.edge)


class MarksAnyVersion(Rows):
    """The bug: a row is marked although it has changed since it was read."""

    def mark_published(self, records, at, edge_id):
        current = [record(each.org_id, self.versions[each.org_id]) for each in records]
        return super().mark_published(current, at, edge_id)


class KeepsMarks(Rows):
    """The bug: a new edge does not clear the marks."""

    def use_edge(self, edge_id):
        self.edge = edge_id


class LastWriterWins(Edge):
    """The bug: an older version replaces a newer one."""

    def store(self, each):
        self.stored[each.org_id] = each.version


class TestPlantedBugs:
    @pytest.mark.parametrize("rows", [MarksForAnyEdge, MarksAnyVersion, KeepsMarks])
    def test_a_bug_of_the_catalog_is_found(self, rows):
        assert any(violation(seed, rows=rows) for seed in range(2_000))

    def test_a_bug_of_the_edge_is_found(self):
        assert any(violation(seed, edge=LastWriterWins) for seed in range(2_000))
