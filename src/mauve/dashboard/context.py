"""The request context of a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Self, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from mauve.access.sign_in_attempts import client_address
from mauve.control import ControlParts
from mauve.control.apps import find_any_app
from mauve.control.bodies import invalid_body
from mauve.core.app import App, Environment
from mauve.core.organization import Organization
from mauve.core.problems import Code, Problem, not_found
from mauve.core.user import Grant, User, may
from mauve.dashboard.dependencies import DashboardParts
from mauve.dashboard.request import Fields, query_from
from mauve.stores.catalog import SignedIn
from mauve.web.app import joined_header, plain_url

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class FormError:
    """Why a form was refused; shown with the form."""

    message: str
    status: HTTPStatus
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """A request, with or without a session."""

    parts: DashboardParts
    request: Request
    body: bytes | None  # None: too large, or cut off
    form: Fields
    now_ms: int
    person: SignedIn | None
    form_error: FormError | None = None
    ignored: frozenset[str] = frozenset()  # parameters of the address that were refused

    @property
    def control(self) -> ControlParts:
        return self.parts.control

    @property
    def path(self) -> dict[str, str]:
        return self.request.path_params

    @property
    def query(self) -> Fields:
        return {name: values for name, values in query_from(self.request).items() if name not in self.ignored}

    def field(self, name: str) -> str:
        """Return the value of a form field; empty if it was left out."""
        return self.fields(name)[0] if self.fields(name) else ""

    def fields(self, name: str) -> Sequence[str]:
        return self.form.get(name, ())

    def chosen(self, name: str, choices: type[Choice]) -> Choice:
        """Return the selected choice of a form field."""
        try:
            return choices(self.field(name))
        except ValueError:
            raise invalid_body(f"{name} must be one of {', '.join(choices)}") from None

    def asked(self, name: str) -> str:
        """Return a parameter of the address; empty if it was left out."""
        return self.query.get(name, ("",))[0]

    def may(self, grant: Grant) -> bool:
        return self.person is not None and may(self.person.user.role, grant)

    def refused(self, form_error: FormError, ignored: Iterable[str] = ()) -> Self:
        return replace(self, form_error=form_error, ignored=self.ignored.union(ignored))

    @property
    def url(self) -> str:
        """Return the URL of the service: the configured one, or else the browser's."""
        return self.parts.public_url or plain_url(self.request) or "http://localhost"

    @property
    def ingest_url(self) -> str:
        """Return the URL that accepts events and webhooks."""
        return self.parts.public_ingest_url or self.url

    @property
    def address(self) -> str:
        """Return the client's address, for counting attempts."""
        peer = self.request.client.host if self.request.client else ""
        return client_address(peer, joined_header(self.request, "x-forwarded-for"), self.parts.proxies)

    @property
    def agent(self) -> str:
        return "".join(filter(str.isprintable, self.request.headers.get("user-agent", "")))


@dataclass(frozen=True, slots=True)
class MemberContext(Context):
    """A request with a session."""

    @property
    def member(self) -> SignedIn:
        assert self.person is not None  # noqa: S101 - a member's context is made only with a session
        return self.person

    @property
    def user(self) -> User:
        return self.member.user

    @property
    def organization(self) -> Organization:
        return self.member.organization

    def require(self, grant: Grant | None) -> None:
        if grant is not None and not self.may(grant):
            raise Problem(Code.FORBIDDEN, f"your role, {self.user.role}, does not include this: ask an owner or admin")

    def app(self) -> App:
        """Return the app named by the path, even an archived one, if the organization owns it."""
        return find_any_app(self.control, self.organization.org_id, self.path["app_id"])


def environment_of(context: MemberContext) -> Environment:
    """Return the environment in the address; live by default."""
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
