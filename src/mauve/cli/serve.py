"""`mauve serve`, `mauve doctor`, and `mauve ready`: a health check for containers, which have no other HTTP client."""

import dataclasses
import http.client
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from mauve.cli.options import UsageError, data_options, quiet_options, settings_for
from mauve.cli.output import print_result
from mauve.config import PORT_MAX, SECRETS, SETTINGS, WORKERS_MAX, Settings, misspelled
from mauve.stores.data_directory import holder_of

_ANSWER_S_MAX: Final = 5.0
_ANSWER_BYTES_MAX: Final = 65_536
_answer: Final = msgspec.json.Decoder(dict[str, Any])
_PORT: Final = click.IntRange(0, PORT_MAX)
_NAME_WIDTH: Final = max(len(setting.name) for setting in SETTINGS)
_SETTINGS: Final = "\n".join(
    f"  {setting.name.ljust(_NAME_WIDTH)} {setting.meaning} [{setting.default}]" for setting in SETTINGS
)
_SETTINGS_HELP: Final = f"""\b
Settings (environment variables; an option overrides its variable):
{_SETTINGS}

{", ".join(f"{name}_FILE" for name in SECRETS[:-1])} and {SECRETS[-1]}_FILE name a file that
holds the value instead; a trailing line break is ignored.
"""


@click.command()
@data_options
def doctor(*, data: Path | None, as_json: bool) -> None:
    """Check the data directory, engines, versions, clock and disk, and say what to fix."""
    from mauve.server.doctor import run_checks  # noqa: PLC0415 - slow to import

    findings = run_checks(settings_for(data))
    healthy = all(finding.ok for finding in findings)
    lines = [f"{'ok ' if finding.ok else 'BAD'}  {finding.name.ljust(15)} {finding.detail}" for finding in findings]
    lines += [f"to do: {finding.advice}" for finding in findings if not finding.ok]
    print_result({"ok": healthy, "checks": findings}, as_json=as_json, text="\n".join(lines))
    raise click.exceptions.Exit(0 if healthy else 1)


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


if TYPE_CHECKING:
    from mauve.server.supervisor import Running


@click.command(epilog=_SETTINGS_HELP)
@click.option("--host", metavar="H", help="The address to listen on.")
@click.option("--port", type=_PORT, metavar="P", help="The port of the dashboard and API.")
@click.option("--ingest-port", type=_PORT, metavar="P", help="The ingest workers' own port.")
@click.option("--workers", type=click.IntRange(1, WORKERS_MAX), metavar="N", help="Number of ingest workers.")
@click.option(
    "--role",
    type=click.Choice(["all", "ingest", "api", "loader"]),
    default="all",
    help="What this machine runs; any role but 'all' needs every engine on a server.",
)
@data_options
def serve(*, data: Path | None, as_json: bool, **given: Any) -> None:  # noqa: ANN401 - the options above
    """Run the service until it receives SIGTERM or SIGINT."""
    import structlog  # noqa: PLC0415 - slow to import

    from mauve.logs import configure_logs  # noqa: PLC0415
    from mauve.server import supervisor  # noqa: PLC0415

    changes = {name: value for name, value in given.items() if value is not None}
    settings = dataclasses.replace(settings_for(data), **changes)
    if settings.role != "all":
        _require_servers(settings)
    configure_logs(settings.log, process="supervisor")
    log = structlog.get_logger()
    for name, setting in misspelled().items():
        log.warning("setting_unknown", name=name, advice=f"nothing reads it: did you mean {setting}?")
    supervisor.serve(settings, lambda running: print_result(running, as_json=as_json, text=_text(running)))


def _require_servers(settings: Settings) -> None:
    """Raise unless every engine is on a server: other machines cannot use this machine's files."""
    urls = {
        "MAUVE_DATABASE_URL": settings.database_url,
        "MAUVE_WAREHOUSE_URL": settings.warehouse_url,
        "MAUVE_STREAM_URL": settings.stream_url,
    }
    missing = [name for name, url in urls.items() if url is None]
    if missing:
        raise UsageError(f"--role {settings.role} needs every engine on a server: set {', '.join(missing)}, too")


def _text(running: "Running") -> str:
    lines = ["Mauve is running." if running.role == "all" else f"Mauve is running, role {running.role}."]
    if running.role in {"all", "api"}:
        lines.append(f"  dashboard and API   {running.url}  (API reference: {running.url}/docs)")
    if running.role == "loader":
        lines.append(f"  health              {running.url}/readyz")
    if running.ingest_url is not None:
        lines.append(f"  ingest              {running.ingest_url}")
    lines.append(f"  data                {running.data}")
    if running.setup_link is not None:
        lines.append(f"  set-up link         {running.setup_link}  (works once, creates the first owner)")
    if running.setup_link_printed_by is not None:
        where = f"printed on {running.setup_link_printed_by}"
        lines.append(f"  set-up link         {where}  ('mauve user link' prints a new one, which replaces it)")
    return "\n".join(lines)
