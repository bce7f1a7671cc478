import pytest

from mauve.access.vault import webhook_row
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret

SECRET = "whsec_canary_0123456789abcdef"


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


def put(api, app, provider="biller_a", **body):
    return api.put(f"/v1/apps/{app['app_id']}/webhooks/{provider}", json=body)


def published(keyring, record_id):
    keyring.refresh()
    return keyring.secret(record_id)


def opened(parts, record):
    return parts.vault.open(record.sealed, webhook_row(record.app_id, record.environment, record.provider)).reveal()


@pytest.mark.parametrize("provider", ["biller_a", "biller_b"])
def test_a_saved_secret_shows_as_a_flag_and_is_published_sealed(api, app, parts, keyring, provider):
    reply = put(api, app, provider, secret=f"  {SECRET}\n")
    assert (reply.status_code, reply.content) == (204, b"")
    read = api.get(f"/v1/apps/{app['app_id']}").json()
    flags = {"biller_a": read["has_biller_a_webhook"], "biller_b": read["has_biller_b_webhook"]}
    assert flags == {name: name == provider for name in flags}
    record = published(keyring, f"{app['public_id']}/{provider}")
    assert SECRET.encode() not in record.sealed
    assert opened(parts, record) == SECRET


def test_a_new_secret_replaces_the_one_before(api, app, parts, keyring):
    put(api, app, secret="the first")
    put(api, app, secret="the second")
    assert opened(parts, published(keyring, f"{app['public_id']}/biller_a")) == "the second"


def test_a_secret_of_one_character_is_enough(api, app):
    assert put(api, app, secret="x").status_code == 204


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"secret": ""},
        {"secret": " \n\t "},
        {"secret": None},
        {"secret": 5},
        {"secret": ["x"]},
        {"secret": SECRET, "environment": "test"},
        {"secret": SECRET, "environment": "LIVE"},
        {"secret": SECRET, "environment": None},
        {"secret": SECRET, "environment": 1},
    ],
)
def test_a_secret_that_cannot_be_one_is_refused_without_echo(api, app, body):
    reply = put(api, app, **body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    assert SECRET not in reply.text
    assert api.get(f"/v1/apps/{app['app_id']}").json()["has_biller_a_webhook"] is False


def test_the_plane_of_the_credential_may_be_named(api, app):
    assert put(api, app, secret="x", environment="live").status_code == 204


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize("provider", ["stripe", "biller_c", "BILLER_A", "biller_a ", "%00"])
def test_an_unknown_provider_is_not_found(api, app, provider):
    reply = put(api, app, provider, secret="x")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_there_is_no_read_path(api, app, method):
    put(api, app, secret=SECRET)
    reply = api.request(method, f"/v1/apps/{app['app_id']}/webhooks/biller_a")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


def test_a_test_secret_makes_the_test_project_and_touches_nothing_live(api, app, parts, keyring):
    found = parts.catalog.apps.find_anywhere(app["app_id"])
    public_id = save_secret(parts, found, Environment.TEST, Provider.BILLER_A, Secret("for tests"))
    read = api.get(f"/v1/apps/{app['app_id']}").json()
    assert read["test_public_id"] == public_id != read["public_id"]
    assert read["has_biller_a_webhook"] is False
    assert len(api.get(f"/v1/apps/{app['app_id']}/keys").json()) == 1

    again = save_secret(parts, found, Environment.TEST, Provider.BILLER_B, Secret("for tests too"))
    assert again == public_id
    record = published(keyring, f"{public_id}/biller_a")
    assert record.environment is Environment.TEST
    live = webhook_row(record.app_id, Environment.LIVE, record.provider)
    with pytest.raises(Exception, match="altered or moved"):
        parts.vault.open(record.sealed, live)
