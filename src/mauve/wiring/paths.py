"""The path of each store in the data directory."""

from pathlib import Path

from mauve.config import Settings


def catalog_path(data: Path) -> Path:
    return data / "catalog.db"


def snapshot_path(data: Path, process: int) -> Path:
    return data / f"keys-{process:03d}.json"


def ledger_path(data: Path) -> Path:
    return data / "ledger.db"


def log_path(data: Path) -> Path:
    return data / "log"


def warehouse_path(data: Path) -> Path:
    return data / "warehouse"


def accepted_path(data: Path) -> Path:
    return data / "accepted"


def read_meter_path(data: Path) -> Path:
    return data / "meter.db"


def master_key_path(data: Path) -> Path:
    return data / "master.key"


def identity_path(data: Path) -> Path:
    return data / "installation"


def machine_path(data: Path) -> Path:
    return data / "machine"


def served_path(data: Path) -> Path:
    return data / "served"


def backup_drafts_path(data: Path) -> Path:
    return data / "backing-up"


def moved_path(path: Path) -> Path:
    """Return the name of a file or folder after its content has moved to a server."""
    return path.with_name(f"{path.name}.moved")


def has_data(settings: Settings) -> bool:
    """Return whether there may be an installation: in the data directory, or on a server."""
    return settings.database_url is not None or catalog_path(settings.data).exists()
