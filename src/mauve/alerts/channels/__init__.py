"""Channels: what a message says, where it goes, what sends it, and how that fails."""

from typing import Annotated, Final, NamedTuple, Protocol

import msgspec

SEND_S_MAX: Final = 10.0


class Fact(NamedTuple):
    """One number of an app, as text: channels neither count nor format."""

    app: str
    label: str
    value: str
    before: str | None
    link: str | None


class Draft(msgspec.Struct, frozen=True):
    """A notice without a receiver. Its links are paths of the dashboard."""

    kind: str  # "digest", "no_events", "deliveries_failing", "threshold", "change" or "test"
    title: str  # one line, the subject of an e-mail
    reason: str  # why it was sent, one sentence
    facts: list[Fact]
    link: str  # a page of the dashboard


class Notice(Draft, frozen=True, kw_only=True):
    """Everything a message says. It is stored as JSON until it is sent."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]  # the same at every attempt
    unsubscribe: str | None  # the one-click link, for e-mail only
    sent_for: str  # the organization's name
    at: int  # epoch milliseconds


class Target(msgspec.Struct, frozen=True):
    """Where a message goes. Its repr hides the address too: that of a chat's webhook is a credential."""

    kind: str  # "email", "webhook", "slack" or "discord"
    address: str
    secret: str | None = None  # signs what a "webhook" receives

    def __repr__(self) -> str:
        return f"Target(kind={self.kind!r}, …)"


NOTICE: Final = msgspec.json.Decoder(Notice)
TARGET: Final = msgspec.json.Decoder(Target)


class SendFailed(Exception):  # noqa: N818 - reads as what happened
    """A message was not sent. The reason is a sentence for the owner and holds no secret."""

    def __init__(self, reason: str, *, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class Sender(Protocol):
    """Sends one message.

    - Blocks, and returns or raises within `SEND_S_MAX`, whatever the receiver does.
    - When `send` returns, the receiver has accepted the message.
    - Sending a notice again sends the same id: the receiver can drop the repeat.
    - Raises `SendFailed` and nothing else.
    """

    def send(self, target: Target, notice: Notice) -> None: ...
