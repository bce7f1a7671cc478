"""`mauve demo`."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mauve.cli.options import UsageError, base_url, data_options, open_or_create, settings_for
from mauve.cli.output import print_result
from mauve.config import Settings

if TYPE_CHECKING:
    from mauve.demo.fill import DemoOrganization

_DAYS_MAX: Final = 730


@click.command()
@click.option(
    "--days", type=click.IntRange(1, _DAYS_MAX), default=90, show_default=True, help="Length of the generated history."
)
@click.option("--seed", default="mauve", show_default=True, help="Another seed generates other data.")
@click.option("--add", is_flag=True, help="Add the demo to a data directory that is not empty.")
@data_options
def demo(*, days: int, seed: str, add: bool, data: Path | None, as_json: bool) -> None:
    """Generate three demo apps with realistic history, to explore with 'mauve serve'."""
    settings = settings_for(data)
    if not add and settings.data.exists() and any(settings.data.iterdir()):
        raise UsageError(f"{settings.data} is not empty: choose another --data, or add the demo to it with --add")
    organization = _fill(settings, days, seed, hidden=as_json or not sys.stderr.isatty())
    from mauve.demo.fill import EMAIL  # noqa: PLC0415 - slow to import

    view = {
        "url": base_url(data),
        "email": EMAIL,
        "password": organization.password.reveal(),
        "org_id": organization.org_id,
        "apps": [{"app_id": app.app_id, "public_id": app.public_id, "name": app.name} for _, app in organization.apps],
    }
    print_result(view, as_json=as_json, text=_summary(view, settings))


def _fill(settings: Settings, days: int, seed: str, *, hidden: bool) -> "DemoOrganization":
    """Fill the directory while no service runs on it: only one process can open the embedded warehouse."""
    from mauve.demo.dates import DateRange  # noqa: PLC0415
    from mauve.demo.fill import create_demo_organization, fill  # noqa: PLC0415
    from mauve.stores.data_directory import hold  # noqa: PLC0415
    from mauve.wiring.warehouse import fill_parts  # noqa: PLC0415 - slow to import

    with open_or_create(settings) as control, closing(hold(settings.data)), fill_parts(settings, control) as parts:
        organization = create_demo_organization(control)
        steps = fill(parts, organization, DateRange(control.clock.now_ms(), days), seed)
        length = days * len(organization.apps)
        with click.progressbar(steps, length=length, label="generating", file=sys.stderr, hidden=hidden) as bar:
            for _ in bar:
                pass
    return organization


def _summary(view: Mapping[str, object], settings: Settings) -> str:
    return "\n".join(
        [
            f"Three apps are in {settings.data}. Run 'mauve serve --data {settings.data}', then sign in:",
            f"  address    {view['url']}",
            f"  e-mail     {view['email']}",
            f"  password   {view['password']}",
        ]
    )
