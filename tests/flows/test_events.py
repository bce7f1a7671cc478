"""`POST /v1/events` and `/v1/objects`: every status, in the order of the contract."""

import asyncio
import gzip
import json
import zlib

import pytest
import zstandard

from mauve.access.keys import mint
from mauve.control import apps, operator
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.core.app import Environment
from mauve.core.credential import KeyKind
from mauve.core.ids import SystemRandomness
from mauve.ingest.admit import SMALL_BODY_BYTES
from mauve.ingest.plane import IngestPlane
from mauve.ingest.publishable import BODY_BYTES_MAX
from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import LoadStep
from mauve.stores.log import LogFailedError, LogFullError
from mauve.wiring.databases import open_load_ledger

pytestmark = pytest.mark.shared_service

PAYMENT = {"name": "payment", "id": "p1", "props": {"amount": 1999, "currency": "eur"}}
SUBSCRIPTION = {"type": "subscription", "id": "s1", "status": "active", "mrr": 900, "currency": "EUR"}
VIEW = {"name": "view", "user": "ann"}
IGNORED = "ignored unknown query parameters"


class BufferedRequest:
    """A request whose body arrived with its head, as small ones do at a worker."""

    def __init__(self, request, body):
        self._request = request
        self.buffered_body = body

    def __getattr__(self, name):
        return getattr(self._request, name)


@pytest.fixture(params=["in a task", "at once"], autouse=True)
def way(request, monkeypatch):
    """The plane answers some requests without a task: by the same rules."""
    answer = IngestPlane.answer

    async def answer_at_once(plane, open_request):
        if (open_request.declared_bytes or 0) > SMALL_BODY_BYTES:
            return await answer(plane, open_request)
        body = await open_request.body(SMALL_BODY_BYTES)
        replied = asyncio.get_running_loop().create_future()
        if plane.begin(BufferedRequest(open_request, body), replied.set_result):
            begun.append(open_request.path)
            return await replied
        return await answer(plane, BufferedRequest(open_request, body))

    begun = []
    if request.param == "at once":
        monkeypatch.setattr(IngestPlane, "answer", answer_at_once)
    return request.param, begun


def test_only_events_are_begun_without_a_task(post, way):
    for item in (VIEW, PAYMENT, {}):
        post(item)
    post(SUBSCRIPTION, "/v1/objects")
    assert way in (("in a task", []), ("at once", ["/v1/events"] * 3))


@pytest.fixture
def app(parts, organization):
    return create_app(parts, organization.org_id, NewAppBody("An app"))[0]


def key_of(parts, app, kind):
    return apps.mint_key(parts, app, kind, Environment.LIVE)[1].reveal()


@pytest.fixture
def server_key(parts, app):
    return key_of(parts, app, KeyKind.SERVER)


@pytest.fixture
def publishable_key(parts, app):
    return key_of(parts, app, KeyKind.PUBLISHABLE)


@pytest.fixture
def post(client, server_key):
    def send(items, path="/v1/events", key=server_key, **headers):
        body = items if isinstance(items, bytes) else json.dumps(items).encode()
        known = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        sent = known | {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(path, content=body, headers={name: value for name, value in sent.items() if value})

    return send


@pytest.mark.parametrize("items", [VIEW, [VIEW], [VIEW, {"name": "user_signup", "user": "bob"}], [VIEW] * 500])
def test_valid_events_are_accepted(post, items):
    reply = post(items)
    count = len(items) if isinstance(items, list) else 1
    assert (reply.status_code, reply.json()) == (202, {"ok": True, "accepted": count, "rejected": 0})
    assert reply.headers["content-type"] == "application/json"


def test_an_empty_batch_is_accepted(post):
    assert post([]).json() == {"ok": True, "accepted": 0, "rejected": 0}


def test_a_mixed_batch_is_accepted_in_part_with_the_errors_in_order(post):
    reply = post([{"name": ""}, VIEW, {"name": "payment"}, PAYMENT, 5])
    assert reply.status_code == 202
    body = reply.json()
    assert (body["ok"], body["accepted"], body["rejected"]) == (True, 2, 3)
    assert [error["index"] for error in body["errors"]] == [0, 2, 4]
    assert all(set(error) == {"index", "reason"} and error["reason"] for error in body["errors"])


def test_a_batch_without_a_valid_item_is_422(post):
    reply = post([{"name": ""}, {"user": "ann"}])
    assert reply.status_code == 422
    assert reply.json()["ok"] is False
    assert [error["index"] for error in reply.json()["errors"]] == [0, 1]


class TestHints:
    def test_moved_times_are_counted_in_a_header_that_pages_may_read(self, post, publishable_key, clock):
        old = {"name": "view", "at": clock.now_ms() - 30 * 86_400_000}
        for items, moved in (([VIEW, old, old], "2"), (old, "1"), ([old, {"name": ""}], "1"), ([old, PAYMENT], "1")):
            reply = post(items)
            assert (reply.status_code, reply.headers["x-service-moved"]) == (202, moved)
        reply = post(old, key=publishable_key)
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.headers["access-control-expose-headers"] == "x-service-moved, x-service-moved-items"
        assert reply.headers["x-service-moved-items"] == "0"
        assert reply.json() == {"ok": True, "accepted": 1, "rejected": 0}, "the body is as ever"

    def test_without_moved_times_there_is_no_such_header(self, post, clock):
        reply = post([VIEW, {"name": "view", "at": clock.now_ms()}])
        assert not {"x-service-moved", "x-service-hint", "access-control-expose-headers"} & set(reply.headers)

    def test_epoch_seconds_get_a_hint(self, post, clock):
        reply = post({"name": "view", "at": clock.now_ms() // 1000})
        assert reply.headers["x-service-hint"] == "at looks like epoch seconds: send milliseconds"
        assert (
            reply.headers["access-control-expose-headers"] == "x-service-moved, x-service-moved-items, x-service-hint"
        )

    def test_a_misspelled_status_gets_a_hint(self, post):
        reply = post([{**SUBSCRIPTION, "status": "Active"}], "/v1/objects")
        assert (reply.status_code, reply.json()) == (202, {"ok": True, "accepted": 1, "rejected": 0})
        assert "only active counts toward MRR" in reply.headers["x-service-hint"]
        assert "x-service-hint" not in post([SUBSCRIPTION], "/v1/objects").headers

    @pytest.mark.parametrize(("path", "item"), [("/v1/events", VIEW), ("/v1/objects", SUBSCRIPTION)])
    def test_unknown_query_parameters_get_a_hint(self, post, path, item):
        for body, status in ((item, 202), ({}, 422)):
            reply = post(body, f"{path}?app=x&key=y")
            assert (reply.status_code, reply.headers["x-service-hint"]) == (status, f"{IGNORED}: app, key")
            exposed = {"/v1/events": "x-service-hint"}.get(path)
            assert reply.headers.get("access-control-expose-headers") == exposed
            assert "x-service-hint" not in post(body, f"{path}?").headers
        refused = post(item, f"{path}?app=x", authorization=None)
        assert (refused.status_code, IGNORED in refused.headers["x-service-hint"]) == (401, False)

    def test_hints_about_items_and_parameters_are_joined(self, post, clock):
        reply = post({"name": "view", "at": clock.now_ms() // 1000}, "/v1/events?app=x")
        both = f"at looks like epoch seconds: send milliseconds; {IGNORED}: app"
        assert reply.headers["x-service-hint"] == both


class TestPayments:
    def test_the_same_payload_again_is_accepted(self, post):
        assert post(PAYMENT).json()["accepted"] == 1
        again = PAYMENT | {"sent_at": 5, "unknown": True, "props": {"currency": "eur", "amount": 1999, "earned": True}}
        assert post([again]).json() == {"ok": True, "accepted": 1, "rejected": 0}

    def test_another_payload_for_the_same_id_is_refused(self, post):
        post(PAYMENT)
        other = PAYMENT | {"props": {"amount": 2000, "currency": "eur"}}
        reply = post([other, VIEW])
        assert (reply.status_code, reply.json()["accepted"], reply.json()["rejected"]) == (202, 1, 1)
        assert "conflicting payload" in reply.json()["errors"][0]["reason"]
        assert post([other]).status_code == 422

    def test_a_conflict_inside_one_batch_is_refused(self, post):
        other = PAYMENT | {"props": {"amount": 1, "currency": "usd"}}
        reply = post([PAYMENT, other, PAYMENT])
        assert [error["index"] for error in reply.json()["errors"]] == [1]
        assert reply.json()["accepted"] == 2

    def test_a_publishable_key_may_not_send_one(self, post, publishable_key):
        reply = post([PAYMENT, VIEW], key=publishable_key)
        assert (reply.status_code, reply.json()["accepted"]) == (202, 1)
        assert reply.json()["errors"] == [{"index": 0, "reason": "a payment requires a server key"}]
        only_payments = post([PAYMENT, PAYMENT | {"id": "p2"}], key=publishable_key)
        assert (only_payments.status_code, only_payments.json()["ok"]) == (403, False)


class TestRefusals:
    """One test for each row of the contract's table of errors."""

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("key", [None, "", "nonsense", "ctl_live_" + "x" * 56, "sk_live_" + "x" * 40])
    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_401(self, client, post, path, key):
        reply = post([VIEW], path, authorization=None if key is None else f"Bearer {key}")
        assert (reply.status_code, reply.json()) == (401, {"ok": False, "error": "unauthorized"})

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("content_type", [None, "text/plain", "application/jsonp", "application/x-ndjson", "json"])
    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_415(self, post, path, content_type):
        reply = post([VIEW], path, content_type=content_type)
        assert (reply.status_code, reply.json()["ok"]) == (415, False)

    @pytest.mark.embedded  # parsed before an engine is asked
    @pytest.mark.parametrize(
        "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x"]
    )
    def test_json_with_parameters_is_json(self, post, content_type):
        assert post([VIEW], content_type=content_type).status_code == 202

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_413_for_an_oversized_body(self, post, path):
        reply = post(b"[" + b" " * (BODY_BYTES_MAX - 1) + b"]", path)
        assert (reply.status_code, reply.json()["ok"]) == (413, False)

    def test_a_body_of_exactly_one_megabyte_is_accepted(self, post):
        item = json.dumps(VIEW).encode()
        assert post(b"[" + item + b" " * (BODY_BYTES_MAX - 2 - len(item)) + b"]").status_code == 202

    @pytest.mark.embedded  # refused before an engine is asked
    def test_413_for_the_number_of_items(self, post):
        assert post([VIEW] * 501).status_code == 413
        assert post([SUBSCRIPTION] * 501, "/v1/objects").status_code == 413

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize(
        "body", [b"", b"{", b"null", b"5", b'"x"', b"[1,", b"\xff", b"[NaN]", b"[" * 900_000, b"{}x"]
    )
    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_400(self, post, path, body):
        reply = post(body, path)
        assert (reply.status_code, reply.json()["ok"]) == (400, False)
        assert reply.json()["error"]

    def test_402_while_suspended_but_objects_are_accepted(self, post, parts, organization, keyring):
        operator.suspend(parts, organization.org_id)
        keyring.refresh()
        reply = post([VIEW])
        assert (reply.status_code, reply.json()["code"]) == (402, "ingest_suspended")
        assert post([SUBSCRIPTION], "/v1/objects").status_code == 202
        operator.resume(parts, organization.org_id)
        keyring.refresh()
        assert post([VIEW]).status_code == 202

    @pytest.mark.own_service
    def test_402_from_the_end_of_the_grace_period(self, post, parts, organization, keyring, clock):
        operator.mark_unpaid(parts, organization.org_id, 1)
        keyring.refresh()
        assert post([VIEW]).status_code == 202
        clock.advance(86_400_000)
        assert post([VIEW]).status_code == 402

    @pytest.mark.own_service
    def test_403_at_the_cap_until_the_period_ends(self, post, parts, organization, core, keyring, clock, settings):
        operator.change_limits(parts, organization.org_id, {"event_cap": 10})
        keyring.refresh()
        assert post([VIEW]).status_code == 202
        with open_load_ledger(settings) as ledger:
            ledger.finish(LoadStep({1: 7}, {(organization.org_id, "2027-01"): 8}))
        core.ingest.caps.refresh()
        assert post([VIEW]).status_code == 202
        reply = post([VIEW])
        assert reply.status_code == 403
        assert reply.json()["code"] == "event_cap_reached"
        assert reply.json()["cap_events"] == 10
        assert reply.json()["resets_at"] == 1_801_440_000_000  # 2027-02-01
        assert post([SUBSCRIPTION], "/v1/objects").status_code == 202, "objects are never capped"
        clock.advance(1_801_440_000_000 - clock.now_ms())
        assert post([VIEW]).status_code == 202

    @pytest.mark.embedded  # refused before an engine is asked
    def test_403_for_objects_with_a_publishable_key(self, post, publishable_key):
        reply = post([SUBSCRIPTION], "/v1/objects", key=publishable_key)
        assert (reply.status_code, reply.json()["ok"]) == (403, False)

    def test_422_gives_no_hints(self, post, core):
        post([PAYMENT])
        reply = post([{**PAYMENT, "user": "another", "at": 0}])
        assert reply.status_code == 422
        assert "x-service-moved" not in reply.headers

    @pytest.mark.parametrize("error", [LogFailedError("EIO"), LogFullError("full"), ZeroDivisionError()])
    def test_503_when_the_log_fails(self, post, core, monkeypatch, error):
        def fail(_self, _parts):
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

        monkeypatch.setattr(type(core.ingest.log), "append", fail)
        reply = post([VIEW])
        assert (reply.status_code, reply.json()["ok"]) == (503, False)
        assert "nothing was stored" in reply.json()["error"]
        assert int(reply.headers["retry-after"]) >= 1

    def test_503_when_the_ledger_fails_and_the_other_events_are_not_stored(self, post, core, monkeypatch):
        async def fail(_self, _entry):
            raise StoreUnavailableError("down")

        async def never(_self, _parts):
            raise AssertionError("stored without its payment")

        monkeypatch.setattr(type(core.ingest.ledger), "record", fail)
        monkeypatch.setattr(type(core.ingest.log), "append", never)
        assert post([PAYMENT, VIEW]).status_code == 503
        assert post([SUBSCRIPTION], "/v1/objects").status_code == 503

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_405_names_the_allowed_method(self, client, path, method):
        reply = client.request(method, path)
        assert (reply.status_code, reply.headers["allow"], reply.json()["ok"]) == (405, "POST", False)

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/appsx", "/v1/events/", "/favicon.ico"])
    def test_404_in_the_data_envelope(self, client, path):
        reply = client.get(path)
        assert (reply.status_code, reply.json()["ok"]) == (404, False)


def key_mint(kind):
    """Return a well-formed key that was never stored."""
    return mint(kind, Environment.LIVE, SystemRandomness()).reveal()


class TestUnauthorized:
    """401 on the ingest paths says what to fix, but never whether a key existed."""

    @pytest.fixture
    def hint(self, post):
        def hint_for(authorization, path="/v1/events"):
            reply = post([VIEW], path, authorization=authorization)
            assert (reply.status_code, reply.json()) == (401, {"ok": False, "error": "unauthorized"})
            if path == "/v1/events":
                assert reply.headers["access-control-expose-headers"] == "x-service-hint"
            return reply.headers["x-service-hint"]

        return hint_for

    @pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
    def test_the_hint_names_the_mistake(self, hint, server_key, path):
        assert "Authorization header is missing" in hint(None, path)
        for wrong in (server_key, f"Basic {server_key}", f"Token {server_key}", "Bearer", "Bearer "):
            assert "Authorization must be Bearer and a server key" in hint(wrong, path)
        for token in ("ctl_live_" + "0" * 56, "ctl_test_" + "0" * 56, "ctl_live_x"):
            assert "control token" in hint(f"Bearer {token}", path)
        for secret in ("whsec_abc", "polar_whs_abc"):
            assert "webhook secret" in hint(f"Bearer {secret}", path)

    def test_unknown_and_revoked_keys_get_the_same_sentence(self, hint, parts, app, keyring, server_key):
        revoked, unknown = key_of(parts, app, KeyKind.SERVER), key_mint(KeyKind.SERVER)
        for key in parts.catalog.keys.all_of(app.app_id):
            if key.masked.endswith(revoked[-4:]):
                apps.revoke_key(parts, app, key.key_id)
        keyring.refresh()
        said = {
            hint(f"Bearer {key}") for key in (revoked, unknown, server_key[:-1], "x", f"{server_key}, {server_key}")
        }
        assert len(said) == 1
        assert "unknown or revoked" in said.pop()

    def test_the_hint_echoes_nothing(self, hint):
        for authorization in ("Bearer ctl_live_hunter2", "Bearer whsec_hunter2", "Basic hunter2", "Bearer hunter2"):
            assert "hunter2" not in hint(authorization)


@pytest.mark.own_service
class TestPublishableLimits:
    """By default 1,000 events and 2 MB per second, with bursts of five seconds' worth."""

    @pytest.fixture
    def statuses(self, post, publishable_key):
        def send(items, times, **headers):
            return [post(items, key=publishable_key, **headers).status_code for _ in range(times)]

        return send

    def test_429_for_too_many_events(self, post, statuses, publishable_key, server_key, clock):
        assert statuses([VIEW] * 500, 11) == [202] * 10 + [429]
        reply = post([VIEW] * 500, key=publishable_key)
        assert (reply.status_code, reply.headers["x-service-throttle"]) == (429, "rate_limit")
        assert reply.headers["retry-after"] == "1"
        assert reply.headers["access-control-expose-headers"] == "retry-after, x-service-throttle"
        assert "events" in reply.json()["error"]
        assert post([VIEW], key=server_key).status_code == 202
        clock.advance(1000)
        assert statuses([VIEW] * 500, 3) == [202, 202, 429]

    def test_429_for_too_many_bytes(self, post, statuses, publishable_key, clock):
        padded = json.dumps([VIEW]).encode().ljust(BODY_BYTES_MAX)
        assert statuses(padded, 11) == [202] * 10 + [429]
        assert "bytes" in post(padded, key=publishable_key).json()["error"]
        clock.advance(1000)
        assert statuses(padded, 3) == [202, 202, 429]

    def test_compressed_bytes_count_as_what_they_hold_even_if_they_are_refused(self, statuses, clock):
        bomb = gzip.compress(b" " * (BODY_BYTES_MAX + 1))
        assert statuses(bomb, 11, content_encoding="gzip") == [413] * 10 + [429]
        full = gzip.compress(json.dumps([VIEW]).encode().ljust(BODY_BYTES_MAX))
        clock.advance(1000)
        assert statuses(full, 3, content_encoding="gzip")[-1] == 429
        clock.advance(5000)
        assert statuses(full, 1, content_encoding="gzip") == [202]

    def test_an_empty_batch_counts_as_one_event(self, statuses):
        assert statuses([VIEW] * 500, 9) + statuses([], 499) == [202] * 508
        assert statuses([], 2) == [202, 429]

    def test_a_refused_batch_is_shown_to_the_owner(self, statuses, core, app):
        statuses([VIEW] * 500, 12)
        assert core.ingest.counters.project_stats[app.public_id, "refused:rate_limited"] == 2

    def test_a_body_that_is_too_large_is_413_and_not_told_to_wait(self, statuses):
        assert statuses(b"x" * (BODY_BYTES_MAX + 1), 1) == [413]


class TestOrder:
    """401, 415, 413 (size), 402, 403 cap, 400, 413 (items), 403 all-payment; objects: 401, 403, 415, 413, 400."""

    def test_a_suspended_organization_with_a_bad_body_is_402(self, post, parts, organization, keyring):
        operator.suspend(parts, organization.org_id)
        keyring.refresh()
        assert post(b"{").status_code == 402
        assert post(b"zz", content_encoding="gzip").status_code == 402
        assert post(gzip.compress(b"x" * (BODY_BYTES_MAX + 1)), content_encoding="gzip").status_code == 413
        assert post(b"{}", content_encoding="br").status_code == 415
        assert post(b"x" * (BODY_BYTES_MAX + 1)).status_code == 413
        assert post(b"{", content_type="text/plain").status_code == 415
        assert post(b"{", content_type="text/plain", authorization="Bearer x").status_code == 401

    @pytest.mark.embedded  # refused before an engine is asked
    def test_too_many_payments_with_a_publishable_key_are_413(self, post, publishable_key):
        assert post([PAYMENT] * 501, key=publishable_key).status_code == 413

    @pytest.mark.embedded  # refused before an engine is asked
    def test_objects_with_a_publishable_key_are_403_for_any_body(self, post, publishable_key):
        assert post(b"{", "/v1/objects", key=publishable_key, content_type="text/plain").status_code == 403


@pytest.mark.embedded  # parsed before an engine is asked
class TestCompression:
    @pytest.mark.parametrize(
        ("encoding", "compress"),
        [
            ("gzip", gzip.compress),
            ("GZIP", lambda body: gzip.compress(body[:10]) + gzip.compress(body[10:])),
            ("zstd", zstandard.ZstdCompressor().compress),
            ("zstd", lambda body: zstandard.ZstdCompressor(write_content_size=False).compress(body)),
            ("identity", lambda body: body),
        ],
    )
    def test_a_compressed_body_is_inflated(self, post, encoding, compress):
        body = compress(json.dumps([VIEW] * 3).encode())
        assert post(body, content_encoding=encoding).json()["accepted"] == 3

    @pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "nonsense"])
    def test_an_unknown_encoding_is_415(self, post, encoding):
        assert post([VIEW], content_encoding=encoding).status_code == 415

    @pytest.mark.parametrize("encoding", ["gzip", "zstd"])
    def test_a_body_that_is_not_compressed_as_declared_is_400(self, post, encoding):
        assert post([VIEW], content_encoding=encoding).status_code == 400

    @pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
    def test_a_truncated_compressed_body_is_400(self, post, encoding, compress):
        body = compress(json.dumps([VIEW] * 50).encode())
        assert post(body[:-5], content_encoding=encoding).status_code == 400

    @pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
    def test_a_decompression_bomb_is_413(self, post, compress):
        encoding = "gzip" if compress is gzip.compress else "zstd"
        body = compress(b" " * 100_000_000)
        assert len(body) < BODY_BYTES_MAX
        assert post(body, content_encoding=encoding).status_code == 413

    @pytest.mark.parametrize(("members", "status"), [(1, 202), (16, 202), (17, 400), (50_000, 400)])
    def test_a_few_gzip_members_are_accepted_and_many_are_not(self, post, members, status):
        body = gzip.compress(json.dumps(VIEW).encode()) + gzip.compress(b"") * (members - 1)
        assert post(body, content_encoding="gzip").status_code == status

    def test_raw_deflate_is_not_accepted_as_gzip(self, post):
        assert post(zlib.compress(b"[]"), content_encoding="gzip").status_code == 400


@pytest.mark.embedded  # no engine is asked
class TestBrowsers:
    def test_a_preflight_is_answered_for_any_origin_without_credentials(self, client):
        headers = {"origin": "https://shop.example", "access-control-request-method": "POST"}
        reply = client.options("/v1/events", headers=headers)
        assert reply.status_code == 204
        assert reply.headers["access-control-allow-origin"] == "*"
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert {"authorization", "content-type"} <= set(reply.headers["access-control-allow-headers"].split(", "))
        assert "access-control-allow-credentials" not in reply.headers

    def test_every_reply_can_be_read_by_a_page(self, post):
        for reply in (post([VIEW]), post(b"{"), post([VIEW], authorization="Bearer x")):
            assert reply.headers["access-control-allow-origin"] == "*"

    def test_no_other_path_is_open_to_pages(self, post, client):
        assert "access-control-allow-origin" not in post([SUBSCRIPTION], "/v1/objects").headers
        assert "access-control-allow-origin" not in client.get("/v1/apps").headers
        assert client.options("/v1/objects").status_code == 405


class TestObjects:
    def test_subscriptions_are_accepted(self, post):
        reply = post([SUBSCRIPTION, SUBSCRIPTION | {"id": "s2", "at": "2026-11-15T00:00:00Z"}], "/v1/objects")
        assert (reply.status_code, reply.json()) == (202, {"ok": True, "accepted": 2, "rejected": 0})
        assert post(SUBSCRIPTION, "/v1/objects").json()["accepted"] == 1
        assert post([], "/v1/objects").json()["accepted"] == 0

    def test_invalid_subscriptions_are_refused_one_by_one(self, post):
        reply = post([SUBSCRIPTION | {"type": "customer"}, SUBSCRIPTION], "/v1/objects")
        assert (reply.status_code, reply.json()["errors"][0]["index"]) == (202, 0)
        assert post([SUBSCRIPTION | {"mrr": 1.5}], "/v1/objects").status_code == 422


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/drainz"])
def test_health_endpoints_allow_only_get_and_head(client, path):
    assert client.head(path).status_code == 200
    reply = client.post(path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


def test_health_and_readiness(client):
    assert client.get("/healthz").json() == {"ok": True}
    reply = client.get("/readyz")
    assert reply.status_code == 200
    assert reply.json()["engines"] == {
        "catalog": "ok",
        "ledger": "ok",
        "warehouse": "ok",
        "keys": "ok",
        "log": "ok",
    }
    assert {"backlog_bytes", "load_lag_ms"} <= set(reply.json())
