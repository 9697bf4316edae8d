"""The layers of ParseCaps, each named as in the paper."""

from parsecaps.nn.capsules import (
    CapsuleGrid,
    CapsuleLayer,
    ConvPrimaryCaps,
    InitialBlock,
    PrimaryCaps,
    SharedVotes,
    Votes,
)
from parsecaps.nn.cell import ROUTINGS, CapsuleCell, capsule_block
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.dynamic import DynamicRouting
from parsecaps.nn.heads import Bottleneck, ConceptLayer, Decoder, FullyCaps, PhraseEmbedding
from parsecaps.nn.recorder import record_couplings, replace_couplings
from parsecaps.nn.routing import Messages, Routing, RoutingConfig, Way
from parsecaps.nn.saa import AxialAttention, PConvCaps, SAARouting, SparseAttention

__all__ = [
    "ROUTINGS",
    "AxialAttention",
    "Bottleneck",
    "CapsuleCell",
    "CapsuleGrid",
    "CapsuleLayer",
    "ConceptLayer",
    "ConvPrimaryCaps",
    "Coupling",
    "Decoder",
    "DynamicRouting",
    "FullyCaps",
    "InitialBlock",
    "Messages",
    "PConvCaps",
    "PhraseEmbedding",
    "PrimaryCaps",
    "Routing",
    "RoutingConfig",
    "SAARouting",
    "SharedVotes",
    "SparseAttention",
    "Votes",
    "Way",
    "capsule_block",
    "record_couplings",
    "replace_couplings",
]
