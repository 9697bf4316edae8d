"""Concepts that nobody labelled: found, judged and named."""

from parsecaps.discovery.discover import (
    DiscoveredConcept,
    Discovery,
    discover_concepts,
    discover_run,
    effective_concepts,
)
from parsecaps.discovery.naming import Naming, name_concepts, name_run, naming_sheet, read_names
from parsecaps.discovery.stability import Stability, concept_stability

__all__ = [
    "DiscoveredConcept",
    "Discovery",
    "Naming",
    "Stability",
    "concept_stability",
    "discover_concepts",
    "discover_run",
    "effective_concepts",
    "name_concepts",
    "name_run",
    "naming_sheet",
    "read_names",
]
