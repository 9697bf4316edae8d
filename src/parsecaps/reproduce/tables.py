"""`TABLES`: every table and figure that can be measured again, by its name."""

from parsecaps.reproduce.affnist import AffNIST
from parsecaps.reproduce.capsules import Capsules
from parsecaps.reproduce.classification import Classification
from parsecaps.reproduce.concepts import Concepts
from parsecaps.reproduce.discovery import Discovered
from parsecaps.reproduce.leak import Leak
from parsecaps.reproduce.losses import Losses
from parsecaps.reproduce.plan import Table, nearest
from parsecaps.reproduce.reconstruction import Reconstruction
from parsecaps.reproduce.redundancy import Redundancy
from parsecaps.reproduce.routing import Routing
from parsecaps.reproduce.skin import Skin

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
