"""`mauve mcp`."""

import signal
from pathlib import Path
from typing import Final

import click

from mauve.cli.options import UsageError, data_options
from mauve.config import service_from
from mauve.core.secret import Secret

_SETTINGS: Final = """\b
Settings (environment variables):
  MAUVE_URL         the address of the service, such as https://metrics.example.com
  MAUVE_TOKEN       a control token with the scopes apps:read and metrics:read
  MAUVE_TOKEN_FILE  a file that holds the token instead
"""
_INSTALL: Final = "the MCP tools are an extra: run pip install 'mauve[mcp]'"


@click.command(epilog=_SETTINGS)
@data_options
def mcp(*, data: Path | None, as_json: bool) -> None:
    """Serve metrics to an agent over standard input and output (MCP), from any machine."""
    del data, as_json  # Every command takes them; this one needs no data directory, and speaks JSON only.
    import asyncio  # noqa: PLC0415 - slow to import

    url, token = service_from()
    if url is None:
        raise UsageError("MAUVE_URL is not set: set it to the service's address, such as https://metrics.example.com")
    # A thread waits for the next line of standard input, and stops only when the process exits.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(url, _control_token(token)))


def _control_token(token: Secret | None) -> Secret:
    if token is None or not token.reveal():
        raise UsageError("MAUVE_TOKEN is not set: mint a control token with apps:read and metrics:read, and set it")
    if not token.reveal().startswith("ctl_"):
        raise UsageError("MAUVE_TOKEN is not a control token (ctl_live_…): mint one on the Tokens page")
    return token


async def _serve(url: str, token: Secret) -> None:
    try:
        from mauve.agents.http_reader import HttpReader, remote_client  # noqa: PLC0415 - an extra, and slow to import
        from mauve.agents.reader import RefusedError  # noqa: PLC0415
        from mauve.agents.server import serve_stdio  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"{_INSTALL} ({error})") from None
    async with remote_client(url, token) as client:
        reader = HttpReader(client)
        try:
            await reader.allowance()
        except RefusedError as refusal:
            if refusal.retry_after_s is None:  # A service that is down may be back by the first request.
                raise UsageError(f"{url}: {refusal}") from None
        await serve_stdio(reader)
