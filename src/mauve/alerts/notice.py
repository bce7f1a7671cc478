"""What a message says, whatever channel carries it."""

from typing import Annotated, Final, NamedTuple

import msgspec


class Fact(NamedTuple):
    """One number of an app, as text: the channels neither count nor format."""

    app: str
    label: str
    value: str
    before: str | None
    link: str | None


class Notice(msgspec.Struct, frozen=True):
    """Everything a message says. It is stored as JSON until it is sent."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]  # the same at every attempt
    kind: str  # "digest", "no_events", "deliveries_failing", "threshold", "change" or "test"
    title: str  # one line, the subject of an e-mail
    reason: str  # why it was sent, one sentence
    facts: list[Fact]
    link: str  # a page of the dashboard
    unsubscribe: str | None  # the one-click link, for e-mail only
    sent_for: str  # the organization's name
    at: int  # epoch milliseconds


NOTICE: Final = msgspec.json.Decoder(Notice)
