"""The formats of the files in a data directory, noted in one of them.

The SQL databases keep their own revisions. This note covers the stores that have none, and names the release.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from mauve.stores import NewerSchemaError
from mauve.stores.data_directory import write_private_file

FORMATS: Final = "formats.json"


class Formats(msgspec.Struct, frozen=True):
    mauve: str  # the release that noted them
    stores: dict[str, int]  # the format of each store that is in files


_formats: Final = msgspec.json.Decoder(Formats)


def read_formats(data: Path) -> Formats | None:
    """Return what is noted; None if the directory is new, or older than the note.

    Raise `NewerSchemaError` if the note cannot be understood: a newer release may have written it.
    """
    path = data / FORMATS
    try:
        return _formats.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise NewerSchemaError(
            f"{path} is damaged, or of a newer release: run that release, or restore a copy or backup; "
            "if no newer release has used the data, delete the file and start again"
        ) from None


def write_formats(data: Path, formats: Formats) -> None:
    write_private_file(data / FORMATS, msgspec.json.encode(formats) + b"\n")


def newer_formats(noted: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """Return which of the known stores have a newer format: `warehouse 2 instead of 1`."""
    return [f"{name} {noted[name]} instead of {known[name]}" for name in known if noted.get(name, 0) > known[name]]
