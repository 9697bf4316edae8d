"""Why negation has rules of its own: the same mentions and kinds, with negation decided by negspaCy, score lower."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from parsecaps.text.clauses import clauses, stretches
from parsecaps.text.finding import Findings, weigh
from parsecaps.text.lexicon import Lexicon
from parsecaps.text.negation import statements
from parsecaps.text.tokens import PieceReader, Role, blank_english
from studies import text_scores as scoring

SENTENCES = Path(__file__).with_name("sentences.yaml")
MORE_TERMS = {
    "preceding_negations": ["lacks", "lacking", "neither", "nor", "lack of", "none of"],
    "following_negations": ["absent", "missing", "is not", "are not", "lacking", "not seen", "not present", "none"],
    "termination": [";", "with"],
}


def with_negspacy(texts: Iterable[str], lexicon: Lexicon) -> Iterator[Findings]:
    negation = pytest.importorskip("negspacy.negation")
    terms = pytest.importorskip("negspacy.termsets").termset("en_clinical")
    terms.add_patterns({"pseudo_negations": [], **MORE_TERMS})
    nlp = blank_english()
    nlp.add_pipe("sentencizer")
    negex = negation.Negex(nlp, "negex", neg_termset=terms.get_patterns(), span_keys=["found"])
    reader = PieceReader(lexicon)
    for text in texts:
        pieces = reader.read(text)
        mentions = [piece for piece in pieces if piece.role & Role.MENTION]
        doc = nlp(text)
        doc.spans["found"] = [doc.char_span(p.start, p.end, alignment_mode="expand") for p in mentions]
        negex(doc)
        negated = {p: span._.negex for p, span in zip(mentions, doc.spans["found"], strict=True)}
        said = []
        for stretch in stretches(pieces, text):
            for statement in (s for clause in clauses(stretch) for s in statements(clause)):
                if statement.value is not None:
                    of = [p for p in mentions if statement.start <= p.start and p.end <= statement.end]
                    denied = negated[next(p for p in of if p.meaning == statement.meaning)]
                    statement = statement._replace(value=0.0 if denied else 1.0)
                said.append(statement)
        yield weigh(said, text, lexicon)


def test_own_rules_beat_negspacy(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon.shipped("dermoscopy")
    ours = scoring.score(SENTENCES, "held_out", lexicon)
    monkeypatch.setattr(scoring, "find_concepts", with_negspacy)
    theirs = scoring.score(SENTENCES, "held_out", lexicon)
    print(f"\nnegspaCy: {theirs}")
    assert 0.8 < theirs.absent_f1 < ours.absent_f1 - 0.02
    assert 0.8 < theirs.present_f1 < ours.present_f1 - 0.02
