"""Reasons for what a model says: maps and trees along its own routes, and gradient maps to compare them with."""
