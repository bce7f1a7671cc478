"""A relay between one machine and a server, which a test can cut."""

import socket
import threading
from contextlib import suppress
from typing import Self


class TcpRelay:
    """Passes bytes on until it is cut; then nothing passes, and no connection ends. Use as a context manager."""

    def __init__(self, port: int, listen: int = 0) -> None:
        self._target = ("127.0.0.1", port)
        self._passes = threading.Event()
        self._passes.set()
        self._lost: tuple[bytes, bytes] | None = None
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", listen))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._passes.set()

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    def lose_answer(self, before: bytes, to: bytes) -> None:
        """End the first connection that sends `before` and then `to`, once the server has received both."""
        self._lost = (before, to)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        sent = b""
        with suppress(OSError):
            while content := source.recv(65536):
                self._passes.wait()
                sent += content if self._lost else b""
                if self._lost and self._lost[1] in sent.partition(self._lost[0])[2]:
                    self._lost = None
                    source.shutdown(socket.SHUT_RDWR)  # before the server can answer
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)
