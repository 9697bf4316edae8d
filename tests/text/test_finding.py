"""Concepts from sentences: the written and the held-out set, evidence, and what must hold for any text."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.text.finding import Findings, find_concepts
from parsecaps.text.lexicon import Lexicon
from studies.text_scores import score

SENTENCES = Path(__file__).with_name("sentences.yaml")
DERMOSCOPY = Lexicon.shipped("dermoscopy")


def read(text: str, lexicon: Lexicon = DERMOSCOPY) -> Findings:
    return next(find_concepts([text], lexicon))


def says(text: str, concept: str, lexicon: Lexicon = DERMOSCOPY) -> list[tuple[float | None, str, str]]:
    return [
        (None if math.isnan(f.value) else f.value, f.text, f.reason)
        for f in read(text, lexicon).evidence
        if f.concept == concept
    ]


def test_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    scores = score(SENTENCES, "held_out", DERMOSCOPY)
    with capsys.disabled():
        print(f"\nheld_out: {scores}")
    assert scores.texts >= 150
    assert scores.present_f1 >= 0.95
    assert scores.absent_f1 >= 0.95
    assert scores.accuracy >= 0.95


def test_written() -> None:
    assert score(SENTENCES, "written", DERMOSCOPY).mistakes == ()


def test_speed() -> None:
    """At least 1,000 texts, most of them one sentence, per second of processor time."""
    content = yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    texts = [entry["text"] for part in ("held_out", "written") for entry in content[part]]
    read("")  # load spaCy
    seconds = []
    for _ in range(3):
        start = time.process_time()
        assert sum(1 for _ in find_concepts(texts, DERMOSCOPY)) == len(texts)
        seconds.append(time.process_time() - start)
    assert len(texts) / min(seconds) >= 1000


def test_no_sentence_is_in_both_parts() -> None:
    content = yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    texts = [entry["text"].lower() for part in ("held_out", "written") for entry in content[part]]
    assert len(texts) == len(set(texts))


def test_evidence_names_the_words_that_decide() -> None:
    assert says("The lesion has no blue-white veil.", "blue-whitish veil") == [(0.0, "no blue-white veil", "negated")]
    assert says("Streaks at the edge are irregular.", "irregular streaks") == [
        (1.0, "Streaks at the edge are irregular", "stated")
    ]
    assert says("Possible veil.", "blue-whitish veil") == [(None, "Possible veil", "uncertain")]
    assert says("If a veil appears, excise.", "blue-whitish veil") == [(None, "If a veil", "past or condition")]
    assert says("Streaks are present.", "regular streaks") == [(None, "Streaks", "kind not given")]
    assert says("Irregular streaks.", "regular streaks") == [(0.0, "Irregular streaks", "another kind is stated")]


def test_a_contradiction_keeps_both_spans() -> None:
    text = "Blue-white veil in the centre. No veil."
    assert math.isnan(read(text).values["blue-whitish veil"])
    assert says(text, "blue-whitish veil") == [
        (1.0, "Blue-white veil", "stated, contradicted"),
        (0.0, "No veil", "negated, contradicted"),
    ]


def test_doubt_about_a_kind_is_stronger_than_the_other_kind() -> None:
    values = read("Regular globules, possible irregular globules.").values
    assert values["regular dots and globules"] == 1
    assert math.isnan(values["irregular dots and globules"])


def test_what_is_stated_elsewhere_wins_over_doubt_and_past() -> None:
    assert read("Possible veil. On closer look the veil is present.").values["blue-whitish veil"] == 1
    assert read("Previously a veil was seen. Today no veil.").values["blue-whitish veil"] == 0


def test_kinds_are_not_exclusive_where_the_lexicon_does_not_say_so() -> None:
    free = Lexicon(DERMOSCOPY.concepts, DERMOSCOPY.nouns, (), DERMOSCOPY.ignore)
    assert math.isnan(read("Irregular streaks.", free).values["regular streaks"])


@pytest.mark.parametrize(
    "text",
    [
        "BLUE-WHITE VEIL",
        "blue white veils",
        "Blue\N{NON-BREAKING HYPHEN}white veil",
        "bluish-grey veil",
        "bluish gray veil",
    ],
)
def test_spelling_does_not_matter(text: str) -> None:
    assert read(text).values["blue-whitish veil"] == 1


def test_a_typographic_apostrophe_is_an_apostrophe() -> None:
    text = "The network isn\N{RIGHT SINGLE QUOTATION MARK}t atypical."
    assert read(text).values["atypical pigment network"] == 0
    assert says(text, "atypical pigment network")[0][1] == text[4:-1]


RADIOLOGY = """
concepts:
  pleural effusion: [pleural effusion, effusion, pleural fluid]
  cardiomegaly: [cardiomegaly, enlarged heart, enlarged cardiac silhouette]
  sharp margin: {noun: margin, words: [sharp, smooth, circumscribed, well-defined]}
  spiculated margin: {noun: margin, words: [spiculated, irregular, ill-defined]}
nouns:
  margin: [margin, margins, border]
exclusive:
  - [sharp margin, spiculated margin]
"""


def test_another_field() -> None:
    lexicon = Lexicon.parse(RADIOLOGY, "radiology.yaml")
    values = read("Nodule with spiculated margins. No pleural effusion. Heart: no cardiomegaly.", lexicon).values
    assert values == {"pleural effusion": 0, "cardiomegaly": 0, "sharp margin": 0, "spiculated margin": 1}
    values = read("The margin is well defined. Possible effusion; enlarged cardiac silhouette.", lexicon).values
    assert math.isnan(values.pop("pleural effusion"))
    assert values == {"cardiomegaly": 1, "sharp margin": 1, "spiculated margin": 0}


def test_texts_are_read_one_at_a_time() -> None:
    taken = []

    def texts() -> Iterator[str]:
        for text in ("No veil.", "Veil."):
            taken.append(text)
            yield text

    found = find_concepts(texts(), DERMOSCOPY)
    assert taken == []
    assert next(found).values["blue-whitish veil"] == 0
    assert taken == ["No veil."]


WORDS = """
no not without neither nor possible may if previously but and or , . ; : ? ( ) / - + is are absent present
irregular regular atypical typical network streaks dots globules veil blue-white pseudopods the a with in
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join))
def test_any_word_salad_gives_values_and_spans_within_the_text(text: str) -> None:
    check_spans(text)


@given(st.text(max_size=60))
def test_any_text_gives_values_and_spans_within_the_text(text: str) -> None:
    check_spans(text)


def check_spans(text: str) -> None:
    findings = read(text)
    assert tuple(findings.values) == DERMOSCOPY.names
    for name, value in findings.values.items():
        assert value in (0, 1) or math.isnan(value)
        assert math.isnan(value) or any(f.concept == name and f.value == value for f in findings.evidence)
    for finding in findings.evidence:
        assert text[finding.start : finding.end] == finding.text != ""
