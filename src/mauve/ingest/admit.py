"""Letting a write in: its body within the room for bodies, its work within the line of what can be done in time."""

from collections.abc import Callable
from typing import Final, NamedTuple, Self

from mauve.core.problems import Busy
from mauve.ingest.parts import IngestParts
from mauve.overload.admission import Admission, Slot
from mauve.overload.byte_budget import ByteBudget
from mauve.web.envelopes import data_reply
from mauve.web.messages import OpenRequest, Reply

SMALL_BODY_BYTES: Final = 64 * 1024  # Needs no room of its own, and holds the event loop for a moment only.
_BUSY: Final = data_reply(Busy())
_BUSY_AND_CLOSED: Final = _BUSY._replace(headers={**_BUSY.headers, "connection": "close"})


class BodyRules(NamedTuple):
    """What a body must be, how large, how much of them fits at once, and whether an organization's slow one must go."""

    check_type: Callable[[OpenRequest], None]
    bytes_max: int
    budget: ByteBudget
    should_evict: Callable[[str], bool]


class Admitted(Slot):
    """A request that was let in, with its body. It leaves at the end of the `with` block."""

    __slots__ = ("_admission", "_budget", "_room", "body")

    def __init__(self, admission: Admission, org_id: str, body: bytes, budget: ByteBudget, room: int) -> None:
        self._admission = admission
        self._budget = budget
        self._room = room
        self.org_id = org_id
        self.body = body
        self.work_s = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._admission.leave(self)
        if self._room:
            self._budget.give_back(self._room, self.org_id)

    def judged(self, still_to_do_s: float = 0.0) -> None:
        """Note that this has held the event loop until now, and how much work of others is still to come."""
        self._admission.judged(self, still_to_do_s)


async def admit(parts: IngestParts, request: OpenRequest, org_id: str, rules: BodyRules) -> Admitted:
    """Read the body and let the request in; raise `Busy` where it would have to wait too long."""
    admission = parts.admission
    _check_room(admission, org_id)
    rules.check_type(request)
    body, room = request.buffered_body, 0
    if body is None:
        body, room = await _read(request, org_id, rules, admission)
    admitted = Admitted(admission, org_id, body, rules.budget, room)
    admission.enter(admitted)
    if parts.fairness.is_over(admitted.entered_at):
        try:
            await parts.fairness.next()
        except BaseException:
            admitted.__exit__()
            raise
        admitted.begun_at = admission.ticks()
    return admitted


def busy_reply(request: OpenRequest) -> Reply:
    """Return the refusal. A large body is not read: its sender is told that the connection ends here."""
    size = request.declared_bytes
    return _BUSY if size is not None and size <= SMALL_BODY_BYTES else _BUSY_AND_CLOSED


async def _read(request: OpenRequest, org_id: str, rules: BodyRules, admission: Admission) -> tuple[bytes, int]:
    """Return the body and how much of the budget it holds, which is to be given back."""
    room = _room_for(request, rules)
    await rules.budget.take(room, org_id)
    try:
        body = await request.body(rules.bytes_max, lambda: rules.should_evict(org_id))
        _check_room(admission, org_id)  # A sender may have been slow, and others quicker.
    except BaseException:
        rules.budget.give_back(room, org_id)
        raise
    return body, room


def _check_room(admission: Admission, org_id: str) -> None:
    if admission.is_full(org_id):
        raise Busy


def _room_for(request: OpenRequest, rules: BodyRules) -> int:
    """Return how much of the budget the body needs until what is in it is durable; a small one needs none."""
    size = request.declared_bytes
    if size is None or size > rules.bytes_max:
        return rules.bytes_max
    return size if size > SMALL_BODY_BYTES else 0
