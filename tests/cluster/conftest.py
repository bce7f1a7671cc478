"""A cluster that all runs of this folder share. Where there can be none, the tests are skipped with the reason."""

from collections.abc import Callable, Iterator

import pytest

from support.cluster import Cluster
from support.network import reason_to_skip

_LINES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Cluster() as opened:
        _lines(pytestconfig).append(f"start: CPU seconds: {opened.cpu_s():.1f}")
        yield opened


@pytest.fixture
def report(pytestconfig: pytest.Config, show_progress: Callable[[str], None]) -> Callable[[str], None]:
    """Keep what a run did for the end of the output, where patience and cost of all runs stand together."""

    def keep(line: str) -> None:
        _lines(pytestconfig).append(line)
        show_progress(line)

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in _lines(config):
        terminalreporter.write_line(line)


def _lines(config: pytest.Config) -> list[str]:
    return config.stash.setdefault(_LINES, [])
