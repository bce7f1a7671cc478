"""A cluster that the runs of a process share. Where there can be none, the tests are skipped with the reason."""

from collections.abc import Callable, Iterator

import pytest

from support.cluster import Cluster
from support.network import reason_to_skip

_LINE = "line"  # of what a run did, among the properties of its report
_STARTED = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Cluster() as opened:
        pytestconfig.stash[_STARTED] = f"start: CPU seconds: {opened.cpu_s():.1f}"
        yield opened


@pytest.fixture
def report(request: pytest.FixtureRequest, show_progress: Callable[[str], None]) -> Callable[[str], None]:
    """Keep what a run did for the end of the output, where patience and cost of all runs stand together."""

    def keep(line: str) -> None:
        started = request.config.stash.get(_STARTED, None)
        if started is not None:
            del request.config.stash[_STARTED]
            request.node.user_properties.append((_LINE, started))
        request.node.user_properties.append((_LINE, line))
        show_progress(line)

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the lines of all processes: reports carry them to the one that writes."""
    for outcome in ("passed", "failed"):
        for each in terminalreporter.getreports(outcome):
            if each.when == "call":
                for name, value in each.user_properties:
                    if name == _LINE:
                        terminalreporter.write_line(str(value))
