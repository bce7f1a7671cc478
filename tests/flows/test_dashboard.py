"""What a person sees and does, from the set-up link on."""

import pytest

from browser import PASSWORD, Browser, shown
from mauve.control import links


@pytest.fixture
def setup_path(parts):
    return links.renew_setup_link(parts).path.reveal()


@pytest.fixture
def browser(client):
    return Browser(client)


@pytest.fixture
def owner(browser, setup_path):
    """A browser in which the first owner is signed in."""
    browser.send(setup_path, {"organization": "Acme & Söhne", "email": "Ann@Example.com", "password": PASSWORD})
    return browser


def app_id_of(page):
    return page.text.partition('data-poll="/apps/')[2].partition("/")[0]


def test_from_the_setup_link_to_the_first_event(client, parts, clock, browser, setup_path):
    welcome = browser.open(setup_path)
    assert (welcome.status_code, "Welcome to Mauve" in welcome.text) == (200, True)
    home = browser.send(setup_path, {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD})
    assert "Create your first app" in home.text

    created = browser.send("/apps", {"name": "  My   app ", "type": "library", "ownership": "mine"})
    assert "My app is ready" in created.text
    key, app_id = shown(created, "key"), app_id_of(created)
    assert key.startswith("sk_live_")
    assert "Waiting for the first event" in browser.open(f"/apps/{app_id}/first-event").text

    sent = client.post("/v1/events", json={"name": "seen"}, headers={"authorization": f"Bearer {key}"})
    assert sent.status_code == 202
    (app,) = parts.catalog.apps.all_of(parts.catalog.organizations.everyone()[0].org_id)
    parts.catalog.apps.note_first_event(app.public_id, clock.now_ms())  # as the loader does
    fragment = browser.open(f"/apps/{app_id}/first-event")
    assert "First event received" in fragment.text
    assert "data-waiting" not in fragment.text
    assert "First event received" in browser.open(f"/apps/{app_id}").text
    assert key not in browser.open(f"/apps/{app_id}/keys").text


def test_every_page_of_an_owner_opens(owner):
    created = owner.send("/apps", {"name": "<b>Bold</b> & co", "type": "saas", "ownership": "mine"})
    own = f"/apps/{app_id_of(created)}"
    pages = ["/apps", "/apps/new", own, f"{own}/keys", f"{own}/webhooks", f"{own}/settings"]
    for path in [*pages, "/tokens", "/members", "/usage", "/organization", "/account"]:
        page = owner.open(path)
        assert page.status_code == 200, path
        assert "<b>Bold</b>" not in page.text
        assert "Acme &amp; Söhne" in page.text
