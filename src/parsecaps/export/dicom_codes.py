"""The codes of new DICOM objects: those of DICOM and SNOMED CT where there are any, else our own.

Classes and concepts have names, and a name is no definition: whether the "melanoma" of a table is that of SNOMED CT is
not ours to say. So they get codes of the private scheme 99PARSECAPS, whose meaning is the name. The code is a letter
and twelve digits of the SHA-256 of the name: the same name has the same code in every model.
"""

import hashlib
from typing import Any

SCHEME = "99PARSECAPS"
_DIGITS = 12
_LONGEST = 64  # bytes of a code's meaning


def code_value(letter: str, name: str) -> str:
    """The value of a code of our own, at most 16 characters.

    >>> code_value("C", "blue-whitish veil")
    'C-2abb99a18830'
    """
    return f"{letter}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"


def shortened(text: str, longest: int = _LONGEST) -> str:
    r"""A text of at most so many bytes, as some readers count, without what would end a value.

    >>> shortened("pigment \\ network", 13)
    'pigment / ...'
    """
    plain = " ".join(text.replace("\\", "/").split())
    if len(plain.encode()) <= longest:
        return plain
    return plain.encode()[: longest - 3].decode(errors="ignore") + "..."


def class_code(name: str) -> Any:
    """A class as a finding."""
    return _coded(code_value("D", name), name)


def class_probability_code(name: str) -> Any:
    """The name of the probability of a class."""
    return _coded(code_value("P", name), f"Probability of {name}")


def concept_code(name: str) -> Any:
    """A concept as something to look for."""
    return _coded(code_value("C", name), name)


def presence_code() -> Any:
    """How present a concept is."""
    return _coded("presence", "Presence, 0 to 1 (length of the concept capsule)")


def evidence_code(name: str) -> Any:
    """What a map shows."""
    return _coded(code_value("E", name), f"Relative evidence for {name}")


def possible_code() -> Any:
    """A class that cannot be ruled out at the chosen risk."""
    return _coded("possible", "Class that cannot be ruled out")


def detected_code(seen: bool) -> Any:
    """Whether a concept counts as seen."""
    from highdicom.sr import CodedConcept

    return CodedConcept("260373001", "SCT", "Detected") if seen else CodedConcept("260415000", "SCT", "Not detected")


def scheme_item() -> Any:
    """What says in an object whose codes these are."""
    from highdicom.coding_schemes import CodingSchemeIdentificationItem

    return CodingSchemeIdentificationItem(
        designator=SCHEME,
        name="Names of classes and concepts of parsecaps models",
        responsible_organization="parsecaps",
    )


def _coded(value: str, meaning: str) -> Any:
    from highdicom.sr import CodedConcept

    return CodedConcept(value, SCHEME, shortened(meaning))
