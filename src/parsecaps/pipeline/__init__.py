"""From end to end, the same for the command line and for Python: train and score, cross-validate, evaluate, load."""
