"""Reasons for a decision that a reader can check, and how far they can be trusted."""
