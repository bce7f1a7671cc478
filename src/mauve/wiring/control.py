"""Wires the control plane: catalog, vault."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from mauve.access.uses import CredentialUses
from mauve.config import Settings
from mauve.control.dependencies import ControlParts
from mauve.core.clock import Clock, SystemClock
from mauve.core.ids import SystemRandomness
from mauve.stores.catalog.catalog import Catalog
from mauve.wiring.bootstrap import open_vault
from mauve.wiring.databases import open_catalog_database


@contextmanager
def control_parts(settings: Settings, clock: Clock | None = None) -> Iterator[ControlParts]:
    """Open the parts of the control plane, on a prepared data directory."""
    with closing(open_catalog_database(settings)) as database:
        catalog = Catalog(database)
        yield ControlParts(
            catalog=catalog,
            vault=open_vault(settings),
            clock=clock or SystemClock(),
            randomness=SystemRandomness(),
            uses=CredentialUses(catalog.tokens, catalog.keys),
            quotas=settings.quotas,
        )
