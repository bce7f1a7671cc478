"""`mauve demo`."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mauve.cli.frame import MistakeError, answer, base_url, on_data, opened, settings_at
from mauve.config import Settings

if TYPE_CHECKING:
    from mauve.demo.fill import DemoOrganization

_DAYS_MAX: Final = 730


@click.command()
@click.option(
    "--days", type=click.IntRange(1, _DAYS_MAX), default=90, show_default=True, help="How long a history to make up."
)
@click.option("--seed", default="mauve", show_default=True, help="Another word tells another story.")
@click.option("--add", is_flag=True, help="Put it beside what the data directory holds.")
@on_data
def demo(*, days: int, seed: str, add: bool, data: Path | None, as_json: bool) -> None:
    """Make up three apps with a lively history, to look around in. Then run 'mauve serve'."""
    settings = settings_at(data)
    if not add and settings.data.exists() and any(settings.data.iterdir()):
        raise MistakeError(f"{settings.data} is not empty: choose another --data, or put the demo beside it with --add")
    organization = _filled(settings, days, seed, hidden=as_json or not sys.stderr.isatty())
    from mauve.demo.fill import EMAIL  # noqa: PLC0415 - slow to import

    view = {
        "url": base_url(data),
        "email": EMAIL,
        "password": organization.password.reveal(),
        "org_id": organization.org_id,
        "apps": [{"app_id": app.app_id, "public_id": app.public_id, "name": app.name} for _, app in organization.apps],
    }
    answer(view, as_json=as_json, text=_told(view, settings))


def _filled(settings: Settings, days: int, seed: str, *, hidden: bool) -> "DemoOrganization":
    """Fill the directory while no service can run on it: one process alone opens the embedded warehouse."""
    from mauve.demo.dates import DateRange  # noqa: PLC0415
    from mauve.demo.fill import create_demo_organization, fill  # noqa: PLC0415
    from mauve.stores.data_directory import hold  # noqa: PLC0415
    from mauve.wiring.warehouse import fill_parts  # noqa: PLC0415 - slow to import

    with opened(settings) as control, closing(hold(settings.data)), fill_parts(settings, control) as parts:
        organization = create_demo_organization(control)
        steps = fill(parts, organization, DateRange(control.clock.now_ms(), days), seed)
        length = days * len(organization.apps)
        with click.progressbar(steps, length=length, label="making up", file=sys.stderr, hidden=hidden) as bar:
            for _ in bar:
                pass
    return organization


def _told(view: Mapping[str, object], settings: Settings) -> str:
    return "\n".join(
        [
            f"Three apps are in {settings.data}. Run 'mauve serve --data {settings.data}', then sign in:",
            f"  address    {view['url']}",
            f"  e-mail     {view['email']}",
            f"  password   {view['password']}",
        ]
    )
