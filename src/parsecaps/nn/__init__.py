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
from parsecaps.nn.lite0 import ConvNorm, MBConv
from parsecaps.nn.recorder import record_couplings, replace_couplings
from parsecaps.nn.routing import Messages, Routing, RoutingConfig, Way
from parsecaps.nn.saa import AxialAttention, PConvCaps, SAARouting, SparseAttention
from parsecaps.nn.trunk import TRUNKS, TrunkBlock, TrunkSource, TrunkWeights

__all__ = [
    "ROUTINGS",
    "TRUNKS",
    "AxialAttention",
    "Bottleneck",
    "CapsuleCell",
    "CapsuleGrid",
    "CapsuleLayer",
    "ConceptLayer",
    "ConvNorm",
    "ConvPrimaryCaps",
    "Coupling",
    "Decoder",
    "DynamicRouting",
    "FullyCaps",
    "InitialBlock",
    "MBConv",
    "Messages",
    "PConvCaps",
    "PhraseEmbedding",
    "PrimaryCaps",
    "Routing",
    "RoutingConfig",
    "SAARouting",
    "SharedVotes",
    "SparseAttention",
    "TrunkBlock",
    "TrunkSource",
    "TrunkWeights",
    "Votes",
    "Way",
    "capsule_block",
    "record_couplings",
    "replace_couplings",
]
