"""Which workers share a limit, on NATS: each publishes a beat every second, and hears those of all machines.

The beats are plain messages: nothing is stored, and no server waits for its disk.
"""

import asyncio
import contextlib
from typing import Final

import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from mauve.core.secret import Secret
from mauve.overload.live_workers import Beat, LiveWorkers
from mauve.stores import StoreUnavailableError
from mauve.stores.nats.connection import Connection, LoopThread

BEAT_EVERY_S: Final = 1.0
_BEATS: Final = "MAUVE.workers.alive"
_JOIN_S_MAX: Final = 10.0
_ANSWERS_S: Final = 0.2  # Others answer the first beat of a worker at once.
_CLOSE_S_MAX: Final = 5.0

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Beat)
log = structlog.get_logger()


class NatsPresence:
    """Announces this worker until it is closed. Opening waits a moment for the beats of the others.

    While NATS is away, the count stays as it was.
    """

    def __init__(self, url: Secret, worker: str) -> None:
        self._workers = LiveWorkers(worker)
        self._connection = Connection(url, "mauve presence")
        self._thread = LoopThread("presence")
        self._listening: Client | None = None
        with contextlib.suppress(StoreUnavailableError):  # Beating continues the attempt.
            self._thread.run(self._join(), _JOIN_S_MAX)
        self._thread.start(self._beat_forever())

    def live(self) -> int:
        """Return the number of live workers, this one included."""
        return self._workers.live

    def use(self) -> int:
        """Note that this worker uses the limit; return how many do so now, this one included. It never waits."""
        if self._workers.use():
            self._thread.start(self._beat_or_not())
        return self._workers.sharing

    def close(self) -> None:
        with contextlib.suppress(StoreUnavailableError):
            self._thread.run(self._connection.close(), _CLOSE_S_MAX)
        self._thread.close()

    async def _join(self) -> None:
        await self._beat()
        await asyncio.sleep(_ANSWERS_S)

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_EVERY_S)
            await self._beat_or_not()

    async def _beat_or_not(self) -> None:
        try:
            await self._beat()
        except StoreUnavailableError:
            pass  # The next beat is soon.
        except Exception:
            log.exception("presence_not_announced", advice=f"trying again every {BEAT_EVERY_S:g} s")

    async def _beat(self) -> None:
        client = await self._connection.client()
        try:
            if client is not self._listening:
                await client.subscribe(_BEATS, cb=self._hear)
                self._listening = client
            await client.publish(_BEATS, _encoder.encode(self._workers.next_beat()))
        except Error as error:
            raise StoreUnavailableError(f"NATS: {error}") from error

    async def _hear(self, message: Msg) -> None:
        try:
            answer = self._workers.hear(_decoder.decode(message.data))
        except msgspec.MsgspecError:
            return  # of another release
        if answer is not None and self._listening is not None:
            with contextlib.suppress(Error):
                await self._listening.publish(_BEATS, _encoder.encode(answer))
