"""Erase a user: remove everything that identifies them, without changing any metric."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mauve.stores.maintenance import LogMaintenance, WarehouseMaintenance

if TYPE_CHECKING:
    from mauve.stores.ledger.maintenance import LedgerMaintenance


class Erased(msgspec.Struct, frozen=True):
    """The number of entries that were anonymized."""

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
