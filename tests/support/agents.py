"""Call the tools as agents do: with the SDK's own client, over either transport."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from support.service import MAUVE, bearer

if TYPE_CHECKING:  # slow, and every process collects all tests
    from mcp import Client
    from mcp.types import CallToolResult, Tool

TRANSPORTS = ("http", "stdio")
MODES = ("auto", "legacy")  # the stateless protocol of today, and the handshake of earlier clients


@asynccontextmanager
async def _connected(url: str, token: str, transport: str, mode: str) -> AsyncIterator["Client"]:
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - slow, and every process collects all tests
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

    if transport == "stdio":
        command = StdioServerParameters(command=str(MAUVE), args=["mcp"], env={"MAUVE_URL": url, "MAUVE_TOKEN": token})
        async with Client(command, mode=mode) as client:
            yield client
        return
    async with (
        httpx.AsyncClient(headers=bearer(token)) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


class Agent:
    """A connected client, for code that does not run in an event loop."""

    def __init__(self, portal: BlockingPortal, client: "Client") -> None:
        self._portal, self._client = portal, client

    def tools(self) -> list["Tool"]:
        return self._portal.call(self._client.list_tools).tools

    def call(self, tool: str, **arguments: object) -> tuple[Any, bool]:
        """Return the answer of a tool, and whether it is an error."""
        return _content(self._portal.call(self._client.call_tool, tool, arguments))

    def answer(self, tool: str, **arguments: object) -> Any:
        answer, is_error = self.call(tool, **arguments)
        assert not is_error, answer
        return answer

    def refusal(self, tool: str, **arguments: object) -> Any:
        answer, is_error = self.call(tool, **arguments)
        assert is_error, answer
        return answer

    def answers(self, tool: str, several: Iterable[dict[str, Any]]) -> list[Any]:
        """Call a tool several times at once."""
        calls = [self._portal.start_task_soon(partial(self._client.call_tool, tool, each)) for each in several]
        return [_content(each.result())[0] for each in calls]


def _content(result: "CallToolResult") -> tuple[Any, bool]:
    (part,) = result.content
    assert part.type == "text"
    return json.loads(part.text), bool(result.is_error)


@contextmanager
def agent(url: str, token: str, transport: str, mode: str = "auto") -> Iterator[Agent]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_connected(url, token, transport, mode)) as client,
    ):
        yield Agent(portal, client)
