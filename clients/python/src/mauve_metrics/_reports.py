"""Report to the application through callbacks, which may fail, and log lines that do not flood the log."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Union

from mauve_metrics._items import Item
from mauve_metrics._segment import Entry

Callback = Callable[[dict[str, Any], str], object]
FailedItem = tuple[Union[Entry, Item], str]  # an entry, or an item that never became one, and the reason

_LOG_EVERY_S = 60.0
_NOTES_MAX = 100  # Names of properties are in them, and there may be any number of names.

log = logging.getLogger("mauve_metrics")


class Reports:
    """Called without the client's lock: application code may take any time, and may call the client.

    If a thread inside a callback has more to report, it does so after the callback returns.
    """

    def __init__(self, on_drop: Callback | None, on_reject: Callback | None, monotonic: Callable[[], float]) -> None:
        self._on_drop = on_drop
        self._on_reject = on_reject
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._notes: set[str] = set()
        self._calling = threading.local()

    def drop(self, dropped: Sequence[FailedItem]) -> None:
        self._call(self._on_drop, dropped)

    def drop_for_call(self, dropped: Sequence[FailedItem]) -> None:
        """Report the items that a call dropped, unless `on_drop` made the call: that might never end."""
        if not getattr(self._calling, "is_dropping", False):
            self.drop(dropped)

    def leave(self, items: int, files: int, folder: Path | None) -> None:
        """Log once what a closed client left in its spool: items that it had read, and files that it had not."""
        counts = ((items, "item"), (files, "older file"))
        left = [f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count]
        if left:
            stay = "stays" if items + files == 1 else "stay"
            next_step = "the next client with this folder and this key sends what is there"
            self.warn_once("left", f"{' and '.join(left)} {stay} in the spool {folder}: {next_step}")

    def reject(self, rejected: Sequence[FailedItem]) -> None:
        self._call(self._on_reject, rejected)

    def warn(self, subject: str, message: str) -> None:
        """Log a message, unless it is empty, or one about the same subject was logged within a minute."""
        now = self._monotonic()
        if message and now >= self._logged_at.get(subject, -_LOG_EVERY_S) + _LOG_EVERY_S:
            self._logged_at[subject] = now
            log.warning("mauve: %s", message)

    def warn_once(self, subject: str, message: str) -> None:
        """Log a message once, until its episode ends."""
        if subject not in self._logged_at:
            self._logged_at[subject] = self._monotonic()
            log.warning("mauve: %s", message)

    def note(self, message: str) -> None:
        """Log a message about the arguments of a call once, up to a maximum number of messages."""
        if message not in self._notes and len(self._notes) < _NOTES_MAX:
            self._notes.add(message)
            log.warning("mauve: %s", message)

    def end_episode(self, prefix: str) -> None:
        """Allow messages about subjects with this prefix again, but not within a minute of the last one."""
        now = self._monotonic()
        over = [name for name, at in self._logged_at.items() if name.startswith(prefix) and now >= at + _LOG_EVERY_S]
        for name in over:
            self._logged_at.pop(name, None)

    def _call(self, callback: Callback | None, failed: Sequence[FailedItem]) -> None:
        if callback is None or not failed:
            return
        waiting: deque[tuple[Callback, FailedItem]] | None = getattr(self._calling, "waiting", None)
        if waiting is not None:
            waiting.extend((callback, item_and_reason) for item_and_reason in failed)
            return
        self._calling.waiting = waiting = deque((callback, item_and_reason) for item_and_reason in failed)
        try:
            while waiting:
                callback, (item, reason) = waiting.popleft()
                self._calling.is_dropping = callback is self._on_drop
                _call_guarded(callback, item, reason)
        finally:
            self._calling.waiting, self._calling.is_dropping = None, False


def _call_guarded(callback: Callback, item: Entry | Item, reason: str) -> None:
    try:
        callback(json.loads(item.body) if isinstance(item, Entry) else item, reason)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # It is not the callback's.
        log.exception("mauve: on_drop or on_reject failed")
