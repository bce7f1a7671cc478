"""Erasing a person: nothing that tells of them stays, and no figure moves."""

from collections.abc import Callable

import msgspec

from mauve.stores.maintenance import LedgerMaintenance, LogMaintenance, WarehouseMaintenance


class Erased(msgspec.Struct, frozen=True):
    """How much of a person there was."""

    events: int
    payments: int
    subscription_versions: int
    dead_letters: int
    damaged_records: int
    queue_is_clean: bool  # False: loaded records stay in the queue's files until those are used again
    journal_is_clean: bool  # False: the ledger is being read, and its journal stays as it is until that ends


def erase_user(
    project: str,
    user: str,
    *,
    load_pending: Callable[[], None],
    warehouse: WarehouseMaintenance,
    ledger: LedgerMaintenance,
    log: LogMaintenance,
) -> Erased:
    """Load first: what waits in the queue would bring the person back."""
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
