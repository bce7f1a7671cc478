"""The running service conforms to its own OpenAPI document: every response to generated requests is documented.

Every operation is tested thoroughly with the credential it needs, on resources that exist, and briefly with every
other credential.
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
    """Forbid unlisted fields: an undocumented field in a response is a mistake."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {**inner, "additionalProperties": False} if "properties" in inner else inner


def strict_document():
    """Return the document with response schemas closed, and few currencies, because each one is tried."""
    whole = json.loads(msgspec.json.encode(document()))
    schemas = whole["components"]["schemas"]
    requested = {"NewApp", "AppChanges", "NewKey", "WebhookSecret", "Event", "Payment", "PaymentProps", "Subscription"}
    schemas |= {name: closed(schema) for name, schema in schemas.items() if name not in requested}
    schemas["Currency"]["enum"] = ["eur", "jpy", "usd"]
    return whole


def schema_with(examples_max, **phases):
    config = {
        "seed": 1,
        "suppress-health-check": ["all"],  # a busy machine must not fail the test
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
    return schemathesis.openapi.from_dict(strict_document(), config=schemathesis.Config.from_dict(config))


def whole_numbers(body):
    """Write 5.0 as 5. Both are integers to JSON Schema, but the contract accepts only the second for money."""
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
    """Give each payment a fresh id: a different payment with a used id is rejected, which no schema can express."""
    if isinstance(body, list):
        return [with_fresh_ids(item) for item in body]
    match body:
        case {"name": "payment", "id": str(id_)} if 0 < len(id_) <= 256:
            return {**body, "id": f"{id_[:240]} {next(NUMBERS)}"}
        case _:
            return body


class CompressingAdapter(requests.adapters.HTTPAdapter):
    """Compresses a body according to its Content-Encoding, which the generator does not."""

    def send(self, request, **options):
        compress = COMPRESSIONS.get(request.headers.get("content-encoding"))
        if compress is not None and request.body:
            body = request.body.encode() if isinstance(request.body, str) else request.body
            request.prepare_body(compress(body), None)
        return super().send(request, **options)


class SigningAdapter(requests.adapters.HTTPAdapter):
    """Signs every request as the biller in its path does."""

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
        """Send the case; the response must be documented and pass the extra checks."""
        response = case.call(
            base_url=url or self.url, headers=self.credentials[credential], session=session or self.session
        )
        try:
            case.validate_response(response, checks=[*DOCUMENTED, *extra_checks])
        except Exception as error:
            error.add_note(f"with {credential}")
            raise

    def use_existing_ids(self, case):
        """Make the case refer to resources that exist."""
        case.path_parameters |= {name: value for name, value in self.ids.items() if name in case.path_parameters}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    data = tmp_path_factory.mktemp("conformance") / "data"
    with running(data, "--workers", "1") as mauve, requests.Session() as session, requests.Session() as signing:
        session.mount("http://", CompressingAdapter())
        signing.mount("http://", SigningAdapter())
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        mauve_json(data, "org", "limits", org, "--reads-per-minute", "1000000")
        token = token_for(data, org=org)
        with httpx.Client(base_url=mauve.url, headers=bearer(token)) as api:
            app, billed = (api.post("/v1/apps", json={"name": name}).json() for name in ("An app", "Another"))
            for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
                api.put(f"/v1/apps/{billed['app_id']}/webhooks/{provider}", json={"secret": secret})
            keys = [api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": "pk"}).json() for _ in range(2)]
        eventually(lambda: post_events(mauve.ingest_url, keys[0]["key"]) == 202)
        yield World(
            mauve.url,
            mauve.ingest_url,
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


@brief.exclude(tag="The service").parametrize()
def test_the_response_to_any_credential_is_documented(case, world):
    for credential in world.credentials:
        world.call(case, credential)
    world.use_existing_ids(case)
    for credential in world.credentials:
        world.call(case, credential)


@thorough.include(tag="Apps and keys").parametrize()
def test_the_control_plane_accepts_what_is_documented_and_nothing_else(case, world):
    world.use_existing_ids(case)
    world.call(case, "token", extra_checks=[checks.positive_data_acceptance, checks.negative_data_rejection])


@thorough.include(tag="Ingest").parametrize()
def test_the_ingest_plane_accepts_what_is_documented(case, world):
    case.body = with_fresh_ids(whole_numbers(case.body))
    extra_checks = [checks.positive_data_acceptance, checks.unsupported_method]
    if not isinstance(case.body, list):  # The valid items of a batch are accepted, whatever the others are.
        extra_checks.append(checks.negative_data_rejection)
    world.call(case, "server key", extra_checks=extra_checks)


@brief.include(tag="Ingest").parametrize()
def test_the_workers_own_port_answers_the_same(case, world):
    case.body = with_fresh_ids(whole_numbers(case.body))
    world.call(case, "server key", extra_checks=[checks.positive_data_acceptance], url=world.ingest_url)


@pytest.mark.parametrize("credential", ["server key", "token"])
@thorough.include(tag="Metrics").parametrize()
def test_metrics_are_read_as_documented(case, world, credential):
    if "project" in case.query:
        case.query["project"] = world.ids["project_id"]
    world.call(case, credential, extra_checks=[checks.unsupported_method])


@thorough.include(tag="Billing webhooks").parametrize()
def test_a_signed_delivery_is_acknowledged_as_documented(case, world):
    world.use_existing_ids(case)
    extra_checks = [checks.positive_data_acceptance, checks.unsupported_method]
    world.call(case, "none", session=world.signing, extra_checks=extra_checks)


@thorough.include(tag="The service").parametrize()
def test_health_and_the_reference_are_served_as_documented(case, world):
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
def test_a_wrong_document_is_detected(world, change):
    changed = strict_document()
    change(changed["paths"]["/v1/events"]["post"])
    operation = schemathesis.openapi.from_dict(changed)["/v1/events"]["POST"]
    case = operation.Case(body={"name": "seen"}, media_type="application/json")
    with pytest.raises(FailureGroup):
        world.call(case, "server key")
