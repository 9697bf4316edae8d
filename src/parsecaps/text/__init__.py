"""Concept labels from free text: a lexicon, rules for negation and doubt, and tables with the evidence."""

from parsecaps.text.finding import Finding, Findings, TableSummary, annotate_table, find_concepts, propose_lexicon
from parsecaps.text.lexicon import Lexicon

__all__ = ["Finding", "Findings", "Lexicon", "TableSummary", "annotate_table", "find_concepts", "propose_lexicon"]
