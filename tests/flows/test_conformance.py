"""The running service against its own OpenAPI document: whatever is sent, what comes back is documented.

Every operation is tried thoroughly by whoever may use it, on things that exist, and briefly with every credential.
"""

import gzip
import itertools
import json
import time
from dataclasses import dataclass

import httpx2 as httpx
import msgspec
import pytest
import requests
import schemathesis
import zstandard
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from mauve.openapi import control, ingest, query, webhooks
from mauve.openapi import service as upkeep
from mauve.openapi.document import document
from support.billing import SECRET_A, SECRET_B, signed_a, signed_b
from support.service import bearer, eventually, mauve_json, post_events, running, token_for

DOCUMENTED = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
NUMBERS = itertools.count()
COMPRESSIONS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstandard.compress}


def closed(schema):
    """Let no object hold more than is listed: what is answered and not documented is a mistake."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {**inner, "additionalProperties": False} if "properties" in inner else inner


def told():
    """Return the document, with what only answers hold closed, and few currencies: each is tried."""
    whole = json.loads(msgspec.json.encode(document()))
    schemas = whole["components"]["schemas"]
    asked = {"NewApp", "AppChanges", "NewKey", "WebhookSecret", "Event", "Payment", "PaymentProps", "Subscription"}
    schemas |= {name: closed(schema) for name, schema in schemas.items() if name not in asked}
    schemas["Currency"]["enum"] = ["eur", "jpy", "usd"]
    return whole


def schema_with(examples_max, **phases):
    config = {
        "seed": 1,
        "suppress-health-check": ["all"],  # a busy machine is no reason to fail
        "generation": {
            "max-examples": examples_max,
            "deterministic": True,
            "with-security-parameters": False,
            "database": "none",
        },
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ["2xx", "304"]},
            "negative_data_rejection": {"expected-statuses": ["4xx"]},
        },
        "phases": phases,
    }
    return schemathesis.openapi.from_dict(told(), config=schemathesis.Config.from_dict(config))


def whole_numbers(body):
    """Write 5.0 as 5. To JSON Schema both are integers; for money the contract takes the second alone."""
    match body:
        case float() if body.is_integer():
            return int(body)
        case dict():
            return {name: whole_numbers(value) for name, value in body.items()}
        case list():
            return [whole_numbers(item) for item in body]
        case _:
            return body


def with_fresh_ids(body):
    """Give each payment an id of its own: a different one under a used id is refused, which no schema can tell."""
    if isinstance(body, list):
        return [with_fresh_ids(item) for item in body]
    match body:
        case {"name": "payment", "id": str(id_)} if 0 < len(id_) <= 256:
            return {**body, "id": f"{id_[:240]} {next(NUMBERS)}"}
        case _:
            return body


class CompressingAdapter(requests.adapters.HTTPAdapter):
    """Sends a body as its Content-Encoding says, which the generator does not."""

    def send(self, request, **options):
        compress = COMPRESSIONS.get(request.headers.get("content-encoding"))
        if compress is not None and request.body:
            body = request.body.encode() if isinstance(request.body, str) else request.body
            request.prepare_body(compress(body), None)
        return super().send(request, **options)


class SigningAdapter(requests.adapters.HTTPAdapter):
    """Signs whatever is sent, as the biller of the path does."""

    def send(self, request, **options):
        body = request.body.encode() if isinstance(request.body, str) else request.body or b""
        sign, secret = (signed_a, SECRET_A) if "biller_a" in request.url else (signed_b, SECRET_B)
        request.headers.update(sign(body, secret, at=int(time.time())))
        return super().send(request, **options)


@dataclass(frozen=True)
class World:
    url: str
    ingest_url: str
    session: requests.Session
    credentials: dict[str, dict[str, str]]
    ids: dict[str, str]
    signing: requests.Session

    def call(self, case, credential, *, extra_checks=(), url=None, session=None):
        """Send the case; whatever comes back must be in the document, and stand the extra checks."""
        response = case.call(
            base_url=url or self.url, headers=self.credentials[credential], session=session or self.session
        )
        try:
            case.validate_response(response, checks=[*DOCUMENTED, *extra_checks])
        except Exception as error:
            error.add_note(f"with {credential}")
            raise

    def point(self, case):
        """Let the case be about something that exists."""
        case.path_parameters |= {name: value for name, value in self.ids.items() if name in case.path_parameters}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    data = tmp_path_factory.mktemp("conformance") / "data"
    with running(data, "--workers", "1") as service, requests.Session() as session, requests.Session() as signing:
        session.mount("http://", CompressingAdapter())
        signing.mount("http://", SigningAdapter())
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        mauve_json(data, "org", "limits", org, "--reads-per-minute", "1000000")
        token = token_for(data, org=org)
        with httpx.Client(base_url=service.url, headers=bearer(token)) as api:
            app, billed = (api.post("/v1/apps", json={"name": name}).json() for name in ("An app", "Another"))
            for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
                api.put(f"/v1/apps/{billed['app_id']}/webhooks/{provider}", json={"secret": secret})
            keys = [api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": "pk"}).json() for _ in range(2)]
        eventually(lambda: post_events(service.ingest_url, keys[0]["key"]) == 202)
        yield World(
            service.url,
            service.ingest_url,
            session,
            {
                "none": {},
                "wrong": bearer("ctl_live_" + "0" * 56),
                "server key": bearer(app["sk_key"]),
                "publishable key": bearer(keys[0]["key"]),
                "token": bearer(token),
                "token without scope": bearer(token_for(data, "webhooks:write", org)),
            },
            {"app_id": app["app_id"], "key_id": keys[1]["key_id"], "project_id": billed["public_id"]},
            signing,
        )


thorough = schema_with(50)
brief = schema_with(12, coverage={"enabled": False})


@brief.exclude(tag=upkeep.TAG).parametrize()
def test_with_any_credential_the_answer_is_documented(case, world):
    for credential in world.credentials:
        world.call(case, credential)
    world.point(case)
    for credential in world.credentials:
        world.call(case, credential)


@thorough.include(tag=control.TAG).parametrize()
def test_the_control_plane_takes_what_is_documented_and_nothing_else(case, world):
    world.point(case)
    world.call(case, "token", extra_checks=[checks.positive_data_acceptance, checks.negative_data_rejection])


@thorough.include(tag=ingest.TAG).parametrize()
def test_the_ingest_plane_takes_what_is_documented(case, world):
    case.body = with_fresh_ids(whole_numbers(case.body))
    extra_checks = [checks.positive_data_acceptance, checks.unsupported_method]
    if not isinstance(case.body, list):  # Of a batch the valid items are taken, whatever the others are.
        extra_checks.append(checks.negative_data_rejection)
    world.call(case, "server key", extra_checks=extra_checks)


@brief.include(tag=ingest.TAG).parametrize()
def test_the_workers_own_door_answers_the_same(case, world):
    case.body = with_fresh_ids(whole_numbers(case.body))
    world.call(case, "server key", extra_checks=[checks.positive_data_acceptance], url=world.ingest_url)


@pytest.mark.parametrize("credential", ["server key", "token"])
@thorough.include(tag=query.TAG).parametrize()
def test_metrics_are_read_as_documented(case, world, credential):
    if "project" in case.query:
        case.query["project"] = world.ids["project_id"]
    world.call(case, credential, extra_checks=[checks.unsupported_method])


@thorough.include(tag=webhooks.TAG).parametrize()
def test_a_signed_delivery_is_acknowledged_as_documented(case, world):
    world.point(case)
    extra_checks = [checks.positive_data_acceptance, checks.unsupported_method]
    world.call(case, "none", session=world.signing, extra_checks=extra_checks)


@thorough.include(tag=upkeep.TAG).parametrize()
def test_the_service_tells_of_itself_as_documented(case, world):
    world.call(case, "none", extra_checks=[checks.positive_data_acceptance, checks.unsupported_method])


def without_the_status(operation):
    del operation["responses"]["202"]


def with_another_field(operation):
    operation["responses"]["202"]["content"]["application/json"]["schema"] = {"required": ["id"]}


def with_another_header(operation):
    operation["responses"]["202"]["headers"]["ETag"] = {"required": True, "schema": {"type": "string"}}


def with_another_type(operation):
    operation["responses"]["202"]["content"] = {"text/html": {"schema": {"type": "string"}}}


@pytest.mark.parametrize("change", [without_the_status, with_another_field, with_another_header, with_another_type])
def test_a_document_that_tells_something_else_is_found_out(world, change):
    changed = told()
    change(changed["paths"]["/v1/events"]["post"])
    operation = schemathesis.openapi.from_dict(changed)["/v1/events"]["POST"]
    case = operation.Case(body={"name": "seen"}, media_type="application/json")
    with pytest.raises(FailureGroup):
        world.call(case, "server key")
