"""One server: an interface for programs, with one way to predict and to explain behind it."""
