"""Read the messages of a stream from any of its replicas or from its leader."""

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mauve.stores import StoreUnavailableError
from mauve.stores.log.nats.groups import FORMAT_HEADER
from mauve.stores.log.nats.streams import (
    API,
    API_S_MAX,
    NO_ANSWER,
    NOT_FOUND,
    ApiError,
    again_until_answered,
    ask_leader,
    stream_name,
)

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_BATCH_MESSAGES_MAX: Final = 1_000
_BATCH_S_MAX: Final = 5.0


class Message(NamedTuple):
    sequence: int
    content: bytes
    format: str | None


class _Stored(msgspec.Struct, frozen=True):
    data: bytes = b""
    hdrs: bytes = b""


class _StoredReply(msgspec.Struct, frozen=True):
    message: _Stored


_stored_reply: Final = msgspec.json.Decoder(_StoredReply)


async def batch_from(client: "Client", stream: int, sequence: int, bytes_max: int) -> list[Message]:
    """Return messages from a sequence on, from any replica. A partitioned replica does not answer."""
    request = msgspec.json.encode({"seq": sequence, "batch": _BATCH_MESSAGES_MAX, "max_bytes": bytes_max})
    return await again_until_answered(partial(_batch, client, stream, request))


async def _batch(client: "Client", stream: int, request: bytes, first_s_max: float) -> list[Message]:
    from nats.errors import Error  # noqa: PLC0415 - an extra

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, pending_bytes_limit=-1)
    found: list[Message] = []
    try:
        await client.publish(f"{API}.DIRECT.GET.{stream_name(stream)}", request, reply=inbox)
        while True:
            message = await subscription.next_msg(_BATCH_S_MAX if found else first_s_max)
            parsed = _message_of(message)
            if parsed is None:
                return found
            found.append(parsed)
    except (Error, OSError, TimeoutError) as error:
        if found:
            return found
        raise StoreUnavailableError(NO_ANSWER) from error
    finally:
        with suppress(Error):  # The connection may be gone.
            await subscription.unsubscribe()


def _message_of(message: "Msg") -> Message | None:
    """Return a message of a batch, or None at its end."""
    headers = message.headers or {}
    if "Nats-Sequence" not in headers:
        return None
    return Message(int(headers["Nats-Sequence"]), message.data, headers.get(FORMAT_HEADER))


async def first_since(client: "Client", stream: int, since: datetime) -> int | None:
    """Return the first message stored since then; None if the answering replica has none."""
    from nats.errors import Error  # noqa: PLC0415 - an extra

    request = msgspec.json.encode({"start_time": since, "seq": 0})
    try:
        reply = await client.request(f"{API}.DIRECT.GET.{stream_name(stream)}", request, timeout=API_S_MAX)
    except (Error, OSError, TimeoutError) as error:
        raise StoreUnavailableError(NO_ANSWER) from error
    found = _message_of(reply)
    return None if found is None else found.sequence


async def from_leader(client: "Client", stream: int, sequence: int) -> Message | None:
    try:
        reply = await ask_leader(client, f"STREAM.MSG.GET.{stream_name(stream)}", {"seq": sequence})
    except ApiError as error:
        if error.code == NOT_FOUND:
            return None
        raise
    stored = _stored_reply.decode(reply).message
    headers = dict(line.split(": ", 1) for line in stored.hdrs.decode().splitlines() if ": " in line)
    return Message(sequence, stored.data, headers.get(FORMAT_HEADER))
