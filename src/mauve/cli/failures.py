"""How commands report each kind of failure. Imported only on failure, because it imports every part's errors."""

from typing import Final

from mauve.access.vault import VaultError
from mauve.config import SettingError
from mauve.control.operator import RefusedError
from mauve.core.problems import Problem
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.child_process import ServeRefusedError
from mauve.stores import ForeignDataError, NewerSchemaError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.backups import BackupStoreError
from mauve.stores.data_directory import DirectoryError, HeldError
from mauve.stores.imports import ImportOutdatedError
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError

_USAGE_ERRORS: Final = (
    DirectoryError,
    HeldError,
    ImportOutdatedError,
    MaintenanceRefusedError,
    Problem,
    RefusedError,
    SettingError,
    VaultError,
)
_FAILURES: Final = (
    BackupStoreError,
    ForeignDataError,
    MaintenanceFailedError,
    NewerSchemaError,
    RowsRefusedError,
    UnsupportedServerError,
)


def outcome_of(error: Exception) -> tuple[int, str]:
    """Return the exit code and the sentence to print; reraise an unexpected error."""
    match error:
        case ServeRefusedError():
            return error.exit_code, str(error)
        case _ if isinstance(error, _USAGE_ERRORS):
            return 2, str(error)
        case _ if isinstance(error, _FAILURES):
            return 1, str(error)
        case StoreUnavailableError() | WarehouseUnavailableError():
            return 1, f"the data could not be read or written ({error}): run 'mauve doctor'"
        case OSError():
            place = error.filename or "input or output"
            return 1, f"{error.strerror or error} ({place}): check the path and its permissions"
        case _:
            raise error
