"""How long the service of a test lives: as long as the test, or as all tests that share one."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Lifetime:
    """Keeps the parts of one service, which are made when they are first needed."""

    def __init__(self, opened: ExitStack, folder: Path, *, is_shared: bool) -> None:
        self.opened, self.folder, self.is_shared = opened, folder, is_shared
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made
