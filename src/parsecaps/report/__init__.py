"""From results to self-contained pages."""
