"""Concept labels from free text: a lexicon, rules for negation and doubt, and tables with the evidence."""
