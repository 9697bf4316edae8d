"""What the machine gives: threads, processes, signals and optional packages."""
