"""The running service against its own OpenAPI document: whatever is sent, what comes back is documented.

Every operation is tried thoroughly by whoever may use it, on things that exist, and briefly with every credential.
"""

import gzip
import json
from dataclasses import dataclass

import httpx2 as httpx
import hypothesis
import msgspec
import pytest
import requests
import schemathesis
import zstandard
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from mauve.reference import control, ingest, query, upkeep, webhooks
from mauve.reference.document import document
from support import bearer, eventually, mauve_json, post_events, running, token_for

DOCUMENTED = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
CREDENTIALS = ["none", "wrong", "server key", "publishable key", "token", "token without scope"]
COMPRESSIONS = {"gzip": gzip.compress, "zstd": zstandard.compress}
SAFE = {"max-examples": 25}


def closed(schema):
    """Let no object hold more than is listed: what is answered and not documented is a mistake."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {**inner, "additionalProperties": False} if "properties" in inner else inner


def told():
    """Return the document, with what only answers hold closed."""
    whole = json.loads(msgspec.json.encode(document()))
    schemas = whole["components"]["schemas"]
    asked = {"NewApp", "AppChanges", "NewKey", "WebhookSecret", "Event", "Payment", "PaymentProps", "Subscription"}
    schemas |= {name: closed(schema) for name, schema in schemas.items() if name not in asked}
    return whole


def schema_with(examples_max, **phases):
    config = {
        "seed": 1,
        "generation": {"max-examples": examples_max, "deterministic": True, "with-security-parameters": False, "database": "none"},
        "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx"]}},
        "phases": phases,
    }
    return schemathesis.openapi.from_dict(told(), config=schemathesis.Config.from_dict(config))


class CompressingAdapter(requests.adapters.HTTPAdapter):
    """Sends a body as its Content-Encoding says, which the generator does not."""

    def send(self, request, **options):
        compress = COMPRESSIONS.get(request.headers.get("content-encoding"))
        if compress is not None and request.body:
            body = request.body.encode() if isinstance(request.body, str) else request.body
            request.prepare_body(compress(body), None)
        return super().send(request, **options)


@dataclass(frozen=True)
class World:
    url: str
    ingest_url: str
    session: requests.Session
    credentials: dict[str, dict[str, str]]
    ids: dict[str, str]

    def call(self, case, credential, extra_checks=(), url=None):
        return case.call_and_validate(
            base_url=url or self.url,
            headers=self.credentials[credential],
            session=self.session,
            checks=[*DOCUMENTED, *extra_checks],
        )

    def point(self, case):
        """Let the case be about something that exists."""
        case.path_parameters |= {name: value for name, value in self.ids.items() if name in case.path_parameters}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    data = tmp_path_factory.mktemp("conformance") / "data"
    with running(data, "--workers", "1") as service, requests.Session() as session:
        session.mount("http://", CompressingAdapter())
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        mauve_json(data, "org", "limits", org, "--reads-per-minute", "1000000")
        token = token_for(data, org=org)
        with httpx.Client(base_url=service.url, headers=bearer(token)) as api:
            app = api.post("/v1/apps", json={"name": "An app"}).json()
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
            {"app_id": app["app_id"], "key_id": keys[1]["key_id"], "project_id": app["public_id"]},
        )


thorough = schema_with(25)
brief = schema_with(6, coverage={"enabled": False})
SLOW = hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))


@pytest.mark.parametrize("credential", CREDENTIALS)
@brief.exclude(tag=upkeep.TAG).parametrize()
def test_with_any_credential_the_answer_is_documented(case, world, credential):
    world.call(case, credential)


@thorough.include(tag=control.TAG).parametrize()
def test_the_control_plane_takes_what_is_documented_and_nothing_else(case, world):
    world.point(case)
    world.call(case, "token", [checks.positive_data_acceptance, checks.negative_data_rejection])


@thorough.include(tag=ingest.TAG).parametrize()
def test_the_ingest_plane_takes_what_is_documented(case, world):
    world.call(case, "server key", [checks.positive_data_acceptance, checks.unsupported_method])


@brief.include(tag=ingest.TAG).parametrize()
def test_the_workers_own_door_answers_the_same(case, world):
    world.call(case, "server key", [checks.positive_data_acceptance], url=world.ingest_url)


@pytest.mark.parametrize("credential", ["server key", "token"])
@thorough.include(tag=query.TAG).parametrize()
def test_metrics_are_read_as_documented(case, world, credential):
    if "project" in (case.query or {}):
        case.query["project"] = world.ids["project_id"]
    world.call(case, credential, [checks.unsupported_method])


@thorough.include(tag=upkeep.TAG).parametrize()
def test_the_service_tells_of_itself_as_documented(case, world):
    world.call(case, "none", [checks.positive_data_acceptance, checks.unsupported_method])
