"""The networks that ParseCaps is compared with; importing this room enters them into `models.MODELS`, and their losses
into `training.losses.TERMS`.
"""

from parsecaps.models import MODELS
from parsecaps.models.cnn import as_trunk
from parsecaps.nn.trunk import TRUNKS
from parsecaps.rivals.ar_capsnet import ARCapsNet
from parsecaps.rivals.capsnet import CapsNet
from parsecaps.rivals.ccnn import CCNN, Coherence, CoherentCNN, Counter, Semantic, Uniqueness
from parsecaps.rivals.class_capsules import ClassReconstruction, Margin
from parsecaps.rivals.cnns import VGG16, VGG19, ConvVGG16, DenseNet121, GoogLeNet, ResNet18, ResNet34, SqueezeNet
from parsecaps.rivals.concept_models import CBM, CEM, ConceptCrossEntropy, IntervenedClassification
from parsecaps.rivals.deepcaps import DeepCaps
from parsecaps.rivals.efficient_capsnet import EfficientCapsNet
from parsecaps.rivals.efficientnet import EfficientNetB0, EfficientNetLite0
from parsecaps.rivals.orthcaps import OrthCaps
from parsecaps.rivals.protocaps import Attribute, ImageReconstruction, ProtoCaps, Prototype
from parsecaps.rivals.three_layer import ThreeLayerCaps
from parsecaps.training.terms import TERMS

for kinds in (
    (ResNet18, EfficientNetLite0, ResNet34, CBM, CEM, CCNN, CoherentCNN, DenseNet121, EfficientNetB0, GoogLeNet, VGG19),
    (VGG16, SqueezeNet, ConvVGG16, ProtoCaps, CapsNet, DeepCaps, OrthCaps, EfficientCapsNet, ARCapsNet, ThreeLayerCaps),
):
    MODELS.update((kind.__name__, kind) for kind in kinds)
_CNNS = (ResNet18, ResNet34, DenseNet121, EfficientNetB0, GoogLeNet, VGG16, VGG19, ConvVGG16)
TRUNKS.update((kind.__name__, as_trunk(kind)) for kind in _CNNS)
TERMS += [IntervenedClassification, ConceptCrossEntropy, Semantic, Counter, Uniqueness, Coherence]
TERMS += [Margin, ClassReconstruction, Attribute, ImageReconstruction, Prototype]

__all__ = [
    "CBM",
    "CCNN",
    "CEM",
    "VGG16",
    "VGG19",
    "ARCapsNet",
    "CapsNet",
    "CoherentCNN",
    "ConvVGG16",
    "DeepCaps",
    "DenseNet121",
    "EfficientCapsNet",
    "EfficientNetB0",
    "EfficientNetLite0",
    "GoogLeNet",
    "OrthCaps",
    "ProtoCaps",
    "ResNet18",
    "ResNet34",
    "SqueezeNet",
    "ThreeLayerCaps",
]
