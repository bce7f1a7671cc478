"""`mauve app`."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec

from mauve.cli.options import UsageError, data_options, open_existing, org_option, settings_for
from mauve.cli.output import counts_of, print_result, table, utc_time
from mauve.control import ControlParts, operator
from mauve.control.apps import archive_app, create_app, restore_app
from mauve.control.bodies import NewAppBody, app_body, created_app_body
from mauve.core.app import App, AppType, Ownership
from mauve.maintenance.erase import Erased, seconds_to_settle
from mauve.stores.data_directory import holder_of

app_argument = click.argument("app", metavar="APP")


@click.group(no_args_is_help=False)
def app() -> None:
    """Apps."""


@app.command()
@click.argument("name")
@org_option
@click.option(
    "--ownership",
    type=click.Choice([each.value for each in Ownership]),
    default=Ownership.MINE.value,
    show_default=True,
    help="Whether you run it for yourself or for a client.",
)
@click.option(
    "--type",
    "type_",
    type=click.Choice([each.value for each in AppType]),
    default=AppType.SAAS.value,
    show_default=True,
    help="The kind of app.",
)
@data_options
def create(*, name: str, org: str | None, ownership: str, type_: str, data: Path | None, as_json: bool) -> None:
    """Create an app with its first server key. The key is shown only once."""
    operator.checked_name(name)
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        created, key = create_app(parts, org_id, NewAppBody(name, Ownership(ownership), AppType(type_)))
    view = created_app_body(created, key.reveal())
    text = f"app         {view.app_id}\nproject     {view.public_id}\nserver key  {view.sk_key}"
    print_result(view, as_json=as_json, text=text)


@app.command("list")
@org_option
@click.option("--archived", is_flag=True, help="List the archived apps instead.")
@data_options
def list_all(*, org: str | None, archived: bool, data: Path | None, as_json: bool) -> None:
    """List an organization's apps."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        found = parts.catalog.apps.archived_of(org_id) if archived else parts.catalog.apps.all_of(org_id)
    views = [_view(each) for each in found]
    print_result(views, as_json=as_json, text=_archived_listing(found) if archived else _listing(found))


def _view(app: App) -> dict[str, object]:
    view: dict[str, object] = msgspec.to_builtins(app_body(app))
    return view if app.archived_at is None else view | {"archived_at": app.archived_at}


def _listing(apps: Sequence[App]) -> str:
    rows = [[each.app_id, each.public_id, each.test_public_id or "-", each.name] for each in apps]
    return table(
        ["APP", "PROJECT", "TEST PROJECT", "NAME"], rows, "no apps yet: create one with 'mauve app create NAME'"
    )


def _archived_listing(apps: Sequence[App]) -> str:
    rows = [
        [each.app_id, each.public_id, each.test_public_id or "-", utc_time(each.archived_at or 0), each.name]
        for each in apps
    ]
    return table(["APP", "PROJECT", "TEST PROJECT", "ARCHIVED", "NAME"], rows, "no archived apps")


@app.command()
@app_argument
@data_options
def archive(*, app: str, data: Path | None, as_json: bool) -> None:
    """Archive an app: hide it and refuse its keys and webhooks. Its data is kept."""
    with open_existing(data) as parts:
        archived = archive_app(parts, operator.find_app(parts, app))
    text = f"archived {archived.name!r}; 'mauve app restore {app}' undoes it"
    print_result(app_body(archived), as_json=as_json, text=text)


@app.command()
@app_argument
@data_options
def restore(*, app: str, data: Path | None, as_json: bool) -> None:
    """Restore an archived app, with the keys and webhook secrets it had."""
    with open_existing(data) as parts:
        restored = restore_app(parts, operator.find_app(parts, app))
    print_result(app_body(restored), as_json=as_json, text=f"restored {restored.name!r}")


@app.command()
@app_argument
@click.option("--name", required=True, metavar="NAME", help="The app's name, as a safeguard.")
@data_options
def delete(*, app: str, name: str, data: Path | None, as_json: bool) -> None:
    """Delete an app and all its data. This cannot be undone. If it is interrupted, run it again."""
    from mauve.server.admin_client import store_operations  # noqa: PLC0415 - slow to import
    from mauve.wiring.cluster import is_shared  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        if name != found.name:
            raise UsageError(f"the app {app} has a different name: check the id and the name with 'mauve app list'")
        if sys.stdin is not None and sys.stdin.isatty():
            click.confirm(f"Delete {name!r} with all its data? This cannot be undone.", abort=True, err=True)
        archived = archive_app(parts, found)
        operator.refused_since(archived)
        if holder_of(settings.data) is not None or is_shared(settings):  # Other machines may serve it.
            wait_until_settled(parts, app)
        with store_operations(settings) as stores:
            deleted = stores.delete_projects(archived.projects)
        operator.forget_app(parts, archived)
    print_result(deleted, as_json=as_json, text=_summary(deleted))


def wait_until_settled(parts: ControlParts, app_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait for requests that began before the app was archived. Refuse if the app is restored while waiting."""
    while seconds := _seconds_to_settle(parts, app_id):
        click.echo(f"waiting {seconds:.0f} s for requests that began before the app was archived", err=True)
        sleep(seconds)


def _seconds_to_settle(parts: ControlParts, app_id: str) -> float:
    refused_since = operator.refused_since(operator.find_app(parts, app_id))
    return seconds_to_settle(refused_since, parts.clock.now_ms())


def _summary(deleted: Erased) -> str:
    lines = [f"deleted the app, with {counts_of(deleted)}"]
    if not deleted.queue_is_clean:
        lines.append("the queue's files hold loaded events until new ones overwrite them")
    if not deleted.journal_is_clean:
        lines.append("ledger.db-wal holds copies until a long read, such as a backup, has finished")
    return "\n".join(lines)
