"""The messages of a stream: groups of log records, read from any replica or from the leader.

A group is compressed as a whole, with a checksum.
"""

import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard

from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogRecord
from mauve.stores.log.nats.streams import (
    API,
    API_S_MAX,
    NO_ANSWER,
    NOT_FOUND,
    RECORDS_MAX,
    ApiError,
    again_until_answered,
    ask_leader,
    first_number,
    stream_name,
)

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

RECORD_BYTES_MAX: Final = 2 * 2**20
GROUP_BYTES_MAX: Final = 2**20  # A larger record forms its own group. Compressing must not block the event loop.
FORMAT: Final = "1"  # of written messages; the previous release must be able to read it
FORMATS_READ: Final = frozenset({"1"})
FORMAT_HEADER: Final = "Mauve-Format"

_CONTENT_BYTES_MAX: Final = RECORD_BYTES_MAX + GROUP_BYTES_MAX + 4 * (RECORDS_MAX + 1)
_compressor: Final = zstandard.ZstdCompressor(level=1, write_checksum=True)
_decompressor: Final = zstandard.ZstdDecompressor()
_BATCH_MESSAGES_MAX: Final = 1_000
_BATCH_S_MAX: Final = 5.0


class DamagedGroupError(Exception):
    """The message does not hold a group of records."""


class NewerFormatError(StoreUnavailableError):
    """The message was written by a newer release. Keep it until such a release reads it."""


def packed(records: Sequence[Sequence[bytes]]) -> bytes:
    lengths = [sum(map(len, parts)) for parts in records]
    head = struct.pack(f"<{len(lengths) + 1}I", len(lengths), *lengths)
    return _compressor.compress(head + b"".join(part for parts in records for part in parts))


def unpacked(sequence: int, message: bytes, format_: str | None = FORMAT) -> list[LogRecord]:
    """Return the records of a message. Every release names its format, so a message without one is not ours."""
    if format_ is None:
        raise DamagedGroupError("it names no format")
    if format_ not in FORMATS_READ:
        raise NewerFormatError(f"its format is {format_}: written by a newer release: upgrade this machine")
    try:
        content = _content_of(message)
        (count,) = struct.unpack_from("<I", content)
        lengths = struct.unpack_from(f"<{min(count, RECORDS_MAX)}I", content, 4)
    except (zstandard.ZstdError, struct.error) as error:
        raise DamagedGroupError(str(error)) from error
    ends = list(accumulate(lengths, initial=4 + 4 * count))
    if not 0 < count <= RECORDS_MAX or ends[-1] != len(content):
        raise DamagedGroupError("its lengths do not match")
    first = first_number(sequence)
    return [LogRecord(first + place, content[start:end]) for place, (start, end) in enumerate(pairwise(ends))]


def _content_of(message: bytes) -> bytes:
    if zstandard.frame_content_size(message) > _CONTENT_BYTES_MAX:
        raise DamagedGroupError("it is too large")
    return _decompressor.decompress(message, max_output_size=_CONTENT_BYTES_MAX)


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
