"""The one way from files or cases to probabilities, with the stored temperature and conformal sets."""
