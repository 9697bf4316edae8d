"""Concepts that nobody labelled: found, judged and named."""
