"""A visit: one request of one person, as the pages see it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Self, TypeVar

from mauve.access.sign_in_attempts import client_address
from mauve.control.apps import find_app
from mauve.control.bodies import invalid_body
from mauve.control.parts import ControlParts
from mauve.core.app import App
from mauve.core.organization import Organization
from mauve.core.problems import Code, Problem
from mauve.core.roles import Grant, may
from mauve.core.user import User
from mauve.dashboard.parts import DashboardParts
from mauve.dashboard.request import Fields, PageRequest
from mauve.stores.catalog import SignedIn

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class FormError:
    """Why a form was not accepted: it is shown again, with this."""

    message: str
    status: HTTPStatus
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Somebody who need not be signed in."""

    parts: DashboardParts
    request: PageRequest
    path: dict[str, str]  # what stands in the places of the path's names
    form: Fields
    now_ms: int
    person: SignedIn | None
    form_error: FormError | None = None

    @property
    def control(self) -> ControlParts:
        return self.parts.control

    def field(self, name: str) -> str:
        """Return what was filled in; nothing if the field was left out."""
        return self.fields(name)[0] if self.fields(name) else ""

    def fields(self, name: str) -> Sequence[str]:
        return self.form.get(name, ())

    def chosen(self, name: str, choices: type[Choice]) -> Choice:
        """Return which of the choices was made in a field."""
        try:
            return choices(self.field(name))
        except ValueError:
            raise invalid_body(f"{name} must be one of {', '.join(choices)}") from None

    def asked(self, name: str) -> str:
        """Return a parameter of the address."""
        return self.request.query.get(name, ("",))[0]

    def may(self, grant: Grant) -> bool:
        return self.person is not None and may(self.person.user.role, grant)

    def refused(self, form_error: FormError) -> Self:
        return replace(self, form_error=form_error)

    @property
    def url(self) -> str:
        """Return the address of the service: as it was configured, or else as this visitor's browser calls it."""
        return self.parts.public_url or f"http://{self.request.headers.get('host', 'localhost')}"

    @property
    def address(self) -> str:
        """Return where the visitor is, for counting attempts."""
        forwarded_for = self.request.headers.get("x-forwarded-for")
        return client_address(self.request.peer, forwarded_for, self.parts.proxies)

    @property
    def agent(self) -> str:
        return "".join(filter(str.isprintable, self.request.headers.get("user-agent", "")))


@dataclass(frozen=True, slots=True)
class MemberContext(Context):
    """Somebody who is signed in."""

    @property
    def member(self) -> SignedIn:
        assert self.person is not None  # noqa: S101 - that is what makes it a member's visit
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
        """Return the app that the path names, if it is the organization's."""
        return find_app(self.control, self.organization.org_id, self.path["app_id"])
