"""Browsers and users of the dashboard."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from argon2 import PasswordHasher, Type
from starlette.testclient import TestClient

from mauve.access import passwords
from mauve.access.sessions import begin_session
from mauve.config import Settings
from mauve.control import ControlParts, people
from mauve.core.organization import Organization
from mauve.core.user import Role, User
from mauve.stores.warehouse.chdb import ChdbConnection
from mauve.stores.warehouse.schema import TABLES
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from support.alerts import Machine, Recorder
from support.browser import PASSWORD, Browser, cookies_of
from support.clocks import ManualClock


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords as the product does, at a thousandth of the cost."""
    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1, type=Type.ID)
    monkeypatch.setattr(passwords, "hasher", hasher)


@pytest.fixture(scope="session")
def open_shared_warehouse(connection: ChdbConnection) -> Callable[[], ChdbConnection]:
    """Open the shared warehouse. Its tables are created on the first read of all tests."""

    @cache
    def opened() -> ChdbConnection:
        for statement in TABLES:
            connection.run(statement)
        return connection

    return opened


@pytest.fixture
def read_warehouse(settings: Settings, open_shared_warehouse: Callable[[], ChdbConnection]) -> WarehouseReader | None:
    """The shared warehouse, unless the test's own is on a server."""
    return WarehouseReader(open_shared_warehouse) if settings.warehouse_url is None else None


@pytest.fixture
def setup_path(parts: ControlParts) -> str:
    return people.renew_setup_link(parts).path.reveal()


@pytest.fixture
def browser(client: TestClient) -> Browser:
    return Browser(client)


@pytest.fixture
def owner(browser: Browser, setup_path: str) -> Browser:
    """A browser in which the first owner is signed in."""
    browser.send(setup_path, {"organization": "Acme & Söhne", "email": "Ann@Example.com", "password": PASSWORD})
    return browser


@pytest.fixture
def signed_in(
    client: TestClient, parts: ControlParts, clock: ManualClock, organization: Organization, settings: Settings
) -> Callable[[Role], tuple[Browser, User]]:
    """Sign in a new member of the organization, without the cost of hashing a password."""

    def sign_in(role: Role, email: str | None = None) -> tuple[Browser, User]:
        user, _ = people.create_user(parts, organization.org_id, email or f"{role}@example.com", role)
        parts.catalog.passwords.replace(user.user_id, "$unknown")
        secret = begin_session(parts.catalog.sessions, user.user_id, "test", clock.now_ms(), parts.randomness)
        browser = Browser(client)
        browser.cookies = cookies_of(settings, secret)
        return browser, user

    return sign_in


@pytest.fixture
def viewer(signed_in: Callable[[Role], tuple[Browser, User]]) -> Browser:
    """A browser in which a member who may only read is signed in."""
    return signed_in(Role.VIEWER)[0]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def machine(core: Any, client: TestClient, recorder: Recorder) -> Machine:
    """A machine that evaluates rules and sends messages when it is told to."""
    return Machine(core.dashboard.alerts, recorder)
