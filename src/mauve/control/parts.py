"""What the control plane is made of."""

from dataclasses import dataclass

from mauve.access.vault import Vault
from mauve.core.clock import Clock
from mauve.core.ids import Randomness
from mauve.stores.catalog import Catalog
from mauve.stores.edge import EdgePublisher


@dataclass(frozen=True, slots=True)
class ControlParts:
    catalog: Catalog
    edge: EdgePublisher
    vault: Vault
    clock: Clock
    randomness: Randomness
