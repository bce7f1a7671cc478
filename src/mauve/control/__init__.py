"""The control plane: apps, keys and webhook secrets over HTTP, and what the operator may do besides."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mauve.access.uses import CredentialUses
from mauve.access.vault import Vault
from mauve.core.clock import Clock
from mauve.core.ids import Randomness
from mauve.core.organization import Quotas

if TYPE_CHECKING:
    from mauve.stores.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ControlParts:
    catalog: "Catalog"
    vault: Vault
    clock: Clock
    randomness: Randomness
    uses: CredentialUses
    quotas: Quotas = field(default_factory=Quotas)
