"""The TCP connection of a NATS client, without waiting for a server that hangs."""

import asyncio
from typing import Any

from nats.aio.transport import TcpTransport


class AbortingTransport(TcpTransport):
    """Drops a connection immediately. The library would first wait until the server has read everything.

    Nothing is lost: what matters is acknowledged.
    """

    _has_ended = False

    def __bool__(self) -> bool:
        return True  # Otherwise the client would use a transport of its own.

    async def connect(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the library's
        self._check()
        self.close()  # An attempt that failed leaves its connection open.
        await super().connect(*arguments, **options)
        self._check()

    def close(self) -> None:
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()

    def end(self) -> None:
        """Drop the connection, and let the client make no other."""
        self._has_ended = True
        self.close()

    def _check(self) -> None:
        if self._has_ended:
            self.close()
            raise asyncio.CancelledError  # After any other error the client would try again, forever.
