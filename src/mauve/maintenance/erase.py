"""Erase a user, without changing any metric, or delete an app's projects, from every store."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mauve.stores.maintenance import LogMaintenance, WarehouseMaintenance

if TYPE_CHECKING:
    from mauve.stores.ledger.maintenance import LedgerMaintenance


SETTLE_S: Final = 180.0
"""How long a request that began before archiving may still be accepted: a slow body takes up to 150 seconds."""


class Erased(msgspec.Struct, frozen=True):
    """The number of entries that were anonymized or deleted."""

    events: int
    payments: int
    subscription_versions: int
    dead_letters: int
    damaged_records: int
    queue_is_clean: bool  # False: loaded records remain in the queue's files until those are reused
    journal_is_clean: bool  # False: a reader keeps the ledger's journal from being emptied until it ends


def erase_user(
    project: str,
    user: str,
    *,
    load_pending: Callable[[], None],
    warehouse: WarehouseMaintenance,
    ledger: "LedgerMaintenance",
    log: LogMaintenance,
) -> Erased:
    """Erase the user from every store. Load the queue first, or its events would reintroduce the user."""
    load_pending()
    events = warehouse.erase_user(project, user)
    entries = ledger.erase_user(project, user)
    return Erased(
        events=events,
        payments=entries.payments,
        subscription_versions=entries.subscription_versions,
        dead_letters=entries.dead_letters,
        damaged_records=log.erase_damaged(user),
        queue_is_clean=log.blank_loaded(),
        journal_is_clean=ledger.empty_journal(),
    )


def delete_projects(
    projects: Sequence[str],
    *,
    load_pending: Callable[[], None],
    warehouse: WarehouseMaintenance,
    ledger: "LedgerMaintenance",
    log: LogMaintenance,
) -> Erased:
    """Delete the data of an archived app. Load the queue first, or its events would reappear. Safe to repeat."""
    load_pending()
    events = sum(warehouse.delete_project(project) for project in projects)
    load_pending()  # A step that read the warehouse before the deletion may still store the users of closed days.
    entries = [ledger.delete_project(project) for project in projects]
    return Erased(
        events=events,
        payments=sum(each.payments for each in entries),
        subscription_versions=sum(each.subscription_versions for each in entries),
        dead_letters=sum(each.dead_letters for each in entries),
        damaged_records=sum(log.erase_damaged(project) for project in projects),
        queue_is_clean=log.blank_loaded(),
        journal_is_clean=ledger.empty_journal(),
    )


def seconds_to_settle(refused_since: int, now_ms: int) -> float:
    """Return how long requests that began before their key was refused may still be in progress."""
    return max(0.0, SETTLE_S - (now_ms - refused_since) / 1000)
