"""The environment that a page shows, and hence the project."""

from urllib.parse import urlencode

from mauve.core.app import App, Environment
from mauve.core.problems import not_found
from mauve.dashboard.context import MemberContext


def environment_of(context: MemberContext) -> Environment:
    """Return the environment that the address names; live by default."""
    return Environment.TEST if context.asked("environment") == Environment.TEST else Environment.LIVE


def environment_parameters(context: MemberContext) -> dict[str, str]:
    """Return the parameters that keep a link on the environment shown."""
    return {"environment": Environment.TEST.value} if environment_of(context) is Environment.TEST else {}


def project_of(app: App, environment: Environment) -> str | None:
    return app.public_id if environment is Environment.LIVE else app.test_public_id


def shown_project(context: MemberContext, app: App) -> str:
    """Return the project to show; 404 for an app without a test project."""
    project = project_of(app, environment_of(context))
    if project is None:
        raise not_found()
    return project


def address(path: str, *parts: dict[str, str], **more: str | None) -> str:
    """Return a path with its query, without parameters that are None."""
    parameters = {name: value for part in parts for name, value in part.items()} | more
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{path}?{query}" if query else path
