"""Explanations of one image: maps along the routes, the parse tree, concepts set by hand, and known cases."""

from parsecaps.explain.attribution import MAP_METHODS, Target, attribution_maps, has_routes, route_relevance
from parsecaps.explain.attribution_path import trace
from parsecaps.explain.case_memory import CaseMemory, remember_run
from parsecaps.explain.explanation import Explanation
from parsecaps.explain.intervention import concept_reasoning, counterfactual
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.strict_tree import strict_network
from parsecaps.explain.traversal import traverse

__all__ = [
    "MAP_METHODS",
    "CaseMemory",
    "Explanation",
    "ParseTree",
    "Target",
    "attribution_maps",
    "concept_reasoning",
    "counterfactual",
    "has_routes",
    "parse_tree",
    "remember_run",
    "route_relevance",
    "strict_network",
    "trace",
    "traverse",
]
