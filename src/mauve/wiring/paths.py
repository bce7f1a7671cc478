"""The path of each store in the data directory."""

from collections.abc import Callable
from pathlib import Path

from mauve.config import Settings


def _in_data(name: str) -> Callable[[Path], Path]:
    return lambda data: data / name


catalog_path = _in_data("catalog.db")
ledger_path = _in_data("ledger.db")
log_path = _in_data("log")
warehouse_path = _in_data("warehouse")
accepted_path = _in_data("accepted")
read_meter_path = _in_data("meter.db")
master_key_path = _in_data("master.key")
identity_path = _in_data("installation")
machine_path = _in_data("machine")
served_path = _in_data("served")
backup_drafts_path = _in_data("backing-up")


def snapshot_path(data: Path, process: int) -> Path:
    return data / f"keys-{process:03d}.json"


def moved_path(path: Path) -> Path:
    """Return the name of a file or folder after its content has moved to a server."""
    return path.with_name(f"{path.name}.moved")


def has_data(settings: Settings) -> bool:
    """Return whether there may be an installation: in the data directory, or on a server."""
    return settings.database_url is not None or catalog_path(settings.data).exists()
