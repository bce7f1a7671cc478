"""However slow the catalog is, at whichever step: a change answered with 502 was not applied.

Proves: catalog-down.
"""

import dataclasses
import threading

import pytest
import sqlalchemy as sa

from mauve.access.sessions import begin_session
from mauve.control import apps, people
from mauve.control.bodies import NewAppBody
from mauve.core.user import Role
from support.browser import Browser, cookies_of

TIMEOUT_S = 0.3
DELAY_S = 2 * TIMEOUT_S
POOL = 8  # threads of each plane
STEPS = ("begin", "commit", "before_cursor_execute")


class Brake:
    """Delays one step of the catalog until the caller has its reply, but no longer than twice the timeout.

    A step is a statement, or the begin or commit of a transaction, in the threads of the given name.
    """

    def __init__(self, thread_name: str) -> None:
        self.thread_name = thread_name
        self.release(0)

    def release(self, next_at: int) -> None:
        self._at, self._steps = next_at, 0
        self._answered = threading.Event()

    def answered(self) -> None:
        self._answered.set()

    @property
    def was_reached(self) -> bool:
        return self._steps >= self._at

    def step(self, *_: object) -> None:
        if threading.current_thread().name.startswith(self.thread_name):
            self._steps += 1
            if self._steps == self._at:
                self._answered.wait(DELAY_S)


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, catalog_timeout_s=TIMEOUT_S)


@pytest.fixture
def brake(thread_name):
    set_brake = Brake(thread_name)
    for name in STEPS:
        sa.event.listen(sa.Engine, name, set_brake.step)
    yield set_brake
    for name in STEPS:
        sa.event.remove(sa.Engine, name, set_brake.step)


def wait_until_idle(plane):
    """Wait until no thread of the plane is busy, including work whose caller has given up."""
    barrier = threading.Barrier(POOL + 1)
    for _ in range(POOL):
        plane._threads.submit(barrier.wait, 30)  # noqa: SLF001 - the only way to see abandoned work
    barrier.wait(30)


def outcomes(brake, plane, ask, is_applied):
    """Delay the same change at each step in turn; return (status, whether it was applied) for each."""
    found = []
    for at in range(1, 100):
        brake.release(at)
        status = ask(at)
        was_reached = brake.was_reached
        brake.answered()
        wait_until_idle(plane)
        brake.release(0)
        found.append((status, is_applied(at)))
        if not was_reached and status < 500:
            return found
    raise AssertionError("the change never completed")


class TestControlPlane:
    @pytest.fixture
    def plane(self, api, core):
        return core._app.control  # noqa: SLF001

    @pytest.fixture
    def app(self, parts, organization):
        return apps.create_app(parts, organization.org_id, NewAppBody("An app"))[0]

    @pytest.fixture
    def thread_name(self):
        return "control"

    def test_an_app_not_answered_with_201_does_not_exist(self, api, parts, organization, brake, plane):
        def created(at):
            return [app.name for app in parts.catalog.apps.all_of(organization.org_id)].count(f"App {at}")

        found = outcomes(brake, plane, lambda at: api.post("/v1/apps", json={"name": f"App {at}"}).status_code, created)
        assert set(found) <= {(502, 0), (201, 1)}
        assert brake.thread_name == "publish" or (502, 0) in found

    def test_a_key_not_answered_with_201_does_not_exist(self, api, parts, app, brake, plane):
        known = {key.key_id for key in parts.catalog.keys.all_of(app.app_id)}

        def created(_at):
            now = {key.key_id for key in parts.catalog.keys.all_of(app.app_id)}
            new = len(now - known)
            known.update(now)
            return new

        path = f"/v1/apps/{app.app_id}/keys"
        found = outcomes(brake, plane, lambda _at: api.post(path, json={"kind": "sk"}).status_code, created)
        assert set(found) <= {(502, 0), (201, 1)}

    def test_a_name_not_answered_with_200_is_not_changed(self, api, parts, app, brake, plane):
        def changed(at):
            return parts.catalog.apps.find_anywhere(app.app_id).name == f"App {at}"

        path = f"/v1/apps/{app.app_id}"
        found = outcomes(brake, plane, lambda at: api.patch(path, json={"name": f"App {at}"}).status_code, changed)
        assert set(found) <= {(502, False), (200, True)}


class TestDashboard:
    @pytest.fixture
    def plane(self, client, core):
        return core._app._dashboard  # noqa: SLF001

    @pytest.fixture
    def thread_name(self):
        return "dashboard"

    @pytest.fixture
    def owner(self, client, parts, organization, clock, settings):
        user, _ = people.create_user(parts, organization.org_id, "a@example.com", Role.OWNER)
        secret = begin_session(parts.catalog.sessions, user.user_id, "test", clock.now_ms(), parts.randomness)
        browser = Browser(client)
        browser.cookies = cookies_of(settings, secret)
        return browser

    def test_a_token_that_is_not_shown_does_not_exist(self, owner, parts, organization, brake, plane):
        def created(at):
            return [token.name for token in parts.catalog.tokens.all_of(organization.org_id)].count(f"Token {at}")

        def ask(at):
            reply = owner.send("/tokens", {"name": f"Token {at}", "scopes": "apps:read"})
            assert ("Nothing was changed: try again" in reply.text) is (reply.status_code == 503)
            return reply.status_code

        found = outcomes(brake, plane, ask, created)
        assert set(found) <= {(503, 0), (200, 1)}
        assert (503, 0) in found
