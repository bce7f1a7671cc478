"""The address of a service, from where it listens."""

from typing import Final

_LOOPBACKS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound


def http_url(host: str, port: int) -> str:
    """Return an address that can be opened: for a wildcard, that of the loopback."""
    host = _LOOPBACKS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
