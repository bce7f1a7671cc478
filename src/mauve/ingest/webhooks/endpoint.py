"""`POST /v1/webhooks/{provider}/{project_id}`: a biller's delivery, from its bytes to the acknowledgement."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import structlog

from mauve.access.vault import Row
from mauve.core.organization import Standing, standing_at
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.ingest.admit import SMALL_BODY_BYTES, BodyRules, admit
from mauve.ingest.parts import IngestParts
from mauve.ingest.webhooks.billers import BILLERS, content_of
from mauve.ingest.webhooks.entries import Endpoint, MappedDelivery, mapped, near_arrival, suspended
from mauve.ingest.webhooks.refusals import RefusalCount
from mauve.ingest.webhooks.signatures import SignatureFlaw
from mauve.overload.byte_budget import ByteBudget
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import PublishedSecret
from mauve.stores.ledger import Entry, Outcome
from mauve.web.body import BodyTooLargeError
from mauve.web.messages import OpenRequest, Reply, is_json, json_reply

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# Of its own: a stranger may send large bodies here, and must not keep those of clients waiting.
_BODIES_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
_PROVIDERS: Final = {provider.value: provider for provider in BILLERS}

Worked = TypeVar("Worked")

log = structlog.get_logger()


def is_webhook_path(path: str) -> bool:
    return _named_in(path) is not None


class WebhookEndpoint:
    def __init__(self, parts: IngestParts) -> None:
        self._parts = parts
        budget = ByteBudget(_BODIES_BYTES_MAX)
        self._bodies = BodyRules(_check_type, BODY_BYTES_MAX, budget, lambda _org_id: budget.is_wanted())
        self._refusals = RefusalCount(parts.ledger)
        # One: several that want the interpreter would keep the loop from it for longer.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deliveries")

    async def take(self, request: OpenRequest) -> Reply:
        """Take in a delivery. The order of these lines is the order in which it can be refused."""
        received_at = self._parts.clock.now_ms()
        secret = self._secret_for(request.path)
        try:
            with await admit(self._parts, request, secret.org_id, self._bodies) as admitted:
                body = admitted.body
                if not _is_small(body):
                    admitted.judged(self._parts.ledger.entry_s)  # The loop is not held any more.
                secret = await self._verified(request, body, secret, received_at)
                if _is_small(body):
                    admitted.judged(self._parts.ledger.entry_s)
                return await self._acknowledged(body, secret, received_at)
        except BodyTooLargeError:
            raise Problem(Code.TOO_LARGE, f"a delivery has at most {BODY_BYTES_MAX} bytes") from None

    def _secret_for(self, path: str) -> PublishedSecret:
        """Return the secret of the project and plane that the path names; one 404 for whatever is not there."""
        secret = self._parts.keyring.secret(_named_in(path) or "")
        if secret is None:
            raise unknown_path()
        return secret

    async def _verified(
        self, request: OpenRequest, body: bytes, secret: PublishedSecret, now_ms: int
    ) -> PublishedSecret:
        refusal = await self._aside(body, self._refusal, request, body, secret, now_ms)
        if refusal is SignatureFlaw.MISMATCH and (newer := self._parts.keyring.newer_secret(secret)) is not None:
            secret, refusal = newer, await self._aside(body, self._refusal, request, body, newer, now_ms)
        if refusal is not None:
            self._refusals.add(secret, refusal, now_ms)
            raise unauthorized()
        return secret

    def _refusal(self, request: OpenRequest, body: bytes, secret: PublishedSecret, now_ms: int) -> SignatureFlaw | None:
        opened = self._parts.vault.open(secret.sealed, Row(secret.app_id, secret.environment, secret.provider))
        return BILLERS[secret.provider].refusal(request.header_values, body, opened, now_ms // 1000)

    async def _acknowledged(self, body: bytes, secret: PublishedSecret, received_at: int) -> Reply:
        endpoint = Endpoint(secret.public_id, secret.org_id, secret.environment, secret.provider)
        content = await self._aside(body, content_of, BILLERS[secret.provider], body)
        if self._is_suspended(secret.org_id, received_at):
            await self._note(suspended(content, endpoint, received_at), secret.org_id)
            return json_reply(HTTPStatus.OK, {"ok": True, "rows": 0, "suspended": True, "code": Code.INGEST_SUSPENDED})
        delivery = await self._aside(body, mapped, content, endpoint, received_at, near_arrival)
        record = self._recorded(delivery, secret.org_id) if delivery.rows else self._note(delivery.entry, secret.org_id)
        rows = await record
        truncated = {"truncated": delivery.truncated} if delivery.truncated else {}
        return json_reply(HTTPStatus.OK, {"ok": True, "rows": rows, **truncated})

    async def _aside(self, body: bytes, work: Callable[..., Worked], *arguments: object) -> Worked:
        """Do the work; for a large body in the thread, while the loop goes on with other requests."""
        if _is_small(body):
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))

    async def _recorded(self, delivery: MappedDelivery, org_id: str) -> int:
        """Return how many rows stand as they were delivered. Durable before we say 200."""
        outcomes = await self._parts.ledger.record(delivery.entry, org_id)
        conflicts = outcomes.count(Outcome.CONFLICT)
        counters = self._parts.counters
        counters.accepted += delivery.rows - conflicts
        counters.duplicates += outcomes.count(Outcome.DUPLICATE)
        counters.conflicts += conflicts
        return delivery.rows - conflicts

    async def _note(self, entry: Entry, org_id: str) -> int:
        """Keep a delivery that makes no row in sight. It is acknowledged even if that fails: nothing is lost."""
        try:
            await self._parts.ledger.record(entry, org_id)
        except StoreUnavailableError as error:
            log.warning("delivery_not_noted", reason=str(error), advice="only the note is lost")
        return 0

    def _is_suspended(self, org_id: str, now_ms: int) -> bool:
        organization = self._parts.keyring.organizations.get(org_id)
        if organization is None:
            return False
        return standing_at(organization.standing, organization.grace_ends_at, now_ms) is Standing.SUSPENDED


def _is_small(body: bytes) -> bool:
    return len(body) <= SMALL_BODY_BYTES


def _named_in(path: str) -> str | None:
    """Return the name under which the keyring would hold the secret for this path."""
    match path.split("/"):
        case ["", "v1", "webhooks", name, project] if name in _PROVIDERS and project:
            return f"{project}/{_PROVIDERS[name]}"
        case _:
            return None


def _check_type(request: OpenRequest) -> None:
    is_plain = (request.header("content-encoding") or "identity").strip().lower() == "identity"
    if not is_json(request.header("content-type")) or not is_plain:
        raise Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json, without compression")
