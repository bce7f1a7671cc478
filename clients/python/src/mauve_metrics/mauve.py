"""The clients that send: `Mauve`, and `AsyncMauve` for asyncio."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from mauve_metrics import _items as items
from mauve_metrics._advice import credential_name
from mauve_metrics._counts import Stats
from mauve_metrics._delivery import Delivery
from mauve_metrics._folders import require_locks
from mauve_metrics._http import checked_credential, origin_from
from mauve_metrics._items import PropValue
from mauve_metrics._options import EVENTS, OBJECTS, Options
from mauve_metrics._reports import Callback, Reports
from mauve_metrics._segment import Entry
from mauve_metrics._version import USER_AGENT
from mauve_metrics._waiting import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BATCH_MAX = 500
Props = Mapping[str, PropValue]
# Errors that an invalid argument may raise, such as a broken mapping. Other errors come from signal handlers.
_FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class _Sender:
    """Queueing, shared by both clients. No method waits for the network or raises because of it."""

    def __init__(
        self,
        key: str | None = None,
        *,
        url: str | None = None,
        strict: bool = False,
        max_queue: int = 1000,
        flush_interval: float = 1.0,
        batch_size: int = 500,
        spool: str | os.PathLike[str] | None = None,
        spool_max_bytes: int = 64 * 1024 * 1024,
        on_drop: Callback | None = None,
        on_reject: Callback | None = None,
        timeout: float = 10.0,
        compress: bool = True,
        _clock: Clock | None = None,
    ) -> None:
        source = "MAUVE_KEY" if key is None else "key"
        key = checked_credential(source, _or_environment("key", key, "MAUVE_KEY"))
        url = _or_environment("url", url, "MAUVE_INGEST_URL")
        if key.startswith("ctl_"):
            raise ValueError("key must be a server or publishable key: a control token sends nothing")
        for name, count in (("max_queue", max_queue), ("batch_size", batch_size), ("spool_max_bytes", spool_max_bytes)):
            _check_number(name, count, int)
        for name, seconds in (("flush_interval", flush_interval), ("timeout", timeout)):
            _check_number(name, seconds, float)
        for name, callback in (("on_drop", on_drop), ("on_reject", on_reject)):
            _check_callback(name, callback)
        if batch_size > _BATCH_MAX:
            raise ValueError(f"batch_size must be at most {_BATCH_MAX}")
        if spool is not None:
            require_locks()
        self._is_publishable = key.startswith("pk_")
        self._is_strict = strict
        self._timeout = timeout
        self._clock = _clock or Clock()
        options = Options(
            key_name=f"{credential_name(key)} from {source}",
            max_queue=max_queue,
            flush_interval=flush_interval,
            batch_size=batch_size,
            spool=None if spool is None else Path(spool).absolute(),
            spool_name=hashlib.sha256(key.encode()).hexdigest()[:16],  # No other app may send these items.
            spool_max_bytes=spool_max_bytes,
            timeout=timeout,
            compress=compress,
        )
        headers = {"authorization": f"Bearer {key}", "user-agent": USER_AGENT}
        self._reports = Reports(on_drop, on_reject, self._clock.monotonic)
        self._delivery = Delivery(origin_from(url), headers, options, self._reports, self._clock)
        weakref.finalize(self, self._delivery.abandon).atexit = False  # At exit, all clients are closed together.

    def track(
        self,
        name: str,
        *,
        user: str | None = None,
        props: Props | None = None,
        id: str | None = None,  # noqa: A002 - the name on the wire
        at: datetime | None = None,
    ) -> None:
        """Queue an event. Invalid values are converted or omitted, or the event is dropped; only `strict` raises."""
        self._queue_behavior(name, user, props, id, at)

    def signup(
        self,
        *,
        user: str,
        props: Props | None = None,
        id: str | None = None,  # noqa: A002 - the name on the wire
        at: datetime | None = None,
    ) -> None:
        """Queue a signup, which also counts the user as active. Raises only if `strict`, like `track`."""
        self._queue_behavior(items.SIGNUP, user, props, id, at, needs_user=True)

    def payment(
        self,
        *,
        id: str,  # noqa: A002 - the name on the wire
        amount: int,
        currency: str,
        user: str | None = None,
        earned: bool = True,
        props: Props | None = None,
        at: datetime | None = None,
    ) -> None:
        """Queue a payment, in minor units. Its id counts once, forever; `earned=False` marks marketplace volume.

        Raise a `ValueError` or `TypeError` if it can never be accepted.
        """
        self._require_server_key("a payment")
        content = items.payment_props(amount, currency, earned=earned, props=props)
        self._delivery.add(EVENTS, self._event_entry(items.PAYMENT, user, content, id, at))

    def subscription(
        self,
        *,
        id: str,  # noqa: A002 - the name on the wire
        status: str,
        mrr: int,
        currency: str,
        at: datetime | None = None,
    ) -> None:
        """Queue the state of a subscription: MRR in minor units per month. The state with the latest `at` wins."""
        self._require_server_key("a subscription")
        now_s = self._clock.now_s()
        version_at = _EPOCH + timedelta(seconds=now_s) if at is None else at
        item = items.subscription_item(id, status, mrr, currency, items.rfc_3339(version_at))
        self._delivery.add(OBJECTS, Entry(items.encoded(item), int(now_s * 1000), does_expire=False))

    @property
    def stats(self) -> Stats:
        """The number of items in each state."""
        return self._delivery.stats

    def _queue_behavior(
        self,
        name: str,
        user: str | None,
        props: Props | None,
        id_: str | None,
        at: datetime | None,
        *,
        needs_user: bool = False,
    ) -> None:
        id_ = str(uuid4()) if id_ is None or _is_empty(id_) else id_
        try:
            items.check_behavior(name, needs_user=needs_user, has_user=not _is_empty(user))
            sent_user, sent_props = (
                (user, props) if self._is_strict else items.sendable(user, props, self._reports.note)
            )
            entry = self._event_entry(name, sent_user, sent_props, id_, at)
        except _FAILURES as error:
            if self._is_strict:
                raise
            item = {"name": name, "user": user, "id": id_, "at": at, "props": props}
            self._delivery.refuse({field: value for field, value in item.items() if value is not None}, str(error))
            return
        self._delivery.add(EVENTS, entry)
        if name == items.SIGNUP and _is_empty(user):
            self._reports.note("a user_signup without a user is sent, but adds no signup: pass user")

    def _event_entry(self, name: str, user: str | None, props: Props | None, id_: str, at: datetime | None) -> Entry:
        now_ms = int(self._clock.now_s() * 1000)
        item = items.event_item(name, user, props, id_, now_ms if at is None else items.epoch_ms(at))
        return Entry(items.encoded(item), now_ms, does_expire=name != items.PAYMENT)

    def _require_server_key(self, what: str) -> None:
        if self._is_publishable:
            raise ValueError(f"{what} needs a server key (sk_live_…): a publishable key sends behavioral events only")


# Make Python's messages about wrong arguments name the public call.
_Sender.__init__.__qualname__ = "Mauve"
for _call in (_Sender.track, _Sender.signup, _Sender.payment, _Sender.subscription):
    _call.__qualname__ = _call.__name__


class Mauve(_Sender):
    """Send events, payments and subscriptions in the background."""

    def flush(self, timeout: float | None = None) -> bool:
        """Send without delay. Return True when everything was answered, and nothing dropped since the last flush.

        Does not shorten a hold.
        """
        return self._delivery.waiters.wait_for(self._delivery.flush(self._timeout if timeout is None else timeout))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is room in the queue, and return whether there is: for programs that send in a loop."""
        return self._delivery.waiters.wait_for(self._delivery.wait(self._timeout if timeout is None else timeout))

    def close(self, timeout: float | None = None) -> bool:
        """Flush, then stop. Return whether everything was answered; the rest is dropped, or stays in the spool."""
        self._delivery.begin_close(timeout)
        return self._delivery.finish_close()

    def __enter__(self) -> Mauve:  # noqa: PYI034 - Python 3.9 has no Self
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncMauve(_Sender):
    """The same for asyncio: only `flush`, `wait` and `close` are awaited. A blocked loop does not delay delivery."""

    async def flush(self, timeout: float | None = None) -> bool:
        """Send without delay. Return True when everything was answered, and nothing dropped since the last flush.

        Does not shorten a hold.
        """
        steps = self._delivery.flush(self._timeout if timeout is None else timeout)
        return await self._delivery.waiters.wait_for_async(steps)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is room in the queue, and return whether there is: for programs that send in a loop."""
        steps = self._delivery.wait(self._timeout if timeout is None else timeout)
        return await self._delivery.waiters.wait_for_async(steps)

    async def close(self, timeout: float | None = None) -> bool:
        """Flush, then stop. Return whether everything was answered; the rest is dropped, or stays in the spool."""
        self._delivery.begin_close(timeout)
        return await self._delivery.waiters.wait_for_async(self._delivery.close())

    async def __aenter__(self) -> AsyncMauve:  # noqa: PYI034
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()


def _is_empty(value: str | None) -> bool:
    return value is None or (isinstance(value, str) and not value)


def _or_environment(name: str, value: str | None, variable: str) -> str:
    value = os.environ.get(variable) if value is None else value
    if value is None:
        raise ValueError(f"{name} is missing: pass it, or set {variable}")
    return value


def _check_callback(name: str, callback: Callback | None) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"{name} must be a function of an item and a reason, not {type(callback).__name__}")


def _check_number(name: str, value: float, kind: type) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not 0 <= value < float("inf") or (kind is int and value == 0):
        raise ValueError(f"{name} must be a positive number")
