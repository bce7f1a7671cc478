"""Wires the control plane: catalog, edge, vault."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from mauve.access.uses import CredentialUses
from mauve.config import Settings
from mauve.control.parts import ControlParts
from mauve.control.publish import Publisher, log_delay
from mauve.core.clock import Clock, SystemClock
from mauve.core.ids import SystemRandomness
from mauve.stores.sql.catalog.catalog import sql_catalog
from mauve.wiring.bootstrap import identity_of, open_vault
from mauve.wiring.databases import open_catalog_database
from mauve.wiring.edge import OpenEdge, open_edge_publisher


@contextmanager
def control_parts(
    settings: Settings,
    clock: Clock | None = None,
    open_edge: OpenEdge = open_edge_publisher,
    report_delay: Callable[[str], None] = log_delay,
) -> Iterator[ControlParts]:
    """Open the parts of the control plane, on a prepared data directory."""
    clock = clock or SystemClock()
    with closing(open_catalog_database(settings)) as database:
        catalog = sql_catalog(database)
        with (
            open_edge(settings, partial(identity_of, catalog)) as edge,
            closing(Publisher(catalog, edge, clock, report_delay)) as publisher,
        ):
            yield ControlParts(
                catalog=catalog,
                publisher=publisher,
                vault=open_vault(settings),
                clock=clock,
                randomness=SystemRandomness(),
                uses=CredentialUses(catalog.tokens, catalog.keys),
                quotas=settings.quotas,
            )
