"""The exchange of accepted counts on one machine: a small file for each process, replaced as a whole.

Files instead of a shared database: a process stopped while holding a lock would block the others. They are not
synced, because the log holds the same information.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from mauve.core.accepted import AcceptedCounts, OrgPeriod, Subtotal
from mauve.stores import StoreUnavailableError

_NAME: Final = re.compile(r"[0-9]{3}")
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[str, str, list[Subtotal]]])


class FileAcceptedCounts:
    """Used from one thread at a time."""

    def __init__(self, folder: Path, stream: int) -> None:
        self._folder = folder
        self._stream = stream
        self._name = f"{stream:03d}"
        self._shared: bytes | None = None
        self._seen: dict[str, tuple[bytes, AcceptedCounts]] = {}  # by file: usually unchanged

    def share(self, accepted: Mapping[int, AcceptedCounts]) -> None:
        own = accepted.get(self._stream, ())  # A process writes only its own stream.
        content = _encoder.encode([(*org_period, subtotals) for org_period, subtotals in own])
        if content == self._shared:
            return
        try:
            self._write(content)
        except OSError as error:
            raise StoreUnavailableError(str(error)) from error
        self._shared = content

    def own(self) -> dict[int, AcceptedCounts]:
        accepted = self._counts_in(self._name).copy()
        return {self._stream: accepted} if accepted else {}

    def others(self) -> list[tuple[int, AcceptedCounts]]:
        try:
            names = [path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        return [(int(name), self._counts_in(name)) for name in names if name != self._name]

    def _write(self, content: bytes) -> None:
        self._folder.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        draft = self._folder / f"{self._name}.new"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE_FILE), "wb") as file:  # noqa: PTH123
            file.write(content)
        draft.rename(self._folder / self._name)

    def _counts_in(self, name: str) -> AcceptedCounts:
        """Read a file. A missing or torn one counts as empty."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return AcceptedCounts()
        content_before, accepted = self._seen.get(name, (None, AcceptedCounts()))
        if content != content_before:
            accepted = _counts_from(content)
            self._seen[name] = (content, accepted)
        return accepted


def _counts_from(content: bytes) -> AcceptedCounts:
    try:
        return AcceptedCounts(
            {OrgPeriod(org_id, period): subtotals for org_id, period, subtotals in _decoder.decode(content)}
        )
    except msgspec.MsgspecError:
        return AcceptedCounts()
