"""How scores are written, the same in the terminal and on the page."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from parsecaps.metrics.comparison import Difference
from parsecaps.metrics.folds import OverFolds
from parsecaps.metrics.patient_errors import Misread
from parsecaps.metrics.score import Score

TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_precision": "precision, macro",
    "macro_recall": "recall, macro",
    "macro_f1": "F1, macro",
    "macro_specificity": "specificity, macro",
    "macro_auroc": "AUROC, macro",
    "ece": "calibration error (ECE)",
    "brier": "Brier score",
    "nll": "NLL",
    "patient_accuracy": "patients, all images read together",
    "pooled_accuracy": "images, by the patient's answer",
    "steadiness": "same answer to changed views",
    "mean_auroc": "concept AUROC, mean",
    "mean_f1": "concept F1, mean",
    "explanation_error_l2": "explanation error (L2)",
    "explanation_error_l2_squared": "explanation error (L2, squared)",
    "mean_attribute_f1": "attribute F1, mean of macro",
    "mean_attribute_accuracy": "attribute accuracy, mean",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "specificity": "specificity",
    "auroc": "AUROC",
    "attribute_f1": "F1, macro",
    "attribute_accuracy": "accuracy",
    "coverage": "sets with the truth",
    "answered": "answered",
    "accuracy_answered": "right if answered",
    "mean_size": "classes in a set",
}
MAIN = (  # to begin with
    "accuracy",
    "balanced_accuracy",
    "patient_accuracy",
    "macro_auroc",
    "ece",
    "mean_auroc",
    "mean_attribute_f1",
    "explanation_error_l2",
)
_SHARES = {
    *("accuracy", "balanced_accuracy", "coverage", "answered", "accuracy_answered", "steadiness"),
    *("patient_accuracy", "pooled_accuracy"),
    *("attribute_accuracy", "mean_attribute_accuracy"),
    *(f"{prefix}{name}" for prefix in ("", "macro_") for name in ("precision", "recall", "specificity")),
}
UNDEFINED = "-"


def number(key: str, value: float | None) -> str:
    """Shares of images in per cent, everything else with three digits.

    >>> number("accuracy", 0.9534), number("macro_auroc", 0.9534), number("recall", None)
    ('95.3 %', '0.953', '-')
    """
    if value is None:
        return UNDEFINED
    return f"{100 * value:.1f} %" if key in _SHARES else f"{value:.3f}"


def interval(key: str, score: Score) -> str:
    """The 95 % interval.

    >>> interval("accuracy", Score(0.95, 0.9, 0.99, 100)), interval("accuracy", Score(0.95, None, None, 1))
    ('90.0 to 99.0', '-')
    """
    if score.low is None or score.high is None:
        return UNDEFINED
    return f"{number(key, score.low)} to {number(key, score.high)}".replace(" %", "")


def with_interval(key: str, score: Score) -> str:
    """The number, with its interval in brackets where there is one.

    >>> with_interval("accuracy", Score(0.95, 0.9, 0.99, 100))
    '95.0 % (90.0 to 99.0)'
    """
    text = number(key, score.value)
    return text if score.low is None else f"{text} ({interval(key, score)})"


def spread(key: str, each: OverFolds) -> str:
    """Mean and standard deviation over folds.

    >>> spread("accuracy", OverFolds(0.9, 0.02, 5))
    '90.0 % ± 2.0'
    """
    mean = number(key, each.mean)
    return mean if each.std is None else f"{mean} ± {number(key, each.std)}".removesuffix(" %")


def summary(counts: str, single: Mapping[str, Score], notes: Sequence[str]) -> Iterator[str]:
    """A few lines that say how good a model is."""
    yield counts
    for key in (key for key in MAIN if key in single):
        yield f"  {TITLES[key]:<24} {with_interval(key, single[key])}, n = {single[key].n:,}"
    yield from (f"  note: {note}" for note in notes)


def summary_html(counts: str, single: Mapping[str, Score], notes: Sequence[str]) -> str:
    """The same as a table, for notebooks."""
    rows = "".join(
        f"<tr><td>{TITLES[key]}</td><td>{number(key, single[key].value)}</td><td>{interval(key, single[key])}</td>"
        f"<td>{single[key].n:,}</td></tr>"
        for key in MAIN
        if key in single
    )
    head = "<tr><th>score</th><th>value</th><th>95 % interval</th><th>n</th></tr>"
    return f"<p>{escape(counts)}</p><table>{head}{rows}</table>" + "".join(f"<p>{escape(note)}</p>" for note in notes)


def difference(key: str, value: float | None) -> str:
    """With its sign; shares in points of per cent.

    >>> difference("accuracy", 0.0123), difference("macro_auroc", -0.0004)
    ('+1.2', '-0.000')
    """
    if value is None:
        return UNDEFINED
    return f"{100 * value:+.1f}" if key in _SHARES else f"{value:+.3f}"


def difference_interval(key: str, each: Difference) -> str:
    """The 95 % interval of a difference.

    >>> difference_interval("accuracy", Difference(0.9, 0.95, 0.05, -0.01, 0.11, 0.1))
    '-1.0 to +11.0'
    """
    return UNDEFINED if each.low is None else f"{difference(key, each.low)} to {difference(key, each.high)}"


def p_value(p: float | None) -> str:
    """Three digits, as small ones say no more.

    >>> p_value(0.04), p_value(0.0002)
    ('0.040', '< 0.001')
    """
    if p is None:
        return UNDEFINED
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def equals(p: float | None) -> str:
    """A p-value after the letter p.

    >>> f"p {equals(0.04)}, p {equals(0.0002)}"
    'p = 0.040, p < 0.001'
    """
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def whose_errors(each: Misread) -> str:
    """How the errors are spread over patients.

    >>> whose_errors(Misread(77, 19, 4, []))
    'wrong images: 77; their patients: 19; patients who have half of them: 4'
    """
    of_patients = f"their patients: {each.patients:,}; patients who have half of them: {each.half:,}"
    return f"wrong images: {each.wrong:,}; {of_patients}"
