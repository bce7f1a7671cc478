"""`mauve demo`: from an empty directory to a service with something to see."""

import json

import httpx2 as httpx
import pytest

from support.browser import Browser
from support.service import mauve, mauve_json, running


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    data = tmp_path_factory.mktemp("demo") / "data"
    return data, mauve_json(data, "demo", "--days", "10")


def test_the_printed_sign_in_opens_pages_full_of_numbers(demo):
    data, told = demo
    with running(data) as service, httpx.Client(base_url=service.url) as client:
        browser = Browser(client)
        home = browser.sign_in(told["email"], told["password"])
        assert [app["name"] for app in told["apps"]] == ["Aster Notes", "Bramble Market", "Clover Kit"]
        for text in ("Aster Notes", "Bramble Market", "Clover Kit", "EUR", "USD"):
            assert text in home.text
        assert "cannot be read" not in home.text
        market = browser.open(f"/apps/{told['apps'][1]['app_id']}/webhooks")
        assert "unusable" in market.text
        assert "Volume processed for others, EUR" in browser.open(f"/apps/{told['apps'][1]['app_id']}").text


def test_a_directory_that_holds_something_is_left_alone(demo, tmp_path):
    data, _ = demo
    refused = mauve(data, "demo", "--json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not empty" in refused.stderr
    (tmp_path / "precious").write_text("mine")
    assert mauve(tmp_path, "demo").returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious"]


def test_beside_what_is_there_it_needs_to_be_asked_for_and_goes_in_once(tmp_path):
    data = tmp_path / "data"
    mauve_json(data, "org", "create", "Acme")
    told = mauve_json(data, "demo", "--days", "2", "--add")
    organizations = mauve_json(data, "org", "list")
    assert {each["name"] for each in organizations} == {"Acme", "Demo"}
    again = mauve(data, "demo", "--days", "2", "--add")
    assert (again.returncode, "has an account already" in again.stderr) == (2, True)
    assert len(mauve_json(data, "org", "list")) == 2, "nothing is half done"
    assert told["password"] not in json.dumps(organizations)
