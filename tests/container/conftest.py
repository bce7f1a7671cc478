"""The image that all tests of this folder share. Where there can be none, they are skipped with the reason."""

import sys
from collections.abc import Iterator

import pytest

from support.container import Builder, Image, reason_to_skip


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def report(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"  {line}", file=sys.stderr, flush=True)  # noqa: T201 - minutes pass: show what is done

    builder = Builder(tmp_path_factory.mktemp("image"), report)
    try:
        yield builder.build()
    finally:
        builder.remove()
