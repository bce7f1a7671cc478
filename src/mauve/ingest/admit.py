"""Admission of a write: its body within the byte budget, its work within the queue that can be served in time."""

from collections.abc import Callable
from typing import Final, NamedTuple, Self

from mauve.core.problems import Busy
from mauve.ingest import IngestParts
from mauve.overload.admission import Admission, ByteBudget, Slot
from mauve.web.envelopes import data_reply
from mauve.web.messages import OpenRequest, Reply

SMALL_BODY_BYTES: Final = 64 * 1024  # Small enough to skip the budget, and to handle on the event loop.
_READ_AHEAD_BYTES: Final = 16 * 1024  # The server has read this much of a body along with the head.
_BUSY: Final = data_reply(Busy())
_BUSY_AND_CLOSED: Final = _BUSY.with_headers({"connection": "close"})


class BodyRules(NamedTuple):
    """How to admit bodies of one kind: type check, size limit, shared budget, and eviction by organization."""

    check_type: Callable[[OpenRequest], None]
    bytes_max: int
    budget: ByteBudget
    should_evict: Callable[[str], bool]


class Admitted(Slot):
    """An admitted request with its body. It leaves at the end of the `with` block, or when told to."""

    __slots__ = ("_admission", "_budget", "_budgeted", "body")

    def __init__(self, admission: Admission, org_id: str, body: bytes, budget: ByteBudget, budgeted: int) -> None:
        self._admission = admission
        self._budget = budget
        self._budgeted = budgeted
        self.org_id = org_id
        self.body = body
        self.work_s = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._admission.leave(self)
        if self._budgeted:
            self._budget.release(self._budgeted, self.org_id)

    def record_work(self, remaining_s: float = 0.0) -> None:
        """Record that this request held the event loop until now, and how long the ledger will work on it."""
        self._admission.record_work(self, remaining_s)


async def admit(parts: IngestParts, request: OpenRequest, org_id: str, rules: BodyRules) -> Admitted:
    """Read the body and admit the request; raise `Busy` if it would wait too long."""
    admission = parts.admission
    _check_queue(admission, org_id)
    rules.check_type(request)
    body, budgeted = request.buffered_body, 0
    if body is None:
        body, budgeted = await _read(request, org_id, rules, admission)
    admitted = Admitted(admission, org_id, body, rules.budget, budgeted)
    admission.enter(admitted)
    if parts.fairness.should_wait(admitted.entered_at):
        try:
            await parts.fairness.wait()
        except BaseException:
            admitted.__exit__()
            raise
        admitted.started_at = admission.ticks()
    return admitted


def admit_at_once(parts: IngestParts, request: OpenRequest, org_id: str, rules: BodyRules) -> Admitted:
    """Admit a request with a buffered body that is next in line; raise `Busy` if it would wait too long."""
    _check_queue(parts.admission, org_id)
    rules.check_type(request)
    admitted = Admitted(parts.admission, org_id, request.buffered_body or b"", rules.budget, 0)
    parts.admission.enter(admitted)
    return admitted


def busy_reply(request: OpenRequest) -> Reply:
    """Return the 503. Announce the end of the connection unless the server has read the whole body already."""
    size = request.declared_bytes
    return _BUSY if size is not None and size <= _READ_AHEAD_BYTES else _BUSY_AND_CLOSED


async def _read(request: OpenRequest, org_id: str, rules: BodyRules, admission: Admission) -> tuple[bytes, int]:
    """Return the body and the bytes it holds of the budget, which the caller releases."""
    budgeted = _bytes_to_budget(request, rules)
    await rules.budget.acquire(budgeted, org_id)
    try:
        body = await request.body(rules.bytes_max, lambda: rules.should_evict(org_id))
        _check_queue(admission, org_id)  # The queue may have filled while the body arrived.
    except BaseException:
        rules.budget.release(budgeted, org_id)
        raise
    return body, budgeted


def _check_queue(admission: Admission, org_id: str) -> None:
    if admission.is_full(org_id):
        raise Busy


def _bytes_to_budget(request: OpenRequest, rules: BodyRules) -> int:
    """Return how much of the budget the body holds until its content is durable; a small body holds none."""
    size = request.declared_bytes
    if size is None or size > rules.bytes_max:
        return rules.bytes_max
    return size if size > SMALL_BODY_BYTES else 0
