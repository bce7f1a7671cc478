"""`mauve org`."""

import dataclasses
from pathlib import Path
from typing import Any, Final

import click

from mauve.cli.options import UsageError, data_options, open_existing, open_or_create, org_argument, settings_for
from mauve.cli.output import print_result, table
from mauve.control import ControlParts, operator
from mauve.core.organization import Organization

_INTEGER_MAX: Final = 2**63 - 1
_INTEGER_DIGITS_MAX: Final = 19
_GRACE_DAYS_MAX: Final = 3650
_COUNT: Final = click.IntRange(0, _INTEGER_MAX)


@click.group(no_args_is_help=False)
def org() -> None:
    """Organizations: create, list, suspend, and set limits."""


@org.command()
@click.argument("name")
@data_options
def create(*, name: str, data: Path | None, as_json: bool) -> None:
    """Create an organization."""
    operator.checked_name(name)  # Check it before a data directory is created.
    with open_or_create(settings_for(data)) as parts:
        created = operator.create_organization(parts, name)
    print_result({"org_id": created.org_id}, as_json=as_json, text=created.org_id)


@org.command("list")
@data_options
def list_all(*, data: Path | None, as_json: bool) -> None:
    """List the organizations."""
    with open_existing(data) as parts:
        views = [_view(parts, organization) for organization in parts.catalog.organizations.list_all()]
    rows = [[view["org_id"], view["standing"], _or_dash(view["event_cap"]), view["name"]] for view in views]
    if_empty = "no organizations yet: create one with 'mauve org create NAME'"
    print_result(views, as_json=as_json, text=table(["ORG", "STANDING", "EVENT CAP", "NAME"], rows, if_empty))


@org.command()
@org_argument
@data_options
def suspend(*, org: str, data: Path | None, as_json: bool) -> None:
    """Suspend ingest immediately. Stored data is kept and can still be read."""
    with open_existing(data) as parts:
        _show(parts, operator.suspend(parts, org), as_json=as_json)


@org.command()
@org_argument
@data_options
def resume(*, org: str, data: Path | None, as_json: bool) -> None:
    """Lift a suspension and clear an unpaid invoice."""
    with open_existing(data) as parts:
        _show(parts, operator.resume(parts, org), as_json=as_json)


@org.command()
@org_argument
@click.option(
    "--grace",
    type=click.IntRange(0, _GRACE_DAYS_MAX),
    required=True,
    metavar="DAYS",
    help="Days until ingest is suspended.",
)
@data_options
def unpaid(*, org: str, grace: int, data: Path | None, as_json: bool) -> None:
    """Mark an invoice as unpaid: ingest is suspended when the grace period ends."""
    with open_existing(data) as parts:
        _show(parts, operator.mark_unpaid(parts, org, grace), as_json=as_json)


@org.command()
@org_argument
@click.option("--event-cap", metavar="N|none", help="Events per billing period; none removes the cap.")
@click.option("--reads-per-minute", type=_COUNT, metavar="N", help="Metric reads per minute.")
@click.option(
    "--agent-queries",
    type=_COUNT,
    metavar="N",
    help="Agent queries per billing period: metric reads with a control token that the cache does not answer.",
)
@click.option(
    "--raw-scans",
    type=_COUNT,
    metavar="N",
    help="Raw scans per billing period: the agent queries that read an event_* metric.",
)
@data_options
def limits(*, org: str, event_cap: str | None, data: Path | None, as_json: bool, **given: int | None) -> None:
    """Show the limits, and change those given as options."""
    changes: dict[str, int | None] = {name: value for name, value in given.items() if value is not None}
    if event_cap is not None:
        changes["event_cap"] = _cap_from(event_cap)
    with open_existing(data) as parts:
        organization = operator.find_organization(parts, org)
        if changes:
            organization = operator.change_limits(parts, org, changes)
        _show(parts, organization, as_json=as_json)


def _cap_from(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _INTEGER_DIGITS_MAX or int(text) > _INTEGER_MAX:
        raise UsageError("--event-cap must be a whole number of events, or none")
    return int(text)


def _show(parts: ControlParts, organization: Organization, *, as_json: bool) -> None:
    view = _view(parts, organization)
    text = "\n".join(f"{name.ljust(17)} {_or_dash(value)}" for name, value in view.items())
    print_result(view, as_json=as_json, text=text)


def _view(parts: ControlParts, organization: Organization) -> dict[str, Any]:
    return {
        "org_id": organization.org_id,
        "name": organization.name,
        "standing": organization.standing_at(parts.clock.now_ms()),
        "grace_ends_at": organization.grace_ends_at,
        **dataclasses.asdict(organization.limits),
        "created_at": organization.created_at,
    }


def _or_dash(value: object) -> object:
    return "-" if value is None else value
