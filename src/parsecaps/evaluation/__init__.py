"""How good and how fast: what a model costs in time and memory."""
