"""Send a file piece by piece, so that a slow client holds only one piece, for a limited time."""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Final

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mauve.stores.cancellation import deadline_at

PIECE_S_MAX: Final = 10.0
"""The time limit for reading a piece from the store, and for the client to receive it."""

log = structlog.get_logger()

Pieces = Generator[bytes, None, None]


class FileResponse(Response):
    """A file whose pieces are generated in a thread, each after the client has received the previous one.

    If a piece fails or is not received in time, the connection is closed, so that the client notices the truncation.
    """

    def __init__(self, pieces: Pieces, headers: Mapping[str, str]) -> None:
        super().__init__(status_code=HTTPStatus.OK, headers=headers)
        del self.headers["content-length"]  # It is not known yet.
        self._pieces = pieces
        self._threads: Executor | None = None
        self._on_end: Callable[[], None] = lambda: None

    def run_in(self, threads: Executor, on_end: Callable[[], None]) -> None:
        """Set the threads that generate the pieces, and a function that is always called at the end."""
        self._threads, self._on_end = threads, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the interface
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while scope["method"] != "HEAD" and (piece := await self._next_piece()):
                message = {"type": "http.response.body", "body": piece, "more_body": True}
                await asyncio.wait_for(send(message), PIECE_S_MAX)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("file_not_taken", timeout_s=PIECE_S_MAX)
        finally:
            self._pieces.close()
            self._on_end()

    async def _next_piece(self) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._make_piece)

    def _make_piece(self) -> bytes:
        with deadline_at(time.monotonic() + PIECE_S_MAX):
            return next(self._pieces, b"")
