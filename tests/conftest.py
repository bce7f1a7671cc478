import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from mauve import wiring
from mauve.access.keyring import Keyring
from mauve.config import Settings, settings_from
from mauve.control import operator
from mauve.control.parts import ControlParts
from mauve.core.facts import Organization, Scope
from mauve.server.core import CoreApp
from support import ManualClock


@pytest.fixture(scope="session")
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory made once; copying it is quicker than migrating anew."""
    data = tmp_path_factory.mktemp("template") / "data"
    wiring.prepare(settings_from({"MAUVE_DATA": str(data)}))
    return data


@pytest.fixture
def settings(_prepared: Path, tmp_path: Path) -> Settings:
    data = tmp_path / "data"
    shutil.copytree(_prepared, data)
    data.chmod(0o700)
    return settings_from({"MAUVE_DATA": str(data), "MAUVE_CATALOG_TIMEOUT_SECONDS": "1"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def parts(settings: Settings, clock: ManualClock) -> Iterator[ControlParts]:
    with wiring.control_parts(settings, clock) as opened:
        yield opened


@pytest.fixture
def organization(parts: ControlParts) -> Organization:
    return operator.create_organization(parts, "Acme")


@pytest.fixture
def keyring(settings: Settings) -> Iterator[Keyring]:
    ring = wiring.keyring(settings)
    ring.refresh()
    yield ring
    ring.close()


@pytest.fixture
def client(parts: ControlParts, keyring: Keyring, settings: Settings) -> TestClient:
    return TestClient(CoreApp(parts, keyring, settings))


@pytest.fixture
def token(parts: ControlParts, organization: Organization) -> str:
    """A control token with every scope."""
    return operator.mint_token(parts, organization.org_id, "test", Scope)[1].reveal()


@pytest.fixture
def api(client: TestClient, token: str) -> TestClient:
    """A client that presents the token."""
    client.headers["authorization"] = f"Bearer {token}"
    return client
