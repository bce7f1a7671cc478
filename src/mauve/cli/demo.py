"""`mauve demo`."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mauve.cli.options import UsageError, data_options, open_or_create, settings_for
from mauve.cli.output import print_result, shown_progress
from mauve.config import PORT_MAX, Settings
from mauve.maintenance import Progress
from mauve.urls import http_url

if TYPE_CHECKING:
    from mauve.demo.fill import DemoOrganization

_DAYS_MAX: Final = 730
_PORTS_TRIED: Final = 200


@click.command()
@click.option(
    "--days", type=click.IntRange(1, _DAYS_MAX), default=90, show_default=True, help="Length of the generated history."
)
@click.option("--seed", default="mauve", show_default=True, help="Each seed generates different data.")
@click.option("--add", is_flag=True, help="Add the demo to a data directory that is not empty.")
@click.option("--port", type=click.IntRange(1, PORT_MAX), metavar="P", help="The port that you will serve it on.")
@data_options
def demo(*, days: int, seed: str, add: bool, port: int | None, data: Path | None, as_json: bool) -> None:
    """Generate three demo apps with realistic history, to explore with 'mauve serve'."""
    settings = settings_for(data)
    if not add and settings.data.exists() and any(settings.data.iterdir()):
        raise UsageError(f"{settings.data} is not empty: choose another --data, or add the demo to it with --add")
    with shown_progress(as_json=as_json, format_total=str) as progress:
        organization = _fill(settings, days, seed, progress)
    from mauve.demo.fill import EMAIL  # noqa: PLC0415 - slow to import

    place = _place_to_serve(settings, port)
    view = {
        "url": place.url,
        "email": EMAIL,
        "password": organization.password.reveal(),
        "org_id": organization.org_id,
        "apps": [{"app_id": app.app_id, "public_id": app.public_id, "name": app.name} for _, app in organization.apps],
    }
    print_result(view, as_json=as_json, text=_summary(view, place, settings))


def _fill(settings: Settings, days: int, seed: str, progress: Progress) -> "DemoOrganization":
    """Fill the directory. No service may be running: only one process can open the embedded warehouse."""
    from mauve.demo.fill import create_demo_organization, fill  # noqa: PLC0415
    from mauve.demo.population import DateRange  # noqa: PLC0415
    from mauve.stores.data_directory import hold  # noqa: PLC0415
    from mauve.wiring.warehouse import fill_parts  # noqa: PLC0415 - slow to import

    with open_or_create(settings) as control, closing(hold(settings.data)), fill_parts(settings, control) as parts:
        organization = create_demo_organization(control)
        progress.begin("generating", days * len(organization.apps))
        for _ in fill(parts, organization, DateRange(control.clock.now_ms(), days), seed):
            progress.add(1)
    return organization


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to serve the demo, and the options to do so."""

    url: str
    options: str


def _place_to_serve(settings: Settings, port: int | None) -> _Place:
    """Return the given port and the next, or the configured ports unless they are in use."""
    from mauve.server.supervisor import is_free  # noqa: PLC0415 - slow to import

    configured = (settings.port, settings.ingest_port)
    if port is None and all(is_free(settings.host, each) for each in configured):
        return _Place((settings.public_url or http_url(settings.host, settings.port)).rstrip("/"), "")
    if port is None:
        tried = range(settings.port + 10, min(settings.port + _PORTS_TRIED, PORT_MAX), 10)
        free = (each for each in tried if is_free(settings.host, each) and is_free(settings.host, each + 1))
        port = next(free, settings.port)
    ingest_port = port + 1 if port < PORT_MAX else port - 1
    return _Place(http_url(settings.host, port), f" --port {port} --ingest-port {ingest_port}")


def _summary(view: Mapping[str, object], place: _Place, settings: Settings) -> str:
    command = f"mauve serve --data {settings.data}{place.options}"
    return "\n".join(
        [
            f"Three apps are in {settings.data}. Run '{command}', then sign in:",
            f"  address    {view['url']}",
            f"  e-mail     {view['email']}",
            f"  password   {view['password']}",
        ]
    )
