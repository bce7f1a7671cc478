import pytest

APP_FIELDS = {
    "app_id",
    "public_id",
    "test_public_id",
    "name",
    "ownership",
    "type",
    "first_event_at",
    "has_biller_a_webhook",
    "has_biller_b_webhook",
    "created_at",
}


def create(api, **body):
    reply = api.post("/v1/apps", json={"name": "An app"} | body)
    assert reply.status_code == 201
    return reply.json()


def test_a_created_app_has_the_defaults_and_shows_its_key_once(api, clock):
    reply = api.post("/v1/apps", json={"name": "An app"})
    assert reply.status_code == 201
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    created = reply.json()
    assert set(created) == APP_FIELDS | {"sk_key"}
    assert created["ownership"] == "mine"
    assert created["type"] == "saas"
    assert created["first_event_at"] is None
    assert created["test_public_id"] is None
    assert created["has_biller_a_webhook"] is False
    assert created["has_biller_b_webhook"] is False
    assert created["created_at"] == clock.now_ms()
    assert created["app_id"].startswith("app_")
    assert created["public_id"].startswith("proj_")
    assert created["sk_key"].startswith("sk_live_")

    read = api.get(f"/v1/apps/{created['app_id']}")
    assert read.status_code == 200
    assert read.json() == {name: value for name, value in created.items() if name != "sk_key"}
    assert created["sk_key"] not in api.get(f"/v1/apps/{created['app_id']}/keys").text


def test_given_ownership_and_type_are_kept(api):
    created = create(api, ownership="client_operated", type="desktop")
    assert (created["ownership"], created["type"]) == ("client_operated", "desktop")


@pytest.mark.parametrize("kind", ["saas", "library", "desktop", "other"])
def test_every_type_is_accepted(api, kind):
    assert create(api, type=kind)["type"] == kind


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("  My app ", "My app"),
        ("My \t\n  app", "My app"),
        ("a", "a"),
        ("x" * 80, "x" * 80),
        ("  " + "x" * 80 + "  ", "x" * 80),
        ("é" * 80, "é" * 80),
        ("👨‍👩‍👧 family", "👨‍👩‍👧 family"),
        ("a\u00a0\u3000b", "a b"),
    ],
)
def test_a_name_is_trimmed_and_its_inner_white_space_collapsed(api, sent, stored):
    assert create(api, name=sent)["name"] == stored


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "\n\t",
        "x" * 81,
        "a\x00b",
        "a\x07b",
        "\x1b[31m",
        "a\x1fb",
        "a\x7fb",
        "a\x85b",
        None,
        1,
        True,
        [],
        {},
    ],
)
def test_an_invalid_name_is_refused_and_nothing_is_stored(api, name):
    reply = api.post("/v1/apps", json={"name": name})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "invalid_body"
    assert api.get("/v1/apps").json() == []


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ownership": "mine"},
        {"name": "a", "ownership": "theirs"},
        {"name": "a", "ownership": None},
        {"name": "a", "ownership": 1},
        {"name": "a", "type": "SaaS"},
        {"name": "a", "type": None},
        {"name": "a", "type": ["saas"]},
    ],
)
def test_one_invalid_field_refuses_the_whole_app(api, body):
    reply = api.post("/v1/apps", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    assert api.get("/v1/apps").json() == []


def test_unknown_fields_are_ignored(api):
    assert create(api, colour="mauve", sk_key="mine")["name"] == "An app"


def test_the_list_is_empty_and_then_has_every_app_oldest_first(api, clock):
    assert api.get("/v1/apps").json() == []
    names = ["one", "two", "three"]
    for name in names:
        create(api, name=name)
        clock.advance(1)
    listed = api.get("/v1/apps").json()
    assert [app["name"] for app in listed] == names
    assert all(set(app) == APP_FIELDS for app in listed)


def test_a_change_touches_only_the_given_fields(api):
    app = create(api, name="Before", ownership="client_operated", type="library")
    reply = api.patch(f"/v1/apps/{app['app_id']}", json={"name": "  After  it "})
    assert reply.status_code == 200
    assert reply.json()["name"] == "After it"
    assert (reply.json()["ownership"], reply.json()["type"]) == ("client_operated", "library")
    assert api.get(f"/v1/apps/{app['app_id']}").json() == reply.json()


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"colour": "mauve"},
        {"name": "Good", "type": "bad"},
        {"name": "", "type": "library"},
        {"name": None},
        {"ownership": None, "name": "Good"},
        {"name": "x" * 81, "ownership": "client_operated"},
    ],
)
def test_a_change_with_one_invalid_field_changes_nothing(api, body):
    app = create(api)
    before = api.get(f"/v1/apps/{app['app_id']}").json()
    reply = api.patch(f"/v1/apps/{app['app_id']}", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    assert api.get(f"/v1/apps/{app['app_id']}").json() == before


def test_the_new_key_is_live_when_the_reply_arrives(api, keyring):
    created = create(api)
    key = keyring.key_for(created["sk_key"])
    assert key is not None
    assert key.public_id == created["public_id"]
    (listed,) = api.get(f"/v1/apps/{created['app_id']}/keys").json()
    assert listed["mirrored_at"] is not None
