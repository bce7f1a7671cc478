"""The OpenAPI document: the texts of `texts.toml`, with examples and schemas from the service's own code."""

import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec

from mauve.control import bodies
from mauve.control.plane import BODY_BYTES_MAX
from mauve.core.biller import Provider
from mauve.core.credential import Scope
from mauve.core.problems import unauthorized
from mauve.ingest.webhooks import endpoint as webhook
from mauve.ingest.webhooks.signatures import WINDOW_S
from mauve.ingest.wire import ITEM_BYTES_MAX, ITEMS_MAX
from mauve.metrics.questions import NAME_CHARACTERS_MAX
from mauve.metrics.registry import METRICS, NAMES_MAX
from mauve.openapi.examples import BODIES, RESPONSES, Response, Schema
from mauve.openapi.schemas import schemas
from mauve.query.answer_cache import Freshness
from mauve.stores.limits.read_meter import Throttle
from mauve.web.envelopes import data_reply
from mauve.web.messages import Reply

_TEXTS: Final = Path(__file__).with_name("texts.toml")


def _list_of(values: Sequence[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _array_of(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _values() -> Mapping[str, object]:
    """Return the values of the placeholders in the texts."""
    return {
        "app_id": bodies.APP_ID_EXAMPLE,
        "challenge": data_reply(unauthorized()).headers["www-authenticate"],
        "control_body_kib": BODY_BYTES_MAX // 1024,
        "delivery_mb": webhook.BODY_BYTES_MAX // 1024**2,
        "freshnesses": _array_of(list(Freshness)),
        "item_kb": ITEM_BYTES_MAX // 1024,
        "items_max": ITEMS_MAX,
        "key_id": bodies.KEY_ID_EXAMPLE,
        "metrics": _array_of(list(METRICS)),
        "name_characters_max": NAME_CHARACTERS_MAX,
        "names_max": f"{NAMES_MAX:,}",
        "project_id": bodies.PROJECT_ID_EXAMPLE,
        "providers": _array_of(list(Provider)),
        "raw_scans": _list_of([metric.name for metric in METRICS.values() if metric.is_raw_scan]),
        "scopes": _list_of(list(Scope)),
        "signature_minutes": WINDOW_S // 60,
        "throttles": _array_of(list(Throttle)),
    }


@cache
def texts() -> dict[str, Any]:
    """Return the texts, with their placeholders filled in."""
    return tomllib.loads(Template(_TEXTS.read_text("utf-8")).substitute(_values()))


def document() -> dict[str, Any]:
    described = texts()
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for label in described["operations"]:
        method, path = label.split()
        paths[path][method.lower()] = _operation(label)
    return {
        "openapi": "3.1.0",
        "info": described["info"],
        "servers": [described["server"]],
        "tags": [{"name": name, "description": tag["description"]} for name, tag in described["tags"].items()],
        "paths": dict(paths),
        "components": {"schemas": schemas(), "securitySchemes": described["securitySchemes"]},
    }


def _operation(label: str) -> dict[str, Any]:
    text = texts()["operations"][label]
    tag = texts()["tags"][text["tag"]]
    scope = next((each["controlToken"][0] for each in text.get("security", []) if "controlToken" in each), "")
    whens = {**tag.get("responses", {}), **text.get("responses", {})}
    whens = {name: when.replace("{scope}", scope) for name, when in whens.items()}
    meanings = "\n".join(f"- `{name}`: {whens.get(name)}" for name in METRICS)
    by_status: dict[int, list[Response]] = defaultdict(list)
    for response in RESPONSES[label]:
        by_status[int(response.reply.status)].append(response)
    return {
        "operationId": text["id"],
        "tags": [text["tag"]],
        "summary": text["summary"],
        "description": text["description"].replace("{metrics}", meanings),
        "security": text.get("security", []),
        **({"parameters": [_parameter(name) for name in text["parameters"]]} if "parameters" in text else {}),
        **({"requestBody": _body(label, text["body"])} if "body" in text else {}),
        "responses": {str(status): _response(by_status[status], whens) for status in sorted(by_status)},
    }


def _parameter(name: str) -> dict[str, Any]:
    described = texts()["parameters"][name]
    return {"name": name, "required": described["in"] == "path", **described}


def _body(label: str, description: str) -> dict[str, Any]:
    body = BODIES[label]
    examples = {name: {"summary": summary, "value": value} for name, (summary, value) in body.examples.items()}
    content = {"application/json": {"schema": body.schema, "examples": examples}}
    return {"required": True, "description": description, "content": content}


def _response(responses: Sequence[Response], whens: Mapping[str, str]) -> dict[str, Any]:
    """Describe the responses that share a status."""
    texts = [whens[response.name] for response in responses]
    described: dict[str, Any] = {"description": "\n".join(f"- {text}" for text in texts) if texts[1:] else texts[0]}
    if headers := _headers([response.reply for response in responses]):
        described["headers"] = headers
    if responses[0].schema is not None:
        media_type = responses[0].reply.headers["content-type"].partition(";")[0]
        values = zip(responses, texts, strict=True)
        examples = {response.name: {"summary": text, "value": _example_of(response.reply)} for response, text in values}
        described["content"] = {media_type: {"schema": _any_of(responses), "examples": examples}}
    return described


def _headers(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the headers of replies with one status; a header is required if every reply carries it."""
    spellings = {name.lower(): name for name in texts()["headers"]}
    names = dict.fromkeys(name for reply in replies for name in reply.headers if name != "content-type")
    return {
        spellings[name]: {
            **texts()["headers"][spellings[name]],
            "required": all(name in reply.headers for reply in replies),
        }
        for name in names
    }


def _any_of(responses: Sequence[Response]) -> Schema:
    """Return the schema that the responses share, or the choice between theirs."""
    found = list({str(response.schema): response.schema for response in responses if response.schema}.values())
    return found[0] if len(found) == 1 else {"anyOf": found}


def _example_of(reply: Reply) -> Any:  # noqa: ANN401 - any JSON value
    is_json = reply.headers["content-type"] == "application/json"
    return msgspec.json.decode(reply.body) if is_json else reply.body.decode()
