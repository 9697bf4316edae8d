"""`TABLES`: every table and figure that can be measured again, by its name."""

from parsecaps.paper.affnist import AffNIST
from parsecaps.paper.capsules import Capsules
from parsecaps.paper.classification import Classification
from parsecaps.paper.concepts import Concepts
from parsecaps.paper.discovery import Discovered
from parsecaps.paper.leak import Leak
from parsecaps.paper.losses import Losses
from parsecaps.paper.plan import Table, nearest
from parsecaps.paper.reconstruction import Reconstruction
from parsecaps.paper.redundancy import Redundancy
from parsecaps.paper.routing import Routing
from parsecaps.paper.skin import Skin

_LISTED: tuple[Table, ...] = (
    Classification(),
    Skin(),
    Capsules(),
    Losses(),
    AffNIST(),
    Routing(),
    Redundancy(),
    Concepts(),
    Discovered(),
    Reconstruction(),
    Leak(),
)
TABLES: dict[str, Table] = {table.name: table for table in _LISTED}


def find_table(name: str) -> Table:
    """A table by its name; an unknown one is refused with the nearest."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; {nearest(name, list(TABLES))}")
    return TABLES[name]
