"""What type checkers must accept; `test_package.py` runs mypy on it."""

from __future__ import annotations

from datetime import date
from typing import Any

from mauve_metrics import AsyncMauve, AsyncMetrics, Control, Mauve, Metrics, Stats


def on_drop(item: dict[str, Any], reason: str) -> None:
    print(item["id"], reason)


def send() -> Stats:
    with Mauve("sk_live_x", url="http://localhost", on_drop=on_drop, spool="folder", strict=True) as mauve:
        has_room: bool = mauve.wait(timeout=1.5)
        mauve.track("opened", user="ann", props={"plan": "pro", "seats": 3, "trial": False, "note": None})
        mauve.payment(id="p", amount=1, currency="eur", earned=False)
        is_delivered: bool = mauve.flush(timeout=1.5)
        print(has_room, is_delivered)
        return mauve.stats


async def send_and_read() -> int:
    async with AsyncMauve() as mauve:
        mauve.signup(user="ann")
        await mauve.wait()
        await mauve.flush()
    result = await AsyncMetrics("sk_live_x", url="http://localhost").dau()
    return sum(row.dau for row in result.rows)


def read() -> dict[date, int]:
    key: str = Control("ctl_live_x", url="http://localhost").create_app("One").sk_key
    return {row.day: row.revenue for row in Metrics(key, url="http://localhost").revenue(date(2026, 1, 1)).rows}
