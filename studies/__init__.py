"""What was tried and found: each module repeats one study, using the package as a user does (README.md)."""
