"""`mauve ready`: a health check for containers, which have no other HTTP client."""

import http.client
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from mauve.cli.options import quiet_options, settings_for
from mauve.cli.output import print_result
from mauve.stores.data_directory import holder_of

_ANSWER_S_MAX: Final = 5.0
_ANSWER_BYTES_MAX: Final = 65_536
_answer: Final = msgspec.json.Decoder(dict[str, Any])


@click.command()
@quiet_options
def ready(*, data: Path | None, as_json: bool) -> None:
    """Ask the running service on this machine whether it is ready; exit 1 if not."""
    holder = holder_of(settings_for(data).data)
    answer = {"ok": False, "reason": "no service runs on this data directory"} if holder is None else _ask(holder.url)
    is_ready = answer.get("ok") is True
    print_result(answer, as_json=as_json, text="ready" if is_ready else f"not ready: {_reason(answer)}")
    raise click.exceptions.Exit(0 if is_ready else 1)


def _ask(url: str) -> dict[str, Any]:
    """Return the answer of /readyz, or a substitute if there is none."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_S_MAX)
    try:
        connection.request("GET", "/readyz")
        return _answer.decode(connection.getresponse().read(_ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        return {"ok": False, "reason": f"{url} does not answer ({error})"}
    finally:
        connection.close()


def _reason(answer: dict[str, Any]) -> str:
    down = [name for name, state in answer.get("engines", {}).items() if state != "ok"]
    return str(answer.get("reason") or f"{', '.join(down) or 'an engine'} cannot be reached")
