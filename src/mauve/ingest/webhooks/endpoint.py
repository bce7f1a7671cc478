"""`POST /v1/webhooks/{provider}/{project_id}`: receive, verify, store and acknowledge a biller's delivery."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import structlog

from mauve.access.event_caps import is_suspended
from mauve.access.vault import webhook_row
from mauve.core.problems import Code, Problem, unauthorized, unknown_webhook
from mauve.ingest import IngestParts
from mauve.ingest.admit import SMALL_BODY_BYTES, BodyRules, admit
from mauve.ingest.webhooks.billers import BILLERS, parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, MappedDelivery, map_delivery, near_arrival, suspended_entry
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.overload.admission import ByteBudget
from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import Tally
from mauve.stores.ledger import Entry, Outcome
from mauve.stores.ledger.group_commit import GroupedLedger
from mauve.stores.published import PublishedSecret
from mauve.web.body import BodyTooLargeError
from mauve.web.messages import OpenRequest, Reply, is_json, json_reply

_WRITE_EVERY_S: Final = 1.0
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# A separate budget: anyone may post large bodies here, and must not delay those of clients.
_BUDGET_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
SUSPENDED: Final = json_reply(HTTPStatus.OK, {"ok": True, "rows": 0, "suspended": True, "code": Code.INGEST_SUSPENDED})
_PROVIDERS: Final = {provider.value: provider for provider in BILLERS}
Result = TypeVar("Result")
WEBHOOKS: Final = "/v1/webhooks/"

log = structlog.get_logger()


class SignatureFailureCounts:
    """Count deliveries with a bad signature for the owner: a wrongly pasted secret is the most common mistake.

    Anyone can post to the address, so a failure makes no row: failures are counted in memory, only for projects that
    have a secret and under a few fixed words, and the counts are written at most once a second.
    """

    def __init__(self, ledger: GroupedLedger) -> None:
        self._ledger = ledger
        self._tallies: dict[tuple[str, str, str], Tally] = {}
        self._writing: asyncio.Task[None] | None = None

    def add(self, secret: PublishedSecret, failure: SignatureFailure, at: int) -> None:
        key = (secret.public_id, secret.provider, failure)
        before = self._tallies.get(key)
        self._tallies[key] = Tally(*key, 1 if before is None else before.count + 1, at)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon())

    async def _write_soon(self) -> None:
        await asyncio.sleep(_WRITE_EVERY_S)
        tallies, self._tallies, self._writing = self._tallies, {}, None
        try:
            await self._ledger.record(Entry(tallies=list(tallies.values())))
        except StoreUnavailableError as error:
            log.warning("refusals_not_noted", reason=str(error), advice="only their count is lost")


def is_webhook_path(path: str) -> bool:
    return _secret_id_in(path) is not None


class WebhookEndpoint:
    def __init__(self, parts: IngestParts) -> None:
        self._parts = parts
        budget = ByteBudget(_BUDGET_BYTES_MAX)
        self._body_rules = BodyRules(_check_type, BODY_BYTES_MAX, budget, lambda _org_id: budget.has_waiters())
        self._failures = SignatureFailureCounts(parts.ledger)
        # One thread: several would compete with the event loop for the interpreter.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deliveries")

    async def handle(self, request: OpenRequest) -> Reply:
        """Handle a delivery. The order of these lines is the order in which it can be refused."""
        received_at = self._parts.clock.now_ms()
        secret = self._secret_for(request.path)
        try:
            with await admit(self._parts, request, secret.org_id, self._body_rules) as admitted:
                body = admitted.body
                if not _is_small(body):
                    admitted.record_work(self._parts.ledger.entry_s)  # A thread does the rest.
                secret = await self._verify(request, body, secret, received_at)
                if _is_small(body):
                    admitted.record_work(self._parts.ledger.entry_s)
                await self._parts.keyring.confirm(secret)
                return await self._store(body, secret, received_at)
        except BodyTooLargeError:
            raise delivery_too_large() from None

    def _secret_for(self, path: str) -> PublishedSecret:
        """Return the secret for the path, or raise the same 404 for everything unknown."""
        secret = self._parts.keyring.secret(_secret_id_in(path) or "")
        if secret is None:
            raise unknown_webhook()
        return secret

    async def _verify(self, request: OpenRequest, body: bytes, secret: PublishedSecret, now_ms: int) -> PublishedSecret:
        failure = await self._run(body, self._signature_failure, request, body, secret, now_ms)
        if failure is SignatureFailure.MISMATCH and (newer := self._parts.keyring.newer_secret(secret)) is not None:
            secret, failure = newer, await self._run(body, self._signature_failure, request, body, newer, now_ms)
        if failure is not None:
            self._failures.add(secret, failure, now_ms)
            raise unauthorized()
        return secret

    def _signature_failure(
        self, request: OpenRequest, body: bytes, secret: PublishedSecret, now_ms: int
    ) -> SignatureFailure | None:
        opened = self._parts.vault.open(secret.sealed, webhook_row(secret.app_id, secret.environment, secret.provider))
        return BILLERS[secret.provider].check_signature(request.header_values, body, opened, now_ms // 1000)

    async def _store(self, body: bytes, secret: PublishedSecret, received_at: int) -> Reply:
        endpoint = Endpoint(secret.public_id, secret.org_id, secret.environment, secret.provider)
        parsed = await self._run(body, parse_delivery, secret.provider, body, secret.environment)
        if is_suspended(self._parts.keyring.organizations.get(secret.org_id), received_at):
            await self._record_note(suspended_entry(parsed, endpoint, received_at), secret.org_id)
            return SUSPENDED
        delivery = await self._run(body, map_delivery, parsed, endpoint, received_at, near_arrival)
        if delivery.rows:
            rows = await self._record(delivery, secret.org_id)
        else:
            rows = await self._record_note(delivery.entry, secret.org_id)
        return recorded_reply(rows, delivery.truncated)

    async def _run(self, body: bytes, work: Callable[..., Result], *arguments: object) -> Result:
        """Run the work; for a large body in the thread, so that the event loop can serve other requests."""
        if _is_small(body):
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))

    async def _record(self, delivery: MappedDelivery, org_id: str) -> int:
        """Record the rows and return how many stand as delivered. They are durable before we return 200."""
        outcomes = await self._parts.ledger.record(delivery.entry, org_id)
        conflicts = outcomes.count(Outcome.CONFLICT)
        counters = self._parts.counters
        counters.accepted += delivery.rows - conflicts
        counters.duplicates += outcomes.count(Outcome.DUPLICATE)
        counters.conflicts += conflicts
        return delivery.rows - conflicts

    async def _record_note(self, entry: Entry, org_id: str) -> int:
        """Record a delivery that makes no row. Acknowledge it even if that fails: nothing else is lost."""
        try:
            await self._parts.ledger.record(entry, org_id)
        except StoreUnavailableError as error:
            log.warning("delivery_not_noted", reason=str(error), advice="only the note is lost")
        return 0


def _is_small(body: bytes) -> bool:
    return len(body) <= SMALL_BODY_BYTES


def _secret_id_in(path: str) -> str | None:
    """Return the id under which the keyring holds the secret for this path."""
    match path.split("/"):
        case ["", "v1", "webhooks", name, project] if name in _PROVIDERS and project:
            return f"{project}/{_PROVIDERS[name]}"
        case _:
            return None


def _check_type(request: OpenRequest) -> None:
    is_plain = (request.header("content-encoding") or "identity").strip().lower() == "identity"
    if not is_json(request.header("content-type")) or not is_plain:
        raise unsupported_delivery()


def delivery_too_large() -> Problem:
    return Problem(Code.TOO_LARGE, f"a delivery has at most {BODY_BYTES_MAX} bytes")


def unsupported_delivery() -> Problem:
    return Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json, without compression")


def recorded_reply(rows: int, truncated: Sequence[str] = ()) -> Reply:
    shortened = {"truncated": truncated} if truncated else {}
    return json_reply(HTTPStatus.OK, {"ok": True, "rows": rows, **shortened})
