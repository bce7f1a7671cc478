"""What happens at the door when many come at once."""

from typing import Final

from mauve.access.admission import Stay
from mauve.core.problems import Busy
from mauve.ingest.parts import IngestParts
from mauve.web.envelopes import data_reply
from mauve.web.messages import OpenRequest, Reply

_SMALL_BYTES: Final = 16 * 1024  # So much the server has read by itself, together with the headers.
_BUSY: Final = data_reply(Busy())
_BUSY_AND_CLOSED: Final = _BUSY._replace(headers={**_BUSY.headers, "connection": "close"})


def check_room(parts: IngestParts, org_id: str) -> None:
    """Refuse, before the body is read, what would have to wait too long."""
    if parts.admission.is_full(org_id):
        raise Busy


async def enter(parts: IngestParts, org_id: str) -> Stay:
    """Begin, now that the body is there. A sender may have been slow, and others quicker."""
    admission = parts.admission
    if admission.is_full(org_id):
        raise Busy
    stay = admission.enter(org_id)
    if parts.turns.is_over(stay.entered_at):
        try:
            await parts.turns.next()
        except BaseException:
            admission.leave(stay)
            raise
        stay.begun_at = admission.ticks()
    return stay


def busy_reply(request: OpenRequest) -> Reply:
    """Return the refusal. A large body is not read: its sender is told that the connection ends here."""
    size = request.declared_bytes
    return _BUSY if size is not None and size <= _SMALL_BYTES else _BUSY_AND_CLOSED
