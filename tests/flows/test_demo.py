"""`mauve demo`: from an empty directory to a service with sample data."""

import json
import re
import socket

import httpx2 as httpx
import pytest

from mauve.cli.demo import _place_to_serve
from mauve.config import settings_from
from support.browser import Browser
from support.service import mauve, mauve_json, running, two_free_ports


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    data = tmp_path_factory.mktemp("demo") / "data"
    return data, mauve_json(data, "demo", "--days", "10")


def test_the_printed_credentials_open_pages_with_data(demo):
    data, printed = demo
    with running(data) as service, httpx.Client(base_url=service.url) as client:
        browser = Browser(client)
        home = browser.sign_in(printed["email"], printed["password"])
        assert [app["name"] for app in printed["apps"]] == ["Aster Notes", "Bramble Market", "Clover Kit"]
        for text in ("Aster Notes", "Bramble Market", "Clover Kit", "EUR", "USD"):
            assert text in home.text
        assert "notice warn" not in home.text
        for app in printed["apps"]:
            events = browser.open(f"/apps/{app['app_id']}/events?days=7").text
            accepted, counted = (
                int(re.sub(r"\D", "", re.search(rf"<h2>{title}</h2><b>([^<]*)</b>", events)[1]))
                for title in ("Accepted", "Counted")
            )
            assert accepted >= counted > 0, "what is counted was accepted, and payments were, too"
        market = browser.open(f"/apps/{printed['apps'][1]['app_id']}/webhooks")
        assert "unusable" in market.text
        assert "Volume processed for others, EUR" in browser.open(f"/apps/{printed['apps'][1]['app_id']}").text


def test_a_directory_that_is_not_empty_is_left_alone(demo, tmp_path):
    data, _ = demo
    refused = mauve(data, "demo", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not empty" in refused.stderr
    (tmp_path / "precious").write_text("mine")
    assert mauve(tmp_path, "demo").returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


def test_existing_data_needs_the_add_option_and_takes_the_demo_once(tmp_path):
    data = tmp_path / "data"
    mauve_json(data, "org", "create", "Acme")
    printed = mauve_json(data, "demo", "--days", "2", "--add")
    organizations = mauve_json(data, "org", "list")
    assert {each["name"] for each in organizations} == {"Acme", "Demo"}
    again = mauve(data, "demo", "--days", "2", "--add")
    assert (again.returncode, "has an account already" in again.stderr) == (2, True)
    assert len(mauve_json(data, "org", "list")) == 2, "nothing was created halfway"
    assert printed["password"] not in json.dumps(organizations)


def test_the_address_is_one_on_which_it_can_be_served(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        done = mauve(tmp_path / "one", "demo", "--days", "1", MAUVE_PORT=str(busy), MAUVE_INGEST_PORT="0")
    (port,) = re.findall(r"--port (\d+)", done.stdout)
    assert port != str(busy)
    assert f"http://127.0.0.1:{port}\n" in done.stdout
    port = two_free_ports()
    configured = {"MAUVE_PORT": str(port), "MAUVE_INGEST_PORT": str(port + 1)}
    given = _place_to_serve(settings_from({}), port)
    assert (given.options, given.url) == (f" --port {port} --ingest-port {port + 1}", f"http://127.0.0.1:{port}")
    own = _place_to_serve(settings_from(configured), None)
    assert (own.options, own.url) == ("", f"http://127.0.0.1:{port}")
