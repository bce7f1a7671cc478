"""An operation as a line for the shell."""

import json
from collections.abc import Mapping
from typing import Any, Final

_VARIABLES: Final = {"serverKey": "$KEY", "publishableKey": "$KEY", "controlToken": "$TOKEN"}


def curl(method: str, path: str, operation: Mapping[str, Any], schemes: Mapping[str, Any]) -> str:
    """Return a command that a reader can paste, given `URL` and the credential as variables."""
    parts = [f'curl -i "$URL{_filled(path, operation)}"']
    body = _first_body(operation)
    if method not in {"GET", "POST"}:
        parts.append(f"-X {method}")
    parts += _credential(operation, schemes)
    if body is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d {_quoted(_written(body))}"]
    return " \\\n  ".join(parts)


def _filled(path: str, operation: Mapping[str, Any]) -> str:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return path


def _credential(operation: Mapping[str, Any], schemes: Mapping[str, Any]) -> list[str]:
    for requirement in operation["security"][:1]:
        name = next(iter(requirement))
        scheme = schemes[name]
        if scheme["type"] == "apiKey":
            return [f"-H '{scheme['name']}: …'"]
        return [f'-H "Authorization: Bearer {_VARIABLES[name]}"']
    return []


def _first_body(operation: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return next((example["value"] for example in content.get("examples", {}).values()), None)


def _written(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return JSON, the items of an array one on a line."""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return "[\n    " + ",\n    ".join(json.dumps(item, ensure_ascii=False) for item in value) + "]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
