"""The seam of the channels: where a message goes, what sends it, and how that fails."""

from typing import Final, Protocol

import msgspec

from mauve.alerts.notice import Notice

SEND_S_MAX: Final = 10.0


class SendFailed(Exception):  # noqa: N818 - reads as what happened
    """A message was not sent. The reason is a sentence for the owner and holds no secret."""

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class Target(msgspec.Struct, frozen=True):
    """Where a message goes. Its repr hides the address too: that of a chat's webhook is a credential."""

    kind: str  # "email", "webhook", "slack" or "discord"
    address: str
    secret: str | None = None  # signs what a "webhook" receives

    def __repr__(self) -> str:
        return f"Target(kind={self.kind!r}, …)"


class Sender(Protocol):
    """Sends one message.

    - Blocks, and returns or raises within `SEND_S_MAX`, whatever the receiver does.
    - When `send` returns, the receiver has accepted the message.
    - Sending a notice again sends the same id: the receiver can drop the repeat.
    - Raises `SendFailed` and nothing else.
    """

    def send(self, target: Target, notice: Notice) -> None: ...
