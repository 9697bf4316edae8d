"""Explanations: maps along the routes, the parse tree, known cases, interventions, and how far they can be trusted."""
