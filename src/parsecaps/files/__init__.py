"""Files: those of strangers, read within bounds; ours, written whole and closed to others."""
