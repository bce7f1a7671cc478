"""The request of a page: its fields, parsed within limits, its origin, and its session.

Starlette needs another package to parse forms, and does not limit the number of fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Self, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

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
from mauve.stores.catalog import SignedIn
from mauve.web.app import joined_header, plain_url

BODY_BYTES_MAX: Final = 64 * 1024
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_FIELDS_MAX: Final = 100
_FORM: Final = "application/x-www-form-urlencoded"
Fields = Mapping[str, Sequence[str]]
Choice = TypeVar("Choice", bound=StrEnum)


class ParameterProblem(Problem):
    """Parameters of the address are wrong. The page is shown without them, and says what to change."""

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(Code.MALFORMED, message)
        self.names = names


def is_safe(request: Request) -> bool:
    """Return whether the request only reads."""
    return request.method in _SAFE_METHODS


def query_from(request: Request) -> Fields:
    """Return the query parameters. No page requires any: a malformed query counts as empty."""
    try:
        return _fields(request.scope["query_string"])
    except Problem:
        return {}


def form_from(request: Request, body: bytes | None) -> Fields:
    """Return the fields of the form. A body of None was too large or cut off."""
    if body is None:
        raise Problem(Code.TOO_LARGE, "the form is too large or incomplete: send it again")
    if (joined_header(request, "content-type") or "").partition(";")[0].strip().lower() != _FORM:
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "this accepts only forms sent by a browser")
    return _fields(body)


def _fields(encoded: bytes) -> Fields:
    try:
        return parse_qs(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise Problem(Code.MALFORMED, "the form could not be read: send it again") from None


def check_origin(request: Request, public_url: str | None) -> None:
    """Refuse a change unless the browser confirms that our own page sent it.

    The session cookie is `SameSite=Lax`, so forms of other sites are sent without it. This is the second line of
    defense, and the only one for the sign-in form, which needs no cookie.
    """
    if not _is_ours(request, public_url):
        raise Problem(Code.FORBIDDEN, "this did not come from a page of this dashboard: open it and try again")


def _is_ours(request: Request, public_url: str | None) -> bool:
    site = joined_header(request, "sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # Browsers omit Sec-Fetch-Site on plain HTTP to another machine, and older ones always do.
    origin = joined_header(request, "origin")
    if origin is None:
        return False
    named = {joined_header(request, "host"), None if public_url is None else urlsplit(public_url).netloc}
    return urlsplit(origin).netloc in named - {None, ""}


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
