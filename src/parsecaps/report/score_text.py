"""What is said about scores in words, the same in the terminal and on the page; `METRICS` writes the numbers."""

from parsecaps.metrics.metric import UNDEFINED
from parsecaps.metrics.patients import PatientErrors


def p_value(p: float | None) -> str:
    """Three digits, as small ones say no more.

    >>> p_value(0.04), p_value(0.0002)
    ('0.040', '< 0.001')
    """
    if p is None:
        return UNDEFINED
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float | None) -> str:
    """A p-value with the letter p.

    >>> p_equals(0.04), p_equals(0.0002)
    ('p = 0.040', 'p < 0.001')
    """
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def errors_by_patient(errors: PatientErrors) -> str:
    """How the errors are spread over patients.

    >>> errors_by_patient(PatientErrors(77, 19, 4, []))
    'wrong images: 77; their patients: 19; patients who have half of them: 4'
    """
    of_patients = f"their patients: {errors.patients:,}; patients who have half of them: {errors.half:,}"
    return f"wrong images: {errors.wrong:,}; {of_patients}"
