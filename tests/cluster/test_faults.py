"""Nodes are lost, cut off, paused or filled, or their clocks moved: nothing acknowledged is missed or counts twice.

A run is a pure function of its seed: `pytest 'tests/cluster/test_faults.py::…[17]'` repeats one; with `--prove` there
are 500 of them.

Proves: lost-machine, revocation, shared-limits.
"""

import pytest

from support.cluster import CLOCK_LIBRARY, Cluster
from support.cluster_faults import Kind, fault_of, is_effective
from support.cluster_history import Outcome
from support.cluster_run import run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(500 if metafunc.config.getoption("--prove") else 20))


def test_without_a_fault_everything_is_acknowledged_and_counted(cluster, tmp_path, report):
    done = run(cluster, 999, None, str(tmp_path))
    report(f"without a fault: {done}")
    assert not done.faults, "\n".join(done.faults)
    assert {write.outcome for write in done.history.writes} == {Outcome.ACKED}


def test_a_fault_without_an_effect_is_noticed(cluster):
    cluster.wait_until_ready()
    for kind in {*Kind} - {Kind.CLOCK_MOVED}:  # Clients confirm that one.
        assert not is_effective(cluster, kind, cluster.nodes["n1"]), kind


@pytest.mark.prove
def test_after_a_fault_everything_acknowledged_counts_once(cluster: Cluster, tmp_path, report, seed):
    fault = fault_of(seed)
    if fault.kind is Kind.CLOCK_MOVED and CLOCK_LIBRARY is None:
        pytest.skip("moving a clock needs libfaketime (Debian: apt-get install faketime)")
    done = run(cluster, seed, fault, str(tmp_path))
    for line in (f"seed {seed}: {fault}: {done}", *done.faults):
        report(line)  # at once: a long run shows what it found before it ends
    assert not done.faults, f"seed {seed}: {fault}\n" + "\n".join(done.faults)
